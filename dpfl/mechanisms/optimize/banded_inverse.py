"""Optimiser of banded inverse mechanisms: least loss with their proven sensitivity."""

import dataclasses

import numpy as np
import scipy

from dpfl import _validate
from dpfl.mechanisms import toeplitz
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.banded import BandedInverse
from dpfl.mechanisms.optimize import driver
from dpfl.mechanisms.toeplitz import autocorrelation, pair_weights, participation_blocks
from dpfl.participation import Participation

_VERSION = 2
# Smoothing of the maxima in successive stages, from coarse to negligible.
_TEMPERATURES = (1e-2, 1e-3, 1e-4, 1e-5)
# Blocks of participations in the bound that is minimised. Results are compared by the finer bound.
_BLOCKS = 6
# The first step of L-BFGS has length 1. In these units it stays within the stable region.
_STEPS_PER_UNIT = 200.0
_MAX_ITERATIONS = 2000
# Relative gap between the proven loss and the loss of the pattern 0, b, 2b, .. up to which the
# bound itself is not minimised.
_GAIN = 1e-6
# Least decrease of the log loss in an iteration.
_LOSS_TOLERANCE = 1e-12
_OVERFLOW = 1e3


def optimize_banded_inverse(
    participation: Participation,
    bands: int,
    loss: str = 'max',
    *,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> BandedInverse:
    """Finds the banded inverse mechanism with the least loss for its proven sensitivity.

    First it minimises the loss for the pattern 0, b, 2b, .. alone (L-BFGS, analytic gradients).
    If `toeplitz.sensitivity` proves that this pattern is the worst, that is the result; this is
    usual with clearly fewer bands than the separation. Otherwise it minimises the loss for the
    bound that `toeplitz.sensitivity` states in full, with smooth maxima that become
    sharper in each stage; candidates are compared by the smaller of both bounds. The result is
    never worse than BISR of the same width.

    Args:
      participation: the schema, with the rounds of the mechanism.
      bands: number of bands of `C^-1`, at least 1; limited to the number of rounds.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums.
      progress: whether to print a line for every stage on standard error.

    Returns:
      The mechanism. The search is deterministic.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> schema = Participation(40, min_separation=8)
      >>> len(optimize_banded_inverse(schema, bands=4).inverse_coefficients)
      4
    """
    bands = min(_validate.integer('bands', bands, minimum=1), participation.rounds)
    problem = driver.Problem('optimize_banded_inverse', participation, loss, workload, progress)
    return problem.solve(
        BandedInverse, lambda: _search(problem, bands), version=_VERSION, bands=bands
    )


def _search(problem: driver.Problem, bands: int) -> list[BandedInverse]:
    participation = problem.participation
    forms = _error_forms(participation.rounds, bands, problem.loss, problem.workload)
    square_root = BandedInverse.square_root(participation.rounds, bands)
    candidates = [problem.shown('square root', square_root)]
    if bands == 1:
        return candidates
    pattern = Objective(participation, forms, smooth=False)

    def of_power(power: float) -> BandedInverse:
        return BandedInverse.fractional_power(participation.rounds, bands, power)

    best = scipy.optimize.minimize_scalar(
        lambda power: pattern.loss(of_power(power)), bounds=(0.0, 1.0), method='bounded'
    )
    candidates.append(problem.shown('power', of_power(best.x)))
    # With one error form the objective of a single pattern has no maxima to smooth.
    for temperature in _TEMPERATURES if len(forms) > 1 else _TEMPERATURES[-1:]:
        better = pattern.minimize(candidates[-1], temperature)
        candidates.append(problem.shown('pattern 0, b, 2b, ..', better))
    # The least loss for one pattern is a lower bound on the proven loss.
    if problem.proven(candidates[-1]) > pattern.loss(candidates[-1]) * (1 + _GAIN):
        bound = Objective(participation, forms, smooth=True)
        better = min(candidates, key=problem.proven)
        for temperature in _TEMPERATURES:
            better = bound.minimize(better, temperature)
            candidates.append(problem.shown(f'bound, smoothed by {temperature:g}', better))
    return candidates


def _error_forms(
    rounds: int, bands: int, loss: str, workload: np.ndarray | None = None
) -> np.ndarray:
    """Squared errors as quadratic forms of the first column of `C^-1`.

    Args:
      rounds: number of rounds n.
      bands: number p of entries of that column, at most n.
      loss: 'max' or 'rms'.
      workload: A, see `mechanisms.workload`.

    Returns:
      float64 [m, p, p]: the squared error is the largest of the m forms. m is 1, except for 'max'
      and a workload matrix, where each row may have the largest error. Rows of zeros have none.
    """
    a = np.ones(rounds) if workload is None else workloads.cut(workload, rounds)
    if a.ndim == 1:
        # Row t of B holds the coefficients 0 .. t, so the last row has the largest norm.
        shifted = np.concatenate([np.zeros(bands - 1), a])
        windows = np.lib.stride_tricks.sliding_window_view(shifted, bands)[:, ::-1]
        weights = driver.row_shares(rounds, loss)
        return (windows.T @ (weights[:, None] * windows))[None]
    forms = np.zeros((rounds if loss == 'max' else 1, bands, bands))
    for t, row in enumerate(a):
        # B[t, j] = sum_i A[t, j + i] a_i.
        padded = np.concatenate([row[: t + 1], np.zeros(bands - 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, bands)
        if loss == 'max':
            forms[t] = windows.T @ windows
        else:
            forms[0] += windows.T @ windows / rounds
    return forms[forms.any(axis=(1, 2))]


def _smooth_sensitivity(
    coefficients: np.ndarray, participation: Participation, temperature: float
) -> tuple[float, np.ndarray]:
    """The bound of `toeplitz.sensitivity` with smooth maxima, and its gradient, [n].

    With the temperature t, the maximum of h over d >= m b is replaced by t log sum exp(h / t), and
    |c| by sqrt(c^2 + s^2) with s = t / 10. Neither is smaller than what it replaces.
    """
    separation, count = participation.min_separation, participation.count
    magnitudes = np.hypot(coefficients, 0.1 * temperature)
    total, gradient = 0.0, np.zeros_like(coefficients)
    for first, end in participation_blocks(count, _BLOCKS):
        values = magnitudes[: magnitudes.size - first * separation]
        correlation = autocorrelation(values)
        # Row m - 1 holds the lags m b .. (m + 1) b - 1.
        n, rows = values.size, -(-values.size // separation) - 1
        scaled = np.full(rows * separation, -np.inf)
        scaled[: max(n - separation, 0)] = correlation[separation:] / temperature
        scaled = scaled.reshape(rows, separation)
        weights = pair_weights(first, end, count, rows)
        smooth = np.logaddexp.accumulate(np.logaddexp.reduce(scaled, axis=1)[::-1])[::-1]
        total += (end - first) * correlation[0] + temperature * (weights @ smooth)
        with np.errstate(divide='ignore'):
            reach = np.logaddexp.accumulate(np.log(weights) - smooth)
        slope = np.zeros(n)
        slope[0] = end - first
        slope[separation:] = np.exp(scaled + reach[:, None]).ravel()[: max(n - separation, 0)]
        # The gradient of `slope @ autocorrelation(values)`.
        size = scipy.fft.next_fast_len(2 * n, real=True)
        product = scipy.fft.rfft(values, size) * 2 * scipy.fft.rfft(slope, size).real
        gradient[:n] += scipy.fft.irfft(product, size)[:n]
    return total, gradient * coefficients / magnitudes


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """Logarithm of the loss as a function of the free entries of the first column of `C^-1`.

    Attributes:
      participation: the schema.
      forms: squared errors, see `_error_forms`.
      smooth: whether to use `_smooth_sensitivity` instead of `toeplitz.pattern_gradient`.
    """

    participation: Participation
    forms: np.ndarray
    smooth: bool

    def __call__(self, free: np.ndarray, temperature: float) -> tuple[float, np.ndarray]:
        """Log loss, and its gradient [p - 1], at `C^-1 = (1, free)`."""
        taps = np.concatenate([[1.0], free])
        with np.errstate(over='ignore', invalid='ignore'):
            coefficients = toeplitz.reciprocal(taps, self.participation.rounds)
            if not np.abs(coefficients).max() < 1e30:
                return _OVERFLOW, np.zeros_like(free)
        if self.smooth:
            squared, slope = _smooth_sensitivity(coefficients, self.participation, temperature)
        else:
            squared, slope = toeplitz.pattern_gradient(coefficients, self.participation)
        # dc = -(c * c * d taps), where * is convolution. Its adjoint is two filters backwards.
        once = scipy.signal.lfilter([1.0], taps, slope[::-1])
        adjoint = scipy.signal.lfilter([1.0], taps, once)[::-1][: taps.size]
        # The smooth maximum of the logs of the squared errors.
        slopes = self.forms @ taps
        errors = slopes @ taps
        logs = np.log(errors)
        scaled = (logs - logs.max()) / temperature
        shares = np.exp(scaled) / np.exp(scaled).sum()
        log_error = logs.max() + temperature * np.log(np.exp(scaled).sum())
        gradient = 2 * (shares / errors) @ slopes - adjoint / squared
        return 0.5 * (log_error + np.log(squared)), 0.5 * gradient[1:]

    def loss(self, mechanism: BandedInverse) -> float:
        """Loss of a mechanism, with the sharpest of the smooth maxima."""
        return np.exp(self(mechanism.inverse_coefficients[1:], _TEMPERATURES[-1])[0])

    def minimize(self, start: BandedInverse, temperature: float) -> BandedInverse:
        """Local minimum that L-BFGS finds from `start`."""

        def scaled(steps):
            value, gradient = self(steps / _STEPS_PER_UNIT, temperature)
            return value, gradient / _STEPS_PER_UNIT

        _, steps = driver.descend(
            scaled,
            start.inverse_coefficients[1:] * _STEPS_PER_UNIT,
            iterations=_MAX_ITERATIONS,
            tolerance=_LOSS_TOLERANCE,
            gradient_tolerance=1e-10,
        )
        taps = np.concatenate([[1.0], steps / _STEPS_PER_UNIT])
        return dataclasses.replace(start, inverse_coefficients=taps)
