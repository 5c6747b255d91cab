"""Cyclic Poisson sampling with correlated noise ([Choquette23], theorem 4 and algorithm 3).

Clients are divided into b groups, once and without looking at their data. Round t draws its cohort
from group t mod b: each client of the group takes part with probability q, independently. If the
strategy C has at most b bands, no row of C mixes two turns of one group. So each turn is a Poisson
sampled Gaussian release of its own, whose sensitivity is the norm of its column of C, and a run is
the composition of the turns of one group. docs/research/sampling_proofs.md has the proof.
"""

import functools
from collections import Counter

import numpy as np

from dpfl import errors, mechanisms

# Turns of one group: (norm of the column, number of such turns), the largest norm first.
Turns = tuple[tuple[float, int], ...]

# Norms that differ by less than this share count as the largest of them. If there are too many
# different ones, larger shares do.
_SHARE, _COARSER = 1e-9, 8.0
_MOST_NORMS = 16
_MOST_GROUPS = 8
# Most different groups whose turns are compared pair by pair.
_MOST_PAIRED = 256


def bands(mechanism: mechanisms.Mechanism, sampling: str) -> int:
    """Number of diagonals of C outside of which all entries are 0, from how the mechanism is held.

    A lower-triangular matrix has at most one diagonal for each round.

    Raises:
      ArgumentError: if the accounting of the mechanism counts other releases than `C x + z`, as
        that of trees does.
    """
    if mechanism.forest() is not None:
        raise errors.ArgumentError(
            'mechanism',
            mechanism.name,
            f'cannot be a tree with sampling={sampling}, which needs a banded strategy',
        )
    diagonals = mechanism.strategy_bands
    return mechanism.rounds if diagonals is None else min(diagonals, mechanism.rounds)


@functools.lru_cache(16)
def worst_groups(mechanism: mechanisms.Mechanism, groups: int) -> tuple[Turns, ...]:
    """The turns of the groups that can be the worst, at most a few.

    A group is left out if another group dominates it: has no fewer turns, and norms that are at
    least as large, compared from the largest down. Norms are rounded up where necessary, so that
    few different releases remain.

    Args:
      mechanism: over the rounds of the run, with at most `groups` bands.
      groups: number of groups, at least 1.
    """
    table = _norms(mechanism, groups)
    share = _SHARE
    while True:
        rounded = _rounded_up(table, share)
        candidates = np.unique(rounded, axis=1)
        envelope = candidates.max(axis=1)
        attained = (candidates == envelope[:, None]).all(axis=0)
        if attained.any():
            candidates = envelope[:, None]
        if candidates.shape[1] <= _MOST_PAIRED:
            candidates = candidates[:, _undominated(candidates)]
            norms = np.count_nonzero(np.unique(candidates))
            if norms <= _MOST_NORMS and candidates.shape[1] <= _MOST_GROUPS:
                return tuple(_counted(turns) for turns in candidates.T)
        share *= _COARSER


def every_group(mechanism: mechanisms.Mechanism, groups: int) -> Turns:
    """Turns that are at least as bad as those of every group, for composition with other runs.

    The largest norms of all groups, the second largest of all groups, and so on.
    """
    worst = worst_groups(mechanism, groups)
    most = max(sum(count for _, count in turns) for turns in worst)
    table = np.zeros((len(worst), most))
    for row, turns in zip(table, worst, strict=True):
        norms = np.repeat([norm for norm, _ in turns], [count for _, count in turns])
        row[: norms.size] = norms
    return _counted(table.max(axis=0))


def _rounded_column_norms(mechanism: mechanisms.Mechanism) -> np.ndarray:
    """Norms of the columns of C, never below the true ones, float64 [rounds]."""
    norms = mechanism.column_norms()
    if mechanism.is_independent:
        return norms
    # A sum of at most `rounds` squares, and a root; see `rounding.sum_up`.
    return norms * (1 + 2 * (2 * mechanism.rounds + 4) * 2.0**-53)


def _norms(mechanism: mechanisms.Mechanism, groups: int) -> np.ndarray:
    """Norms by turn and group, float64 [turns, groups], the largest of each group first."""
    norms = _rounded_column_norms(mechanism)
    turns = -(-norms.size // groups)
    padded = np.zeros(turns * groups)
    padded[: norms.size] = norms
    return np.sort(padded.reshape(turns, groups), axis=0)[::-1]


def _rounded_up(table: np.ndarray, share: float) -> np.ndarray:
    """Each norm becomes the largest of those that are within about the share of it."""
    values, places = np.unique(table, return_inverse=True)
    positive = values > 0
    levels = np.full(values.size, -1, np.int64)
    levels[positive] = np.log(values[-1] / values[positive]) / share
    # Values ascend, so the last of each level is the largest of it.
    last = np.append(levels[1:] != levels[:-1], True)
    largest = values[np.flatnonzero(last)]
    return largest[np.cumsum(np.append(0, last[:-1]))][places].reshape(table.shape)


def _undominated(candidates: np.ndarray) -> np.ndarray:
    """Which of different columns are at least as large, in all rows, as no other, bool [groups]."""
    below = np.all(candidates[:, :, None] <= candidates[:, None, :], axis=0)
    np.fill_diagonal(below, False)
    return ~np.any(below, axis=1)


def _counted(norms: np.ndarray) -> Turns:
    """Norms as pairs of norm and count."""
    counts = Counter(norms[norms > 0].tolist())
    return tuple(sorted(counts.items(), reverse=True))
