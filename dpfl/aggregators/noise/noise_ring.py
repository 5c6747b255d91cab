"""Correlated noise computed outside of TFF, which gets one finished row per round.

TFF copies the whole state of a process in every round. Its own runtime sends the state to another
process and back, at some 10 ms per megabyte, in messages of at most 2 GB. The past noise of a
banded mechanism can take hundreds of copies of the model. A ring keeps it where the training loop
runs:

```python
process = aggregators.build_aggregator(plan, supplied_noise=True).create(value_type)
with aggregators.build_noise_ring(plan) as ring:
    state = process.initialize()
    for cohort in cohorts:
        output = process.next(ring.supply(state, cohort), cohort)
        state = output.state
```

A row depends only on the keys in the state and on what the caller says of the round. So any other
ring supplies a saved state with the same bits, after it has recomputed the rounds before.

`SuppliedRows` is the base class of `NoiseRing` and `HardenedRing`, which define the content of a
row and how to compute it. A ring draws the noise of a round before the sum of the round exists. So
the key of the round cannot depend on the sum, as it does for noise that is drawn by the query. It
depends on the context instead, which determines the sum: the caller names the inputs of the round.
"""

import abc
import bisect
import concurrent.futures
import functools
import os
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tree

from dpfl import _progress, accounting, errors
from dpfl.accounting.records import journal
from dpfl.aggregators import flat, query
from dpfl.aggregators.noise import correlated, draws
from dpfl.mechanisms import kernels

# Coordinates per block. The past of a block with 342 bands takes 2.8 MB, and stays in cache while
# rounds are recomputed.
_BLOCK = draws.BLOCK
# Blocks and rounds whose noise is drawn at once when rounds are recomputed.
_DRAWN = (16, 64)


def run_all(
    threads: concurrent.futures.Executor, work: Callable[[Any], None], parts: Iterable[Any]
) -> None:
    """Calls `work` for all parts, in threads; returns or raises when none of them works any more.

    The caller begins anew with the same arrays after an error, so no thread may still write them.

    Raises:
      Exception: the first error, in the order of the parts; parts that have not begun are dropped.
    """
    futures = [threads.submit(work, part) for part in parts]
    try:
        for future in futures:
            future.result()
    finally:
        for future in futures:
            future.cancel()
        concurrent.futures.wait(futures)


class BlockStream(abc.ABC):
    """Noise rows of a run, in any order; those in order are the fastest.

    Past noise is in blocks of coordinates, [blocks, buffers, block], and threads work on it.

    Args:
      kernel: how to stream the noise.
      fresh_rounds: 0, and the rounds in which the noise starts afresh.
      size: number of coordinates.
      directory: where to keep past noise in a file; None for memory.
      dtype: of the past noise.
    """

    _block: ClassVar[int]  # Coordinates of a block.
    _words: ClassVar[int]  # Words of a key.

    def __init__(
        self,
        kernel: kernels.Kernel,
        fresh_rounds: Sequence[int],
        size: int,
        directory: str | os.PathLike | None,
        dtype: Any = np.float64,
    ):
        self._kernel, self._fresh_rounds, self._size = kernel, fresh_rounds, size
        self._blocks = -(-size // self._block)
        # Keys of the rounds that the past covers; None while it changes.
        self._done: np.ndarray | None = np.zeros([0, self._words], np.int64)
        self._past = _zeros((self._blocks, kernel.buffers, self._block), dtype, directory)
        self._threads = min(os.cpu_count() or 1, max(self._blocks, 1))
        self._workers = concurrent.futures.ThreadPoolExecutor(self._threads, 'noise blocks')

    @abc.abstractmethod
    def row(self, keys: np.ndarray, show_progress: bool) -> np.ndarray:
        """Row of the last of the rounds with these keys, int64 [rounds, words]; [size]."""

    def close(self) -> None:
        """Ends the threads and frees the memory."""
        self._workers.shutdown(wait=True)
        del self._past


def _zeros(shape: tuple[int, ...], dtype: Any, directory: str | os.PathLike | None) -> np.ndarray:
    """An array of zeros in memory or in a file.

    The file has no name, and disappears when the process ends, in whatever way.

    Args:
      shape, dtype: of the array.
      directory: where to make the file; None for memory.

    Raises:
      OSError: if there is no space for the file.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if directory is None or not size:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=os.fspath(directory)) as file:
        # Allocates all space now: a full disk would otherwise kill the process in a later round.
        os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, 'r+', shape=shape)


class SuppliedRows(abc.ABC):
    """Supplies states with noise rows.

    A context manager; leaving it ends the threads and frees the memory.

    Args:
      plan: says how many rounds there are, and how to stream the noise.
      directory: where to keep past noise in a file; None for memory.
      show_progress: shows a bar on standard error when many rounds are recomputed.
    """

    _row_type: ClassVar[type]  # Type of the part of a state that holds the row.
    _noises: ClassVar[str]  # What messages call several states of such noise.
    _survives_fork: ClassVar[bool]  # Whether it starts anew in a forked process.

    def __init__(
        self,
        plan: accounting.PrivacyPlan,
        directory: str | os.PathLike | None = None,
        *,
        show_progress: bool = True,
    ):
        self._rounds = plan.participation.rounds
        self._plan_digest = query.plan_digest(plan, None)
        mechanism = plan.mechanism_of_run
        self._kernel, self._fresh_rounds = mechanism.kernel(), (0, *mechanism.fresh_rounds)
        self._directory = directory
        self._show_progress = show_progress
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()  # Rows are computed one after the other.
        self._streams: dict[str, BlockStream] = {}
        self._source: Hashable = None  # Sizes of the rows.
        self._latest: tuple[bytes, dict[str, np.ndarray]] = b'', {}  # Keys and rows.

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self) -> None:
        """Frees everything.

        Does nothing in a forked process: the threads belong to its parent.
        """
        if self._process == os.getpid():
            self._close_streams()

    @abc.abstractmethod
    def _source_of(self, state: correlated.NoiseState) -> Hashable:
        """The sizes in a state, which determine the streams."""

    @abc.abstractmethod
    def _make_streams(self, source: Any) -> dict[str, BlockStream]:
        """A stream for each field of `_row_type` that holds noise."""

    @abc.abstractmethod
    def _key_of_round(self, state: correlated.NoiseState, t: int, context: str) -> np.ndarray:
        """Key of the noise of round `t`, int64 [words]; `context` is a digest in hexadecimal."""

    def supply(self, state: Any, context: Any) -> Any:
        """The state with the noise of its round.

        The noise is a function of the key in the state, of the contexts of the rounds before, and
        of this context. So a round that is repeated with another context has independent noise. A
        round that is repeated with the same context, but gives another sum, has the same noise, and
        the difference of the two releases has none.

        For a round that does not follow the last one, such as the first round of a resumed run,
        the earlier rounds that it depends on are computed too: those since the noise last started
        afresh, and of these, if `C^-1` is banded, no more than its bands.

        Args:
          state: of a TFF process or query whose noise is supplied, or any structure around it.
          context: a structure of arrays, numbers, texts or bytes that determines the sum of the
            round, together with the rounds before: the data of the cohort or a digest of them.

        Raises:
          RuntimeError: if this process was forked after the ring was made and the ring cannot
            start anew.
          ValueError: if the state does not hold exactly one noise of this kind, or was made under a
            plan with another mechanism; or if the context holds anything else.
          OSError: if there is no space for the file.
        """
        if self._process != os.getpid():  # Without the threads of its parent.
            if not self._survives_fork:
                raise RuntimeError(
                    f'{type(self).__name__}: must be made in the process that uses it, not before '
                    'a fork'
                )
            self._begin()
        parts = [part for part in query.parts(state, query.QueryState) if self._supplies(part)]
        if len(parts) != 1:
            raise errors.ArgumentError(
                'state', errors.NOT_SHOWN, f'holds {len(parts)} {self._noises}, must hold one'
            )
        if 'mechanism' in query.plan_differences(parts[0].plan, self._plan_digest):
            raise errors.ArgumentError(
                'state',
                errors.NOT_SHOWN,
                'was made under a plan with another mechanism than that of the ring',
            )
        leaves = list(map(np.asarray, tree.flatten(context)))
        if any(leaf.dtype == object for leaf in leaves):
            raise errors.ArgumentError(
                'context',
                errors.NOT_SHOWN,
                'must be arrays, numbers, texts or bytes that determine the sum of the round',
            )
        with self._lock:
            noise = self._with_row(parts[0].noise, journal.digest(leaves))
        return query.replaced(
            state,
            query.QueryState,
            lambda part: part._replace(noise=noise) if self._supplies(part) else part,
        )

    def _supplies(self, part: query.QueryState) -> bool:
        return isinstance(part.noise.past, self._row_type)

    def _with_row(self, state: correlated.NoiseState, context: str) -> correlated.NoiseState:
        t = int(state.round)
        if t >= self._rounds:
            return state  # The computation says what is wrong.
        drawn = np.array(state.drawn, np.int64)
        drawn[t] = self._key_of_round(state._replace(drawn=drawn), t, context)
        source, keys = self._source_of(state), drawn[: t + 1]
        if self._source != source:
            self._close_streams()
            self._streams, self._source = self._make_streams(source), source
        if self._latest[0] != keys.tobytes():
            self._latest = b'', {}
            rows = {
                field: stream.row(keys, self._show_progress)
                for field, stream in self._streams.items()
            }
            self._latest = keys.tobytes(), rows
        past = state.past._replace(round=np.int64(t), **self._latest[1])
        return state._replace(drawn=drawn, past=past)

    def _close_streams(self) -> None:
        for stream in self._streams.values():
            stream.close()
        # Making others can fail for lack of space.
        self._streams, self._source, self._latest = {}, None, (b'', {})


class NoiseRing(SuppliedRows):
    """The ring of a plan with default noise; arguments are those of `build_noise_ring`."""

    _row_type = correlated.SuppliedRow
    _noises = 'noises to be supplied'
    _survives_fork = False

    def _source_of(self, state: correlated.NoiseState) -> tuple:
        return tuple(np.asarray(state.past.sizes))

    def _make_streams(self, source: tuple) -> dict[str, BlockStream]:
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


class _Stream(BlockStream):
    """Noise rows of the coordinates of one type."""

    _block, _words = _BLOCK, 2

    def __init__(
        self,
        kernel: kernels.Kernel,
        fresh_rounds: Sequence[int],
        dtype: tf.DType,
        size: int,
        directory: str | os.PathLike | None,
    ):
        super().__init__(kernel, fresh_rounds, size, directory, dtype.as_numpy_dtype)
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

        run_all(self._workers, work, parts)

    @functools.cached_property
    def _drawn(self) -> Callable[[np.ndarray], tf.Tensor]:
        """Normal variables of the round with a key, [blocks * _BLOCK]."""
        return tf.function(
            lambda key: draws.normal(draws.derive(key, self._part), self._blocks * _BLOCK)
        ).get_concrete_function(tf.TensorSpec([2], tf.int64))

    def _recompute(self, keys: np.ndarray, out, show_progress: bool) -> None:
        """The rounds that the last one depends on, from their keys, block by block."""
        end = len(keys)
        begin_round = self._fresh_rounds[bisect.bisect(self._fresh_rounds, end - 1) - 1]
        if isinstance(self._kernel, kernels.BandedProduct):  # It keeps the noise of single rounds.
            begin_round = max(begin_round, end - 1 - self._kernel.buffers)
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

            run_all(self._workers, work_and_show, parts)

    def _step(self, t: int) -> kernels.Step:
        return kernels.step(self._kernel, t, self.dtype.as_numpy_dtype)


@tf.function(reduce_retracing=True)
def _positions(round_keys, part: int):
    """`draws.position` of rounds with these keys: [rounds, 1] and [rounds, 2]."""
    return tf.map_fn(
        lambda key: draws.position(draws.derive(key, part)),
        round_keys,
        fn_output_signature=(tf.uint64, tf.uint64),
    )


@tf.function(reduce_retracing=True)
def _draw(starts, first):
    """Normal variables of some rounds from number `first` on, [rounds, _DRAWN[0] * _BLOCK]."""
    return tf.map_fn(
        lambda start: draws.normal_from(start, _DRAWN[0] * _BLOCK, first),
        starts,
        fn_output_signature=tf.float64,
        parallel_iterations=1,
    )
