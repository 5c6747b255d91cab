"""Optimizers of the server, with a learning rate for each round."""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from numpy.typing import ArrayLike

from dpfl import _validate, errors

SERVER_OPTIMIZERS = ('sgd', 'adam')


def build_server_optimizer(
    name: str,
    rates: ArrayLike,
    *,
    momentum: float = 0.0,
    nesterov: bool = False,
) -> tff.learning.optimizers.Optimizer:
    """An optimizer of TFF, for `build_dp_fedavg` or any other learning process.

    For the noised mean g of round t, with learning rate r_t and weights w:

    - 'sgd': `v = momentum v + g`, `w -= r_t v`; with `nesterov` `w -= r_t (g + momentum v)`.
    - 'adam': as TFF has it, where r_t is the learning rate.

    Args:
      name: one of `SERVER_OPTIMIZERS`.
      rates: learning rates, above 0: one for all rounds, or [rounds], of which the last is also
        that of later rounds. A schedule keeps its position in the optimizer's state.
      momentum: of 'sgd'; beta_1 of 'adam'; within [0, 1).
      nesterov: whether the momentum of 'sgd' is Nesterov's.

    Raises:
      ArgumentError: if a value is not allowed, or Nesterov's momentum is asked for without SGD's.

    Example:
      >>> optimizer = build_server_optimizer('sgd', [1.0, 0.5], momentum=0.9)
      >>> weights = tf.zeros(2)
      >>> state = optimizer.initialize(tf.TensorSpec([2]))
      >>> _, weights = optimizer.next(state, weights, tf.ones(2))
      >>> weights.numpy()
      array([-1., -1.], dtype=float32)
    """
    _validate.choice('server_optimizer', name, SERVER_OPTIMIZERS)
    _validate.number('momentum', momentum, minimum=0, below=1)
    table = _validate.vector('rates', np.atleast_1d(np.asarray(rates, dtype=np.float64)))
    if not (table > 0).all():
        raise errors.ArgumentError('rates', errors.NOT_SHOWN, 'must be above 0')
    if nesterov and name != 'sgd':
        raise errors.ArgumentError('nesterov', nesterov, f'is not an option of {name}')
    if nesterov and not momentum:
        raise errors.ArgumentError('nesterov', nesterov, 'needs a momentum above 0')
    optimizer: tff.learning.optimizers.Optimizer
    if momentum and name == 'sgd':
        optimizer = _Momentum(float(table[0]), momentum, nesterov)
    elif name == 'sgd':
        optimizer = tff.learning.optimizers.build_sgdm(float(table[0]))
    else:
        optimizer = tff.learning.optimizers.build_adam(float(table[0]), beta_1=momentum)
    if (table == table[0]).all():
        return optimizer
    in_graph = table.astype(np.float32)

    def rate(round_number: tf.Tensor) -> tf.Tensor:
        return tf.gather(in_graph, tf.minimum(round_number, in_graph.size - 1))

    return tff.learning.optimizers.schedule_learning_rate(optimizer, rate)


class _Momentum(tff.learning.optimizers.Optimizer):
    """SGD with momentum, for weights of any floating-point type; that of TFF needs float32.

    Nesterov's momentum, which TFF does not have, is that of [Sutskever13], section 2. The state has
    the keys of `build_sgdm`.
    """

    def __init__(self, rate: float, momentum: float, nesterov: bool):
        self._rate, self._momentum, self._nesterov = rate, momentum, nesterov

    def initialize(self, specs: Any) -> Any:
        return collections.OrderedDict(
            learning_rate=self._rate,
            momentum=self._momentum,
            accumulator=tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs),
        )

    def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
        def cast(value: Any, like: tf.Tensor) -> tf.Tensor:
            return tf.cast(value, like.dtype)

        velocity = tf.nest.map_structure(
            lambda v, g: cast(state['momentum'], v) * v + g, state['accumulator'], gradients
        )
        steps = velocity
        if self._nesterov:
            steps = tf.nest.map_structure(
                lambda v, g: g + cast(state['momentum'], v) * v, velocity, gradients
            )
        moved = tf.nest.map_structure(
            lambda w, step: w - cast(state['learning_rate'], w) * step, weights, steps
        )
        new_state = collections.OrderedDict(state)
        new_state['accumulator'] = velocity
        return new_state, moved

    def get_hparams(self, state: Any) -> Any:
        names = ('learning_rate', 'momentum')
        return collections.OrderedDict((name, state[name]) for name in names)

    def set_hparams(self, state: Any, hparams: Any) -> Any:
        return collections.OrderedDict(state, **hparams)
