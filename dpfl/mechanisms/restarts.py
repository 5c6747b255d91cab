"""Mechanisms that start afresh in given rounds."""

import dataclasses
from typing import ClassVar

import numpy as np
from scipy import linalg

from dpfl import _validate
from dpfl.mechanisms import (
    banded_inverse,
    base,
    blt,
    kernels,
    toeplitz_sensitivity,
    tree,
    tree_sensitivity,
)
from dpfl.participation import Participation


@dataclasses.dataclass(frozen=True)
class Restarted(base.Mechanism):
    """A mechanism that starts afresh in the rounds of a schedule: `C` is block-diagonal.

    Document 000, algorithm 1 restarts after rounds 128 + 1024 i, so that a new clip norm can take
    effect; the first round of the next segment is then 129 + 1024 i.

    Attributes:
      base: the mechanism of every segment, with at least as many rounds as the longest one.
      starts: first rounds of the segments but the first, increasing, within 1 .. rounds - 1.
      rounds: number of rounds, at least 1.

    Raises:
      ValueError: if a field is out of its range.
    """

    name: ClassVar[str] = 'restarted'
    base: base.Mechanism
    starts: tuple[int, ...]
    rounds: int

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1)
        starts = tuple(int(start) for start in self.starts)
        object.__setattr__(self, 'starts', starts)
        bounds = (0, *starts, self.rounds)
        if any(end <= start for start, end in zip(bounds, bounds[1:], strict=False)):
            raise ValueError(
                f'starts={starts}: must increase within 1 .. {self.rounds - 1} (rounds - 1)'
            )
        longest = max(self.lengths)
        if self.base.rounds < longest:
            raise ValueError(
                f'base has {self.base.rounds} rounds: must be at least {longest}, those of the '
                'longest segment'
            )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rounds of each segment."""
        return tuple(np.diff([0, *self.starts, self.rounds]).tolist())

    def segments(self) -> list[base.Mechanism]:
        """The mechanism of each segment."""
        return [self.base.with_rounds(length) for length in self.lengths]

    def with_rounds(self, rounds: int) -> 'Restarted':
        starts = tuple(start for start in self.starts if start < rounds)
        return Restarted(self.base, starts, rounds)

    def strategy_matrix(self) -> np.ndarray:
        return linalg.block_diag(*(segment.strategy_matrix() for segment in self.segments()))

    def released_matrix(self) -> np.ndarray:
        """What each segment releases, side by side."""
        return linalg.block_diag(*(segment.released_matrix() for segment in self.segments()))

    def describe_release(self) -> str:
        return f'The noise starts afresh {len(self.starts)} times. {self.base.describe_release()}'

    def kernel(self) -> kernels.Kernel:
        return kernels.concatenate([segment.kernel() for segment in self.segments()], self.lengths)

    def _prefix_squared_error(self) -> np.ndarray:
        errors, before = [], 0.0
        for segment in self.segments():
            errors.append(before + segment.squared_error())
            before = errors[-1][-1]
        return np.concatenate(errors)

    def to_dict(self) -> dict:
        return {
            'mechanism': self.name,
            'base': self.base.to_dict(),
            'starts': list(self.starts),
            'rounds': self.rounds,
        }

    def _sensitivity(self, participation) -> base.Sensitivity:
        """Exact for trees by their nodes, and for monotone Toeplitz segments; else a bound.

        Squared sensitivities of the segments add up, for any split of the participations among
        them; the bound lets the segments forget each other's last participation.
        """
        if isinstance(self.base, tree.BinaryTree | tree.HonakerTree):
            exact_forest = self._forest()
            if exact_forest is not None:
                return tree_sensitivity.sensitivity(participation, exact_forest)
        if isinstance(self.base, blt.Blt | banded_inverse.BandedInverse):
            coefficients = self.base.with_rounds(max(self.lengths)).coefficients()
            if toeplitz_sensitivity.is_monotone(coefficients):
                return _monotone_toeplitz(coefficients, self.lengths, participation)
        return self._uncoupled(participation)

    def _forest(self) -> tree_sensitivity.Forest | None:
        nodes = self.base.released == 'nodes'
        if not nodes and not isinstance(self.base, tree.BinaryTree):
            return None
        forests = [tree_sensitivity.Forest.of(length) for length in self.lengths]
        levels = tuple(level for forest in forests for level in forest.levels)
        return tree_sensitivity.Forest(levels, right_children=nodes)

    def _uncoupled(self, participation: Participation) -> base.Sensitivity:
        best = np.zeros(1)
        for segment in self.segments():
            schema = participation.within(segment.rounds)
            inside = [0.0] + [
                segment.sensitivity_bound(dataclasses.replace(schema, max_participations=j)).squared
                for j in range(1, schema.count + 1)
            ]
            best = base.best_split(best, np.array(inside), participation.count)
        single = len(self.lengths) == 1
        exact = single and self.segments()[0].sensitivity_is_exact(participation)
        return base.Sensitivity(float(best.max()), is_exact=exact)

def _monotone_toeplitz(
    coefficients: np.ndarray, lengths: tuple[int, ...], participation: Participation
) -> base.Sensitivity:
    """Exact sensitivity of block-diagonal Toeplitz segments with the same monotone coefficients.

    Within a segment, j participations not before round s do most at s, s + b, ...: moving one and
    all that follow it a round ahead adds to each column and to each product of two columns (the
    argument of document 002, theorem 3.1). They also end earliest there, which leaves the next
    segment most freedom. So only how many participations each segment has remains to be chosen.

    Args:
      coefficients: non-negative and non-increasing, [at least the longest segment].
      lengths: rounds of the segments.
      participation: over all rounds.
    """
    b, k = participation.min_separation, participation.count
    # For each number of participations: (squared norm, last round), none of them dominated.
    states: dict[int, list[tuple[float, int]]] = {0: [(0.0, -b)]}
    start = 0
    for length in lengths:
        merged = {count: list(pairs) for count, pairs in states.items()}
        for count, pairs in states.items():
            for value, last in pairs:
                first = max(last + b, start) - start
                released = np.zeros(length)
                for added, place in enumerate(range(first, length, b), 1):
                    if count + added > k:
                        break
                    released[place:] += coefficients[: length - place]
                    total = value + float(released @ released)
                    merged.setdefault(count + added, []).append((total, start + place))
        states = {count: _undominated(pairs) for count, pairs in merged.items()}
        start += length
    best = max(value for pairs in states.values() for value, _ in pairs)
    return base.Sensitivity(best, is_exact=True)


def _undominated(pairs: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Pairs (value, last round) without those that are worth no more and end no earlier."""
    kept: list[tuple[float, int]] = []
    for value, last in sorted(pairs, key=lambda pair: (-pair[0], pair[1])):
        if not kept or last < kept[-1][1]:
            kept.append((value, last))
    return kept
