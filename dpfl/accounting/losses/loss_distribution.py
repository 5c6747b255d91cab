"""Epsilon of sampled Gaussian releases from the distribution of their privacy loss.

`losses_on_grid` gives the distribution of one release on a grid of losses. The composition of
dp_accounting loses all deltas below about 1e-13 in the rounding of a Fourier transform, in either
direction. Here each distribution is tilted first: `p(l) exp(theta l)`, divided by its sum, is
transformed, with the theta of the Chernoff bound at delta. The losses that matter are then in the
middle of the tilted distribution, and keep its precision.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import fft, optimize, signal

from dpfl.accounting.losses import dominating_pairs, losses_on_grid
from dpfl.accounting.losses.dominating_pairs import DominatingPair
from dpfl.accounting.losses.losses_on_grid import Losses, Release
from dpfl.accounting.sampling import truncated
from dpfl.accounting.sampling.truncated import TruncatedPoissonDpEvent

# Step of the grid, unless one release then has too few points, or one or all have too many.
_STEP = 1e-4
_LEAST_POINTS = 2**12
_MOST_POINTS = 2**16
_MOST_POINTS_OF_EPSILON = 2e5
# The tails are cut at a power of e that is a multiple of this, so that few grids serve a whole run.
_TAIL_UNIT = 10.0
# With a larger step the result is useless.
_WIDEST_STEP = 0.1
_MOST_LENGTH = 2**23
# Logarithm of the largest mass of the noise that is cut off; exp(-700) still is a float.
_LOG_TAIL, _LEAST_LOG_TAIL = -50.0, -700.0
# The window of losses leaves out at most this tilted mass on either side, by Chernoff bounds with
# tilts that are steeper or flatter by these factors.
_OUTSIDE = 1e-13
_STEEPER = (1.03, 1.1, 1.2, 1.4, 1.7, 2.0, 3.0, 5.0)
_FLATTER = (0.97, 0.9, 0.8, 0.6, 0.3, 0.0, -1.0)
# Rounding error of all logarithms, sums and the grid itself, relative to delta.
_ROUNDING = 1e-9


# For such a delta several tilts are tried; each gives an upper bound.
_LARGE_DELTA = 1e-2
_FLATTER_TILTS = (1.0, 1 / 4, 1 / 16, 1 / 64, 1 / 256)
# Whose tilts give the parts of a whole curve.
_DELTAS_OF_CURVE = (0.3, 1e-2, 1e-4, 1e-6, 1e-9)
# Exponents of the moments that bound the losses of pairs, for a first idea of epsilon.
_EXPONENTS = np.geomspace(1e-3, 1e4, 60)

# Kinds of releases, and how often each happens.
Releases = Sequence[tuple[Release, int]]
# Losses of independent releases, and how often each happens.
_Parts = Sequence[tuple[Losses, int]]


def epsilon(
    parts: Releases, delta: float, most: float | None = None, coarseness: float = 1.0
) -> float:
    """Epsilon at `delta` of sampled releases together.

    Args:
      parts: kinds of releases with counts. A kind is `(sampling probability, noise multiplier)` of
        a Poisson sample, where a client is added or removed, the event of a truncated Poisson
        sample whose cap may be reached, or a pair that dominates a round.
      delta: strictly between 0 and 1.
      most: an epsilon that is known to hold; the grid covers losses up to it. None for one from the
        moments of the losses.
      coarseness: at least 1; by how much the grid is coarser than usual, rounded down to a step
        that is a power of 2. The result is still an upper bound; 16 gives one that is up to about
        0.1 % larger, in a twentieth of the time.

    Returns:
      An upper bound; infinity where the grid would be too wide or the numbers do not fit a float.
    """
    try:
        orders, step = _orders(parts, delta, most, coarseness)
        return max(_of_order(order, step, delta) for order in orders)
    except (OverflowError, ValueError, ZeroDivisionError, FloatingPointError):
        return math.inf  # dp_accounting does not support such small or large numbers.


def curves(parts: Releases, coarseness: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Points of the privacy profile, for each order of the neighbours (once if both are the same).

    Args:
      parts, coarseness: as in `epsilon`.

    Returns:
      Arrays of epsilons, increasing but for repetitions, and upper bounds of their deltas.

    Raises:
      OverflowError: where the grid would be too wide; ValueError or another ArithmeticError where
        the numbers do not fit a float.
    """
    orders, step = _orders(parts, min(_DELTAS_OF_CURVE), None, coarseness)
    profiles = []
    for order in orders:
        points = []
        for delta in _DELTAS_OF_CURVE:
            theta = _tilt(order, math.log(delta))
            for factor in _FLATTER_TILTS if delta == max(_DELTAS_OF_CURVE) else (1.0,):
                points.append(_curve(order, theta * factor, step))
        places, deltas = (np.concatenate(arrays) for arrays in zip(*points, strict=True))
        by_place = np.argsort(places, kind='stable')
        deltas = np.minimum(deltas * (1 + _ROUNDING) + _infinite(order), 1.0)
        profiles.append((places[by_place] * step, deltas[by_place]))
    return profiles


def _orders(
    parts: Releases, delta: float, most: float | None, coarseness: float
) -> tuple[list[_Parts], float]:
    """The losses for each order of the neighbours (once if both are the same), and their step.

    Raises:
      OverflowError: where the grid would be too wide.
    """
    releases = sum(count for _, count in parts)
    log_tail = min(_LOG_TAIL, math.log(delta) - math.log(releases) - 20)
    log_tail = _TAIL_UNIT * math.floor(log_tail / _TAIL_UNIT)
    if log_tail < _LEAST_LOG_TAIL:
        raise OverflowError('the tails do not fit a float')
    spread = max(_spread(release, log_tail) for release, _ in parts)
    if most is None:
        most = _by_moments(_on_grid(parts, spread / _LEAST_POINTS, log_tail), delta, spread)
    step = max(
        min(_STEP, spread / _LEAST_POINTS), spread / _MOST_POINTS, most / _MOST_POINTS_OF_EPSILON
    )
    if coarseness > 1:
        step = 2.0 ** math.floor(math.log2(step * coarseness))
    if not step <= _WIDEST_STEP:
        raise OverflowError('the step of the grid is too wide')
    return _on_grid(parts, step, log_tail), step


def _on_grid(parts: Releases, step: float, log_tail: float) -> list[_Parts]:
    losses = [
        (losses_on_grid.both_orders(release, step, log_tail), count) for release, count in parts
    ]
    sides = (0,) if all(both[0] is both[1] for both, _ in losses) else (0, 1)
    return [[(both[side], count) for both, count in losses] for side in sides]


def _by_moments(orders: Sequence[_Parts], delta: float, spread: float) -> float:
    """An epsilon from `P(loss > epsilon) <= E[exp(exponent loss)] exp(-exponent epsilon)`."""
    step = spread / _LEAST_POINTS
    return max(
        min(
            (_log_sum(parts, exponent * step) - math.log(delta / 2)) / exponent
            for exponent in _EXPONENTS.tolist()
        )
        for parts in orders
    )


def _spread(release: Release, log_tail: float) -> float:
    """Largest minus smallest loss of a release, without the tails."""
    if isinstance(release, DominatingPair):
        return dominating_pairs.spread(release, log_tail)
    if isinstance(release, TruncatedPoissonDpEvent):
        _, placed = release.full()
        noise = release.event.noise_multiplier
        return max(
            _spread((release.sampling_probability, noise), log_tail),
            2 * truncated.spread(placed, noise, log_tail),
        )
    probability, noise_multiplier = release
    mu = 1 / noise_multiplier
    reach = math.sqrt(-2 * log_tail) * mu + mu * mu / 2
    absent = math.log1p(-probability) if probability < 1 else -math.inf
    return float(
        np.logaddexp(absent, math.log(probability) + reach)
        - np.logaddexp(absent, math.log(probability) - reach)
    )


def _of_order(parts: _Parts, step: float, delta: float) -> float:
    """Epsilon at `delta` of the sum of independent losses, each taken `count` times."""
    target = (delta - _infinite(parts)) * (1 - _ROUNDING)
    if target <= 0:
        return math.inf
    theta = _tilt(parts, math.log(target))
    # With a large delta the Chernoff bound is far from tight, and its tilt too steep.
    flatter = (1.0,) if delta < _LARGE_DELTA else _FLATTER_TILTS
    return min(_crossing(*_curve(parts, theta * factor, step), step, target) for factor in flatter)


def _infinite(parts: _Parts) -> float:
    """Mass of an infinite loss of all releases together."""
    return -math.expm1(sum(count * math.log1p(-part.infinite) for part, count in parts))


def _curve(parts: _Parts, theta: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses of the window, in steps, and upper bounds of delta at them, float64 [points] each.

    The mass of an infinite loss is not in the deltas.

    Args:
      parts: losses of the releases.
      theta: tilt, per step of the grid, above 0; the deltas near its losses are the most precise.
      step: of the grid.

    Raises:
      OverflowError: if the window or its masses are too large.
    """
    low, high = _window(parts, theta)
    mean = _mean(parts, theta)
    length = fft.next_fast_len(high - low + 1, real=True)
    if length > _MOST_LENGTH:
        raise OverflowError('the window is too wide')
    tilted, noise = _composed(parts, theta, low, length)
    # Masses of the losses with the tilt undone, in units of exp(exponent).
    places = low + np.arange(length, dtype=np.float64)
    exponent = _log_sum(parts, theta) - theta * mean
    if exponent > 700:
        raise OverflowError('a mass does not fit a float')
    masses = np.maximum(tilted, 0.0) * np.exp(exponent - theta * (places - mean))
    decay = math.exp(-step)
    at_least = np.cumsum(masses[::-1])[::-1]
    beyond = np.append(at_least[1:], 0.0)
    # sum over l > j of m_l (1 - decay^(l - j)) is
    # (1 - decay) times the sum over i >= 0 of decay^i beyond_(j + i).
    deltas = signal.lfilter([-math.expm1(-step)], [1.0, -decay], beyond[::-1])[::-1]
    weights = 1 / math.sqrt(max(-math.expm1(-2 * theta), 1 / length))
    # The losses above the window have a mass of at most `_OUTSIDE * exp(log sum - theta high)`.
    deltas = deltas + _OUTSIDE * math.exp(exponent - theta * max(high - mean, 0.0))
    deltas += noise * weights * np.exp(exponent - theta * (places - mean))
    return places, deltas


def _tilt(parts: _Parts, log_delta: float) -> float:
    """The theta, per step of the grid, of the Chernoff bound of `delta`; approximate."""

    def excess(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return _log_sum(parts, theta) - theta * _mean(parts, theta) - log_delta

    low = high = math.log(1e-4)
    while excess(low) <= 0 and low > -40:
        low -= 2
    while excess(high) > 0 and high < 4:
        high += 1
    if excess(low) <= 0 or excess(high) > 0:
        return math.exp(low if excess(low) <= 0 else high)
    return math.exp(optimize.brentq(excess, low, high, xtol=0.02))


def _log_sum(parts: _Parts, theta: float) -> float:
    """Logarithm of the sum of the tilted masses of all releases together."""
    return sum(count * _log_total(part, theta) for part, count in parts)


def _log_total(part: Losses, theta: float) -> float:
    logs = part.log_masses + theta * part.places
    largest = logs.max()
    return float(largest + math.log(np.exp(logs - largest).sum()))


def _mean(parts: _Parts, theta: float) -> float:
    """Mean of the tilted sum, in steps of the grid."""
    mean = 0.0
    for part, count in parts:
        weights = np.exp(part.log_masses + theta * part.places - _log_total(part, theta))
        mean += count * float(weights @ part.places)
    return mean


def _window(parts: _Parts, theta: float) -> tuple[int, int]:
    """The first and the last loss of the window, in steps of the grid.

    By Chernoff bounds, at most `_OUTSIDE` of the tilted mass is below the window, and as much
    above. The transform moves it to the other end; mass from below can only raise a delta there.
    """
    log_sum, log_most = _log_sum(parts, theta), math.log(_OUTSIDE)
    ends = {
        factor: (_log_sum(parts, theta * factor) - log_sum - log_most) / (theta * (factor - 1))
        for factor in (*_FLATTER, *_STEEPER)
    }
    largest = sum(count * (part.lowest + part.log_masses.size - 1) for part, count in parts)
    smallest = sum(count * part.lowest for part, count in parts)
    low = max(math.floor(max(ends[factor] for factor in _FLATTER)), smallest)
    high = min(math.ceil(min(ends[factor] for factor in _STEEPER)), largest)
    return low, max(high, low + 1)


def _composed(parts: _Parts, theta: float, low: int, length: int) -> tuple[np.ndarray, float]:
    """Tilted masses of the sum of losses at low, low + 1, ... steps, and their rounding error.

    Returns:
      The masses, float64 [length], and a bound on the Euclidean norm of their errors.
    """
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    offset = 0
    for part, count in parts:
        logs = part.log_masses + theta * part.places
        weights = np.exp(logs - _log_total(part, theta))
        folded = np.bincount(np.arange(weights.size) % length, weights, minlength=length)
        spectrum *= fft.rfft(folded) ** count
        offset += count * part.lowest
    composed = np.roll(fft.irfft(spectrum, length), offset - low)
    operations = sum(count for _, count in parts) + 4 * math.log2(length)
    noise = 8 * np.finfo(np.float64).eps * operations * float(np.linalg.norm(composed))
    return composed, float(noise)


def _crossing(places: np.ndarray, deltas: np.ndarray, step: float, target: float) -> float:
    """The loss, at least 0, from which on the deltas are at most the target."""
    kept = deltas <= target
    if not kept.any():
        return math.inf
    first = int(kept.argmax())
    end = float(places[first]) * step
    if first == 0 or end <= 0:
        return max(end, 0.0)
    # Between two points of the grid delta is linear in exp(epsilon).
    above, below = deltas[first - 1], deltas[first]
    share = (above - target) / (above - below)
    inside = float(places[first - 1]) * step + math.log1p(share * math.expm1(step))
    return max(inside, 0.0) * (1 + _ROUNDING)
