"""Banded inverse mechanisms (BandInvMF): `C^-1` is Toeplitz with few bands."""

import dataclasses
from typing import ClassVar

import numpy as np
from scipy import signal

from dpfl import _validate, errors
from dpfl.mechanisms import base, kernels, rounding, toeplitz
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation


@dataclasses.dataclass(frozen=True, eq=False)
class BandedInverse(base.Mechanism):
    """`C^-1` is lower-triangular Toeplitz with p bands: its first column is (1, a_1, .., a_{p-1}).

    The noise of a round is a weighted sum of the last p independent noises. These can be drawn
    again from their keys, so no noise has to be kept. `C` is a full Toeplitz matrix whose
    coefficients are the power series 1 / (1 + a_1 x + .. + a_{p-1} x^{p-1}). The coefficients are
    valid for any number of rounds. The optimised form is called BandInvMF in arXiv 2505.12128.

    Attributes:
      rounds: number of rounds, at least 1.
      inverse_coefficients: (1, a_1, .., a_{p-1}), float64 [p]; p may exceed `rounds`. If they start
        with -1, all signs are turned: the noise has the same distribution.

    Raises:
      ArgumentError: if a field is out of its range, or the entries of `C` overflow.

    Example:
      >>> inverse = BandedInverse(rounds=4, inverse_coefficients=np.array([1.0, -0.5]))
      >>> inverse.strategy_matrix()[:, 0]
      array([1.   , 0.5  , 0.25 , 0.125])
    """

    name: ClassVar[str] = 'banded_inverse'
    rounds: int
    inverse_coefficients: np.ndarray

    def __post_init__(self):
        super().__post_init__()
        taps = _validate.vector('inverse_coefficients', self.inverse_coefficients)
        if not taps.size or abs(taps[0]) != 1:
            raise errors.ArgumentError(
                'inverse_coefficients',
                taps.tolist(),
                'must have at least 1 entry, the first 1 or -1',
            )
        if taps[0] < 0:  # Independent normal noise has no sign: -C is the same mechanism.
            taps = _validate.vector('inverse_coefficients', 0.0 - taps)
        object.__setattr__(self, 'inverse_coefficients', taps)
        with np.errstate(over='ignore', invalid='ignore'):
            # Bounds every norm of C u; its square must be a float.
            largest = np.abs(self.coefficients()).sum() * self.rounds
        if not largest < 1e150:
            raise errors.ArgumentError(
                'inverse_coefficients',
                taps.tolist(),
                f'the inverse grows to a sum of {largest:g} over rounds={self.rounds}, must stay '
                'below 1e150',
            )

    @classmethod
    def square_root(cls, rounds: int, bands: int) -> 'BandedInverse':
        """BISR, the banded inverse square root of the prefix sums (arXiv 2505.12128).

        Args:
          rounds: number of rounds, at least 1.
          bands: p, at least 1.
        """
        return cls.fractional_power(rounds, bands, 0.5)

    @classmethod
    def fractional_power(cls, rounds: int, bands: int, power: float) -> 'BandedInverse':
        """The mechanism whose `C^-1` has the first `bands` coefficients of (1 - x)^power.

        Power 1/2 is BISR. With two bands `C^-1` is 1 - power x, the single step of DP-lambda-CGD
        (arXiv 2601.22334). With few bands a power near 1 has far less loss than 1/2 (compare
        gamma-BIFR, arXiv 2605.18379).

        Args:
          rounds: number of rounds, at least 1.
          bands: p, at least 1.
          power: within [0, 1]; 0 gives independent noise.
        """
        _validate.integer('bands', bands, minimum=1)
        _validate.number('power', power, minimum=0, maximum=1)
        orders = np.arange(1, bands)
        return cls(rounds, np.cumprod(np.concatenate([[1.0], (orders - 1 - power) / orders])))

    @property
    def bands(self) -> int:
        """Number of bands p of `C^-1`: the noise of a round is a sum of p independent ones."""
        return self.inverse_coefficients.size

    def coefficients(self) -> np.ndarray:
        """First column of `C`, float64 [rounds]."""
        return toeplitz.reciprocal(self.inverse_coefficients, self.rounds)

    def column_error(self, rounds: int) -> float:
        """Bound of the relative error of the computed columns of `C`; 0 if nothing cancels.

        Each coefficient c_i is a sum of p products `a_j c_{i-j}`. What its rounding adds goes
        through the recursion like the impulse. To first order the errors are therefore at most
        `|c| * r`, where `*` is convolution and r = (p + 1) UNIT |a| * |c| bounds the roundings.
        """
        if (self.inverse_coefficients[1:] <= 0).all():
            return 0.0
        taps, column = np.abs(self.inverse_coefficients), np.abs(self.toeplitz_column(rounds))
        convolve = np.convolve if rounds <= 512 else signal.fftconvolve
        with np.errstate(over='ignore', invalid='ignore'):
            roundings = convolve(taps, column)[:rounds] * ((taps.size + 1) * rounding.UNIT)
            errors = convolve(column, roundings)[:rounds]
        return toeplitz.column_error(column, errors)

    def toeplitz_column(self, rounds: int) -> np.ndarray:
        return self.with_rounds(rounds).coefficients()

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.coefficients())

    def kernel(self) -> kernels.BandedProduct:
        return kernels.BandedProduct(taps=self.inverse_coefficients[None])

    def squared_error(self, workload: np.ndarray | None = None) -> np.ndarray:
        if workload is None:
            return self._prefix_squared_error()
        a = workloads.cut(workload, self.rounds)
        if a.ndim == 1:
            return np.cumsum(signal.lfilter(self.inverse_coefficients, [1.0], a) ** 2)
        # Entry (t, j) of A C^-1 is sum_i A[t, j + i] a_i: a filter that runs over j backwards.
        decoder = signal.lfilter(self.inverse_coefficients, [1.0], a[:, ::-1], axis=1)
        return (decoder**2).sum(axis=1)

    def _prefix_coefficients(self) -> np.ndarray:
        taps = np.zeros(self.rounds)
        used = min(self.rounds, self.bands)
        taps[:used] = self.inverse_coefficients[:used]
        return np.cumsum(taps)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return toeplitz.sensitivity(self.coefficients(), participation)
