"""Squared error of Toeplitz strategies under workloads other than prefix sums, for optimisers.

Each workload is written as A = A' P with the prefix sums P, so that `B = A' (P C^-1)`, where
`P C^-1` is Toeplitz. For a BLT its coefficients are `b_i = sum_j weights_j (1 - rates_j)^i` with
positive weights. Objects of the classes `Blt...` are called with (rates, weights), and return the
log of the squared error and its gradients with respect to log weights and rates.
"""

from collections.abc import Sequence

import numpy as np
from scipy import signal

from dpfl.mechanisms import blt_inverse
from dpfl.mechanisms.optimize import blt_loss, driver
from dpfl.mechanisms.sensitivities import toeplitz_sensitivity
from dpfl.participation import Participation


def mean_form(workload: np.ndarray) -> np.ndarray:
    """Mean squared error of a workload [n, n] as a quadratic form [n, n].

    `||A' T||_F^2 / n = sum_{s, t} b_s b_t M[s, t]` for a Toeplitz T with coefficients b, where
    `M[s, t] = sum_m (A'^T A')[m + s, m + t] / n`.
    """
    n = len(workload)
    differences = column_differences(workload)
    form = differences.T @ differences / n
    for row in reversed(range(n - 1)):
        form[row, :-1] += form[row + 1, 1:]
    return form


def row_shares(rounds: int, loss: str) -> np.ndarray:
    """Weights of `b_i^2` in the squared error under a Toeplitz workload, [rounds].

    For max loss, the last row has the largest error. For rms loss it is the mean over rows.
    """
    return np.ones(rounds) if loss == 'max' else np.arange(rounds, 0, -1) / rounds


def pattern_sensitivity(
    coefficients: np.ndarray, participation: Participation
) -> tuple[float, np.ndarray]:
    """Squared norm of `C u` for the pattern 0, b, 2b, .., and its gradient, [n].

    Args:
      coefficients: of a Toeplitz C, [n].
      participation: the schema, with the separation b.
    """
    separation, count = participation.min_separation, participation.count
    released = toeplitz_sensitivity.pattern_sum(coefficients, separation, count)
    back = toeplitz_sensitivity.pattern_sum(released[::-1], separation, count)[::-1]
    return released @ released, 2 * back


def column_differences(workload: np.ndarray) -> np.ndarray:
    """A' with A = A' P for the prefix sums P: each column minus the next."""
    return workload - np.pad(workload[:, 1:], [(0, 0), (0, 1)])


class BltToeplitzError:
    """Error under a Toeplitz workload [n]: of the last row (the largest), or the mean over rows."""

    def __init__(self, workload: np.ndarray, loss: str):
        self._differences = np.diff(workload, prepend=0.0)
        self._row_shares = row_shares(workload.size, loss)

    def __call__(self, rates: np.ndarray, weights: np.ndarray) -> blt_loss.ValueAndSlopes:
        parts = _decayed_sums(rates, self._differences)
        weighted = parts * self._row_shares
        gram = weighted @ parts.T
        return blt_loss.quadratic(gram, _rate_slopes(rates, parts) @ weighted.T, weights)


class BltMeanError:
    """Mean over rows of the error under a lower-triangular workload [n, n]."""

    def __init__(self, workload: np.ndarray):
        self._form = mean_form(workload)

    def __call__(self, rates: np.ndarray, weights: np.ndarray) -> blt_loss.ValueAndSlopes:
        parts = blt_inverse.powers(rates, len(self._form))
        slopes = np.zeros_like(parts)
        slopes[:, 1:] = -np.arange(1, parts.shape[1]) * parts[:, :-1]
        weighted = parts @ self._form
        return blt_loss.quadratic(weighted @ parts.T, slopes @ weighted.T, weights)


class BltRowsError:
    """Largest error of a few rows of a workload [n, n], as a smooth maximum (p-norm)."""

    def __init__(self, workload: np.ndarray, rows: Sequence[int], sharpness: float):
        self._reversed = column_differences(workload[np.asarray(rows)])[:, ::-1]
        self._sharpness = sharpness

    def __call__(self, rates: np.ndarray, weights: np.ndarray) -> blt_loss.ValueAndSlopes:
        results = []
        for row in self._reversed:
            parts = _decayed_sums(rates, row)
            slopes = _rate_slopes(rates, parts)
            results.append(blt_loss.quadratic(parts @ parts.T, slopes @ parts.T, weights))
        values, by_weight, by_rate = zip(*results, strict=True)
        value, shares = driver.smooth_maximum(np.array(values), self._sharpness)
        return value, shares @ np.array(by_weight), shares @ np.array(by_rate)


def _decayed_sums(rates, values):
    """`sum_{s <= i} (1 - rate)^s values[i - s]` for each rate, [rates, n]."""
    return np.stack([signal.lfilter([1.0], [1.0, rate - 1], values) for rate in rates])


def _rate_slopes(rates, parts):
    """Derivatives of `_decayed_sums` with respect to the rates."""
    return np.stack(
        [
            signal.lfilter([0.0, -1.0], [1.0, rate - 1], part)
            for rate, part in zip(rates, parts, strict=True)
        ]
    )
