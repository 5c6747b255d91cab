"""Noise that is kept outside of TFF, and reaches it one finished row per round.

All that is in the state of a TFF process is copied in every round; TFF's own runtime sends it to
another process and back, at some 10 ms for a megabyte, in messages of at most 2 GB. The outputs
that a banded mechanism needs again can be hundreds of copies of the model. A ring keeps them where
the training loop runs:

```python
process = aggregators.build_aggregator(plan, supplied_noise=True).create(value_type)
with aggregators.NoiseRing(plan) as ring:
    state = process.initialize()
    for cohort in cohorts:
        output = process.next(ring.supply(state), cohort)
        state = output.state
```

A row is a function of the root key in the state and the round alone, so a state that was saved is
supplied with the same bits by any other ring, which computes the rounds before it once more.
"""

import concurrent.futures
import os

import numpy as np
import tensorflow as tf
import tqdm
import tree

from dpfl import accounting, errors
from dpfl.aggregators import flat, keys, noise, normal, past_noise
from dpfl.mechanisms.streaming import kernels, ring_steps

# Coordinates that are done at a time: the ring of 342 bands then takes 2.8 MB, and stays in cache
# while its rounds are done again.
_BLOCK = normal.BLOCK
# Blocks and rounds whose noise is drawn at a time when rounds are done again.
_DRAWN = (16, 64)


class NoiseRing:
    """Computes the noise of each round ahead, in threads of its own, while the last one trains.

    A context manager; leaving it ends the threads and frees the memory. Who reads that memory, or
    the file, can take the noise off what is released, as with the key in the state.

    Args:
      plan: that of the aggregator or query, which was built with `supplied_noise`.
      directory: where to keep past noise in a file; None for memory. The file has no name and is
        gone when the process ends, in whatever way.
      show_progress: shows a bar on standard error when many rounds are computed once more.
    """

    def __init__(self, plan: accounting.PrivacyPlan, directory=None, *, show_progress: bool = True):
        self._rounds = plan.participation.rounds
        self._kernel = plan.mechanism.with_rounds(self._rounds).kernel()
        self._directory = directory
        self._process = os.getpid()
        self._show_progress = show_progress
        self._streams: list[_Stream] = []
        self._source = None  # Key and sizes of the rows.
        self._made_for = None  # And of the streams, which the thread owns.
        self._ahead = concurrent.futures.ThreadPoolExecutor(1, 'noise')
        self._rows: dict[int, concurrent.futures.Future] = {}  # The last round's and the next one.

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self) -> None:
        """Waits for the row that is being computed, and frees everything."""
        self._ahead.shutdown(wait=True, cancel_futures=True)
        self._rows.clear()
        self._close_streams()

    def supply(self, state):
        """The state with the noise of its round.

        Rounds that are not the next one after the last, such as the first round of a resumed run,
        are computed from the first round on.

        Args:
          state: of a TFF process or query whose noise is supplied, or any structure around it.

        Raises:
          RuntimeError: if the ring was made before this process was forked: its threads are not
            here, and what they know belongs to the other process.
          ValueError: if it does not hold exactly one such noise.
          OSError: if there is no space for the file.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                'NoiseRing: must be made in the process that uses it, not before a fork'
            )
        found = []

        def find(part):
            if _is_supplied(part):
                found.append(part)

        tree.traverse(find, state)
        if len(found) != 1:
            raise errors.ArgumentError(
                'state',
                errors.NOT_SHOWN,
                f'holds {len(found)} noises to be supplied, must hold one',
            )
        with_row = self._with_row(*found)
        return tree.traverse(lambda part: with_row if _is_supplied(part) else None, state)

    def _with_row(self, state: noise.NoiseState) -> noise.NoiseState:
        t = int(state.round)
        if t >= self._rounds:
            return state  # The computation says what is wrong.
        source = (tuple(np.asarray(state.key)), tuple(np.asarray(state.past.sizes)))
        if source != self._source:
            self._rows.clear()
            self._source = source
        # In this order: the one thread computes round t, if it has to, before the next one.
        rows = {
            wanted: self._rows.get(wanted) or self._ahead.submit(self._row, source, wanted)
            for wanted in range(t, min(t + 2, self._rounds))
        }
        self._rows = rows
        try:
            row = rows[t].result()
        except BaseException:
            self._rows = {}  # Another call tries again.
            raise
        return state._replace(past=state.past._replace(round=np.int64(t), **row))

    def _row(self, source, t: int) -> dict[str, np.ndarray]:
        """Row `t` by the name of its type. Runs in the one thread, the owner of the streams."""
        if self._made_for != source:
            self._close_streams()
            self._made_for = None  # In case that there is no space.
            self._streams = [
                _Stream(self._kernel, dtype, int(size), source[0], self._directory)
                for dtype, size in zip(flat.DTYPES, source[1], strict=True)
            ]
            self._made_for = source
        return {stream.dtype.name: stream.row(t, self._show_progress) for stream in self._streams}

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams = []


def _is_supplied(part) -> bool:
    return isinstance(part, noise.NoiseState) and isinstance(part.past, noise.SuppliedRow)


class _Stream:
    """Rows of the coordinates of one type, in blocks [blocks, buffers, _BLOCK]."""

    def __init__(self, kernel: kernels.Kernel, dtype: tf.DType, size: int, key, directory):
        self.dtype = dtype
        self._kernel, self._size, self._key = kernel, size, key
        self._blocks = -(-size // _BLOCK)
        self._part = flat.DTYPES.index(dtype)
        self._done: int | None = 0  # Rounds that the past is of; None while it changes.
        shape = (self._blocks, kernel.buffers, _BLOCK)
        self._past = past_noise.zeros(shape, dtype.as_numpy_dtype, directory)
        self._workers = concurrent.futures.ThreadPoolExecutor(os.cpu_count(), 'noise blocks')

    def close(self) -> None:
        self._workers.shutdown(wait=True)
        del self._past

    def row(self, t: int, show_progress: bool) -> np.ndarray:
        """Row `t`, float64 [size]."""
        out = np.empty((self._blocks, _BLOCK))
        # A round that fails half-way leaves a past that no later round may use.
        done, self._done = self._done, None
        if t == done:
            self._next(t, out)
        elif self._blocks:
            self._once_more(t, out, show_progress)
        self._done = t + 1
        return out.ravel()[: self._size]

    def _next(self, t: int, out) -> None:
        step = self._step(t)
        with tf.device('CPU'):
            key = keys.of_round(self._key, t, self._part)
            z = _drawn(key, tf.constant(0, tf.int64), out.size).numpy().reshape(out.shape)

        def work(blocks):
            for block in blocks:
                step.apply(z[block], self._past[block], out[block])

        list(self._workers.map(work, np.array_split(np.arange(self._blocks), os.cpu_count())))

    def _once_more(self, t: int, out, show_progress: bool) -> None:
        """All rounds up to `t` from their keys, one block after the other."""
        steps = [self._step(r) for r in range(t + 1)]
        with tf.device('CPU'):
            starts = _positions(tf.constant(self._key, tf.int64), tf.constant(t + 1), self._part)

        def work(begin):
            blocks = range(begin, min(begin + _DRAWN[0], self._blocks))
            past = np.zeros((len(blocks), *self._past.shape[1:]), self._past.dtype)
            for since in range(0, t + 1, _DRAWN[1]):
                chunk = slice(since, min(since + _DRAWN[1], t + 1))
                with tf.device('CPU'):
                    first = tf.constant(begin * _BLOCK, tf.int64)
                    z = _draw(tuple(part[chunk] for part in starts), first).numpy()
                z = z.reshape(len(z), _DRAWN[0], _BLOCK)
                for i, block in enumerate(blocks):
                    for step, drawn in zip(steps[chunk], z, strict=True):
                        step.apply(drawn[i], past[i], out[block])
            self._past[blocks.start : blocks.stop] = past

        parts = range(0, self._blocks, _DRAWN[0])
        for _ in tqdm.tqdm(
            self._workers.map(work, parts),
            f'noise of {t + 1} rounds',
            len(parts),
            leave=False,
            disable=not show_progress,
            delay=1.0,
        ):
            pass

    def _step(self, t: int) -> ring_steps.Step:
        return ring_steps.step(self._kernel, t, self.dtype.as_numpy_dtype)


@tf.function(reduce_retracing=True)
def _positions(root_key, rounds, part: int):
    """What `normal.position` gives for the first rounds: [rounds, 1] and [rounds, 2]."""
    return tf.map_fn(
        lambda t: normal.position(keys.of_round(root_key, t, part)),
        tf.range(rounds),
        fn_output_signature=(tf.uint64, tf.uint64),
    )


@tf.function(reduce_retracing=True)
def _drawn(key, first, size: int):
    """Variables `first` and those after it of one round, [size]."""
    return normal.normal_from(normal.position(key), size, first)


@tf.function(reduce_retracing=True)
def _draw(starts, first):
    """Variables `first` and those after it of some rounds, [rounds, _DRAWN[0] * _BLOCK]."""
    return tf.map_fn(
        lambda start: normal.normal_from(start, _DRAWN[0] * _BLOCK, first),
        starts,
        fn_output_signature=tf.float64,
        parallel_iterations=1,
    )
