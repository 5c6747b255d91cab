"""Sensitivity of binary tree aggregation under min-separation participation.

The squared sensitivity is the largest sum of squared node counts, over the forest of complete
subtrees of `rounds` leaves (largest first) and all admitted patterns of participations.

Two neighbouring subtrees constrain each other only through "the first participation on the right
is at least b rounds after the last one on the left". So for a subtree, a number of participations
and a sum of squared counts it is enough to know the smallest possible position of the last
participation, as a function of where the first one may be: a recursion over levels, exact and
without enumerating patterns.
"""

import dataclasses

import numpy as np

from dpfl.mechanisms import base
from dpfl.participation import Participation

_NEVER = np.int64(2**40)
# Beyond this many array elements the exact recursion gives way to the bound: a few seconds.
_WORK_LIMIT = 300_000_000


@dataclasses.dataclass(frozen=True)
class _Outcomes:
    """What one number of participations inside a subtree can give.

    Attributes:
      values: sums of squared node counts, int64 [m], decreasing.
      last: smallest position of the last participation where the first is not before s,
        int64 [m, size + 1] over s; `_NEVER` where it cannot be.
    """

    values: np.ndarray
    last: np.ndarray


class _TooMuchWorkError(Exception):
    """The exact recursion would take too long."""


def sensitivity(participation: Participation) -> base.Sensitivity:
    """Exact where the recursion is affordable, otherwise a proven upper bound.

    The bound lets the subtrees forget each other: a subtree of w leaves then holds any number of
    participations up to ceil(w / b). Where the rounds 0, b, 2b, ... attain it, it is exact too.
    """
    bound = _uncoupled(participation)
    if _evenly_spaced(participation) == bound:
        return base.Sensitivity(float(bound), is_exact=True)
    try:
        return base.Sensitivity(float(_coupled(participation)), is_exact=True)
    except _TooMuchWorkError:
        return base.Sensitivity(float(bound), is_exact=False)


def _evenly_spaced(participation: Participation) -> int:
    """Sum of squared node counts of the pattern 0, b, 2b, ...: a lower bound."""
    counts = np.zeros(participation.rounds, dtype=np.int64)
    counts[:: participation.min_separation][: participation.count] = 1
    total = 0
    while counts.size:
        total += int(counts @ counts)
        counts = counts[: counts.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    return total


def _forest(rounds: int) -> list[int]:
    """Levels of the complete subtrees that `rounds` leaves make up, largest first."""
    return [level for level in reversed(range(rounds.bit_length())) if rounds >> level & 1]


def _coupled(participation: Participation) -> int:
    b, k = participation.min_separation, participation.count
    levels = _forest(participation.rounds)
    subtrees = _subtrees(levels[0], b, k)
    # For each number of participations: (sum of squares, last position) of the forest so far.
    states = {0: (np.array([0]), np.array([-b], dtype=np.int64))}
    offset = 0
    for level in levels:
        merged: dict[int, list] = {}
        for before, (values, last) in states.items():
            merged.setdefault(before, []).append((values, last))
            start = np.clip(last + b - offset, 0, 2**level)
            for inside, outcomes in subtrees[level].items():
                if before + inside > k:
                    continue
                total = outcomes.values[:, None] + values
                position = offset + outcomes.last[:, start]
                possible = position < _NEVER
                merged.setdefault(before + inside, []).append(
                    (total[possible], position[possible])
                )
        states = {}
        for count, parts in merged.items():
            values = np.concatenate([part[0] for part in parts])
            last = np.concatenate([part[1] for part in parts])
            if values.size:
                outcomes = _undominated(values, last[:, None])
                states[count] = (outcomes.values, outcomes.last[:, 0])
        offset += 2**level
    return int(max(values[0] for values, _ in states.values()))


def _subtrees(top: int, b: int, k: int) -> list[dict[int, _Outcomes]]:
    """For every level up to `top`: the outcomes of a complete subtree by participations >= 1."""
    work = 0
    levels: list[dict[int, _Outcomes]] = []
    for level in range(top + 1):
        size = 2**level
        if size <= b:
            last = np.append(np.arange(size, dtype=np.int64), _NEVER)
            levels.append({1: _Outcomes(np.array([level + 1]), last[None])})
            continue
        outcomes = {}
        for count in range(1, min(k, -(-size // b)) + 1):
            candidates = list(_halves(levels[-1], count, size // 2, b))
            work += sum(last.size for _, last in candidates)
            if work > _WORK_LIMIT:
                raise _TooMuchWorkError
            values = np.concatenate([value for value, _ in candidates]) + count**2
            last = np.concatenate([last for _, last in candidates])
            outcomes[count] = _undominated(values, last)
        levels.append(outcomes)
    return levels


def _halves(child: dict[int, _Outcomes], count: int, half: int, b: int):
    """Yields (values, last) of a subtree whose two halves share `count` participations."""
    if count in child:
        values, last = child[count].values, child[count].last
        never = np.full((values.size, half), _NEVER)
        yield values, np.hstack([last, never])
        right = np.minimum(half + last, _NEVER)
        yield values, np.hstack([np.repeat(right[:, :1], half, axis=1), right])
    for on_left, left in child.items():
        right = child.get(count - on_left)
        if right is None:
            continue
        start = np.clip(left.last + b - half, 0, half)
        last = np.minimum(half + right.last[:, start], _NEVER).reshape(-1, half + 1)
        values = (right.values[:, None] + left.values).ravel()
        never = np.full((values.size, half), _NEVER)
        yield values, np.hstack([last, never])


def _undominated(values: np.ndarray, last: np.ndarray) -> _Outcomes:
    """Drops what another outcome with at least that value never comes later than."""
    order = np.argsort(-values, kind='stable')
    values, last = values[order], last[order]
    starts = np.flatnonzero(np.diff(values, prepend=values[0] + 1))
    values, last = values[starts], np.minimum.reduceat(last, starts, axis=0)
    earliest = np.minimum.accumulate(last, axis=0)
    useful = np.ones(values.size, dtype=bool)
    useful[1:] = (last[1:] < earliest[:-1]).any(axis=1)
    useful &= (last < _NEVER).any(axis=1)
    return _Outcomes(values[useful], last[useful])


def _uncoupled(participation: Participation) -> int:
    b, k = participation.min_separation, participation.count
    best = np.zeros(1, dtype=np.int64)
    subtree = np.array([0, 1], dtype=np.int64)
    subtrees = [subtree]
    for level in range(1, participation.rounds.bit_length()):
        capacity = min(k, -(-(2**level) // b))
        subtree = _best_split(subtree, subtree, capacity)
        subtree += np.arange(subtree.size) ** 2
        subtrees.append(subtree)
    for level in _forest(participation.rounds):
        best = _best_split(best, subtrees[level], k)
    return int(best.max())


def _best_split(left: np.ndarray, right: np.ndarray, capacity: int) -> np.ndarray:
    """Max-plus convolution: entry j is the largest left[i] + right[j - i], for j <= capacity."""
    size = min(left.size + right.size - 2, capacity) + 1
    best = np.zeros(size, dtype=np.int64)
    for i, value in enumerate(left[:size]):
        part = value + right[: size - i]
        best[i : i + part.size] = np.maximum(best[i : i + part.size], part)
    return best
