"""Optimiser of banded Toeplitz mechanisms (BandToep: [McMahan24], section 4.2).

L-BFGS starts from the coefficients of (1 - x)^(-1/2) and minimises the log of the loss, which does
not depend on the scale of C. The gradient of the error is a filter that runs backwards: with
b = a / c as power series (a the workload, c the coefficients of C), `db = -(b / c) dc`.
"""

import functools
import sys
from collections.abc import Callable, Sequence

import numpy as np
from scipy import fft, optimize, signal, special

from dpfl import _validate
from dpfl.mechanisms.banded_toeplitz import BandedToeplitz
from dpfl.mechanisms.optimize import cache, toeplitz_error
from dpfl.mechanisms.sensitivities import toeplitz_sensitivity
from dpfl.participation import Participation

_VERSION = 1
_MAX_ITERATIONS = 1000
_OPTIONS = {'maxiter': _MAX_ITERATIONS, 'maxcor': 30, 'ftol': 1e-14, 'gtol': 1e-9}
# Decoder coefficients above this only occur far from any optimum.
_OVERFLOW = 1e30
# Relative difference of losses up to which fewer bands are preferred.
_TIE = 1e-9
# Smoothing of the maximum over rows of a dense workload, from coarse to negligible.
_SHARPNESS = (30.0, 300.0, 3000.0, 3e4)
# Relative differences below this between squared errors of rows count as equal.
_ROW_TOLERANCE = 1e-6


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
    `optimize.cache`.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      bands: largest number of bands of C, including the main diagonal.
      loss: 'rms' or 'max', see `Mechanism.rms_loss` and `Mechanism.max_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums. [n, n] is slower.
      progress: whether to show the loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    rounds = participation.rounds
    bands = min(_validate.integer('bands', bands, minimum=1), rounds)
    _validate.choice('loss', loss, ('max', 'rms'))
    workload = toeplitz_error.checked_workload(workload, rounds)

    def proven(mechanism: BandedToeplitz) -> float:
        return getattr(mechanism, f'{loss}_loss')(participation, workload)

    def report(stage: str, mechanism: BandedToeplitz) -> BandedToeplitz:
        if progress:
            text = f'optimize_banded_toeplitz: {stage}: {loss} loss {proven(mechanism):.6f}'
            print(text, file=sys.stderr)
        return mechanism

    def minimized(start: BandedToeplitz, minimize) -> BandedToeplitz:
        coefficients = _minimize_loss(participation, workload, loss, start.coefficients, minimize)
        found = BandedToeplitz(rounds, np.trim_zeros(coefficients, 'b'))
        return report(f'{found.bands} bands', found)

    def compute() -> BandedToeplitz:
        narrow = BandedToeplitz.fichtenberger(rounds, min(bands, participation.min_separation))
        found = [minimized(report('square root', narrow), _minimize_free)]
        if bands > narrow.bands:
            wide = BandedToeplitz.fichtenberger(rounds, bands)
            padded = np.pad(found[0].coefficients, (0, bands - found[0].bands))
            for start in (BandedToeplitz(rounds, padded), wide):
                found.append(minimized(start, _minimize_monotone))
            found.append(wide)
        least = min(map(proven, found))
        return next(one for one in found if proven(one) <= least * (1 + _TIE))

    key = {
        'version': _VERSION,
        'participation': cache.participation_key(participation),
        'bands': bands,
        'loss': loss,
        'workload': cache.array_key(workload),
    }
    return cache.cached('optimize_banded_toeplitz', BandedToeplitz, key, compute)


def _minimize_loss(
    participation: Participation,
    workload: np.ndarray | None,
    loss: str,
    start: np.ndarray,
    minimize: 'Callable[[Objective, np.ndarray], np.ndarray]',
) -> np.ndarray:
    """Coefficients of least loss.

    For the max loss of a dense workload, it adds the row with the largest error to the rows whose
    largest error is minimised, until that row is already among them.
    """
    rounds = participation.rounds

    def best(coefficients, error):
        return minimize(Objective(participation, error), coefficients)

    if workload is None or workload.ndim == 1:
        first = np.ones(rounds) if workload is None else workload
        shares = toeplitz_error.row_shares(rounds, loss)
        return best(start, SeriesError(first, lambda b: shares * b))
    if loss == 'rms':
        form = toeplitz_error.mean_form(workload)
        return best(start, SeriesError(np.ones(rounds), lambda b: form @ b))
    rows: list[int] = []
    coefficients = start
    while True:
        squared = BandedToeplitz(rounds, coefficients).squared_error(workload)
        worst = int(squared.argmax())
        if rows and squared[worst] <= squared[rows].max() * (1 + _ROW_TOLERANCE):
            return coefficients
        rows.append(worst)
        for sharpness in _SHARPNESS if len(rows) > 1 else _SHARPNESS[-1:]:
            coefficients = best(coefficients, RowsError(workload, rows, sharpness))


class SeriesError:
    """Squared error `b @ weigh(b)` for `b = a / c`, where `weigh` is symmetric and linear."""

    def __init__(self, first: np.ndarray, weigh: Callable[[np.ndarray], np.ndarray]):
        self._first, self._weigh = first, weigh
        self._size = fft.next_fast_len(2 * first.size, real=True)

    def __call__(self, coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        """Log of the squared error, and its gradient [bands]."""
        with np.errstate(over='ignore', invalid='ignore'):
            b = signal.lfilter([1.0], coefficients, self._first)
        if not np.abs(b).max() < _OVERFLOW:
            return np.inf, np.zeros_like(coefficients)
        weighed = self._weigh(b)
        squared = b @ weighed
        backwards = signal.lfilter([1.0], coefficients, weighed[::-1])[::-1]
        product = fft.rfft(backwards, self._size) * np.conj(fft.rfft(b, self._size))
        correlation = fft.irfft(product, self._size)[: coefficients.size]
        return np.log(squared), -2 * correlation / squared


class RowsError:
    """Largest error of a few rows of a workload [n, n], as a smooth maximum (p-norm)."""

    def __init__(self, workload: np.ndarray, rows: Sequence[int], sharpness: float):
        # Row t of A C^-1, read backwards from column t, is the same series with a = A[t, t :: -1].
        self._errors = [SeriesError(workload[row, ::-1], lambda b: b) for row in rows]
        self._sharpness = sharpness

    def __call__(self, coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        """Log of the squared error, and its gradient [bands]."""
        values, gradients = zip(*(error(coefficients) for error in self._errors), strict=True)
        logs = self._sharpness * np.array(values)
        if not np.isfinite(logs).all():
            return np.inf, np.zeros_like(coefficients)
        value = special.logsumexp(logs) / self._sharpness
        return value, special.softmax(logs) @ np.array(gradients)


class Objective:
    """Log of the loss for the sensitivity of the pattern 0, b, 2b, .., and its gradient."""

    def __init__(
        self,
        participation: Participation,
        error: Callable[[np.ndarray], tuple[float, np.ndarray]],
    ):
        self._participation, self._error = participation, error

    def __call__(self, coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient, [bands]. They do not depend on the scale of the coefficients."""
        schema = self._participation
        log_error, error_gradient = self._error(coefficients)
        if not np.isfinite(log_error):
            return np.inf, error_gradient
        column = np.zeros(schema.rounds)
        column[: coefficients.size] = coefficients
        spread = functools.partial(
            toeplitz_sensitivity.pattern_sum,
            separation=schema.min_separation,
            count=schema.count,
        )
        released = spread(column)
        squared = released @ released
        back = spread(released[::-1])[::-1]
        gradient = error_gradient + 2 * back[: coefficients.size] / squared
        return 0.5 * (log_error + np.log(squared)), 0.5 * gradient


def _minimize_free(objective: Objective, start: np.ndarray) -> np.ndarray:
    """Local minimum over coefficients of any sign, c_0 = 1."""
    if start.size == 1:
        return start

    def fixed_scale(free):
        value, gradient = objective(np.append(1.0, free))
        return value, gradient[1:]

    free = start[1:] / start[0]
    result = optimize.minimize(fixed_scale, free, jac=True, method='L-BFGS-B', options=_OPTIONS)
    return np.append(1.0, result.x)


def _minimize_monotone(objective: Objective, start: np.ndarray) -> np.ndarray:
    """Local minimum over non-negative coefficients that do not increase, c_0 = 1."""

    def decreases(steps):
        coefficients = np.cumsum(steps[::-1])[::-1]
        value, gradient = objective(coefficients)
        return value, np.cumsum(gradient)

    result = optimize.minimize(
        decreases,
        np.maximum(-np.diff(start, append=0.0), 0.0),
        jac=True,
        method='L-BFGS-B',
        bounds=[(1e-9, None)] + [(0.0, None)] * (start.size - 1),
        options=_OPTIONS,
    )
    coefficients = np.cumsum(result.x[::-1])[::-1]
    return coefficients / coefficients[0]
