"""Hardened noise computed outside of TFF, which gets one finished row of integers per round.

```python
process = aggregators.build_aggregator(plan, supplied_noise=True).create(value_type)
with aggregators.HardenedRing(plan) as ring:
    state = process.initialize()
    for cohort in cohorts:
        output = process.next(ring.supply(state), cohort)
        state = output.state
```

A row depends only on the key in the state and the round. So any other ring supplies a saved state
with the same bits, after it has recomputed the rounds before.
"""

import concurrent.futures
import functools
import os

import numpy as np

from dpfl import _progress, accounting, errors
from dpfl.accounting import hardened
from dpfl.aggregators.noise import correlated, hardened_query, past_noise, rows_ahead
from dpfl.mechanisms.hardened import discrete_gaussian, keystream, stream
from dpfl.mechanisms.streaming import kernels

# Coordinates per block. Each block has its own keystream, so another number gives other bits.
_BLOCK = 2**15

_sampler = functools.lru_cache(64)(discrete_gaussian.DiscreteGaussian)


class HardenedRing(rows_ahead.RowsAhead):
    """Keeps past noise outside of TFF. Computes the next row in threads while a round trains.

    A context manager; leaving it ends the threads and frees the memory. Whoever reads that memory,
    or the file, can subtract the noise from what is released, as with the key in the state. In a
    forked process it starts anew, and gives the same bits.

    Args:
      plan: of the aggregator or query; has `noise='hardened'`.
      directory: where to keep past noise in a file; None for memory. The file has no name, and
        disappears when the process ends, in whatever way.
      show_progress: shows a bar on standard error when many rounds are recomputed.

    Raises:
      ValueError: if the plan has other noise.
    """

    _row_type = hardened_query.IntegerRow
    _noises = 'hardened noises'

    def __init__(
        self,
        plan: accounting.PrivacyPlan,
        directory: str | os.PathLike | None = None,
        *,
        show_progress: bool = True,
    ):
        if plan.noise != 'hardened':
            raise errors.ArgumentError('noise', plan.noise, 'must be hardened with a HardenedRing')
        super().__init__(plan, directory, show_progress=show_progress)

    def _after_fork(self) -> None:
        self._begin()

    def _source_of(self, state: correlated.NoiseState) -> tuple[bytes, int]:
        key = np.asarray(state.key, np.int64).astype('<i8').tobytes()
        return key, int(state.past.size)

    def _make_streams(self, source: tuple[bytes, int]) -> dict[str, rows_ahead.Stream]:
        return {'values': _Stream(self._kernel, *source, self._directory)}


class _Stream:
    """Noise rows for one key. The past is kept as [blocks, buffers, _BLOCK]."""

    def __init__(self, kernel: kernels.Kernel, key: bytes, size: int, directory):
        self._kernel, self._key, self._size = kernel, key, size
        self._blocks = -(-self._size // _BLOCK)
        self._done: int | None = 0  # Rounds that the past covers; None while it changes.
        shape = (self._blocks, kernel.stored_buffers, _BLOCK)
        self._past = past_noise.zeros(shape, np.float64, directory)
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
        for r in _progress.bar(
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

        parts = np.array_split(np.arange(self._blocks), self._threads)
        rows_ahead.run_all(self._workers, work, parts)
        return out.reshape(-1)[: self._size]
