"""Correlated noise in TensorFlow: interprets the kernels of `dpfl.mechanisms.kernels`.

All that changes from round to round is in `NoiseState`, as tensors: a run that continues from a
saved state gives the same bits. Past noise is kept in one of three ways:

- in buffers in the state, in the type of the coordinates. The states of TFF processes leave out
  those that are zero in a round whatever the noise is: TFF's own runtime sends the state to another
  process and back;
- not at all, for a product with banded `C^-1`: the noise of earlier rounds is drawn again;
- outside of TFF, in a `noise_ring.NoiseRing`, which supplies each state with a finished row.

The fresh noise of a round is float64, and so is the row. In float32, the steps between numbers
could show in a release that is smaller than its noise.

The key of a round depends on the sum that its noise protects, and the state records it: so a round
that is repeated with another sum has independent noise (docs/reference/threat_model.md).
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from dpfl import errors, mechanisms
from dpfl.aggregators import flat
from dpfl.aggregators.noise import draws
from dpfl.mechanisms import kernels
from dpfl.mechanisms.hardened import stream

# Most past noise in a round, in standard deviations of z: float32 rounds it to 2^-12 of that.
# Published mechanisms of 2000 rounds have at most 12. It is measured on a few random noises.
_LARGEST_PAST, _PROBES = 4096.0, 8


class SuppliedRow(NamedTuple):
    """Row of `C^-1 z` that a `NoiseRing` supplies for one round; empty after that round.

    Attributes:
      round: the round that it is for, int64 scalar; -1 for none.
      sizes: numbers of float32 and of float64 coordinates, int64 [2].
      float32: noise of the float32 coordinates, float64 [any].
      float64: noise of the float64 coordinates, float64 [any].
    """

    round: Any
    sizes: Any
    float32: Any
    float64: Any


class NoiseState(NamedTuple):
    """State of the noise between two rounds.

    Attributes:
      key: root key, int64 [2]; [4] with hardened noise.
      round: rounds done, int64 scalar.
      drawn: keys of the noise of the rounds done, and zeros for rounds to come, [rounds, 2 or 4].
      past: what is kept of earlier rounds. A dictionary from the name of each type of `flat.DTYPES`
        in a record to a tensor [kernel buffers, size], or [`_nonzero_buffers`, size]; a
        `SuppliedRow`; or () for nothing.
    """

    key: Any
    round: Any
    drawn: Any
    past: Any


def require_moderate_size(kernel: mechanisms.Kernel, record_specs: Any) -> None:
    """Checks that the noise buffers fit into the state of a TFF process.

    Raises:
      ValueError: if they are larger than TFF's messages allow.
    """
    if isinstance(kernel, mechanisms.BandedProduct):
        return
    size = kernel.buffers * sum(
        count * dtype.size for dtype, count in flat.sizes(record_specs).items()
    )
    if size > mechanisms.MOST_STATE_BYTES:
        raise errors.ArgumentError(
            'supplied_noise',
            'False',
            f'must be True, with a ring, for {size / 1e9:.3g} GB of past noise: a state can '
            f'hold at most {mechanisms.MOST_STATE_BYTES / 1e9:g} GB',
        )


def require_stable(kernel: mechanisms.Kernel, rounds: int, mechanism: str) -> None:
    """Checks that past noise stays so small that its rounding to float32 does not matter.

    An error of a buffer shifts the noise z of a round, as an update does. If `C` has the
    coefficients 1, 2, past noise doubles in each round, and after 24 rounds its rounding is as
    large as z. It is measured on random noise, from which no exponential growth hides.

    Raises:
      ArgumentError: if past noise grows too much within the rounds.
    """
    if not kernel.buffers:
        return
    noise = np.random.default_rng(0).standard_normal([rounds, _PROBES])
    with np.errstate(over='ignore', invalid='ignore'):
        rows = kernels.stream(kernel, noise) / stream.stddevs(kernel, rounds)[:, None]
        largest = np.abs(rows - noise).max()
    if not largest <= _LARGEST_PAST:
        raise errors.ArgumentError(
            'mechanism',
            mechanism,
            f'has past noise of up to {largest:.3g} times that of a round, must have at most '
            f'{_LARGEST_PAST:g}: float32 would round it by too much',
        )


def require_no_buffers(kernel: mechanisms.Kernel) -> None:
    """Checks that a state without `record_specs` has the same type before and after a round.

    Raises:
      ValueError: if the first round would add the buffers.
    """
    if kernel.buffers and not isinstance(kernel, mechanisms.BandedProduct):
        raise errors.ArgumentError(
            'record_specs',
            'None',
            'must be given in TFF and tf.function, for noise with a memory: the state holds '
            'buffers of the size of a record',
        )


def of_any_length(tensor: tf.Tensor) -> tf.Tensor:
    """A tensor without a static length, so that states in which it is longer have the same type."""
    return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=[None, *tensor.shape[1:]])


def no_keys(rounds: int, words: int = 2) -> tf.Tensor:
    """`NoiseState.drawn` before the first round, for plans of any number of rounds."""
    return of_any_length(tf.zeros([rounds, words], tf.int64))


def after(assertions: Iterable[tf.Operation | None]) -> Any:
    """A context in which tensors wait for assertions; one that has been executed is None."""
    pending = [assertion for assertion in assertions if assertion is not None]
    return tf.control_dependencies(pending)


def require_planned(round_index: Any, rounds: int) -> tf.Operation | None:
    """Asserts that not all `rounds` rounds of the plan are done."""
    return tf.debugging.assert_less(
        round_index,
        tf.constant(rounds, tf.int64),
        message=f'The privacy plan has {rounds} rounds, and all are done.',
    )


def require_supplied(row: Any, round_index: Any) -> tf.Operation | None:
    """Asserts that the row of a ring is that of a round."""
    return tf.debugging.assert_equal(
        row.round,
        round_index,
        message='The noise of this round is missing, or is that of another round: pass each state '
        'through the supply of a ring (build_noise_ring) before its round.',
    )


def initial_state(
    kernel: mechanisms.Kernel,
    rounds: int,
    record_specs: Any,
    key: Any,
    *,
    is_supplied: bool = False,
) -> NoiseState:
    """State before the first round.

    Args:
      kernel: how to stream the noise.
      rounds: number of rounds of the plan.
      record_specs: structure of `tf.TensorSpec` of one update. With None the first round makes the
        buffers; not in TFF, where the type of a state is fixed.
      key: root key, int64 [2].
      is_supplied: whether a `NoiseRing` supplies the rows; needs `record_specs`.
    """
    past: Any
    if is_supplied:
        sizes = flat.sizes(record_specs)
        past = _no_row(tf.constant([sizes.get(dtype, 0) for dtype in flat.DTYPES], tf.int64))
    elif record_specs is None or isinstance(kernel, mechanisms.BandedProduct):
        past = ()
    else:
        past = _zero_buffers(kernel, record_specs)
    return NoiseState(
        tf.convert_to_tensor(key, tf.int64), tf.zeros([], tf.int64), no_keys(rounds), past
    )


def _no_row(sizes) -> SuppliedRow:
    empty = [of_any_length(tf.zeros([0], tf.float64)) for _ in flat.DTYPES]
    return SuppliedRow(tf.constant(-1, tf.int64), sizes, *empty)


def _zero_buffers(kernel, record_specs) -> dict[str, tf.Tensor]:
    return {
        dtype.name: tf.zeros([kernel.buffers, size], dtype)
        for dtype, size in flat.sizes(record_specs).items()
    }


def without_buffers(state: NoiseState) -> NoiseState:
    """A state before the first round, when all buffers are zero, without them.

    The number of buffers is not static in it, nor in the states of the rounds that follow.
    """
    if not isinstance(state.past, dict):
        return state
    past = {
        name: of_any_length(buffers[:0]) if buffers.shape[0] else buffers
        for name, buffers in state.past.items()
    }
    return state._replace(past=past)


def _drawn(round_key, dtype, size):
    return draws.normal(draws.derive(round_key, flat.DTYPES.index(dtype)), size)


@tf.autograph.experimental.do_not_convert
def next_noise(
    kernel: mechanisms.Kernel, rounds: int, state: NoiseState, record_specs: Any, context: Any
) -> tuple[Any, NoiseState]:
    """Row `state.round` of `C^-1 z` for unit noise z, in float64, and the state of the next round.

    Args:
      kernel: how to stream the noise.
      rounds: number of rounds of the plan.
      state: of this round.
      record_specs: structure of `tf.TensorSpec` of one update.
      context: structure of tensors that determines the sum that gets the noise, and the scale of
        the noise; not used for supplied noise, whose ring has a context of its own.

    Raises (when executed):
      tf.errors.InvalidArgumentError: if all `rounds` rounds are done, or the supplied row is not
        that of this round.
    """
    with after([require_planned(state.round, rounds)]):
        round_index = tf.identity(state.round)
    if isinstance(state.past, SuppliedRow):
        drawn = state.drawn
        with after([require_supplied(state.past, round_index)]):
            vectors = {
                dtype: tf.reshape(getattr(state.past, dtype.name), [size])
                for dtype, size in flat.sizes(record_specs).items()
            }
        past: Any = _no_row(state.past.sizes)
    else:
        row = tf.gather(kernel.table, kernel.row(round_index))
        key = key_of_round(state, round_index, row, context)
        drawn = tf.tensor_scatter_nd_update(state.drawn, [[round_index]], [key])
        if isinstance(kernel, mechanisms.BandedProduct):
            vectors = {
                dtype: _product(row, dtype, drawn, round_index, size)
                for dtype, size in flat.sizes(record_specs).items()
            }
            past = ()
        else:
            buffers = state.past or _zero_buffers(kernel, record_specs)
            vectors, past = _advanced(kernel, row, drawn, round_index, buffers)
            if not (state.past or kernel.buffers):
                past = ()  # A state without specs keeps its type.
    noise = flat.unflatten(vectors, record_specs)
    return noise, NoiseState(state.key, round_index + 1, drawn, past)


def key_of_round(state: NoiseState, round_index: Any, row: Any, context: Any) -> tf.Tensor:
    """Key of the noise of a round, int64 [2].

    Noise of two branches of a run must not cancel in any combination of their releases. So besides
    the context the key depends on the key of the round before, and so on the whole past; and on the
    row of the kernel, so that two matrices that go on from one state have independent noise.

    Args:
      state: before the round.
      round_index: the round, integer scalar.
      row: the row of the kernel's table.
      context: as in `draws.of_round`.
    """
    before = tf.concat([state.key[None], state.drawn], 0)[round_index]
    return draws.of_round(state.key, round_index, (before, row, context))


def buffers_after(
    kernel: mechanisms.Kernel, drawn: Any, rounds: int, dtype: tf.DType, size: int
) -> tf.Tensor:
    """The buffers of the coordinates of one type after some rounds, computed anew from the keys.

    Args:
      kernel: how to stream the noise, for more than `rounds` rounds.
      drawn: keys of the rounds, int64 [at least `rounds`, 2].
      rounds: rounds done.
      dtype: one of `flat.DTYPES`.
      size: number of coordinates.

    Returns:
      [kernel.buffers, size], of type `dtype`.
    """
    drawn = tf.constant(drawn, tf.int64)

    @tf.function
    def step(round_index, past):
        row = tf.gather(kernel.table, kernel.row(round_index))
        return _advanced(kernel, row, drawn, round_index, past)[1]

    with tf.device('CPU'):
        past = _zero_buffers(kernel, [tf.TensorSpec([size], dtype)])
        for t in range(rounds):
            past = step(tf.constant(t, tf.int64), past)
    return past[dtype.name]


def _nonzero_buffers(kernel: Any, round_index: Any) -> tf.Tensor:
    """Numbers of the buffers that can be other than zero before a round, int64 [any, 1]."""
    round_index = tf.cast(round_index, tf.int64)
    if isinstance(kernel, mechanisms.BandedSolve):  # They shift by one in each round.
        return tf.range(tf.minimum(round_index, kernel.buffers))[:, None]
    nonzero = kernel.nonzero()
    return tf.where(tf.gather(nonzero, tf.minimum(round_index, len(nonzero) - 1)))


def _advanced(kernel, row, drawn, round_index, buffers):
    before, after = (_nonzero_buffers(kernel, t) for t in (round_index, round_index + 1))
    vectors, following = {}, {}
    for name, past in buffers.items():
        dtype, size = tf.as_dtype(name), past.shape[1]
        z = _drawn(drawn[round_index], dtype, size)
        if not size:  # TensorFlow refuses to gather from a tensor without entries.
            vectors[dtype], following[name] = z, past
            continue
        step = functools.partial(_STEPS[type(kernel)], row, z)
        if past.shape[0] == kernel.buffers:
            vectors[dtype], rows = _by_nonzero(step, past, before, after)
        else:
            vectors[dtype], rows = step(past, before[:, 0], after[:, 0])
        following[name] = rows
    return vectors, following


def _by_nonzero(step, past, before, after):
    """A step of all buffers, with the bits of a state that leaves out those that are zero."""

    def of_nonzero():
        y, rows = step(tf.gather_nd(past, before), before[:, 0], after[:, 0])
        return y, tf.tensor_scatter_nd_update(tf.zeros_like(past), after, rows)

    # In most rounds of most kernels no buffer is zero: nothing is copied then.
    has_zeros = tf.minimum(tf.shape(before)[0], tf.shape(after)[0]) < past.shape[0]
    y, rows = tf.cond(has_zeros, of_nonzero, lambda: step(past, before[:, 0], after[:, 0]))
    return y, tf.ensure_shape(rows, past.shape)


def _product(taps, dtype, drawn, round_index, size):
    def add(lag, total):
        z = _drawn(drawn[round_index - tf.cast(lag, tf.int64)], dtype, size)
        return lag + 1, total + taps[lag] * z

    lags = tf.minimum(taps.shape[0], tf.cast(round_index, tf.int32) + 1)
    start = (tf.zeros([], tf.int32), tf.zeros([size], tf.float64))
    return tf.while_loop(lambda lag, _: lag < lags, add, start, parallel_iterations=1)[1]


# A step takes a row of the kernel's table [...], the noise z of the round, float64 [size], the
# buffers that can be other than zero [any, size], and their numbers before and after the round. It
# returns y, float64 [size], and such buffers of the next round. The part of y that comes from the
# past is computed in the type of the buffers.


def _state_space_step(linear_map, z, past, before, after):
    if linear_map.shape[0] == 1:
        return linear_map[0, 0] * z, past
    dtype = past.dtype
    from_past = tf.tensor_scatter_nd_update(linear_map, [[0, 0]], [tf.zeros([], tf.float64)])
    rows, columns = (tf.concat([[0], numbers + 1], 0) for numbers in (after, before))
    from_past = tf.gather(tf.gather(from_past, rows), columns, axis=1)
    both = tf.matmul(tf.cast(from_past, dtype), tf.concat([tf.cast(z, dtype)[None], past], axis=0))
    return linear_map[0, 0] * z + tf.cast(both[0], tf.float64), both[1:]


def _banded_solve_step(bands, z, past, before, after):
    if bands.shape[0] == 1:
        return z / bands[0], past
    dtype = past.dtype
    taps = tf.gather(bands / bands[0], before + 1)
    from_past = tf.matmul(tf.cast(taps[None], dtype), past)[0]
    y = z / bands[0] - tf.cast(from_past, tf.float64)
    return y, tf.concat([tf.cast(y, dtype)[None], past], axis=0)[: tf.size(after)]


_STEPS = {
    mechanisms.StateSpace: _state_space_step,
    mechanisms.BandedSolve: _banded_solve_step,
}
