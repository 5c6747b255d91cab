"""Loss of an interlaced BLT and its gradient, from sums of exponentials in closed form.

The parameters are the rates of all buffers, those of C (1 - theta) and those of C^-1
(1 - theta^), in one increasing sequence. The two kinds alternate, and the last rate belongs to
C^-1. The coefficients of C and of B = A C^-1 are then sums of exponentials with *positive*
weights: no digits cancel, and for prefix sums neither time nor precision depends on the number of
rounds.

The sequence starts with a rate of zero, and alternation decides its kind. With an even number of
free rates it belongs to C^-1: B of the prefix sums has a constant part. With an odd number it
belongs to C: a decay is exactly 1.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy

from dpfl.participation import Participation

_LEAST_LOG = -700.0
# A value, and its gradients with respect to log weights and rates, [d] each.
ValueAndSlopes = tuple[float, np.ndarray, np.ndarray]
# Log of the squared error or sensitivity as a function of rates and weights, [d] each.
ErrorFunction = Callable[[np.ndarray, np.ndarray], ValueAndSlopes]


def pair_rates(rates: np.ndarray) -> np.ndarray:
    """`1 - t_j t_l` of pairs of decays t = 1 - rate without cancellation, [..., d, d]."""
    first, second = rates[..., None], rates[..., None, :]
    return first + second - first * second


def geometric_sum(terms: int | np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`sum_{i < terms} t^i` and its derivative with respect to w, where t = 1 - w.

    Args:
      terms: an integer, or integers of a shape that broadcasts with the shape of w.
      w: within [0, 2].
    """
    negative = w > 1
    with np.errstate(divide='ignore'):
        log_t = np.maximum(np.log1p(-np.where(negative, 2 - w, w)), _LEAST_LOG)
    exponent = terms * log_t
    one_less = -np.expm1(exponent)
    last = np.exp(exponent - log_t)
    if negative.any():
        odd = np.asarray(terms) % 2 == 1
        one_less = np.where(negative & odd, 2 - one_less, one_less)
        last = np.where(negative & ~odd, -last, last)
    zero = w == 0
    nonzero = np.where(zero, 1.0, w)
    value = np.where(zero, terms, one_less / nonzero)
    return value, np.where(zero, -0.5 * terms * (terms - 1), (terms * last - value) / nonzero)


def _ramp_sum(terms: int, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`sum_{i < terms} (terms - i) t^i` and its derivative with respect to w, where t = 1 - w."""
    geometric, slope = geometric_sum(terms, w)
    zero = w == 0
    nonzero = np.where(zero, 1.0, w)
    value = np.where(zero, terms * (terms + 1) / 2, (terms - (1 - w) * geometric) / nonzero)
    derivative = (geometric - (1 - w) * slope - value) / nonzero
    derivative[zero] = -terms * (terms + 1) * (terms - 1) / 6
    small = ~zero & (terms * w < 0.1)
    if small.any():
        # Both formulas lose digits here; use sum_r C(terms + 1, r + 2) (-w)^r.
        series = [(-1) ** r * float(math.comb(terms + 1, r + 2)) for r in range(10)]
        value[small] = np.polynomial.polynomial.polyval(w[small], series)
        slopes = np.polynomial.polynomial.polyder(series)
        derivative[small] = np.polynomial.polynomial.polyval(w[small], slopes)
    return value, derivative


def prefix_error(rounds: int, loss: str) -> ErrorFunction:
    """Squared error of the prefix sums: the largest for max loss, the mean over rounds for rms.

    The function takes rates and weights of `b_i = sum_j weights_j (1 - rates_j)^i`.
    """
    is_mean = loss == 'rms'

    def error(rates: np.ndarray, weights: np.ndarray) -> ValueAndSlopes:
        gram, slope = (_ramp_sum if is_mean else geometric_sum)(rounds, pair_rates(rates))
        value, by_weight, by_rate = quadratic(gram, slope * (1 - rates), weights)
        return value - (math.log(rounds) if is_mean else 0.0), by_weight, by_rate

    return error


def quadratic(gram: np.ndarray, slope: np.ndarray, weights: np.ndarray) -> ValueAndSlopes:
    """Log of `weights @ gram @ weights`, and its gradients.

    Args:
      gram: symmetric, [d, d].
      slope: the part of the derivative of gram[j, l] with respect to rate j that comes from the
        first index, [d, d].
      weights: positive, [d].

    Returns:
      The value and its gradients with respect to log weights and rates.
    """
    product = gram @ weights
    value = weights @ product
    return (math.log(value), 2 * weights * product / value, 2 * weights * (slope @ weights) / value)


def series_error(first: np.ndarray, weigh: Callable[[np.ndarray], np.ndarray]) -> ErrorFunction:
    """Squared error `b @ weigh(b)` for `b = a / c`, see `driver.over_workload`.

    The workload is its differences A' times the prefix sums P, and `P C^-1` is Toeplitz with
    coefficients `sum_j weights_j (1 - rates_j)^i`. So b is the sum over j of filtered differences.

    Args:
      first: a, [n].
      weigh: symmetric linear map of the last axis.
    """
    differences = np.diff(first, prepend=0.0)

    def error(rates: np.ndarray, weights: np.ndarray) -> ValueAndSlopes:
        # `sum_{s <= i} (1 - rate)^s differences[i - s]`, and its derivative, [rates, n].
        parts = np.stack(
            [scipy.signal.lfilter([1.0], [1.0, rate - 1], differences) for rate in rates]
        )
        slopes = np.stack(
            [
                scipy.signal.lfilter([0.0, -1.0], [1.0, rate - 1], part)
                for rate, part in zip(rates, parts, strict=True)
            ]
        )
        weighted = weigh(parts)
        return quadratic(weighted @ parts.T, slopes @ weighted.T, weights)

    return error


def log_sensitivity(
    rates: np.ndarray, weights: np.ndarray, participation: Participation
) -> ValueAndSlopes:
    """Log of the squared sensitivity for `c_i = sum_j weights_j (1 - rates_j)^(i-1)`.

    The worst pattern is 0, b, 2b, .. ([McMahan24], theorem 3.1). After each participation, C
    applied to the worst pattern is again a sum of exponentials, whose weights are multiplied by a
    geometric sum.

    Returns:
      The value and its gradients with respect to log weights and rates.
    """
    b, k = participation.min_separation, participation.count
    log_decay = np.log1p(-rates)
    lag = np.arange(k)[:, None]
    powers = np.exp(lag * (b * log_decay))
    sums, slopes = np.cumsum(powers, axis=0), np.cumsum(lag * powers, axis=0)
    parts = weights * sums
    at_return = np.exp((b - 1) * log_decay)
    first = np.ones(k)
    first[1:] += parts[:-1] @ at_return

    terms = np.array([b - 1, participation.rounds - (k - 1) * b - 1]).reshape(2, 1, 1)
    (between, after), (between_slope, after_slope) = geometric_sum(terms, pair_rates(rates))
    earlier, last = parts[:-1].T @ parts[:-1], parts[-1]
    value = first @ first + (earlier * between).sum() + last @ after @ last

    d_parts = np.empty_like(parts)
    d_parts[:-1] = 2 * parts[:-1] @ between + 2 * first[1:, None] * at_return
    d_parts[-1] = 2 * after @ last
    d_log_decay = (d_parts * weights * slopes).sum(axis=0) * b
    d_log_decay += 2 * (first[1:] @ parts[:-1]) * at_return * (b - 1)
    d_w = earlier * between_slope + np.outer(last, last) * after_slope
    d_rates = 2 * d_w @ (1 - rates) - d_log_decay / (1 - rates)
    return math.log(value), (d_parts * parts).sum(axis=0) / value, d_rates / value


def log_loss(
    error: ErrorFunction,
    sensitivity: ErrorFunction,
    coordinates: np.ndarray,
    barrier: float = 0.0,
    last_is_free: bool = False,
) -> tuple[float, np.ndarray]:
    """Log of the squared loss as a function of unconstrained coordinates, and its gradient.

    The coordinates are the logs of the gaps between the logs of successive rates. The last gap is
    the one below a rate of 1 (inverse decay 0). A free last rate may exceed 1. Its coordinate is
    then the logit of its place between the rate before and the largest rate with c_1 <= c_0. Every
    point is an interlaced BLT with non-negative, non-increasing coefficients.

    Args:
      error: of the rates and weights of C^-1.
      sensitivity: log of its square, of the rates and weights of C.
      coordinates: [free rates].
      barrier: strength of the penalties of [McMahan24], algorithm 4.
      last_is_free: whether the last rate may exceed 1.
    """
    log_rates = log_rates_of(coordinates, last_is_free)
    rates = np.concatenate([[0.0], np.exp(log_rates)])
    inverse = _is_inverse(log_rates.size)
    signs = np.where(inverse[:, None] == inverse, -1.0, 1.0)
    np.fill_diagonal(signs, 0.0)
    differences = _differences(log_rates, rates)
    log_weights = (signs * np.log(np.abs(differences))).sum(axis=1)
    # The rate of zero contributes no factor to the weights of the other kind.
    other = inverse != inverse[0]
    log_weights[other] -= log_rates[other[1:]]
    weights = np.exp(log_weights)

    d_weights, d_rates = np.zeros_like(rates), np.zeros_like(rates)
    value, d_weights[inverse], d_rates[inverse] = error(rates[inverse], weights[inverse])
    squared, d_weights[~inverse], d_rates[~inverse] = sensitivity(
        rates[~inverse], weights[~inverse]
    )
    value += squared
    if barrier:
        free = ~inverse & (rates > 0)
        value -= barrier * (np.log(rates[free]) + np.log1p(-rates[free]) + log_weights[free]).sum()
        d_rates[free] += barrier * (1 / (1 - rates[free]) - 1 / rates[free])
        d_weights[free] -= barrier
        slack = 1 - weights[~inverse].sum()
        value -= barrier * math.log(slack)
        d_weights[~inverse] += barrier * weights[~inverse] / slack

    ratios = signs / differences
    d_rates += ratios.sum(axis=1) * d_weights + ratios @ d_weights
    d_log_rates = d_rates[1:] * rates[1:]
    d_log_rates[other[1:]] -= d_weights[1:][other[1:]]
    return value, _gradient(coordinates, log_rates, d_log_rates, last_is_free)


def parameters(log_rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rates of C, increasing, and their scales omega ([McMahan24], algorithm 5)."""
    rates = np.concatenate([[0.0], np.exp(log_rates)])
    inverse = _is_inverse(log_rates.size)
    differences = np.abs(_differences(log_rates, rates))
    factors = np.where(inverse[:, None] == inverse, 1 / differences, differences)
    np.fill_diagonal(factors, 1.0)
    if inverse[0]:
        factors[:, 0] = 1.0
    return rates[~inverse], factors.prod(axis=1)[~inverse]


def log_rates_of(coordinates: np.ndarray, last_is_free: bool = False) -> np.ndarray:
    """Logs of the free rates, increasing and negative; a free last rate may have a positive log."""
    gaps = np.exp(coordinates)
    if not last_is_free:
        return -np.cumsum(gaps[::-1])[::-1]
    log_rates = -np.cumsum(gaps[-2::-1])[::-1]
    rates = np.exp(log_rates)
    last = rates[-1] + scipy.special.expit(coordinates[-1]) * _room(rates)
    return np.append(log_rates, np.log(last))


def coordinates_of(log_rates: np.ndarray, last_is_free: bool = False) -> np.ndarray:
    """Inverse of `log_rates_of`."""
    if not last_is_free:
        return np.log(np.diff(log_rates, append=0.0))
    gaps = np.diff(log_rates[:-1], append=0.0)
    rates = np.exp(log_rates)
    share = (rates[-1] - rates[-2]) / _room(rates[:-1])
    return np.append(np.log(gaps), scipy.special.logit(share))


def _room(rates: np.ndarray) -> float:
    """Largest distance of a free last rate from the rate before: c_1, the sum of scales, is < 1."""
    signs = np.where(_is_inverse(rates.size + 1)[1:-1], -1.0, 1.0)
    return 1 + signs[:-1] @ rates[:-1]


def _gradient(coordinates, log_rates, d_log_rates, last_is_free):
    """Gradient with respect to the coordinates from the gradient with respect to the log rates."""
    gaps = np.exp(coordinates)
    if not last_is_free:
        return -gaps * np.cumsum(d_log_rates)
    rates = np.exp(log_rates)
    share = scipy.special.expit(coordinates[-1])
    d_last = d_log_rates[-1] / rates[-1]
    by_rate = np.where(_is_inverse(rates.size)[1:-1], -share, share)
    by_rate[-1] = 1.0
    d_log_rates = d_log_rates[:-1] + d_last * by_rate * rates[:-1]
    at_last = d_last * share * (1 - share) * _room(rates[:-1])
    return np.append(-gaps[:-1] * np.cumsum(d_log_rates), at_last)


def _is_inverse(free_rates: int) -> np.ndarray:
    """Which rates, with the rate of zero first, belong to C^-1: every other one, and the last."""
    return (free_rates - np.arange(free_rates + 1)) % 2 == 0


def _differences(log_rates, rates):
    """`rates[m] - rates[l]` in full relative precision, with ones on the diagonal."""
    differences = np.empty((rates.size, rates.size))
    differences[1:, 1:] = -rates[1:, None] * np.expm1(log_rates - log_rates[:, None])
    differences[0], differences[:, 0] = -rates, rates
    np.fill_diagonal(differences, 1.0)
    return differences
