"""Mechanisms whose noise starts afresh in given rounds."""

import dataclasses
from typing import ClassVar

import numpy as np
import scipy

from dpfl import _validate, errors
from dpfl.mechanisms import kernels, toeplitz
from dpfl.mechanisms.base import Mechanism, checked_starts
from dpfl.mechanisms.sensitivities import matrix_sensitivity, tree_sensitivity
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity, best_split
from dpfl.participation import Participation

# Limit for the general bound that couples the segments: its memory and time are quadratic.
_MOST_COUPLED_ROUNDS = 2048


@dataclasses.dataclass(frozen=True)
class Restarted(Mechanism):
    """A mechanism that starts afresh in the rounds of a schedule: `C` is block-diagonal.

    [Xu23], algorithm 1 restarts after rounds 128 + 1024 i, so that a new clip norm can take
    effect. It restarts at the end of a round, counted from 0, so the first round of the next
    segment is 129 + 1024 i; see `every`.

    If the base is itself restarted, both schedules are merged into one.

    Attributes:
      base: the mechanism of every segment, with at least the rounds of the longest one; it
        `shortens`.
      starts: first round of every segment except the first: integers that increase within
        1 .. rounds - 1.
      rounds: number of rounds, at least 1.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> restarted = Restarted(BinaryTree(4), starts=(4,), rounds=8)
      >>> round(restarted.sensitivity(Participation(8, 4)) ** 2)  # Two leaves of three nodes each.
      6
    """

    name: ClassVar[str] = 'restarted'
    starts_afresh: ClassVar[bool] = True
    extends: ClassVar[bool] = False  # Only as far as the base has rounds for the last segment.
    base: Mechanism
    starts: tuple[int, ...]
    rounds: int

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.base, Mechanism):
            raise errors.ArgumentError('base', self.base, 'must be a mechanism')
        if not self.base.shortens:
            raise errors.ArgumentError(
                'base', self.base.name, 'must be a mechanism that can have fewer rounds'
            )
        object.__setattr__(self, 'starts', checked_starts(self.starts, self.rounds))
        longest = max(self.lengths)
        if self.base.rounds < longest:
            raise errors.ArgumentError(
                'base',
                errors.NOT_SHOWN,
                f'has {self.base.rounds} rounds, must have at least {longest}, the length of the '
                'longest segment',
            )
        if isinstance(self.base, Restarted):
            # The restarts of this schedule, and those of the base within each segment.
            merged = set(self.starts)
            for first, length in zip((0, *self.starts), self.lengths, strict=True):
                merged.update(first + start for start in self.base.starts if start < length)
            object.__setattr__(self, 'starts', tuple(sorted(merged)))
            object.__setattr__(self, 'base', self.base.base)

    @classmethod
    def every(
        cls, base: Mechanism, first: int = 128, every: int = 1024, rounds: int | None = None
    ) -> 'Restarted':
        """Restarts after each of the rounds first, first + every, first + 2 every, ...

        Rounds count from 0. The defaults are the schedule of [Xu23], algorithm 1.

        Args:
          base: the mechanism of every segment.
          first: last round of the first segment, at least 0.
          every: length of each later segment, at least 1.
          rounds: number of rounds of the whole run, at least 1; None for those of the base.

        Raises:
          ArgumentError: if an argument is out of its range, or the base has too few rounds.
        """
        _validate.integer('first', first, minimum=0)
        _validate.integer('every', every, minimum=1)
        rounds = base.rounds if rounds is None else rounds
        _validate.integer('rounds', rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        return cls(base, tuple(range(first + 1, rounds, every)), rounds)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of rounds of each segment."""
        return tuple(np.diff([0, *self.starts, self.rounds]).tolist())

    @property
    def fresh_rounds(self) -> tuple[int, ...]:
        return self.starts

    @property
    def strategy_bands(self) -> int:
        """As many as the longest segment has rounds, or fewer if the base is banded."""
        bands, longest = self.base.strategy_bands, max(self.lengths)
        return longest if bands is None else min(bands, longest)

    def segments(self) -> list[Mechanism]:
        """The mechanism of each segment."""
        return [self.base.with_rounds(length) for length in self.lengths]

    def with_rounds(self, rounds: int) -> 'Restarted':
        starts = tuple(start for start in self.starts if start < rounds)
        return Restarted(self.base, starts, rounds)

    def begins_like(self, other: Mechanism, rounds: int) -> bool:
        if not isinstance(other, Restarted) or rounds > min(self.rounds, other.rounds):
            return False
        mine, others = self.with_rounds(rounds), other.with_rounds(rounds)
        longest = max(mine.lengths)
        return mine.starts == others.starts and mine.base.begins_like(others.base, longest)

    def strategy_matrix(self) -> np.ndarray:
        return scipy.linalg.block_diag(*(segment.strategy_matrix() for segment in self.segments()))

    def released_matrix(self) -> np.ndarray:
        """Block-diagonal matrix of the released matrices of all segments, [any, rounds]."""
        return scipy.linalg.block_diag(*(segment.released_matrix() for segment in self.segments()))

    def column_norms(self) -> np.ndarray:
        return np.concatenate([segment.column_norms() for segment in self.segments()])

    def describe_release(self) -> str:
        return f'The noise starts afresh {len(self.starts)} times. {self.base.describe_release()}'

    def kernel(self) -> kernels.Kernel:
        return kernels.concatenate([segment.kernel() for segment in self.segments()], self.lengths)

    def num_buffers(self) -> int:
        return max(segment.num_buffers() for segment in self.segments())

    def is_counted(self) -> bool:
        return self.base.is_counted()

    def column_error(self, rounds: int) -> float:
        return max(map(self.base.column_error, set(self.with_rounds(rounds).lengths)))

    def forest(self) -> tree_sensitivity.Forest | None:
        """The subtrees of all segments side by side."""
        forests = []
        for segment in self.segments():
            forest = segment.forest()
            if forest is None:
                return None
            forests.append(forest)
        levels = tuple(level for forest in forests for level in forest.levels)
        return tree_sensitivity.Forest(levels, right_children=forests[0].right_children)

    def _prefix_squared_error(self) -> np.ndarray:
        squared, before = [], 0.0
        for segment in self.segments():
            squared.append(before + segment.squared_error())
            before = squared[-1][-1]
        return np.concatenate(squared)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        """Exact for most base mechanisms, an upper bound for the others.

        Exact cases: independent noise; trees by their nodes, as far as that is affordable; plain
        trees by their prefix sums; bands within the separation; monotone Toeplitz matrices.
        Otherwise it is the smaller of two bounds, uncoupled and coupled; the latter needs the Gram
        matrix.
        """
        if self.base.is_identity:
            return self.base.with_rounds(self.rounds).sensitivity_bound(participation)
        forest = self.forest()
        if forest is not None:
            return tree_sensitivity.sensitivity(participation, forest)
        bands = self.base.strategy_bands
        if bands is not None and bands <= participation.min_separation:
            # No two columns of a pattern overlap.
            squared = matrix_sensitivity.heaviest_pattern(self.column_norms() ** 2, participation)
            return Sensitivity(squared, is_exact=True)
        coefficients = self.base.toeplitz_column(max(self.lengths))
        if coefficients is not None and toeplitz.is_monotone(coefficients):
            return _of_toeplitz_blocks(coefficients, self.lengths, participation)
        uncoupled = self._uncoupled(participation)
        if uncoupled.is_exact or self.rounds > _MOST_COUPLED_ROUNDS:
            return uncoupled
        released = self.released_matrix()
        coupled = matrix_sensitivity.upper_bound(released.T @ released, participation)
        return coupled if coupled.is_exact else min(uncoupled, coupled)

    def _uncoupled(self, participation: Participation) -> Sensitivity:
        """Sum of the segments' squared sensitivities for the best split of participations.

        It ignores the separation between the last participation in a segment and the first in
        the next, so it is an upper bound. It is exact where there is nothing to ignore: with
        separation 1, with one segment, or with one participation.
        """
        inside: dict[int, list[Sensitivity]] = {}
        for segment in self.segments():
            if segment.rounds not in inside:
                schema = participation.within(segment.rounds)
                inside[segment.rounds] = [Sensitivity(0.0, is_exact=True)] + [
                    segment.sensitivity_bound(dataclasses.replace(schema, max_participations=j))
                    for j in range(1, schema.count + 1)
                ]
        best = np.zeros(1)
        for length in self.lengths:
            values = np.array([bound.squared for bound in inside[length]])
            best = best_split(best, values, participation.count)
        exact = all(bound.is_exact for bounds in inside.values() for bound in bounds)
        free = 1 in (len(self.lengths), participation.min_separation, participation.count)
        return Sensitivity(float(best.max()), is_exact=exact and free)


def _of_toeplitz_blocks(
    coefficients: np.ndarray, lengths: tuple[int, ...], participation: Participation
) -> Sensitivity:
    """Exact sensitivity of segments with the same monotone coefficients.

    Within a segment, j participations not before round s contribute most at s, s + b, ...: moving
    one participation and all later ones of the segment a round earlier lowers no column norm
    and no product of two columns (the argument of [McMahan24], theorem 3.1). This choice also
    ends earliest, which leaves the next segment most freedom. So only the number of participations
    of each segment remains to be chosen. Only a full segment, into which no further one fits,
    delays the first participation of the next segment.

    Args:
      coefficients: first column of C, non-negative and non-increasing, [at least the length of
        the longest segment].
      lengths: number of rounds of each segment.
      participation: the schema over all rounds.
    """
    b, k = participation.min_separation, participation.count
    # Key: the earliest round of the next participation, counted from the start of the segment.
    # Value: the largest squared norm so far for each number of participations; -inf if impossible.
    states = {0: np.zeros(1)}
    for length in lengths:
        following: dict[int, np.ndarray] = {}
        for first, values in states.items():
            inside = _evenly_spaced(coefficients[:length], first, b, k)
            fit = inside.size - 1
            end = first + fit * b - length
            if end > 0:
                full = np.append(np.full(fit, -np.inf), values + inside[-1])
                _keep(following, end, full[: k + 1])
                inside = inside[:-1]
            if inside.size:
                _keep(following, 0, best_split(values, inside, k))
        states = following
    best = max(values.max() for values in states.values())
    return Sensitivity(float(best), is_exact=True)


def _evenly_spaced(coefficients: np.ndarray, first: int, separation: int, count: int) -> np.ndarray:
    """Squared norm of `C u` for 0, 1, .. participations at first, first + separation, ...

    Args:
      coefficients: first column of C, [rounds].
      first: round of the first participation, possibly beyond the last round.
      separation: b.
      count: largest number of participations.

    Returns:
      float64 [1 + number of participations that fit, at most 1 + count].
    """
    rounds = coefficients.size
    released = np.zeros(rounds)
    squared = [0.0]
    for place in range(first, rounds, separation)[:count]:
        released[place:] += coefficients[: rounds - place]
        squared.append(float(released @ released))
    return np.array(squared)


def _keep(states: dict[int, np.ndarray], first: int, values: np.ndarray) -> None:
    """Raises the entries of `states[first]` to the values that are larger."""
    known = states.get(first, np.zeros(0))
    larger = np.full(max(known.size, values.size), -np.inf)
    larger[: known.size] = known
    larger[: values.size] = np.maximum(larger[: values.size], values)
    states[first] = larger
