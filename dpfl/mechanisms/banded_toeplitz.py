"""Banded Toeplitz mechanisms (BandToep): `C` is Toeplitz with few bands."""

import dataclasses
from typing import ClassVar

import numpy as np

from dpfl import _validate, errors
from dpfl.mechanisms import base, kernels, rounding, toeplitz
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation


@dataclasses.dataclass(frozen=True, eq=False)
class BandedToeplitz(base.Mechanism):
    """`C` is Toeplitz with b bands: C[i, j] = coefficients[i - j] for 0 <= i - j < b, else 0.

    This is BandToep ([McMahan24], section 4.2), made by `optimize_banded_toeplitz`. Its noise
    needs b - 1 buffers. The coefficients are valid for any number of rounds.

    Attributes:
      rounds: number of rounds, at least 1; bands beyond it are not used.
      coefficients: float64 [b], b >= 1, the first one positive. If it is given as negative, all
        signs are turned: -C is the same mechanism, because z and -z have the same distribution.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> mechanism = BandedToeplitz(rounds=6, coefficients=np.array([1.0, 0.5]))
      >>> round(mechanism.sensitivity(Participation(6, min_separation=3)), 4)
      1.5811
    """

    name: ClassVar[str] = 'banded_toeplitz'
    rounds: int
    coefficients: np.ndarray

    def __post_init__(self):
        super().__post_init__()
        coefficients = _validate.vector('coefficients', self.coefficients)
        if not coefficients.size or coefficients[0] == 0:
            raise errors.ArgumentError(
                'coefficients', coefficients.tolist(), 'must start with a number other than 0'
            )
        if coefficients[0] < 0:  # Independent normal noise has no sign: -C is the same mechanism.
            coefficients = _validate.vector('coefficients', 0.0 - coefficients)
        object.__setattr__(self, 'coefficients', coefficients)
        if coefficients[0] < rounding.SMALLEST or np.abs(coefficients).max() > rounding.LARGEST:
            raise errors.ArgumentError(
                'coefficients',
                coefficients.tolist(),
                f'the first must be >= {rounding.SMALLEST:g} and all <= {rounding.LARGEST:g} in '
                'size, so that their squares are floats',
            )

    @classmethod
    def fichtenberger(cls, rounds: int, bands: int | None = None) -> 'BandedToeplitz':
        """BandFHU: the first `bands` coefficients of (1 - x)^(-1/2), without an optimiser.

        All `rounds` coefficients together are the square root of the prefix-sum matrix, which is
        optimal for one participation and the max loss ([Fichtenberger23]). With fewer bands it
        suits several participations ([McMahan24], section 4.2).

        Args:
          rounds: number of rounds, at least 1.
          bands: b, at least 1; `rounds` if None.
        """
        _validate.integer('rounds', rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        bands = rounds if bands is None else _validate.integer('bands', bands, minimum=1)
        return cls(rounds, toeplitz.square_root_coefficients(bands))

    @property
    def bands(self) -> int:
        """b, the main diagonal included."""
        return self.coefficients.size

    @property
    def strategy_bands(self) -> int:
        return self.bands

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.toeplitz_column(self.rounds))

    def kernel(self) -> kernels.BandedSolve:
        return kernels.BandedSolve(bands=self.coefficients[None])

    def _prefix_coefficients(self) -> np.ndarray:
        return toeplitz.divided(np.ones(self.rounds), self.coefficients)

    def toeplitz_column(self, rounds: int) -> np.ndarray:
        column = np.zeros(rounds)
        used = min(rounds, self.bands)
        column[:used] = self.coefficients[:used]
        return column

    def column_norms(self) -> np.ndarray:
        return np.sqrt(np.cumsum(self.toeplitz_column(self.rounds) ** 2)[::-1])

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        """Exact if the bands do not exceed the separation, or the coefficients are monotone.

        In the first case the columns of a pattern do not overlap, whatever the signs, so the
        squared sensitivity is a sum of squared column norms. Column norms do not increase from
        left to right, because the last columns are cut off, so the pattern 0, b, 2b, .. has the
        largest sum. In other cases it is the proven bound of `toeplitz.sensitivity`.
        """
        separation = participation.min_separation
        column = self.toeplitz_column(participation.rounds)
        if self.bands > separation:
            return toeplitz.sensitivity(column, participation)
        squared_norms = np.cumsum(column**2)[::-1]
        squared = squared_norms[::separation][: participation.count].sum()
        return Sensitivity(float(squared), is_exact=True)
