"""Hardened noise outside of TFF: integers that reach it one finished row per round.

```python
process = aggregators.build_aggregator(plan, supplied_noise=True).create(value_type)
with aggregators.HardenedRing(plan) as ring:
    state = process.initialize()
    for cohort in cohorts:
        output = process.next(ring.supply(state), cohort)
        state = output.state
```

A row is a function of the key in the state and the round alone, so a state that was saved is
supplied with the same bits by any other ring, which computes the rounds before it once more.
"""

import concurrent.futures
import functools
import os

import numpy as np
import tqdm
import tree

from dpfl import accounting, errors
from dpfl.accounting import hardened
from dpfl.aggregators import hardened_query, past_noise
from dpfl.mechanisms.hardened import discrete_gaussian, keystream, stream
from dpfl.mechanisms.streaming import kernels

# Coordinates that are done at a time. Each block has a keystream of its own, so another number
# would give other bits.
_BLOCK = 2**15

_sampler = functools.lru_cache(64)(discrete_gaussian.DiscreteGaussian)


class HardenedRing:
    """Computes the noise of each round ahead, in threads of its own, while the last one trains.

    A context manager; leaving it ends the threads and frees the memory. Who reads that memory, or
    the file, can take the noise off what is released, as with the key in the state. In a process
    that was forked it starts anew, with the bits that the key gives anywhere.

    Args:
      plan: that of the aggregator or query; has `noise='hardened'`.
      directory: where to keep past noise in a file; None for memory. The file has no name and is
        gone when the process ends, in whatever way.
      show_progress: shows a bar on standard error when many rounds are computed once more.

    Raises:
      ValueError: if the plan has other noise.
    """

    def __init__(self, plan: accounting.PrivacyPlan, directory=None, *, show_progress: bool = True):
        if plan.noise != 'hardened':
            raise errors.ArgumentError('noise', plan.noise, 'must be hardened with a HardenedRing')
        self._rounds = plan.participation.rounds
        self._kernel = plan.mechanism.with_rounds(self._rounds).kernel()
        self._directory = directory
        self._show_progress = show_progress
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._stream: _Stream | None = None  # The thread owns it.
        self._source = None  # Key and size of the rows.
        self._ahead = concurrent.futures.ThreadPoolExecutor(1, 'hardened noise')
        self._rows: dict[int, concurrent.futures.Future] = {}  # The last round's and the next one.

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self) -> None:
        """Waits for the row that is being computed, and frees everything."""
        if self._process != os.getpid():
            return  # The threads are those of the process before the fork.
        self._ahead.shutdown(wait=True, cancel_futures=True)
        self._rows.clear()
        self._close_stream()

    def supply(self, state):
        """The state with the noise of its round.

        Rounds that are not the next one after the last, such as the first round of a resumed run,
        are computed from the first round on.

        Args:
          state: of a TFF process or query with hardened noise, or any structure around it.

        Raises:
          ValueError: if it does not hold exactly one such noise.
          OSError: if there is no space for the file.
        """
        if self._process != os.getpid():
            self._begin()
        found = []

        def find(part):
            if hardened_query.is_hardened(part):
                found.append(part)

        tree.traverse(find, state)
        if len(found) != 1:
            raise errors.ArgumentError(
                'state', errors.NOT_SHOWN, f'holds {len(found)} hardened noises, must hold one'
            )
        with_row = self._with_row(*found)
        return tree.traverse(
            lambda part: with_row if hardened_query.is_hardened(part) else None, state
        )

    def _with_row(self, state):
        t = int(state.round)
        if t >= self._rounds:
            return state  # The computation says what is wrong.
        key = np.asarray(state.key, np.int64).astype('<i8').tobytes()
        source = key, int(state.past.size)
        if source != self._source:
            self._rows, self._source = {}, source
        # In this order: the one thread computes round t, if it has to, before the next one.
        rows = {
            wanted: self._rows.get(wanted) or self._ahead.submit(self._row, source, wanted)
            for wanted in range(t, min(t + 2, self._rounds))
        }
        self._rows = rows
        try:
            values = rows[t].result()
        except BaseException:
            self._rows = {}  # Another call tries again.
            raise
        return state._replace(past=state.past._replace(round=np.int64(t), values=values))

    def _row(self, source, t: int) -> np.ndarray:
        """Row `t`. Runs in the one thread, the owner of the stream."""
        if self._stream is None or self._stream.source != source:
            self._close_stream()
            self._stream = _Stream(self._kernel, source, self._directory)
        return self._stream.row(t, self._show_progress)

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None


class _Stream:
    """Rows of noise for one key, in blocks [blocks, buffers, _BLOCK]."""

    def __init__(self, kernel: kernels.Kernel, source: tuple[bytes, int], directory):
        self.source = source
        self._kernel = kernel
        self._key, self._size = source
        self._blocks = -(-self._size // _BLOCK)
        self._done: int | None = 0  # Rounds that the past is of; None while it changes.
        self._past = past_noise.zeros((self._blocks, kernel.buffers, _BLOCK), np.float64, directory)
        self._threads = min(os.cpu_count() or 1, max(self._blocks, 1))
        self._workers = concurrent.futures.ThreadPoolExecutor(self._threads, 'hardened blocks')

    def close(self) -> None:
        self._workers.shutdown(wait=True)
        del self._past

    def row(self, t: int, show_progress: bool) -> np.ndarray:
        """Row `t`, int64 [size]."""
        if self._done is None or t < self._done:
            self._past[...] = 0.0
            self._done = 0
        rounds = range(self._done, t + 1)
        for r in tqdm.tqdm(
            rounds,
            f'noise of {len(rounds)} rounds',
            leave=False,
            disable=not show_progress or len(rounds) == 1,
            delay=1.0,
        ):
            # A round that fails half-way leaves a past that no later round may use.
            self._done = None
            out = self._next(r)
            self._done = r + 1
        return out

    def _next(self, t: int) -> np.ndarray:
        step = stream.step(self._kernel, t)
        sampler = _sampler(hardened.STDDEV * step.stddev)
        key = keystream.derive(self._key, f'noise of round {t}')
        out = np.empty((self._blocks, _BLOCK), np.int64)

        def work(blocks):
            for block in blocks.tolist():
                z = sampler.draw(keystream.Keystream(key, block), _BLOCK)
                out[block] = step.apply(z, self._past[block])

        list(self._workers.map(work, np.array_split(np.arange(self._blocks), self._threads)))
        return out.reshape(-1)[: self._size]
