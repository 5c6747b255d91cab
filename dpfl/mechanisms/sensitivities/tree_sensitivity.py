"""Sensitivity of binary tree aggregation under min-separation participation.

The squared sensitivity is the largest sum of squared node counts over all admitted patterns, where
a node counts the participations in its subtree. The nodes belong to a forest of complete subtrees
that cover the rounds from left to right.

Two neighbouring subtrees constrain each other in one way only: the first participation on the
right is at least b rounds after the last one on the left. So for each subtree, number of
participations and sum of squared counts, it is enough to know the smallest possible position of
the last participation as a function of the earliest position of the first. This gives an exact
recursion over levels that enumerates no patterns.

A running epsilon asks for 1, 2, 3, .. rounds, whose forests differ in their last subtrees only. So
the tables of subtrees, and the results for the first subtrees of the last forest, are kept.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np

from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity, best_split
from dpfl.participation import Participation

_NEVER = np.int32(2**30)
# Array elements beyond which the bound replaces the exact recursion: a few seconds of work.
_WORK_LIMIT = 200_000_000
# Results kept for the first subtrees of a forest: more than one complete tree has levels.
_KEPT_RESULTS = 32
_LOCK = threading.Lock()  # For the tables that calls share.

_R = TypeVar('_R')


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


class _Subtrees:
    """Outcomes of complete subtrees by level and number of participations.

    The root of a subtree is counted. If right children do not count, a parent subtracts the root of
    its right half again. Each table is computed when it is first asked for.
    """

    def __init__(self, separation: int, right_children: bool):
        self._separation, self._right_children = separation, right_children
        # Entry c - 1 of a level is for c participations.
        leaf = _Outcomes(np.array([1]), np.array([[0, _NEVER]], dtype=np.int32))
        self._outcomes = [[leaf]]
        self._work = [[0]]  # Array elements of the level's tables so far.

    def up_to(self, top: int, count: int) -> list[list[_Outcomes]] | None:
        """Levels 0 .. `top` for at least 1 .. `count` participations; None if too much work."""
        work = 0
        for level in range(top + 1):
            if level == len(self._outcomes):
                self._outcomes.append([])
                self._work.append([])
            outcomes, spent = self._outcomes[level], self._work[level]
            capacity = min(count, -(-(2**level) // self._separation))
            while len(outcomes) < capacity:
                inside = len(outcomes) + 1
                if len(spent) < inside:
                    spent.append(sum(spent[-1:]) + self._cost(level, inside))
                if work + spent[-1] > _WORK_LIMIT:
                    return None
                outcomes.append(self._merged(level, inside))
            work += spent[capacity - 1]
            if work > _WORK_LIMIT:
                return None
        return self._outcomes

    def _cost(self, level: int, count: int) -> int:
        """Array elements of all candidates of `_merged`."""
        sizes = np.array([0, *(outcomes.values.size for outcomes in self._outcomes[level - 1])])
        sizes = np.append(sizes, np.zeros(max(count + 1 - sizes.size, 0), np.int64))[: count + 1]
        return int((2 * sizes[count] + sizes @ sizes[::-1]) * (2**level + 1))

    def _merged(self, level: int, count: int) -> _Outcomes:
        candidates = list(self._halves(self._outcomes[level - 1], count, 2 ** (level - 1)))
        values = np.concatenate([value for value, _ in candidates]) + count**2
        return _undominated(values, np.concatenate([last for _, last in candidates]))

    def _halves(
        self, child: list[_Outcomes], count: int, half: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields values and last positions of a subtree whose halves share `count`."""

        def as_right_child(on_right):
            return child[on_right - 1].values - (0 if self._right_children else on_right**2)

        if count <= len(child):
            last = child[count - 1].last
            never = np.full((len(last), half), _NEVER)
            yield child[count - 1].values, np.hstack([last, never])
            shifted = np.minimum(half + last, _NEVER)
            first = np.repeat(shifted[:, :1], half, axis=1)
            yield as_right_child(count), np.hstack([first, shifted])
        for on_left in range(max(count - len(child), 1), min(count - 1, len(child)) + 1):
            left, right = child[on_left - 1], child[count - on_left - 1]
            start = np.clip(left.last + self._separation - half, 0, half)
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


_subtrees = functools.lru_cache(maxsize=4)(_Subtrees)


class _Fold(Generic[_R]):
    """Folds the subtrees of a forest from left to right, from where the last forest differed.

    Args:
      start: result for no subtree.
      add: of a result, the level of the next subtree, and its first round.
    """

    def __init__(self, start: _R, add: Callable[[_R, int, int], _R]):
        self._add = add
        self._levels: tuple[int, ...] = ()
        self._results: dict[int, _R] = {0: start}  # By number of subtrees.

    def over(self, levels: tuple[int, ...]) -> _R:
        shared = 0
        for old, new in zip(self._levels, levels, strict=False):
            if old != new:
                break
            shared += 1
        done = max(size for size in self._results if size <= shared)
        results = {size: self._results[size] for size in self._results if size <= done}
        offset = sum(2**level for level in levels[:done])
        for size, level in enumerate(levels[done:], done + 1):
            results[size] = self._add(results[size - 1], level, offset)
            offset += 2**level
            if size > _KEPT_RESULTS:
                results.pop(size - _KEPT_RESULTS, None)
        self._levels, self._results = levels, results
        return results[len(levels)]


class _Patterns:
    """The sums of squared node counts that patterns of one separation reach, by forest.

    Attributes:
      evenly_spaced: the sum of the pattern 0, b, 2b, ..: a lower bound.
      uncoupled: largest sums by number of participations, int64 [any], without the constraints
        between subtrees: an upper bound.
      coupled: reachable sums, int64 [3, any]: number of participations, the sum, and the smallest
        position of the last participation, without those of which another one is as good.
    """

    def __init__(self, separation: int, most: int | None, right_children: bool):
        self._separation, self._most, self._right_children = separation, most, right_children
        self._largest = [np.array([0, 1])]  # Largest sums of a subtree of each level.
        self.evenly_spaced = _Fold(0, self._add_evenly_spaced)
        self.uncoupled = _Fold(np.zeros(1, np.int64), self._add_uncoupled)
        self.coupled = _Fold(np.array([[0], [0], [-separation]]), self._add_coupled)

    def _capacity(self, level: int) -> int:
        capacity = -(-(2**level) // self._separation)
        return capacity if self._most is None else min(capacity, self._most)

    def _add_evenly_spaced(self, total: int, level: int, offset: int) -> int:
        for height in range(level + 1):
            edges = offset + np.arange(0, 2**level + 1, 2**height)
            before = -(-edges // self._separation)
            counts = np.diff(before if self._most is None else np.minimum(before, self._most))
            counting = counts if self._right_children else counts[::2]
            total += int(counting @ counting)
        return total

    def _add_uncoupled(self, best: np.ndarray, level: int, _: int) -> np.ndarray:
        while len(self._largest) <= level:
            left = self._largest[-1]
            right = left if self._right_children else left - np.arange(left.size) ** 2
            subtree = best_split(left, right, self._capacity(len(self._largest)))
            self._largest.append(subtree + np.arange(subtree.size) ** 2)
        inside = self._largest[level]
        most = best.size + inside.size if self._most is None else self._most
        return best_split(best, inside, most)

    def _add_coupled(self, reached: np.ndarray, level: int, offset: int) -> np.ndarray:
        """Needs the tables of `_Subtrees` for this level."""
        counts, values, last = reached
        capacity = self._capacity(level)
        subtrees = _subtrees(self._separation, self._right_children)
        tables = subtrees.up_to(level, capacity)
        assert tables is not None  # Else `sensitivity` has given up.
        outcomes = tables[level][:capacity]
        inside = np.repeat(np.arange(capacity) + 1, [table.values.size for table in outcomes])
        start = np.clip(last + self._separation - offset, 0, 2**level)
        position = np.concatenate([table.last for table in outcomes])[:, start].astype(np.int64)
        count = inside[:, None] + counts
        possible = position < _NEVER
        if self._most is not None:
            possible &= count <= self._most
        value = np.concatenate([table.values for table in outcomes])[:, None] + values
        added = np.array([count[possible], value[possible], offset + position[possible]])
        reached = np.hstack([reached, added])
        counts, values, last = reached = reached[
            :, np.lexsort((reached[2], -reached[1], reached[0]))
        ]
        # Positions that fall from one number of participations to the next keep them apart.
        falling = last - counts * (last.max() + self._separation + 1)
        useful = np.append(True, falling[1:] < np.minimum.accumulate(falling)[:-1])
        return reached[:, useful]


_patterns = functools.lru_cache(maxsize=4)(_Patterns)


def sensitivity(participation: Participation, forest: Forest) -> Sensitivity:
    """Exact if the recursion is affordable, otherwise a proven upper bound.

    The bound ignores the constraints between subtrees: a subtree of w leaves then holds any number
    of participations up to ceil(w / b). If the pattern 0, b, 2b, ... attains it, it is exact.
    """
    with _LOCK:
        separation, count = participation.min_separation, participation.count
        covers = participation.rounds == sum(2**level for level in forest.levels)
        most = participation.max_participations if covers else count
        patterns = _patterns(separation, most, forest.right_children)
        bound = int(patterns.uncoupled.over(forest.levels)[: count + 1].max())
        # Without a separation, neighbouring subtrees do not constrain each other.
        free = separation == 1 and covers
        if free or patterns.evenly_spaced.over(forest.levels) == bound:
            return Sensitivity(float(bound), is_exact=True)
        subtrees = _subtrees(separation, forest.right_children)
        if subtrees.up_to(max(forest.levels), count) is None:
            return Sensitivity(float(bound), is_exact=False)
        counts, values, last = patterns.coupled.over(forest.levels)
        # A completed tree has more leaves than there are rounds.
        possible = (counts <= count) & (last < participation.rounds)
        return Sensitivity(float(values[possible].max()), is_exact=True)
