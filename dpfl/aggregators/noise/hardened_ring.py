"""Hardened noise computed outside of TFF, which gets one finished row of integers per round.

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
"""

import bisect
import functools

import numpy as np

from dpfl import _progress
from dpfl.accounting import hardened
from dpfl.accounting.records import journal
from dpfl.aggregators.noise import correlated, hardened_query, noise_ring
from dpfl.mechanisms.hardened import discrete_gaussian, stream

# Coordinates per block. Each block has its own keystream, so another number gives other bits.
_BLOCK = 2**15
_KEY_WORDS = discrete_gaussian.KEY_BYTES // 8

_sampler = functools.lru_cache(64)(discrete_gaussian.DiscreteGaussian)


class HardenedRing(noise_ring.SuppliedRows):
    """The ring of a plan with hardened noise; arguments are those of `build_noise_ring`.

    In a forked process it starts anew, and gives the same bits.
    """

    _row_type = hardened_query.IntegerRow
    _noises = 'hardened noises'
    _survives_fork = True

    def _source_of(self, state: correlated.NoiseState) -> int:
        return int(state.past.size)

    def _make_streams(self, source: int) -> dict[str, noise_ring.BlockStream]:
        return {'values': _Stream(self._kernel, self._fresh_rounds, source, self._directory)}

    def _key_of_round(self, state: correlated.NoiseState, t: int, context: str) -> np.ndarray:
        before = state.drawn[t - 1] if t else state.key
        row = journal.digest([self._kernel.table[self._kernel.row(t)]])
        label = f'noise of round {t} after {_bytes(before).hex()}, row {row}, context {context}'
        key = discrete_gaussian.derive_key(_bytes(state.key), label)
        return np.frombuffer(key, '<i8').astype(np.int64)


def _bytes(key: np.ndarray) -> bytes:
    return np.asarray(key, np.int64).astype('<i8').tobytes()


class _Stream(noise_ring.BlockStream):
    """Noise rows of a run."""

    _block, _words = _BLOCK, _KEY_WORDS

    def row(self, keys: np.ndarray, show_progress: bool) -> np.ndarray:
        """Row of the last of the rounds with these keys, int64 [size]."""
        done = self._done
        first = self._fresh_rounds[bisect.bisect_left(self._fresh_rounds, len(keys)) - 1]
        if (
            done is None
            or not first <= len(done) < len(keys)
            or not np.array_equal(done, keys[: len(done)])
        ):
            self._past[...] = 0.0
            done = keys[:first]
        rounds = range(len(done), len(keys))
        for r in _progress.bar(
            rounds,
            f'noise of {len(rounds)} rounds',
            leave=False,
            disable=not show_progress or len(rounds) == 1,
            delay=1.0,
        ):
            # A round that fails half-way leaves a past that no later round may use.
            self._done = None
            out = self._next(r, _bytes(keys[r]))
            self._done = keys[: r + 1]
        return out

    def _next(self, t: int, key: bytes) -> np.ndarray:
        step = stream.step(self._kernel, t)
        sampler = _sampler(hardened.STDDEV * step.stddev)
        out = np.empty((self._blocks, _BLOCK), np.int64)

        def work(blocks):
            for block in blocks.tolist():
                z = sampler.draw(discrete_gaussian.Keystream(key, block), _BLOCK)
                out[block] = step.apply(z, self._past[block])

        parts = np.array_split(np.arange(self._blocks), self._threads)
        noise_ring.run_all(self._workers, work, parts)
        return out.reshape(-1)[: self._size]
