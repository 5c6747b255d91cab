"""Optimiser of banded Toeplitz mechanisms (BandToep: [McMahan24], section 4.2).

L-BFGS starts from the coefficients of (1 - x)^(-1/2) and minimises the log of the loss, which does
not depend on the scale of C. The gradient of the error is a filter that runs backwards: with
b = a / c as power series (a the workload, c the coefficients of C), `db = -(b / c) dc`.
"""

import functools
from collections.abc import Callable

import numpy as np
import scipy

from dpfl import _validate
from dpfl.mechanisms import toeplitz
from dpfl.mechanisms.banded import BandedToeplitz
from dpfl.mechanisms.optimize import driver
from dpfl.participation import Participation

_VERSION = 1
_MAX_ITERATIONS = 1000
_TOLERANCE = 1e-14  # Least decrease of the log loss in an iteration.
# Decoder coefficients above this only occur far from any optimum.
_OVERFLOW = 1e30
# Relative difference of losses up to which fewer bands are preferred.
_TIE = 1e-9
# From an objective and a start to the coefficients of least loss.
_Minimize = Callable[[driver.Objective, np.ndarray], np.ndarray]


def optimize_banded_toeplitz(
    participation: Participation,
    bands: int,
    loss: str = 'rms',
    *,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> BandedToeplitz:
    """Finds the banded Toeplitz mechanism of least loss, with c_0 = 1.

    The result is never worse than `BandedToeplitz.fichtenberger` of the same width. With at most
    `min_separation` bands its sensitivity is exact for coefficients of any sign. For more bands
    the coefficients are kept non-negative and non-increasing, so that the sensitivity is exact too
    ([McMahan24], theorem 3.1). More bands are only returned if they lower the loss, which they
    often do not. The search is deterministic, and results are cached on disk, see
    `optimize.driver`.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      bands: largest number of bands of C, including the main diagonal.
      loss: 'rms' or 'max', see `Mechanism.rms_loss` and `Mechanism.max_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums. [n, n] is slower.
      progress: whether to show the loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> schema = Participation(40, min_separation=8)
      >>> optimize_banded_toeplitz(schema, bands=8).rms_loss(schema) < Identity(40).rms_loss(schema)
      True
    """
    rounds = participation.rounds
    bands = min(_validate.integer('bands', bands, minimum=1), rounds)
    problem = driver.Problem('optimize_banded_toeplitz', participation, loss, workload, progress)
    return problem.solve(
        BandedToeplitz, lambda: [_search(problem, bands)], version=_VERSION, bands=bands
    )


def _search(problem: driver.Problem, bands: int) -> BandedToeplitz:
    rounds, separation = problem.participation.rounds, problem.participation.min_separation

    def minimized(start: BandedToeplitz, minimize: _Minimize) -> BandedToeplitz:
        coefficients = driver.over_workload(
            problem,
            start.coefficients,
            series_error,
            lambda point, error: minimize(
                functools.partial(log_loss, problem.participation, error), point
            ),
            functools.partial(BandedToeplitz, rounds),
        )
        optimum = BandedToeplitz(rounds, np.trim_zeros(coefficients, 'b'))
        return problem.shown(f'{optimum.bands} bands', optimum)

    narrow = BandedToeplitz.fichtenberger(rounds, min(bands, separation))
    candidates = [minimized(problem.shown('square root', narrow), _minimize_free)]
    if bands > narrow.bands:
        wide = BandedToeplitz.fichtenberger(rounds, bands)
        padded = np.pad(candidates[0].coefficients, (0, bands - candidates[0].bands))
        for start in (BandedToeplitz(rounds, padded), wide):
            candidates.append(minimized(start, _minimize_monotone))
        candidates.append(wide)
    losses = list(map(problem.proven, candidates))
    nearly_least = min(losses) * (1 + _TIE)
    return next(
        mechanism
        for mechanism, loss in zip(candidates, losses, strict=True)
        if loss <= nearly_least
    )


def series_error(first: np.ndarray, weigh: Callable[[np.ndarray], np.ndarray]) -> driver.Objective:
    """Log of `b @ weigh(b)` for `b = a / c`, and its gradient in c, [bands]; see `log_loss`.

    Args:
      first: a, [n].
      weigh: symmetric linear map.
    """
    size = scipy.fft.next_fast_len(2 * first.size, real=True)

    def error(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        with np.errstate(over='ignore', invalid='ignore'):
            b = toeplitz.divided(first, coefficients)
        if not np.abs(b).max() < _OVERFLOW:
            return np.inf, np.zeros_like(coefficients)
        weighed = weigh(b)
        squared = b @ weighed
        backwards = toeplitz.divided(weighed[::-1], coefficients)[::-1]
        product = scipy.fft.rfft(backwards, size) * np.conj(scipy.fft.rfft(b, size))
        correlation = scipy.fft.irfft(product, size)[: coefficients.size]
        return np.log(squared), -2 * correlation / squared

    return error


def log_loss(
    participation: Participation, error: driver.Objective, coefficients: np.ndarray
) -> tuple[float, np.ndarray]:
    """Log of the loss for the sensitivity of the pattern 0, b, 2b, .., and its gradient, [bands].

    They do not depend on the scale of the coefficients.
    """
    log_error, error_gradient = error(coefficients)
    if not np.isfinite(log_error):
        return np.inf, error_gradient
    column = np.zeros(participation.rounds)
    column[: coefficients.size] = coefficients
    squared, slope = toeplitz.pattern_gradient(column, participation)
    gradient = error_gradient + slope[: coefficients.size] / squared
    return 0.5 * (log_error + np.log(squared)), 0.5 * gradient


def _minimize_free(objective: driver.Objective, start: np.ndarray) -> np.ndarray:
    """Local minimum over coefficients of any sign, c_0 = 1."""
    if start.size == 1:
        return start

    def fixed_scale(free):
        value, gradient = objective(np.append(1.0, free))
        return value, gradient[1:]

    free = start[1:] / start[0]
    _, free = driver.descend(fixed_scale, free, iterations=_MAX_ITERATIONS, tolerance=_TOLERANCE)
    return np.append(1.0, free)


def _minimize_monotone(objective: driver.Objective, start: np.ndarray) -> np.ndarray:
    """Local minimum over non-negative coefficients that do not increase, c_0 = 1."""

    def decreases(steps):
        coefficients = np.cumsum(steps[::-1])[::-1]
        value, gradient = objective(coefficients)
        return value, np.cumsum(gradient)

    _, steps = driver.descend(
        decreases,
        np.maximum(-np.diff(start, append=0.0), 0.0),
        iterations=_MAX_ITERATIONS,
        tolerance=_TOLERANCE,
        bounds=[(1e-9, None)] + [(0.0, None)] * (start.size - 1),
    )
    coefficients = np.cumsum(steps[::-1])[::-1]
    return coefficients / coefficients[0]
