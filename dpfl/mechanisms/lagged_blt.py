"""Lagged BLTs: the buffers of a BLT, and noise of a few past rounds drawn again from its keys."""

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpfl import _validate, errors
from dpfl.mechanisms import base, blt, blt_inverse, rounding, toeplitz
from dpfl.mechanisms.sensitivities import toeplitz_sensitivity
from dpfl.mechanisms.sensitivities.common import Sensitivity
from dpfl.mechanisms.streaming import kernels
from dpfl.participation import Participation

# Each buffer takes memory in each round, and each lag the time of a draw.
_MOST = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class LaggedBlt(base.Mechanism):
    """`C^-1` is a BLT plus shifted BLTs with the same decays: one for each lag l_i, with l_0 = 0.

    `C^-1` is Toeplitz with the generating function

        sum_i x^(l_i) (direct_i + sum_j scale_ij x / (1 - decay_j x)).

    The noise of a round comes from d buffers and from the independent noises of L rounds: this one,
    and those of l_1, l_2, .. rounds ago. Past noise is drawn again from its keys, as in a
    `BandedInverse`, so memory takes d copies of the model and a round takes L draws. Lags may be
    long at no further cost. One at the minimum separation lets C cut off its correlation there,
    which no BLT can (docs/concepts/lagged_blt.md).

    Each `BandedInverse` is such a mechanism, and each `Blt` whose inverse has real decays; so is
    their product, see `product`. The parameters are valid for any number of rounds.

    Attributes:
      rounds: number of rounds, at least 1.
      decay: decays of `C^-1`, float64 [d], each within [-1, 1].
      lags: increasing integers [L], the first 0; those of `rounds` and more have no effect.
      direct: float64 [L], the first 1.
      scale: float64 [L, d].

    Raises:
      ArgumentError: if a field is out of its range, the shapes do not fit, or the entries of `C`
        overflow.
    """

    name: ClassVar[str] = 'lagged_blt'
    rounds: int
    decay: np.ndarray
    lags: tuple[int, ...]
    direct: np.ndarray
    scale: np.ndarray
    _column: ClassVar[np.ndarray]

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        object.__setattr__(self, 'decay', _validate.vector('decay', self.decay))
        object.__setattr__(self, 'lags', _lags(self.lags))
        object.__setattr__(self, 'direct', _validate.vector('direct', self.direct))
        object.__setattr__(self, 'scale', _table(self.scale))
        if not 1 <= self.decay.size <= _MOST or not (np.abs(self.decay) <= 1).all():
            raise errors.ArgumentError(
                'decay',
                self.decay.tolist(),
                f'must have at least 1 entry and at most {_MOST}, each within [-1, 1]',
            )
        if self.direct.size != len(self.lags) or self.direct[0] != 1:
            raise errors.ArgumentError(
                'direct',
                self.direct.tolist(),
                f'must have as many entries as lags ({len(self.lags)}), the first 1',
            )
        if self.scale.shape != (self.direct.size, self.decay.size):
            raise errors.ArgumentError(
                'scale',
                errors.NOT_SHOWN,
                f'has shape {self.scale.shape}, must have one row for each lag and one column for '
                f'each decay, {(self.direct.size, self.decay.size)}',
            )
        if max(np.abs(self.direct).max(), np.abs(self.scale).max()) > rounding.LARGEST:
            raise errors.ArgumentError(
                'scale', errors.NOT_SHOWN, f'each entry must be <= {rounding.LARGEST:g} in size'
            )
        with np.errstate(over='ignore', invalid='ignore'):
            column = self._recurrence()
            # Bounds every norm of C u; its square must be a float.
            largest = np.abs(column).sum() * self.rounds
        if not largest < 1e150:
            raise errors.ArgumentError(
                'scale',
                errors.NOT_SHOWN,
                f'C grows to a sum of {largest:g} over rounds={self.rounds}, must stay below 1e150',
            )
        column.setflags(write=False)
        object.__setattr__(self, '_column', column)

    @classmethod
    def product(cls, base: blt.Blt, inverse_coefficients: ArrayLike) -> 'LaggedBlt':
        """The mechanism whose `C^-1` is that of a BLT times a banded Toeplitz matrix.

        Args:
          base: the BLT.
          inverse_coefficients: first column of the banded factor: (1, a_1, .., a_{p-1}).

        Raises:
          ArgumentError: if a field is out of its range.
          ValueError: if the inverse of the BLT is not a BLT with real decays.
        """
        taps = _validate.vector('inverse_coefficients', inverse_coefficients)
        decay, scale = base.inverse_parameters()
        if not decay.size:
            decay, scale = np.zeros((2, 1))
        return cls(base.rounds, decay, tuple(range(taps.size)), taps, np.outer(taps, scale))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaggedBlt) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), 'lags': list(self.lags)}

    def inverse_coefficients(self) -> np.ndarray:
        """First column of `C^-1`, float64 [rounds]."""
        powers = blt_inverse.powers(1 - self.decay, self.rounds - 1)
        column = np.zeros(self.rounds)
        for lag, direct, scale in zip(self.lags, self.direct, self.scale, strict=True):
            if lag < self.rounds:
                column[lag] += direct
                column[lag + 1 :] += scale @ powers[:, : self.rounds - 1 - lag]
        return column

    def coefficients(self) -> np.ndarray:
        """First column of `C`, float64 [rounds]."""
        return self._column

    def _recurrence(self) -> np.ndarray:
        """The noise z that streams to 1, 0, 0, ..: each round solved for its own noise."""
        used = np.searchsorted(self.lags, self.rounds)
        last = self.lags[used - 1]
        column = np.zeros(last + self.rounds)  # Noise before the first round is zero.
        places, direct, scale = last - np.array(self.lags[:used]), self.direct[:used], self.scale
        state, wanted = np.zeros(self.decay.size), 1.0
        for t in range(self.rounds):
            inputs = column[places + t]
            inputs[0] = column[last + t] = wanted - direct @ inputs - state.sum()
            state = self.decay * state + inputs @ scale[:used]
            wanted = 0.0
        return column[last:]

    def toeplitz_column(self, rounds: int) -> np.ndarray:
        return self.with_rounds(rounds).coefficients()

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.coefficients())

    def kernel(self) -> kernels.LaggedStateSpace:
        """Output `direct z + sum_j s_j`, then `s <- decay s + scale^T z`; z of all lags."""
        output = np.append(self.direct, np.ones(self.decay.size))
        return kernels.LaggedStateSpace(
            np.vstack([output, np.hstack([self.scale.T, np.diag(self.decay)])])[None], self.lags
        )

    def squared_error(self, workload: np.ndarray | None = None) -> np.ndarray:
        if workload is not None and np.ndim(workload) != 1:
            return super().squared_error(workload)
        return toeplitz.workload_squared_error(np.cumsum(self.inverse_coefficients()), workload)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return toeplitz_sensitivity.sensitivity(self.coefficients(), participation)


def _lags(values: Iterable[int]) -> tuple[int, ...]:
    """The checked lags as a tuple of integers, from any sequence."""
    lags = _validate.integers('lags', values, minimum=0, maximum=_validate.MOST_ROUNDS)
    if not 1 <= len(lags) <= _MOST or lags[0] != 0 or (np.diff(lags) <= 0).any():
        raise errors.ArgumentError(
            'lags',
            errors.shown(list(lags)),
            f'must increase, start with 0, and be at least 1 and at most {_MOST}',
        )
    return lags


def _table(value: Any) -> np.ndarray:
    """The checked scales as a read-only array [any, any]."""
    try:
        table = _validate.floats(value)
    except ValueError:
        table = np.full((1, 1), np.nan)
    if table.ndim != 2 or not (np.abs(table) <= _validate.MOST_ENTRY).all():
        raise errors.ArgumentError(
            'scale',
            errors.NOT_SHOWN,
            f'must be a table of finite numbers, at most {_validate.MOST_ENTRY:g}, [lags, decays]',
        )
    table.setflags(write=False)
    return table
