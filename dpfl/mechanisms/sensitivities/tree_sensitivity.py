"""Sensitivity of binary tree aggregation under min-separation participation.

The squared sensitivity is the largest sum of squared node counts over all admitted patterns, where
a node counts the participations in its subtree. The nodes belong to a forest of complete subtrees
that cover the rounds from left to right.

Two neighbouring subtrees constrain each other in one way only: the first participation on the
right is at least b rounds after the last one on the left. So for each subtree, number of
participations and sum of squared counts, it is enough to know the smallest possible position of
the last participation as a function of the earliest position of the first. This gives an exact
recursion over levels that enumerates no patterns.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from dpfl.mechanisms.sensitivities.common import Sensitivity, best_split
from dpfl.participation import Participation

_NEVER = np.int32(2**30)
# Array elements beyond which the bound replaces the exact recursion: a few seconds of work.
_WORK_LIMIT = 200_000_000


@dataclasses.dataclass(frozen=True)
class Forest:
    """Complete subtrees side by side, and which of their nodes count.

    Attributes:
      levels: levels of the subtrees from left to right; a subtree of level l covers 2^l rounds.
      right_children: whether right children count. The prefix sums of a tree use only roots and
        left children.
    """

    levels: tuple[int, ...]
    right_children: bool = True

    @classmethod
    def of(cls, rounds: int, right_children: bool = True) -> 'Forest':
        """The forest with the fewest complete subtrees over exactly `rounds` rounds."""
        levels = (level for level in reversed(range(rounds.bit_length())) if rounds >> level & 1)
        return cls(tuple(levels), right_children)

    @classmethod
    def completed(cls, rounds: int) -> 'Forest':
        """One complete tree over at least `rounds` rounds."""
        return cls(((rounds - 1).bit_length(),))


@dataclasses.dataclass(frozen=True)
class _Outcomes:
    """Possible outcomes of one number of participations inside a subtree.

    Attributes:
      values: sums of squared node counts, int64 [m], decreasing.
      last: smallest position of the last participation if the first is not before s, int32
        [m, size + 1] over s; `_NEVER` if it is impossible.
    """

    values: np.ndarray
    last: np.ndarray


class _TooMuchWorkError(Exception):
    """The exact recursion would take too long."""


def sensitivity(participation: Participation, forest: Forest) -> Sensitivity:
    """Exact if the recursion is affordable, otherwise a proven upper bound.

    The bound ignores the constraints between subtrees: a subtree of w leaves then holds any number
    of participations up to ceil(w / b). If the pattern 0, b, 2b, ... attains it, it is exact.
    """
    bound = _uncoupled(participation, forest)
    leaves = sum(2**level for level in forest.levels)
    # Without a separation, neighbouring subtrees do not constrain each other.
    free = participation.min_separation == 1 and participation.rounds == leaves
    if free or _evenly_spaced(participation, forest) == bound:
        return Sensitivity(float(bound), is_exact=True)
    try:
        return Sensitivity(float(_coupled(participation, forest)), is_exact=True)
    except _TooMuchWorkError:
        return Sensitivity(float(bound), is_exact=False)


def _evenly_spaced(participation: Participation, forest: Forest) -> int:
    """Sum of squared node counts of the pattern 0, b, 2b, ...: a lower bound."""
    pattern = np.zeros(sum(2**level for level in forest.levels), dtype=np.int64)
    pattern[: participation.rounds : participation.min_separation][: participation.count] = 1
    total = start = 0
    for level in forest.levels:
        counts = pattern[start : start + 2**level]
        start += counts.size
        while counts.size:
            counting = counts if forest.right_children else counts[::2]
            total += int(counting @ counting)
            counts = counts[: counts.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    return total


def _coupled(participation: Participation, forest: Forest) -> int:
    b, k = participation.min_separation, participation.count
    subtrees = _subtrees(max(forest.levels), b, k, forest.right_children)
    # For each number of participations: sums of squares and last positions in the forest so far.
    states = {0: (np.array([0]), np.array([-b], dtype=np.int64))}
    offset = 0
    for level in forest.levels:
        merged: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        for before, (values, last) in states.items():
            merged.setdefault(before, []).append((values, last))
            start = np.clip(last + b - offset, 0, 2**level)
            for inside, outcomes in subtrees[level].items():
                if before + inside > k:
                    continue
                total = outcomes.values[:, None] + values
                position = offset + outcomes.last[:, start].astype(np.int64)
                # A completed tree has more leaves than there are rounds.
                possible = position < participation.rounds
                merged.setdefault(before + inside, []).append((total[possible], position[possible]))
        states = {}
        for count, parts in merged.items():
            values = np.concatenate([part[0] for part in parts])
            last = np.concatenate([part[1] for part in parts])
            if values.size:
                outcomes = _undominated(values, last[:, None])
                states[count] = (outcomes.values, outcomes.last[:, 0])
        offset += 2**level
    return int(max(values[0] for values, _ in states.values()))


def _subtrees(top: int, b: int, k: int, right_children: bool) -> list[dict[int, _Outcomes]]:
    """Outcomes of a complete subtree of each level up to `top`, by participations >= 1.

    The root of the subtree is counted. If right children do not count, a parent subtracts the root
    of its right half again.
    """
    work = 0
    leaf = _Outcomes(np.array([1]), np.array([[0, _NEVER]], dtype=np.int32))
    levels: list[dict[int, _Outcomes]] = [{1: leaf}]
    for level in range(1, top + 1):
        size = 2**level
        outcomes = {}
        for count in range(1, min(k, -(-size // b)) + 1):
            candidates = list(_halves(levels[-1], count, size // 2, b, right_children))
            work += sum(last.size for _, last in candidates)
            if work > _WORK_LIMIT:
                raise _TooMuchWorkError
            values = np.concatenate([value for value, _ in candidates]) + count**2
            last = np.concatenate([last for _, last in candidates])
            outcomes[count] = _undominated(values, last)
        levels.append(outcomes)
    return levels


def _halves(
    child: dict[int, _Outcomes], count: int, half: int, b: int, right_children: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields values and last positions of a subtree whose halves share `count` participations."""

    def as_right_child(on_right):
        return child[on_right].values - (0 if right_children else on_right**2)

    if count in child:
        last = child[count].last
        never = np.full((len(last), half), _NEVER)
        yield child[count].values, np.hstack([last, never])
        shifted = np.minimum(half + last, _NEVER)
        first = np.repeat(shifted[:, :1], half, axis=1)
        yield as_right_child(count), np.hstack([first, shifted])
    for on_left, left in child.items():
        right = child.get(count - on_left)
        if right is None:
            continue
        start = np.clip(left.last + b - half, 0, half)
        last = np.minimum(half + right.last[:, start], _NEVER).reshape(-1, half + 1)
        values = (as_right_child(count - on_left)[:, None] + left.values).ravel()
        never = np.full((values.size, half), _NEVER)
        yield values, np.hstack([last, never])


def _undominated(values: np.ndarray, last: np.ndarray) -> _Outcomes:
    """Drops outcomes that for every s are no earlier than some outcome of larger value."""
    order = np.argsort(-values, kind='stable')
    values, last = values[order], last[order]
    starts = np.flatnonzero(np.diff(values, prepend=values[0] + 1))
    values, last = values[starts], np.minimum.reduceat(last, starts, axis=0)
    earliest = np.minimum.accumulate(last, axis=0)
    useful = np.ones(values.size, dtype=bool)
    useful[1:] = (last[1:] < earliest[:-1]).any(axis=1)
    useful &= (last < _NEVER).any(axis=1)
    return _Outcomes(values[useful], last[useful])


def _uncoupled(participation: Participation, forest: Forest) -> int:
    b, k = participation.min_separation, participation.count
    subtrees = [np.array([0, 1], dtype=np.int64)]
    for level in range(1, max(forest.levels) + 1):
        capacity = min(k, -(-(2**level) // b))
        left = subtrees[-1]
        right = left if forest.right_children else left - np.arange(left.size) ** 2
        subtree = best_split(left, right, capacity)
        subtrees.append(subtree + np.arange(subtree.size) ** 2)
    best = np.zeros(1, dtype=np.int64)
    for level in forest.levels:
        best = best_split(best, subtrees[level], k)
    return int(best.max())
