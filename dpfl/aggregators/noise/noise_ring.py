"""Correlated noise computed outside of TFF, which gets one finished row per round.

TFF copies the whole state of a process in every round. Its own runtime sends the state to another
process and back, at some 10 ms per megabyte, in messages of at most 2 GB. The past noise of a
banded mechanism can take hundreds of copies of the model. A ring keeps it where the training loop
runs:

```python
process = aggregators.build_aggregator(plan, supplied_noise=True).create(value_type)
with aggregators.NoiseRing(plan) as ring:
    state = process.initialize()
    for cohort in cohorts:
        output = process.next(ring.supply(state, cohort), cohort)
        state = output.state
```

A row depends only on the keys in the state and on what the caller says of the round. So any other
ring supplies a saved state with the same bits, after it has recomputed the rounds before.
"""

import bisect
import functools
import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from dpfl import _progress
from dpfl.aggregators import flat
from dpfl.aggregators.noise import correlated, normal, supplied_rows
from dpfl.aggregators.noise import keys as noise_keys
from dpfl.mechanisms import kernels

# Coordinates per block. The past of a block with 342 bands takes 2.8 MB, and stays in cache while
# rounds are recomputed.
_BLOCK = normal.BLOCK
# Blocks and rounds whose noise is drawn at once when rounds are recomputed.
_DRAWN = (16, 64)


class NoiseRing(supplied_rows.SuppliedRows):
    """Keeps past noise outside of TFF, and computes the rows in threads.

    A context manager; leaving it ends the threads and frees the memory. Whoever reads that memory,
    or the file, can subtract the noise from what is released, as with the key in the state.

    Args:
      plan: of the aggregator or query, which was built with `supplied_noise`.
      directory: where to keep past noise in a file; None for memory. The file has no name, and
        disappears when the process ends, in whatever way.
      show_progress: shows a bar on standard error when many rounds are recomputed.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=1.0, clients_per_round=2)
      >>> factory = build_aggregator(plan, supplied_noise=True)
      >>> process = factory.create(tff.TensorType(np.float32, [2]))
      >>> state, cohort = process.initialize(), [np.zeros(2, np.float32)] * 2
      >>> with NoiseRing(plan) as ring:
      ...     for _ in range(3):
      ...         state = process.next(ring.supply(state, cohort), cohort).state
    """

    _row_type = correlated.SuppliedRow
    _noises = 'noises to be supplied'

    def _after_fork(self) -> None:
        raise RuntimeError('NoiseRing: must be made in the process that uses it, not before a fork')

    def _source_of(self, state: correlated.NoiseState) -> tuple:
        return tuple(np.asarray(state.past.sizes))

    def _make_streams(self, source: tuple) -> dict[str, supplied_rows.Stream]:
        return {
            dtype.name: _Stream(self._kernel, self._fresh_rounds, dtype, int(size), self._directory)
            for dtype, size in zip(flat.DTYPES, source, strict=True)
        }

    def _key_of_round(self, state: correlated.NoiseState, t: int, context: str) -> np.ndarray:
        with tf.device('CPU'):
            row = self._kernel.table[self._kernel.row(t)]
            words = np.frombuffer(bytes.fromhex(context), '<i8').astype(np.int64)
            key = self._traced_key(np.asarray(state.key), state.drawn, np.int64(t), row, words)
            return key.numpy()

    @functools.cached_property
    def _traced_key(self) -> Callable[..., tf.Tensor]:
        """Key of a round, in one call. A trace shared by rings would outlive what tests replace."""
        return tf.function(
            lambda key, drawn, t, row, words: correlated.key_of_round(
                correlated.NoiseState(key, t, drawn, ()), t, row, words
            )
        ).get_concrete_function(
            tf.TensorSpec([2], tf.int64),
            tf.TensorSpec([None, 2], tf.int64),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec(self._kernel.table.shape[1:], tf.float64),
            tf.TensorSpec([None], tf.int64),
        )


class _Stream(supplied_rows.BlockStream):
    """Noise rows of the coordinates of one type."""

    def __init__(
        self,
        kernel: kernels.Kernel,
        fresh_rounds: Sequence[int],
        dtype: tf.DType,
        size: int,
        directory: str | os.PathLike | None,
    ):
        super().__init__(
            kernel,
            fresh_rounds,
            size,
            block=_BLOCK,
            dtype=dtype.as_numpy_dtype,
            words=2,
            directory=directory,
        )
        self.dtype = dtype
        self._part = flat.DTYPES.index(dtype)

    def row(self, keys: np.ndarray, show_progress: bool) -> np.ndarray:
        """Row of the last of the rounds with these keys, float64 [size]."""
        out = np.empty((self._blocks, _BLOCK))
        if not self._blocks:
            return out.ravel()
        # A round that fails half-way leaves a past that no later round may use.
        done, self._done = self._done, None
        if done is not None and np.array_equal(done, keys[:-1]):
            self._next(keys, out)
        else:
            self._recompute(keys, out, show_progress)
        self._done = keys
        return out.ravel()[: self._size]

    def _next(self, keys: np.ndarray, out) -> None:
        t = len(keys) - 1
        step = self._step(t)
        parts = np.array_split(np.arange(self._blocks), self._threads)

        with tf.device('CPU'):
            z = self._drawn(keys[t]).numpy().reshape(out.shape)

        def work(blocks):
            for block in blocks:
                step.apply(z[block], self._past[block], out[block])

        supplied_rows.run_all(self._workers, work, parts)

    @functools.cached_property
    def _drawn(self) -> Callable[[np.ndarray], tf.Tensor]:
        """Normal variables of the round with a key, [blocks * _BLOCK]."""
        return tf.function(
            lambda key: _drawn(key, self._part, self._blocks * _BLOCK)
        ).get_concrete_function(tf.TensorSpec([2], tf.int64))

    def _recompute(self, keys: np.ndarray, out, show_progress: bool) -> None:
        """The rounds that the last one depends on, from their keys, block by block."""
        end = len(keys)
        begin_round = self._first_needed(end - 1)
        steps = {r: self._step(r) for r in range(begin_round, end)}
        with tf.device('CPU'):
            starts = _positions(tf.constant(keys, tf.int64), self._part)

        def drawn(begin, rounds):
            with tf.device('CPU'):
                first = tf.constant(begin * _BLOCK, tf.int64)
                z = _draw(tuple(tf.gather(part, rounds) for part in starts), first).numpy()
            return z.reshape(len(z), _DRAWN[0], _BLOCK)

        def work(begin):
            blocks = range(begin, min(begin + _DRAWN[0], self._blocks))
            past = np.zeros((len(blocks), *self._past.shape[1:]), self._past.dtype)
            for since in range(begin_round, end, _DRAWN[1]):
                chunk = range(since, min(since + _DRAWN[1], end))
                z = drawn(begin, list(chunk))
                for i, block in enumerate(blocks):
                    for at, r in enumerate(chunk):
                        steps[r].apply(z[at, i], past[i], out[block])
            self._past[blocks.start : blocks.stop] = past

        parts = range(0, self._blocks, _DRAWN[0])
        with _progress.bar(
            desc=f'noise of {len(steps)} rounds',
            total=len(parts),
            leave=False,
            disable=not show_progress,
            delay=1.0,
        ) as bar:

            def work_and_show(begin):
                work(begin)
                bar.update()

            supplied_rows.run_all(self._workers, work_and_show, parts)

    def _first_needed(self, t: int) -> int:
        """The first round that the past before round `t` depends on."""
        fresh = self._fresh_rounds[bisect.bisect(self._fresh_rounds, t) - 1]
        if isinstance(self._kernel, kernels.BandedProduct):  # It keeps the noise of single rounds.
            return max(fresh, t - self._kernel.buffers)
        return fresh

    def _step(self, t: int) -> kernels.Step:
        return kernels.step(self._kernel, t, self.dtype.as_numpy_dtype)


@tf.function(reduce_retracing=True)
def _positions(round_keys, part: int):
    """`normal.position` of rounds with these keys: [rounds, 1] and [rounds, 2]."""
    return tf.map_fn(
        lambda key: normal.position(noise_keys.derive(key, part)),
        round_keys,
        fn_output_signature=(tf.uint64, tf.uint64),
    )


@tf.function(reduce_retracing=True)
def _drawn(key, part: int, size: int):
    """Normal variables of the round with this key, [size]."""
    return normal.normal(noise_keys.derive(key, part), size)


@tf.function(reduce_retracing=True)
def _draw(starts, first):
    """Normal variables of some rounds from number `first` on, [rounds, _DRAWN[0] * _BLOCK]."""
    return tf.map_fn(
        lambda start: normal.normal_from(start, _DRAWN[0] * _BLOCK, first),
        starts,
        fn_output_signature=tf.float64,
        parallel_iterations=1,
    )
