"""L-BFGS for banded strategies: over unit columns and over weights of the column norms.

The loss does not depend on the scale of C, so the log of its square is minimised, without a
constraint on the sensitivity. A step takes O(n b^2) for common workloads, which for few bands is
far less than Newton's method on X = C^T C takes. The loss is convex in X and in the squared
column norms, so a stationary point is the optimum.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize

from dpfl.mechanisms.optimize import banded_error
from dpfl.mechanisms.optimize.banded_norms import Norms

# Unit of the weights: smaller than that of the entries of C, as a weight acts on many columns.
_WEIGHT_UNIT = 0.3
# Excess of the value where it is not defined. The line search shortens its step, as it would not
# for an infinite value.
_PENALTY = 10.0
_MAX_ITERATIONS = 5000
_PAIRS = 10


class Point(NamedTuple):
    """A strategy before its columns are scaled.

    Attributes:
      rows: C with ones on its diagonal, float64 [n, bands].
      weights: of the column norms, see `Norms`.
    """

    rows: np.ndarray
    weights: np.ndarray


class Descent:
    """Minimises (mean of e_t^p)^(1/p) times the squared sensitivity.

    Args:
      error: computes e and derivatives.
      norms: the column norms that are allowed.
      power: p, at least 1. The largest error is the limit of large p.
      report: called with the number of rounds and the squared loss after each step.
    """

    def __init__(
        self,
        error: banded_error.BlockError | banded_error.DenseError,
        norms: Norms,
        power: float,
        report: Callable[[int, float], None],
    ):
        self._error, self._norms, self._power, self._report = error, norms, power, report

    def minimise(self, start: Point, tolerance: float) -> Point:
        """The point from which a step lowers the log of the squared loss less than `tolerance`."""
        rows, weights = start
        n, bands = rows.shape
        inside = (np.arange(bands) <= np.arange(n)[:, None]) & (np.arange(bands) > 0)
        entries = np.count_nonzero(inside)
        lowest = math.inf

        def unpack(x):
            table = np.zeros((n, bands))
            table[:, 0] = 1.0
            table[inside] = x[:entries]
            # A single weight only scales C.
            return table, weights if weights.size == 1 else x[entries:] * _WEIGHT_UNIT

        def objective(x):
            nonlocal lowest
            found = self.value(*unpack(x))
            if found is None:
                return lowest + _PENALTY, np.zeros_like(x)
            value, by_rows, by_weights = found
            lowest = min(lowest, value)
            by_rows = by_rows[inside]
            if weights.size > 1:
                return value, np.concatenate([by_rows, by_weights * _WEIGHT_UNIT])
            return value, by_rows

        x, bounds = rows[inside], None
        if weights.size > 1:
            x = np.concatenate([x, weights / _WEIGHT_UNIT])
            bounds = [(None, None)] * entries + [(0, None)] * weights.size

        if x.size:
            x = optimize.minimize(
                objective,
                x,
                jac=True,
                method='L-BFGS-B',
                bounds=bounds,
                callback=lambda _: self._report(n, math.exp(lowest)),
                options={
                    'maxiter': _MAX_ITERATIONS,
                    'maxfun': 2 * _MAX_ITERATIONS,
                    'maxcor': _PAIRS,
                    'ftol': tolerance,
                    'gtol': 1e-12,
                },
            ).x
        return Point(*unpack(x))

    def value(
        self, rows: np.ndarray, weights: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        """Log of the squared loss, and its derivatives by the rows and by the weights.

        Returns:
          None far from any optimum, where errors overflow or a column is zero.
        """
        squared, norms = self._norms.squared(weights), _squared_norms(rows)
        if not squared.min() > 0:
            return None
        factors = np.sqrt(squared / norms)
        found = self._error(_scaled(rows, factors), self._weigh)
        if found is None:
            return None
        value, gradient, _ = found
        by_factor = _column_sums(gradient * rows)
        by_norms = -by_factor * factors / (2 * norms)
        by_rows = _scaled(gradient, factors) + 2 * _scaled(rows, by_norms)
        costs = self._norms.costs
        total = costs @ weights
        by_weights = self._norms.gradient(by_factor * factors / (2 * squared)) + costs / total
        return value + math.log(total), by_rows, by_weights

    def strategy(self, point: Point) -> np.ndarray:
        """Diagonals of C with squared sensitivity k, as of BandMF, float64 [n, bands]."""
        scale = self._norms.count / (self._norms.costs @ point.weights)
        squared = self._norms.squared(point.weights) * scale
        return _scaled(point.rows, np.sqrt(squared / _squared_norms(point.rows)))

    def _weigh(self, errors):
        """Log of the power mean of the errors, and its derivatives."""
        largest = errors.max()  # Relative to it, powers do not overflow.
        powers = (errors / largest) ** self._power
        value = math.log(largest) + math.log(powers.mean()) / self._power
        return value, powers / errors / powers.sum()


def unit_rows(strategy: np.ndarray) -> np.ndarray:
    """Diagonals of a strategy whose columns are scaled so that its diagonal is one."""
    return _scaled(strategy, 1 / strategy[:, 0])


def _scaled(table, factors):
    """The table of C diag(factors)."""
    scaled = np.zeros_like(table)
    for j in range(min(table.shape)):
        scaled[j:, j] = table[j:, j] * factors[: factors.size - j]
    return scaled


def _column_sums(table):
    """Sums over the columns of the matrix that a table holds, [n]."""
    sums = np.zeros(len(table))
    for j in range(min(table.shape)):
        sums[: sums.size - j] += table[j:, j]
    return sums


def _squared_norms(table):
    return _column_sums(table**2)
