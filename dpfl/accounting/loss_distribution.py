"""Epsilon of sampled Gaussian releases from the distribution of their privacy loss.

dp_accounting gives the distribution of one release on a grid of losses, pessimistic by its grid
("connect the dots", [Doroshenko22]). Its own composition loses all deltas below about 1e-13 in the
rounding of a Fourier transform, in either direction. Here each distribution is tilted first:
`p(l) exp(theta l)`, divided by its sum, is transformed, with the theta of the Chernoff bound at
delta. The losses that matter are then in the middle of the tilted distribution, and keep its
precision.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy import fft, optimize, signal

from dpfl.accounting.sampling import truncated

# Step of the grid, unless one release then has too few points, or one or all have too many.
_STEP = 1e-4
_LEAST_POINTS = 2**12
_MOST_POINTS = 2**16
_MOST_POINTS_OF_EPSILON = 2e5
# The tails are cut at a power of e that is a multiple of this, so that few grids serve a whole run.
_TAIL_UNIT = 10.0
# Distributions of one release that are kept; each takes about a megabyte.
_KEPT = 4
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


def epsilon(
    parts: Sequence[tuple[tuple[float, ...], int]],
    delta: float,
    most: float,
    coarseness: float = 1.0,
) -> float:
    """Epsilon at `delta` of sampled releases together, where a client is added or removed.

    Args:
      parts: kinds of releases as `((sampling probability, noise multiplier), count)`; on truncated
        samples `((sampling probability, noise multiplier, t, p), count)`, see `sampling.truncated`.
      delta: strictly between 0 and 1.
      most: an epsilon that is known to hold; the grid covers losses up to it.
      coarseness: at least 1; by how much the grid is coarser than usual, rounded down to a step
        that is a power of 2. The result is still an upper bound; 16 gives one that is up to about
        0.1 % larger, in a twentieth of the time.

    Returns:
      An upper bound; infinity where the grid would be too wide or the numbers do not fit a float.
    """
    releases = sum(count for _, count in parts)
    log_tail = min(_LOG_TAIL, math.log(delta) - math.log(releases) - 20)
    log_tail = _TAIL_UNIT * math.floor(log_tail / _TAIL_UNIT)
    if log_tail < _LEAST_LOG_TAIL or not math.isfinite(most):
        return math.inf
    spread = max(_spread(*release, log_tail=log_tail) for release, _ in parts)
    step = max(
        min(_STEP, spread / _LEAST_POINTS), spread / _MOST_POINTS, most / _MOST_POINTS_OF_EPSILON
    )
    if coarseness > 1:
        step = 2.0 ** math.floor(math.log2(step * coarseness))
    if step > _WIDEST_STEP:
        return math.inf
    try:
        losses = [
            (_one_release(*release, step=step, log_tail=log_tail), count)
            for release, count in parts
        ]
        return max(
            _of_direction([(both[side], count) for both, count in losses], step, delta)
            for side in (0, 1)
        )
    except (OverflowError, ValueError, ZeroDivisionError, FloatingPointError):
        return math.inf  # dp_accounting does not support such small or large numbers.


@dataclasses.dataclass(frozen=True)
class _Losses:
    """Masses of the losses `(lowest + i) step`, and of an infinite loss.

    Attributes:
      lowest: the smallest loss in units of the step.
      log_masses: logarithms of the masses, float64 [points].
      infinite: mass of an infinite loss.
    """

    lowest: int
    log_masses: np.ndarray
    infinite: float

    @functools.cached_property
    def places(self) -> np.ndarray:
        """Losses in units of the grid, float64 [points]."""
        return self.lowest + np.arange(self.log_masses.size, dtype=np.float64)


# Independent releases and how often each happens.
_Parts = Sequence[tuple[_Losses, int]]


def _spread(
    probability: float,
    noise_multiplier: float,
    full: float = 0.0,
    placed: float = 0.0,
    *,
    log_tail: float,
) -> float:
    """Largest minus smallest loss of a release, without the tails."""
    mu = 1 / noise_multiplier
    reach = math.sqrt(-2 * log_tail) * mu + mu * mu / 2
    absent = math.log1p(-probability) if probability < 1 else -math.inf
    own = np.logaddexp(absent, math.log(probability) + reach)
    own -= np.logaddexp(absent, math.log(probability) - reach)
    if not full:
        return float(own)
    return max(float(own), 2 * truncated.spread(placed, noise_multiplier, log_tail))


@functools.lru_cache(_KEPT)
def _one_release(
    probability: float,
    noise_multiplier: float,
    full: float = 0.0,
    placed: float = 0.0,
    *,
    step: float,
    log_tail: float,
) -> tuple[_Losses, _Losses]:
    """Losses of one release, for a client that is removed and for one that is added."""
    sampled = _of_sample(probability, noise_multiplier, step, log_tail)
    if not full:
        return sampled
    others = truncated.full_losses(placed, noise_multiplier, step, log_tail)
    remove, add = (
        _mixture(one, _losses(other.to_dense_pmf()), full)
        for one, other in zip(sampled, others, strict=True)
    )
    return remove, add


def _mixture(one: _Losses, other: _Losses, share: float) -> _Losses:
    """Losses of a release that is the other one with a probability of at most `share`."""
    lowest = min(one.lowest, other.lowest)
    highest = max(each.lowest + each.log_masses.size for each in (one, other))
    masses = np.full(highest - lowest, -np.inf)
    # The share was rounded up, and does not lower the mass of the first part.
    rest = -math.expm1(math.log(share) - 4e-9) if share < 1 else 4e-9
    for part, weight in ((one, rest), (other, share)):
        start = part.lowest - lowest
        window = masses[start : start + part.log_masses.size]
        np.logaddexp(window, part.log_masses + math.log(weight), out=window)
    return _Losses(lowest, masses, rest * one.infinite + share * other.infinite)


def _of_sample(
    probability: float, noise_multiplier: float, step: float, log_tail: float
) -> tuple[_Losses, _Losses]:
    """Losses of a release on a Poisson sample, for a client that is removed, and added."""
    found = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        value_discretization_interval=step,
        sampling_prob=probability,
        log_mass_truncation_bound=log_tail,
    )
    # dp_accounting publishes the masses only after its own composition.
    remove, add = found._pmf_remove, found._pmf_add
    return _losses(remove.to_dense_pmf()), _losses(add.to_dense_pmf())


def _losses(pmf: Any) -> _Losses:
    if not np.isfinite(pmf._probs).all():
        raise OverflowError('a mass is not finite')
    with np.errstate(divide='ignore'):
        return _Losses(pmf._lower_loss, np.log(pmf._probs), pmf._infinity_mass)


def _of_direction(parts: _Parts, step: float, delta: float) -> float:
    """Epsilon at `delta` of the sum of independent losses, each taken `count` times."""
    infinite = -math.expm1(sum(count * math.log1p(-part.infinite) for part, count in parts))
    target = (delta - infinite) * (1 - _ROUNDING)
    if target <= 0:
        return math.inf
    theta = _tilt(parts, math.log(target))
    low, high = _window(parts, theta)
    mean = _mean(parts, theta)
    length = fft.next_fast_len(high - low + 1, real=True)
    if length > _MOST_LENGTH:
        return math.inf
    tilted, noise = _composed(parts, theta, low, length)
    # Masses of the losses with the tilt undone, in units of exp(exponent).
    places = low + np.arange(length, dtype=np.float64)
    exponent = _log_sum(parts, theta) - theta * mean
    if exponent > 700:
        return math.inf
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
    return _crossing(places, deltas, step, target)


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


def _log_total(part: _Losses, theta: float) -> float:
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
