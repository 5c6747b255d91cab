"""Optimiser of lagged BLTs: least loss with their proven sensitivity.

The unknowns are the decays and the entries of C^-1, whose first column g is linear in the latter.
Error and sensitivity are functions of g and of its inverse power series c, the first column of C.
With the gradient S of the sensitivity by c, `dc = -(c * c * dg)`, so its gradient by g is minus the
correlation of c * c with S; * is convolution. All convolutions are FFTs.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence

import numpy as np
from scipy import fft, optimize, signal, special

from dpfl import _validate
from dpfl.mechanisms import blt_inverse
from dpfl.mechanisms.lagged_blt import LaggedBlt
from dpfl.mechanisms.optimize import cache, toeplitz_error
from dpfl.mechanisms.optimize.banded_inverse import smooth_sensitivity
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.participation import Participation

_VERSION = 1
# Smoothing of the maxima in successive stages, from coarse to negligible.
_TEMPERATURES = (1e-2, 1e-3, 1e-4)
# Bounds of the log rates 1 - decay.
_LOG_RATES = (np.log(1e-6), np.log(1.8))
# The first step of L-BFGS has length 1. In these units it stays within the stable region.
_UNIT = 0.05
_OPTIONS = {'maxiter': 1500, 'maxfun': 3000, 'maxcor': 30, 'ftol': 1e-10, 'gtol': 1e-10}
_OVERFLOW = 1e15
# Relative difference of losses up to which fewer draws and buffers are preferred.
_TIE = 1e-9
# Smoothing of the maximum over rows of a dense workload.
_SHARPNESS = 3000.0
_ROW_TOLERANCE = 1e-6
# Number of coefficients up to which a recurrence inverts a series faster than FFTs.
_DIRECT_SIZE = 512
# Log of the squared error by the first column of P C^-1 with the prefix sums P, and its gradient.
_ErrorFunction = Callable[[np.ndarray], tuple[float, np.ndarray]]


def default_lags(participation: Participation, draws: int) -> tuple[int, ...]:
    """Lags for so many draws in a round: 0, the separation, and then 1, 2, ..

    The separation comes only if a client can take part twice.
    """
    far = (participation.min_separation,) if participation.count > 1 and draws > 1 else ()
    near = [lag for lag in range(participation.rounds) if lag not in far]
    return tuple(sorted((*near[: draws - len(far)], *far)))


def optimize_lagged_blt(
    participation: Participation,
    num_buffers: int = 4,
    loss: str = 'max',
    *,
    draws: int = 2,
    lags: Sequence[int] | None = None,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> LaggedBlt:
    """Finds the lagged BLT with the least loss for its proven sensitivity.

    It minimises the loss for the bound of `toeplitz_sensitivity` itself (L-BFGS, analytic
    gradients), with smooth maxima that become sharper in each stage. With 1, 2, 4, .. buffers it
    starts from the optimal BLT, first with the lag of the separation alone, and from its result
    with half as many buffers. The result is never worse than the BLT of `optimize_blt`.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      num_buffers: d, within 1 .. 20.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      draws: L, the independent noises drawn in a round, at least 1; see `default_lags`.
      lags: the lags, instead of `draws`; increasing, the first 0.
      workload: A, see `mechanisms.workload`; None for the prefix sums. [n, n] is slower.
      progress: whether to show the loss of each stage on standard error.

    Returns:
      The mechanism. The search is deterministic, and results are cached on disk, see
      `optimize.cache`.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    _validate.integer('draws', draws, minimum=1)
    _validate.choice('loss', loss, ('max', 'rms'))
    workload = toeplitz_error.checked_workload(workload, participation.rounds)
    wanted = default_lags(participation, draws) if lags is None else tuple(lags)
    checked = LaggedBlt(
        1, np.zeros(1), wanted, np.eye(1, len(wanted))[0], np.zeros((len(wanted), 1))
    )
    used = tuple(lag for lag in checked.lags if lag < participation.rounds)
    key = {
        'version': _VERSION,
        'participation': cache.participation_key(participation),
        'num_buffers': num_buffers,
        'loss': loss,
        'lags': list(used),
        'workload': cache.array_key(workload),
    }
    return cache.cached(
        'optimize_lagged_blt',
        LaggedBlt,
        key,
        lambda: _search(participation, num_buffers, loss, used, workload, progress),
    )


def _search(participation, num_buffers, loss, lags, workload, progress) -> LaggedBlt:
    def proven(mechanism: LaggedBlt) -> float:
        return getattr(mechanism, f'{loss}_loss')(participation, workload)

    def improved(start: LaggedBlt, with_lags: tuple[int, ...], stage: str) -> LaggedBlt:
        tried = [_with_lags(start, with_lags)]
        for temperature in _TEMPERATURES:
            best = min(tried, key=proven)
            tried.append(_minimized(best, participation, loss, workload, temperature))
        found = min(tried, key=proven)
        if progress:
            text = f'optimize_lagged_blt: {stage}: {loss} loss {proven(found):.6f}'
            print(text, file=sys.stderr)
        return found

    found: list[LaggedBlt] = []
    sizes = [num_buffers >> halvings for halvings in range(num_buffers.bit_length())]
    separation = participation.min_separation
    for size in reversed(sizes):
        blt = _of_blt(participation, size, loss, workload)
        starts = [_with_buffers(one, size, separation) for one in (*found[-1:], blt)]
        if separation in lags and len(lags) > 2:
            starts[-1] = improved(starts[-1], (0, separation), f'{size} buffers, 2 lags')
        stage = f'{size} buffers, {len(lags)} lags'
        found.append(min([improved(start, lags, stage) for start in starts], key=proven))
    least = proven(min(found, key=proven))
    return next(one for one in found if proven(one) <= least * (1 + _TIE))


def _of_blt(participation, size, loss, workload) -> LaggedBlt:
    """The optimal BLT with at most `size` buffers."""
    blt = optimize_blt(participation, size, loss, workload=workload)
    decay, scale = blt.inverse_parameters()
    return LaggedBlt(participation.rounds, np.clip(decay, -1, 1), (0,), np.ones(1), scale[None])


def _with_buffers(mechanism: LaggedBlt, size: int, separation: int) -> LaggedBlt:
    """The same mechanism with further buffers, which have no effect."""
    more = size - mechanism.decay.size
    rates = np.geomspace(1 / separation, 0.6, more + 2)[1:-1]
    scale = np.pad(mechanism.scale, [(0, 0), (0, more)])
    return dataclasses.replace(mechanism, decay=np.append(mechanism.decay, 1 - rates), scale=scale)


def _with_lags(mechanism: LaggedBlt, lags: tuple[int, ...]) -> LaggedBlt:
    """The same mechanism with further lags, which have no effect."""
    at = np.searchsorted(lags, mechanism.lags)
    direct, scale = np.zeros(len(lags)), np.zeros((len(lags), mechanism.decay.size))
    direct[at], scale[at] = mechanism.direct, mechanism.scale
    return dataclasses.replace(mechanism, lags=lags, direct=direct, scale=scale)


def _minimized(start, participation, loss, workload, temperature) -> LaggedBlt:
    """Local minimum of the smooth loss that L-BFGS finds from `start`.

    For the max loss of a dense workload, it adds the row with the largest error to the rows whose
    largest error is minimised, until that row is already among them.
    """
    if workload is None or workload.ndim == 1 or loss == 'rms':
        error = _error_function(participation.rounds, loss, workload)
        return Objective(participation, error, start.lags).minimize(start, temperature)
    rows: list[int] = []
    while True:
        squared = start.squared_error(workload)
        worst = int(squared.argmax())
        if rows and squared[worst] <= squared[rows].max() * (1 + _ROW_TOLERANCE):
            return start
        rows.append(worst)
        error = _LargestRow(workload, rows)
        start = Objective(participation, error, start.lags).minimize(start, temperature)


def _error_function(rounds: int, loss: str, workload: np.ndarray | None) -> _ErrorFunction:
    shares = toeplitz_error.row_shares(rounds, loss)
    if workload is None:
        return _Quadratic(lambda b: shares * b)
    if workload.ndim == 2:
        form = toeplitz_error.mean_form(workload)
        return _Quadratic(lambda b: form @ b)
    differences = np.diff(workload, prepend=0.0)
    return _Quadratic(lambda b: _correlated(differences, shares * _convolved(differences, b)))


class _Quadratic:
    """Squared error `b @ weigh(b)`, where `weigh` is symmetric and linear."""

    def __init__(self, weigh: Callable[[np.ndarray], np.ndarray]):
        self._weigh = weigh

    def __call__(self, b: np.ndarray) -> tuple[float, np.ndarray]:
        weighed = self._weigh(b)
        squared = b @ weighed
        return np.log(squared), 2 * weighed / squared


class _LargestRow:
    """Largest error of a few rows of a workload [n, n], as a smooth maximum (p-norm)."""

    def __init__(self, workload: np.ndarray, rows: list[int]):
        self._reversed = toeplitz_error.column_differences(workload[rows])[:, ::-1]

    def __call__(self, b: np.ndarray) -> tuple[float, np.ndarray]:
        values, gradients = [], []
        for row in self._reversed:
            image = _convolved(row, b)
            values.append(np.log(image @ image))
            gradients.append(2 * _correlated(row, image) / (image @ image))
        logs = _SHARPNESS * np.array(values)
        return special.logsumexp(logs) / _SHARPNESS, special.softmax(logs) @ np.array(gradients)


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """Logarithm of the loss by the logs of the rates 1 - decay, `direct` and `scale`.

    In the vector of unknowns, [d + L - 1 + L d], direct is in units of `_UNIT`, and scale in units
    of `_UNIT` times the rate: its effect on the prefix sums is scale / rate.

    Attributes:
      participation: the schema.
      error: of P C^-1.
      lags: [L], all below the number of rounds.
    """

    participation: Participation
    error: _ErrorFunction
    lags: tuple[int, ...]

    def unknowns(self, mechanism: LaggedBlt) -> np.ndarray:
        """The vector of a mechanism with these lags, with rates within the bounds."""
        rates = np.exp(np.clip(np.log(np.maximum(1 - mechanism.decay, 1e-300)), *_LOG_RATES))
        scale = mechanism.scale / rates
        return np.concatenate([np.log(rates), np.append(mechanism.direct[1:], scale) / _UNIT])

    def mechanism(self, x: np.ndarray) -> LaggedBlt:
        """The mechanism of a vector."""
        rates, direct, scale = self._parts(x)
        return LaggedBlt(self.participation.rounds, 1 - rates, self.lags, direct, scale)

    def _parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        count = len(self.lags)
        buffers = (x.size - count + 1) // (count + 1)
        rates = np.exp(x[:buffers])
        direct = np.append(1.0, x[buffers : buffers + count - 1] * _UNIT)
        return rates, direct, x[buffers + count - 1 :].reshape(count, buffers) * _UNIT * rates

    def __call__(self, x: np.ndarray, temperature: float) -> tuple[float, np.ndarray]:
        """Log loss with the smooth bound of the sensitivity, and its gradient."""
        n = self.participation.rounds
        rates, direct, scale = self._parts(x)
        powers = blt_inverse.powers(rates, n - 1)
        g = np.zeros(n)
        for lag, first, row in zip(self.lags, direct, scale, strict=True):
            g[lag] += first
            g[lag + 1 :] += row @ powers[:, : n - 1 - lag]
        with np.errstate(over='ignore', invalid='ignore'):
            c = _inverse_series(g)
            if not np.abs(c).max() < _OVERFLOW:
                return np.inf, np.zeros_like(x)
        log_error, error_slope = self.error(np.cumsum(g))
        squared, slope = smooth_sensitivity(c, self.participation, temperature)
        by_g = np.cumsum(error_slope[::-1])[::-1]
        by_g -= _correlated(_convolved(c, c), slope) / squared
        by_rate, by_scale = np.zeros_like(rates), np.empty_like(scale)
        by_power = -np.arange(n - 1) / (1 - rates[:, None]) * powers
        for i, lag in enumerate(self.lags):
            after = by_g[lag + 1 :]
            by_scale[i] = powers[:, : n - 1 - lag] @ after
            by_rate += scale[i] * (by_power[:, : n - 1 - lag] @ after)
        by_rate = by_rate * rates + (by_scale * scale).sum(axis=0)
        by_direct = by_g[list(self.lags[1:])] * _UNIT
        gradient = np.concatenate([by_rate, by_direct, (by_scale * rates * _UNIT).ravel()])
        return 0.5 * (log_error + np.log(squared)), 0.5 * gradient

    def minimize(self, start: LaggedBlt, temperature: float) -> LaggedBlt:
        """Local minimum that L-BFGS finds from `start`."""
        x = self.unknowns(start)
        bounds = [_LOG_RATES] * start.decay.size + [(None, None)] * (x.size - start.decay.size)
        result = optimize.minimize(
            self,
            x,
            args=(temperature,),
            jac=True,
            method='L-BFGS-B',
            bounds=bounds,
            options=_OPTIONS,
        )
        return self.mechanism(result.x)


def _inverse_series(series: np.ndarray) -> np.ndarray:
    """First coefficients of `1 / series`, for a series that starts with 1: Newton's iteration."""
    first = series[:_DIRECT_SIZE]
    found = signal.lfilter([1.0], first, np.eye(1, first.size)[0])
    while found.size < series.size:
        size = min(2 * found.size, series.size)
        padded = np.pad(found, (0, size - found.size))
        excess = _convolved(series[:size], padded)
        excess[0] -= 1.0
        found = padded - _convolved(excess, padded)
    return found


def _convolved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    size = fft.next_fast_len(2 * first.size, real=True)
    return fft.irfft(fft.rfft(first, size) * fft.rfft(second, size), size)[: first.size]


def _correlated(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """`sum_i first[i] second[i + d]` for each d."""
    size = fft.next_fast_len(2 * first.size, real=True)
    product = np.conj(fft.rfft(first, size)) * fft.rfft(second, size)
    return fft.irfft(product, size)[: first.size]
