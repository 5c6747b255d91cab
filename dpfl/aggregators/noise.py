"""Correlated noise in TensorFlow: the interpreter of `dpfl.mechanisms.kernels`.

Everything that changes from round to round is in `NoiseState`, in tensors: a saved state continues
with the same bits.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from dpfl import mechanisms
from dpfl.aggregators import keys


class NoiseState(NamedTuple):
    """State of the noise between two rounds.

    Attributes:
      key: root key, int64 [2].
      round: rounds done, int64 scalar.
      buffers: of the structure of a record; each tensor is [kernel buffers, *shape].
    """

    key: Any
    round: Any
    buffers: Any


def initial_state(kernel: mechanisms.Kernel, record_specs, key) -> NoiseState:
    """State before the first round.

    Args:
      kernel: how to stream the noise.
      record_specs: structure of `tf.TensorSpec` of one update; None leaves the buffers out until
        the first round shows it (not in TFF, where the type of a state is fixed).
      key: root key, int64 [2].
    """
    buffers = () if record_specs is None else _zero_buffers(kernel, record_specs)
    return NoiseState(tf.convert_to_tensor(key, tf.int64), tf.zeros([], tf.int64), buffers)


def _zero_buffers(kernel, record_specs):
    return tf.nest.map_structure(
        lambda spec: tf.zeros([kernel.buffers, *spec.shape], spec.dtype), record_specs
    )


def independent_noise(key, round_index, record_specs):
    """Noise z of one round: standard normal tensors of the structure of `record_specs`."""
    round_key = keys.derive(key, round_index)
    leaves = [
        keys.normal(keys.derive(round_key, leaf), spec)
        for leaf, spec in enumerate(tf.nest.flatten(record_specs))
    ]
    return tf.nest.pack_sequence_as(record_specs, leaves)


def next_noise(
    kernel: mechanisms.Kernel, rounds: int, state: NoiseState, record_specs
) -> tuple[Any, NoiseState]:
    """Row `state.round` of `C^-1 z` for unit noise, and the state of the next round.

    Args:
      kernel: how to stream the noise.
      rounds: the number of rounds that the plan allows.
      state: of this round.
      record_specs: structure of `tf.TensorSpec` of one update.

    Raises (when executed):
      tf.errors.InvalidArgumentError: if all `rounds` rounds are done.
    """
    within_plan = tf.debugging.assert_less(
        state.round,
        tf.constant(rounds, tf.int64),
        message=f'The privacy plan has {rounds} rounds, and all are done.',
    )
    with tf.control_dependencies([within_plan] if within_plan is not None else []):
        round_index = tf.identity(state.round)
    row = tf.gather(kernel.table, kernel.row(round_index))

    def advance(z, buffers):
        return _STEPS[type(kernel)](tf.cast(row, z.dtype), z, buffers)

    noise = tf.nest.flatten(independent_noise(state.key, round_index, record_specs))
    buffers = tf.nest.flatten(state.buffers) or tf.nest.flatten(_zero_buffers(kernel, record_specs))
    pairs = [advance(z, below) for z, below in zip(noise, buffers, strict=True)]
    outputs, buffers = zip(*pairs, strict=True) if pairs else ((), ())
    return (
        tf.nest.pack_sequence_as(record_specs, outputs),
        NoiseState(
            state.key, round_index + 1, tf.nest.pack_sequence_as(record_specs, buffers)
        ),
    )


def _state_space_step(linear_map, z, buffers):
    both = tf.tensordot(linear_map, tf.concat([z[None], buffers], axis=0), axes=1)
    return both[0], both[1:]


def _banded_solve_step(bands, z, buffers):
    y = (z - tf.tensordot(bands[1:], buffers, axes=1)) / bands[0]
    return y, tf.concat([y[None], buffers], axis=0)[:-1]


def _banded_product_step(taps, z, buffers):
    y = taps[0] * z + tf.tensordot(taps[1:], buffers, axes=1)
    return y, tf.concat([z[None], buffers], axis=0)[:-1]


_STEPS = {
    mechanisms.StateSpace: _state_space_step,
    mechanisms.BandedSolve: _banded_solve_step,
    mechanisms.BandedProduct: _banded_product_step,
}
