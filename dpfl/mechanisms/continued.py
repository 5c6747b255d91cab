"""Banded matrices that go on beyond the rounds they were made for."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from dpfl import _validate, errors
from dpfl.mechanisms import base as base_lib
from dpfl.mechanisms import rounding
from dpfl.mechanisms.banded import Banded
from dpfl.mechanisms.sensitivities import matrix_sensitivity, toeplitz_sensitivity
from dpfl.mechanisms.sensitivities.common import Sensitivity
from dpfl.mechanisms.streaming import kernels
from dpfl.participation import Participation

# Limit for the bound that needs the Gram matrix of all rounds.
_MOST_GRAM_ROUNDS = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Continued(base_lib.Mechanism):
    """A banded matrix of n rounds, followed by the rows of a banded Toeplitz matrix, without end.

    With coefficients c of the tail,

        C[t, u] = base[t, u]          for t < n,
        C[t, u] = link c_{t - u}      for t >= n, u < n,
        C[t, u] = c_{t - u}           for t >= n, u >= n.

    The noise keeps as many buffers as that of the base, however long the run becomes. With a link
    of 0 the noise starts afresh after n rounds.

    No two columns of a pattern overlap if the bands are at most the minimum separation. The
    sensitivity is then exact, for entries of any sign: the heaviest pattern of squared column
    norms. Otherwise it is a proven upper bound, see `_sensitivity`.

    Attributes:
      base: a banded mechanism of n rounds.
      tail: c, at most as many coefficients as the base has bands; the first one is positive.
      link: any number; 1 goes on as if the tail had been there before.
      rounds: number of rounds, at least 1, below or above n.

    Raises:
      ArgumentError: if a field is out of its range.
    """

    name: ClassVar[str] = 'continued'
    base: Banded
    tail: np.ndarray
    link: float
    rounds: int

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        if not isinstance(self.base, Banded):
            raise errors.ArgumentError('base', errors.NOT_SHOWN, 'must be a banded mechanism')
        tail = _validate.vector('tail', self.tail)
        if not 1 <= tail.size <= self.base.bands:
            raise errors.ArgumentError(
                'tail',
                errors.NOT_SHOWN,
                f'has {tail.size} coefficients, must have 1 .. {self.base.bands}, the bands of '
                'the base',
            )
        if not rounding.SMALLEST <= tail[0] or np.abs(tail).max() > rounding.LARGEST:
            raise errors.ArgumentError(
                'tail',
                errors.NOT_SHOWN,
                f'must begin with a number >= {rounding.SMALLEST:g}, and have none above '
                f'{rounding.LARGEST:g} in size',
            )
        object.__setattr__(self, 'tail', tail)
        link = _validate.number('link', self.link, minimum=-1e3, maximum=1e3)
        object.__setattr__(self, 'link', link)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Continued) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    @property
    def strategy_bands(self) -> int:
        return min(self.base.bands, self.rounds)

    def begins_like(self, other: base_lib.Mechanism, rounds: int) -> bool:
        """Also true of the base, in all of its rounds."""
        if isinstance(other, Banded) and rounds <= min(self.base.rounds, self.rounds):
            return self.base.bands == other.bands and self.base.begins_like(other, rounds)
        return super().begins_like(other, rounds)

    def diagonals(self) -> np.ndarray:
        """The table of `Banded` for all rounds, float64 [rounds, bands of the base]."""
        n, bands = self.base.rounds, self.base.bands
        table = np.zeros((self.rounds, bands))
        table[:n] = self.base.diagonals[: self.rounds]
        table[n:, : self.tail.size] = self.tail
        for t in range(n, min(n + bands, self.rounds)):
            table[t, t - n + 1 :] *= self.link
        return table

    def as_banded(self) -> Banded:
        """The banded mechanism of the same matrix."""
        return Banded(self.diagonals()[:, : self.rounds])

    def strategy_matrix(self) -> np.ndarray:
        return self.as_banded().strategy_matrix()

    def kernel(self) -> kernels.BandedSolve:
        return kernels.BandedSolve(bands=self.diagonals())

    def num_buffers(self) -> int:
        return self.base.bands - 1

    def column_norms(self) -> np.ndarray:
        return self.as_banded().column_norms()

    def describe_release(self) -> str:
        return f'The matrix goes on beyond {self.base.rounds} rounds. {super().describe_release()}'

    def _prefix_squared_error(self) -> np.ndarray:
        return self.as_banded().squared_error()

    def to_dict(self) -> dict[str, Any]:
        return {
            'mechanism': self.name,
            'base': self.base.to_dict(),
            'tail': self.tail.tolist(),
            'link': self.link,
            'rounds': self.rounds,
        }

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        """Exact if no columns overlap; else the Gram bound, or for long runs a sum of two parts.

        The columns before n and those after it: by the triangle inequality, the norm of C u is at
        most the sum of their norms, for the worst split of the participations. The columns after n
        are those of a Toeplitz matrix; those before are a matrix of at most n + bands rows.
        """
        few = self.rounds <= max(_MOST_GRAM_ROUNDS, self.base.rounds)
        if few or self.base.bands <= participation.min_separation:
            return self.as_banded()._sensitivity(participation)
        n, bands, count = self.base.rounds, self.base.bands, participation.count
        head = self.with_rounds(min(self.rounds, n + bands)).strategy_matrix()[:, :n]
        gram = head.T @ head
        before, after = participation.within(n), participation.within(self.rounds - n)
        largest = 0.0
        for first in range(count + 1):
            norm = 0.0
            if first:
                part = dataclasses.replace(before, max_participations=first)
                norm += matrix_sensitivity.upper_bound(gram, part).squared ** 0.5
            if first < count:
                part = dataclasses.replace(after, max_participations=count - first)
                coefficients = np.zeros(after.rounds)
                coefficients[: self.tail.size] = self.tail[: after.rounds]
                norm += toeplitz_sensitivity.sensitivity(coefficients, part).squared ** 0.5
            largest = max(largest, norm**2)
        return Sensitivity(rounding.sum_up(largest, 8), is_exact=False)
