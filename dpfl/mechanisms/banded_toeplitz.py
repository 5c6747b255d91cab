"""Banded Toeplitz mechanism (BandToep)."""

import dataclasses
from typing import ClassVar

import numpy as np
from scipy import signal

from dpfl import _validate, errors
from dpfl.mechanisms import base, rounding, toeplitz
from dpfl.mechanisms.sensitivities import toeplitz_sensitivity
from dpfl.mechanisms.streaming import kernels


@dataclasses.dataclass(frozen=True, eq=False)
class BandedToeplitz(base.Mechanism):
    """`C` is Toeplitz with b bands: C[i, j] = coefficients[i - j] for 0 <= i - j < b, else 0.

    BandToep of document 002, section 4.2 (its reference [27]), made by `optimize_banded_toeplitz`.
    Its noise needs b - 1 buffers. The coefficients hold for any number of rounds.

    Attributes:
      rounds: number of rounds, at least 1; bands beyond it are not used.
      coefficients: float64 [b], b >= 1, the first one positive.

    Raises:
      ValueError: if a field is out of its range.
    """

    name: ClassVar[str] = 'banded_toeplitz'
    rounds: int
    coefficients: np.ndarray

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        coefficients = _validate.vector('coefficients', self.coefficients)
        object.__setattr__(self, 'coefficients', coefficients)
        if not coefficients.size or coefficients[0] <= 0:
            first = coefficients[:1].tolist()
            raise ValueError(f'coefficients start with {first}: must start with a number > 0')
        if coefficients[0] < rounding.SMALLEST or np.abs(coefficients).max() > rounding.LARGEST:
            raise errors.ArgumentError(
                'coefficients',
                coefficients.tolist(),
                f'the first must be >= '
                f'{rounding.SMALLEST:g} and all <= {rounding.LARGEST:g} in size, so that their '
                'squares are floats',
            )

    @classmethod
    def fichtenberger(cls, rounds: int, bands: int) -> 'BandedToeplitz':
        """BandFHU: the first `bands` coefficients of (1 - x)^(-1/2).

        Without bands they are optimal for one participation and the max loss (Fichtenberger,
        Henzinger and Upadhyay); cut off, they need no optimiser (document 002, section 4.2).
        """
        _validate.integer('bands', bands, minimum=1)
        return cls(rounds, toeplitz.square_root_coefficients(bands))

    @property
    def bands(self) -> int:
        """b, the main diagonal included."""
        return self.coefficients.size

    def __eq__(self, other) -> bool:
        return isinstance(other, BandedToeplitz) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self._column(self.rounds))

    def kernel(self) -> kernels.BandedSolve:
        return kernels.BandedSolve(bands=self.coefficients[None])

    def squared_error(self, workload: np.ndarray | None = None) -> np.ndarray:
        if workload is not None and np.ndim(workload) != 1:
            return super().squared_error(workload)
        prefix = signal.lfilter([1.0], self.coefficients, np.ones(self.rounds))
        return toeplitz.workload_squared_error(prefix, workload)

    def _column(self, rounds):
        """First `rounds` entries of the first column of C."""
        column = np.zeros(rounds)
        used = min(rounds, self.bands)
        column[:used] = self.coefficients[:used]
        return column

    def _sensitivity(self, participation) -> base.Sensitivity:
        """Exact where the bands do not exceed the separation, or the coefficients are monotone.

        In the first case the columns of a pattern do not overlap, whatever the signs, so the
        squared sensitivity is a sum of squared column norms. These do not increase from column to
        column (the last ones are cut off), so the pattern 0, b, 2b, .. has the largest. Otherwise
        it is the proven bound of `toeplitz_sensitivity.sensitivity`.
        """
        separation = participation.min_separation
        column = self._column(participation.rounds)
        if self.bands > separation:
            return toeplitz_sensitivity.sensitivity(column, participation)
        squared_norms = np.cumsum(column**2)[::-1]
        squared = squared_norms[::separation][: participation.count].sum()
        return base.Sensitivity(float(squared), is_exact=True)
