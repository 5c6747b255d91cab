"""Mechanisms that start afresh in given rounds."""

import dataclasses
from typing import ClassVar

import numpy as np
from scipy import linalg

from dpfl import _validate, errors
from dpfl.mechanisms import (
    banded,
    banded_inverse,
    banded_toeplitz,
    base,
    blt,
    identity,
    tree,
)
from dpfl.mechanisms.sensitivities import (
    matrix_sensitivity,
    restarted_toeplitz,
    toeplitz_sensitivity,
    tree_sensitivity,
)
from dpfl.mechanisms.streaming import kernels
from dpfl.participation import Participation

# Of the general bound that couples the segments: memory and time grow with the square.
_MOST_COUPLED_ROUNDS = 2048


@dataclasses.dataclass(frozen=True)
class Restarted(base.Mechanism):
    """A mechanism that starts afresh in the rounds of a schedule: `C` is block-diagonal.

    Document 000, algorithm 1 restarts after rounds 128 + 1024 i, so that a new clip norm can take
    effect. It restarts at the end of a round, counted from 0, so the first round of the next
    segment is 129 + 1024 i; see `every`.

    Restarts of a mechanism that restarts are restarts: they are held as one schedule.

    Attributes:
      base: the mechanism of every segment, with at least as many rounds as the longest one.
      starts: first rounds of the segments but the first, integers that increase within
        1 .. rounds - 1.
      rounds: number of rounds, at least 1.

    Raises:
      ValueError: if a field is out of its range.
    """

    name: ClassVar[str] = 'restarted'
    base: base.Mechanism
    starts: tuple[int, ...]
    rounds: int

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        if not isinstance(self.base, base.Mechanism):
            raise errors.ArgumentError('base', self.base, 'must be a mechanism')
        starts = _starts(self.starts)
        object.__setattr__(self, 'starts', starts)
        bounds = (0, *starts, self.rounds)
        if any(end <= start for start, end in zip(bounds, bounds[1:], strict=False)):
            raise errors.ArgumentError(
                'starts', starts, f'must increase within 1 .. {self.rounds - 1} (rounds - 1)'
            )
        longest = max(self.lengths)
        if self.base.rounds < longest:
            raise ValueError(
                f'base has {self.base.rounds} rounds: must be at least {longest}, those of the '
                'longest segment'
            )
        if isinstance(self.base, Restarted):
            object.__setattr__(self, 'starts', self._starts_with_those_of_the_base())
            object.__setattr__(self, 'base', self.base.base)

    def _starts_with_those_of_the_base(self) -> tuple[int, ...]:
        """First rounds of the segments of the segments but the first."""
        firsts = (0, *self.starts)
        inside = zip(firsts, self.lengths, strict=True)
        return tuple(
            sorted(
                {
                    *self.starts,
                    *(
                        first + start
                        for first, length in inside
                        for start in self.base.starts
                        if start < length
                    ),
                }
            )
        )

    @classmethod
    def every(
        cls, base: base.Mechanism, first: int = 128, every: int = 1024, rounds: int | None = None
    ) -> 'Restarted':
        """A restart after each of the rounds first, first + every, first + 2 every, ...

        Rounds count from 0. The defaults are the schedule of document 000, algorithm 1.

        Args:
          base: the mechanism of every segment.
          first: the last round of the first segment, at least 0.
          every: rounds of each segment between two restarts, at least 1.
          rounds: of the whole run, at least 1; those of `base` where it is None.

        Raises:
          ValueError: if an argument is out of its range, or the base has too few rounds.
        """
        _validate.integer('first', first, minimum=0)
        _validate.integer('every', every, minimum=1)
        rounds = base.rounds if rounds is None else _validate.integer('rounds', rounds, minimum=1)
        return cls(base, tuple(range(first + 1, rounds, every)), rounds)

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
        """Exact for most mechanisms, a bound for the others.

        Exact: independent noise, trees by their nodes (as far as that is affordable), plain trees
        by their prefix sums, bands within the separation, monotone Toeplitz matrices.
        """
        if isinstance(self.base, identity.Identity):
            return self.base.with_rounds(self.rounds).sensitivity_bound(participation)
        forest = self._forest()
        if forest is not None:
            return tree_sensitivity.sensitivity(participation, forest)
        if self._columns_never_meet(participation):
            squared_norms = np.concatenate([_column_norms(each) ** 2 for each in self.segments()])
            squared = matrix_sensitivity.heaviest_pattern(squared_norms, participation)
            return base.Sensitivity(squared, is_exact=True)
        coefficients = _coefficients(self.base.with_rounds(max(self.lengths)))
        if coefficients is not None and toeplitz_sensitivity.is_monotone(coefficients):
            return restarted_toeplitz.sensitivity(coefficients, self.lengths, participation)
        return self._bound(participation)

    def _is_counted(self) -> bool:
        return self.base._is_counted()

    def _forest(self) -> tree_sensitivity.Forest | None:
        """The subtrees of all segments side by side; None if they do not give the sensitivity."""
        if not isinstance(self.base, tree.BinaryTree | tree.HonakerTree):
            return None
        nodes = self.base.released == 'nodes'
        if not nodes and not isinstance(self.base, tree.BinaryTree):
            return None
        forests = [tree_sensitivity.Forest.of(length) for length in self.lengths]
        levels = tuple(level for forest in forests for level in forest.levels)
        return tree_sensitivity.Forest(levels, right_children=nodes)

    def _columns_never_meet(self, participation: Participation) -> bool:
        """Whether columns at the separation or more have no row in common, by their bands."""
        is_banded = isinstance(self.base, banded.Banded | banded_toeplitz.BandedToeplitz)
        return is_banded and self.base.bands <= participation.min_separation

    def _bound(self, participation: Participation) -> base.Sensitivity:
        """The better one of two bounds; the second needs the Gram matrix."""
        uncoupled = self._uncoupled(participation)
        if uncoupled.is_exact or self.rounds > _MOST_COUPLED_ROUNDS:
            return uncoupled
        released = self.released_matrix()
        coupled = matrix_sensitivity.upper_bound(released.T @ released, participation)
        return coupled if coupled.is_exact else min(uncoupled, coupled)

    def _uncoupled(self, participation: Participation) -> base.Sensitivity:
        """Squared sensitivities of the segments, summed over the best split of participations.

        The segments forget each other's last participation, so it is a bound; where the separation
        is 1 there is nothing to forget, and with one participation only one segment has any.
        """
        inside: dict[int, list[base.Sensitivity]] = {}
        for segment in self.segments():
            if segment.rounds not in inside:
                schema = participation.within(segment.rounds)
                inside[segment.rounds] = [base.Sensitivity(0.0, is_exact=True)] + [
                    segment.sensitivity_bound(dataclasses.replace(schema, max_participations=j))
                    for j in range(1, schema.count + 1)
                ]
        best = np.zeros(1)
        for length in self.lengths:
            values = np.array([bound.squared for bound in inside[length]])
            best = base.best_split(best, values, participation.count)
        exact = all(bound.is_exact for bounds in inside.values() for bound in bounds)
        free = 1 in (len(self.lengths), participation.min_separation, participation.count)
        return base.Sensitivity(float(best.max()), is_exact=exact and free)


def _starts(values) -> tuple[int, ...]:
    """Integers from any sequence of them."""
    try:
        values = tuple(values)
    except TypeError:
        shown = errors.shown(values)
        raise errors.ArgumentError('starts', shown, 'must be a list of integers') from None
    return tuple(
        _validate.integer('starts', value, minimum=1, maximum=_validate.MOST_ROUNDS)
        for value in values
    )


def _column_norms(segment: base.Mechanism) -> np.ndarray:
    """Norms of the columns of a banded `C`, float64 [rounds]."""
    if isinstance(segment, banded.Banded):
        return segment.column_norms()
    return np.sqrt(np.cumsum(_coefficients(segment) ** 2)[::-1])


def _coefficients(mechanism: base.Mechanism) -> np.ndarray | None:
    """First column of a Toeplitz `C`, float64 [rounds]; None for others."""
    if isinstance(mechanism, blt.Blt | banded_inverse.BandedInverse):
        return mechanism.coefficients()
    if isinstance(mechanism, banded_toeplitz.BandedToeplitz):
        column = np.zeros(mechanism.rounds)
        used = mechanism.coefficients[: mechanism.rounds]
        column[: used.size] = used
        return column
    return None
