"""Keras 3 models as functional models, which training processes take."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import errors
from dpfl.learning import client_work

# Odd constants of a multiplicative hash, from the golden ratio and the square root of 3.
_MIX = (-1640531535, 1988292981)


def from_keras(
    model: Any,
    *,
    loss: Any,
    metrics: Sequence[Any] | None = None,
    input_spec: Any,
) -> tff.learning.models.FunctionalModel:
    """A Keras 3 model for `build_dp_fedavg`, and for the algorithms of `tff.learning`.

    Trainable weights stay trainable: they are sent, clipped and noised. Frozen weights are part of
    the model that clients receive, and of nothing else, so noise and memory follow the trainable
    ones. `model` itself is not changed: `variable.assign(weight)` over `model.trainable_variables`
    takes trained weights over.

    Dropout draws from the seeds of its layers, the client's batch and the weights before it. So
    masks are other ones in every round, step and client, and the same when a round is repeated.

    Args:
      model: a built `keras.Model`; `tf.keras` and `tf_keras` are Keras 2 beside TFF, for which
        there is `tff.learning.models.functional_model_from_keras`.
      loss: a `keras.losses.Loss` or its name, or a function (labels, outputs) -> losses, of which
        the mean is taken.
      metrics: instances of `keras.metrics.Metric` with different names. Their variables are summed
        over clients, as TFF does, so they must start at 0. 'loss' and 'num_examples' are always
        there.
      input_spec: specs of the batches: a pair (x, y) or a mapping with keys 'x' and 'y', of
        `tf.TensorSpec` with `None` for the number of rows.

    Returns:
      A functional model whose initial weights are those of `model`.

    Raises:
      ArgumentError: if `model` is not a built Keras 3 model on TensorFlow; if `input_spec` has more
        than x and y, such as sample weights, which nothing would use; if model, loss or metrics do
        not take its batches; if training changes a weight other than by its gradient
        (BatchNormalization, stateful recurrent layers): such a weight would leave the client
        without clip and noise; if a weight has a constraint; if layers add losses of their own; if
        outputs have a mask; if the model holds a tensor that was made while it was built; if a
        metric starts above 0, or has no variables before its first labels.

    Example:
      >>> network = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1)])
      >>> spec = tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])
      >>> model = from_keras(network, loss='mse', input_spec=spec)
      >>> [weight.shape for weight in model.initial_weights[0]]  # What is sent, clipped and noised.
      [(2, 1), (1,)]
    """
    import keras  # It takes a second.

    if not isinstance(model, keras.Model) or not model.built:
        raise errors.ArgumentError(
            'model', type(model).__name__, 'must be a keras.Model of Keras 3 that has been built'
        )
    if keras.config.backend() != 'tensorflow':
        raise errors.ArgumentError(
            'model', keras.config.backend(), 'must have the backend tensorflow (KERAS_BACKEND)'
        )
    for name in ('train_step', 'compute_loss'):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise errors.ArgumentError(
                'model',
                f'{type(model).__name__}.{name}',
                'must be that of keras.Model: clients train by loss alone and do not call it',
            )
    if isinstance(input_spec, Mapping):
        is_pair = {*input_spec} == {'x', 'y'}
    else:
        is_pair = isinstance(input_spec, tuple | list) and len(input_spec) == 2
    if not is_pair:
        raise errors.ArgumentError(
            'input_spec', errors.NOT_SHOWN, 'must be a pair (x, y), or have the keys x and y alone'
        )
    if not isinstance(metrics, list | tuple | None) or not all(
        isinstance(metric, keras.metrics.Metric) for metric in metrics or ()
    ):
        raise errors.ArgumentError(
            'metrics', metrics, 'must be a list of instances of Keras metrics'
        )
    try:
        compute = keras.losses.get(loss)
    except ValueError:
        compute = None
    if compute is None:
        raise errors.ArgumentError(
            'loss', loss, 'must be a loss of Keras or its name, or one function of all outputs'
        )
    network = _Network(model)

    @tf.function
    def predict_on_batch(weights: Any, x: Any, training: bool = True) -> Any:
        return network(weights[0], weights[1], x, training)[0]

    def mean_loss(output: Any, label: Any, sample_weight: Any = None) -> tf.Tensor:
        del sample_weight
        return tf.reduce_mean(compute(label, output))

    x, y = client_work.pair(input_spec)
    metrics_functions = _metrics_functions(metrics or ())
    outputs = network.check(x)
    _traced('loss', mean_loss, outputs, y)
    _traced(
        'metrics',
        lambda labels, predictions: metrics_functions[1](
            metrics_functions[0](),
            labels,
            tff.learning.models.BatchOutput(tf.zeros([]), predictions, None),
        ),
        y,
        outputs,
    )
    return tff.learning.models.FunctionalModel(
        initial_weights=network.initial_weights,
        predict_on_batch_fn=predict_on_batch,
        loss_fn=mean_loss,
        metrics_fns=metrics_functions,
        input_spec=input_spec,
    )


class _Network:
    """A Keras model as a pure function of weights and inputs."""

    def __init__(self, model: Any):
        self._model = model
        weights = {id(weight) for weight in model.non_trainable_weights}
        # Of all variables that are not trained, those that are no weights are states of seeds.
        self._is_weight = [id(variable) in weights for variable in model.non_trainable_variables]
        frozen = [variable for variable in model.non_trainable_variables if id(variable) in weights]
        self.initial_weights = (_values(model.trainable_variables), _values(frozen))
        self._seeds = _values(
            [variable for variable in model.non_trainable_variables if id(variable) not in weights]
        )

    def __call__(
        self, trainable: Any, frozen: Any, x: Any, training: bool
    ) -> tuple[Any, list[Any], list[tf.Tensor]]:
        """Outputs, variables that training changed, losses of layers."""
        seeds: Sequence[Any] = self._seeds
        if training and seeds:
            mixed = _hash([*tf.nest.flatten(x), *trainable])
            seeds = [
                tf.cast(tf.bitwise.bitwise_xor(tf.cast(seed, tf.int32), mixed), seed.dtype)
                for seed in seeds
            ]
        weights, states = iter(frozen), iter(map(tf.convert_to_tensor, seeds))
        before = [next(weights if is_weight else states) for is_weight in self._is_weight]
        outputs, after, losses = self._model.stateless_call(
            list(trainable), before, x, training=training, return_losses=True
        )
        changed = [
            variable
            for variable, is_weight, old, new in zip(
                self._model.non_trainable_variables, self._is_weight, before, after, strict=True
            )
            if is_weight and new is not old
        ]
        return outputs, changed, losses

    def check(self, x: Any) -> Any:
        """Traces a training step, and returns specs of the outputs.

        Refuses constraints, losses, masks and states that a process cannot keep.
        """
        for variable in self._model.trainable_variables:
            if variable.constraint is not None:
                raise errors.ArgumentError(
                    'model',
                    variable.path,
                    'must have no constraint: neither the noise nor the optimizers of TFF keep it',
                )
        traced: dict[str, Any] = {}

        def step(weights: Any, x: Any) -> Any:
            trainable, frozen = weights
            outputs, traced['changed'], traced['losses'] = self(trainable, frozen, x, True)
            leaves = tf.nest.flatten(outputs)
            traced['is_masked'] = any(
                getattr(leaf, '_keras_mask', None) is not None for leaf in leaves
            )
            return outputs

        specs = tf.nest.map_structure(
            lambda w: tf.TensorSpec(w.shape, w.dtype), self.initial_weights
        )
        graph = _traced('input_spec', step, specs, x).graph
        captured = [tensor for tensor, _ in graph.captures]
        # A variable that is no weight: the state of a recurrent layer.
        states = [tensor for tensor in captured if tensor.dtype == tf.resource]
        if traced['changed'] or states:
            raise errors.ArgumentError(
                'model',
                traced['changed'][0].path if traced['changed'] else self._model.name,
                'must change its weights by gradients only: the statistics or the state of a '
                'client in this one would be neither clipped nor noised; GroupNormalization and '
                'LayerNormalization have none',
            )
        if traced['losses']:
            raise errors.ArgumentError(
                'model', self._model.name, 'must have no losses of its own: put them into loss'
            )
        if traced['is_masked']:  # It is lost with the tensor of Keras that has it.
            raise errors.ArgumentError(
                'model',
                self._model.name,
                'must have no mask on its outputs, which the loss of TFF does not see: build it '
                'without mask_zero, and leave padding out by the loss, as with ignore_class=0',
            )
        if captured:
            raise errors.ArgumentError(
                'model',
                str(captured[0].shape),
                'must not hold a tensor of this shape that was made while it was built: make it '
                "in a layer's call, or a weight",
            )
        return tf.nest.map_structure(
            lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), graph.structured_outputs
        )


def _traced(name: str, function: Callable[..., Any], *specs: Any) -> Any:
    """The graph of a function that depends on an argument `name`, for tensors of these specs."""
    try:
        return tf.function(function).get_concrete_function(*specs)
    except (TypeError, ValueError, LookupError, AttributeError, tf.errors.OpError) as error:
        reason = errors.shown(str(error).rpartition('Error: ')[2])
        raise errors.ArgumentError(
            name, errors.NOT_SHOWN, f'must fit the model and its batches ({reason})'
        ) from None


def _values(variables: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(variable.numpy() for variable in variables)


def _hash(tensors: Sequence[Any]) -> tf.Tensor:
    """Two integers that differ between any two lists of tensors seen in practice; int32 [2]."""
    total = tf.zeros([2], tf.int32)
    for tensor in tensors:
        if tensor.dtype.is_floating:
            tensor = tf.bitcast(tf.cast(tensor, tf.float32), tf.int32)
        flat = tf.reshape(tf.cast(tensor, tf.int32), [-1])
        places = 2 * tf.range(tf.size(flat)) + 1
        total = tf.stack(
            [
                total[0] * _MIX[0] + tf.reduce_sum(flat * places),
                total[1] * _MIX[1] + tf.reduce_sum(flat * (places * _MIX[0] + 2)),
            ]
        )
    return total


def _metrics_functions(metrics: Sequence[Any]) -> tuple[Callable, Callable, Callable]:
    """TFF's three functions of metrics. The state holds sums, so that states of clients add up."""
    for metric in metrics:
        # F1Score and R2Score, for example, make them from the first labels.
        if not metric.variables or not getattr(metric, '_built', True):
            raise errors.ArgumentError(
                'metrics',
                metric.name,
                'must have its variables: call its update_state once, and then its reset_state',
            )
        if any(value.any() for value in _values(metric.variables)):
            raise errors.ArgumentError(
                'metrics', metric.name, 'must start at 0: its variables are summed over clients'
            )
    names = [metric.name for metric in metrics]
    if len({*names, 'loss', 'num_examples'}) != len(names) + 2:
        raise errors.ArgumentError(
            'metrics', names, "must have different names, other than 'loss' and 'num_examples'"
        )

    @tf.function
    def initialize() -> Any:
        own = {
            metric.name: tuple(tf.zeros(v.shape, v.dtype) for v in metric.variables)
            for metric in metrics
        }
        return collections.OrderedDict(loss=(tf.zeros([]), tf.zeros([])), **own)

    @tf.function
    def update(state: Any, labels: Any, batch_output: Any, sample_weight: Any = None) -> Any:
        del sample_weight
        outputs = batch_output.predictions
        rows = tf.cast(tf.shape(tf.nest.flatten(outputs)[0])[0], tf.float32)
        total, count = state['loss']
        # The mean loss of no rows is not a number.
        loss = tf.math.multiply_no_nan(tf.cast(batch_output.loss, tf.float32), rows)
        own = {
            metric.name: tuple(metric.stateless_update_state(state[metric.name], labels, outputs))
            for metric in metrics
        }
        return collections.OrderedDict(loss=(total + loss, count + rows), **own)

    @tf.function
    def finalize(state: Any) -> Any:
        total, count = state['loss']
        own = {metric.name: metric.stateless_result(state[metric.name]) for metric in metrics}
        mean = tf.math.divide_no_nan(total, count)
        return collections.OrderedDict(loss=mean, num_examples=count, **own)

    return initialize, update, finalize
