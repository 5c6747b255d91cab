"""Epsilon of sampled Gaussian releases from the distribution of their privacy loss.

The distribution of one release is on a grid of losses, pessimistic. The composition of
dp_accounting loses all deltas below about 1e-13 in the rounding of a Fourier transform, in either
direction. Here each distribution is tilted first: `p(l) exp(theta l)`, divided by its sum, is
transformed, with the theta of the Chernoff bound at delta. The losses that matter are then in the
middle of the tilted distribution, and keep its precision.

Between two points of the grid the divergence of a pair (P, Q), as a function of alpha, is replaced
by the chord above it ("connect the dots", [Doroshenko22]): the masses of P and Q in each interval
move to its ends, and their sums stay the same. Whatever rounding could do goes to the upper end.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy

from dpfl.accounting import dp
from dpfl.accounting.losses import dominating_pairs
from dpfl.accounting.losses.dominating_pairs import DominatingPair, MixturePair

if TYPE_CHECKING:
    from dpfl.accounting import own_events

# A sample of each client by itself with one probability, under noise: `(probability, noise)`.
Sample = tuple[float, float]
# One round; a truncated sample is one whose cap may be reached.
SampledRelease: TypeAlias = 'Sample | own_events.TruncatedPoissonDpEvent | DominatingPair'
# Number of cached distributions of one release; each takes about a megabyte.
_CACHE_SIZE = 4
# Points of the table from which the interval ends are found, and refinements of each end.
_TABLE, _REFINEMENTS = 2**14, 4
# Steps by which each interval end is shifted down, so that rounding never puts one above its
# grid point.
_GRID_SHIFT = 1e-6
# Bound on the relative error of a mass.
_MASS_ERROR = 1e-12
# By how much, relative, the probability of a full sample may have been rounded up.
_SHARE_ERROR = 4e-9
# With more points than this the release does not fit.
_MOST_POINTS_OF_ROUND = 2**20
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


@dataclasses.dataclass(frozen=True)
class Losses:
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


@functools.lru_cache(_CACHE_SIZE)
def _both_orders(release: SampledRelease, step: float, log_tail: float) -> tuple[Losses, Losses]:
    """Losses of one release for both orders of two neighbouring runs.

    Args:
      release: a sample, whose neighbours add or remove a client (of a truncated one: zero it out),
        or a pair that dominates a round.
      step: of the grid.
      log_tail: logarithm of the mass of a tail that counts as an infinite loss.

    Raises:
      OverflowError: if the numbers do not fit a float or the grid.
    """
    if isinstance(release, DominatingPair):
        return _of_pair(release, step, log_tail)
    if isinstance(release, dp.TruncatedPoissonDpEvent):
        full, placed = release.full()
        noise = release.event.noise_multiplier
        sampled = _both_orders((release.sampling_probability, noise), step, log_tail)
        displacing = dominating_pairs.full_losses(placed, noise, step, log_tail)
        remove, add = (
            _mixture(one, _from_pmf(other.to_dense_pmf()), full)
            for one, other in zip(sampled, displacing, strict=True)
        )
        return remove, add
    # dp_accounting knows the pair of one client of a Poisson sample.
    distribution = dp.pld.privacy_loss_distribution.from_gaussian_mechanism(
        release[1],
        value_discretization_interval=step,
        sampling_prob=release[0],
        log_mass_truncation_bound=log_tail,
    )
    # dp_accounting publishes the masses only after its own composition.
    pmfs = distribution._pmf_remove, distribution._pmf_add
    return _from_pmf(pmfs[0].to_dense_pmf()), _from_pmf(pmfs[1].to_dense_pmf())


def _mixture(one: Losses, other: Losses, share: float) -> Losses:
    """Losses of a release that is the other one with a probability of at most `share`."""
    lowest = min(one.lowest, other.lowest)
    highest = max(losses.lowest + losses.log_masses.size for losses in (one, other))
    masses = np.full(highest - lowest, -np.inf)
    # The share was rounded up, and does not lower the mass of the first part.
    rest = -math.expm1(math.log(share) - _SHARE_ERROR) if share < 1 else _SHARE_ERROR
    for part, weight in ((one, rest), (other, share)):
        start = part.lowest - lowest
        window = masses[start : start + part.log_masses.size]
        np.logaddexp(window, part.log_masses + math.log(weight), out=window)
    return Losses(lowest, masses, rest * one.infinite + share * other.infinite)


def _from_pmf(pmf: Any) -> Losses:
    return _losses(pmf._lower_loss, pmf._probs, pmf._infinity_mass)


def _losses(lowest: int, masses: np.ndarray, infinite: float) -> Losses:
    if not np.isfinite(masses).all():
        raise OverflowError('a mass is not finite')
    with np.errstate(divide='ignore'):
        return Losses(lowest, np.log(masses), infinite)


def _of_pair(pair: DominatingPair, step: float, log_tail: float) -> tuple[Losses, Losses]:
    if not pair.symmetrised:
        ((_, mixtures),) = pair.labelled
        return (
            _losses(*_upwards(mixtures, step, log_tail)),
            _losses(*_downwards(mixtures, step, log_tail)),
        )
    positive, infinite = np.zeros(1), 0.0
    for probability, mixtures in pair.labelled:
        _, masses, beyond = _upwards(mixtures, step, log_tail, positive=True)
        longest = max(positive.size, masses.size)
        positive = np.pad(positive, (0, longest - positive.size))
        positive += probability * np.pad(masses, (0, longest - masses.size))
        infinite += probability * beyond
    # Losses below 0 are of the opposite order: of `-step, -2 step, ...`.
    positive = positive[1:]
    negative = positive * np.exp(-step * np.arange(1, positive.size + 1))
    # Symmetry leaves this to a loss of 0; it is below 0 by rounding only.
    none = max(1 - infinite - positive.sum() - negative.sum(), 0.0)
    masses = np.concatenate([negative[::-1], [none], positive])
    losses = _losses(-positive.size, masses, infinite)
    return losses, losses


def _upwards(
    mixtures: MixturePair, step: float, log_tail: float, positive: bool = False
) -> tuple[int, np.ndarray, float]:
    """Losses `log(dP/dQ)` under P: the lowest, the masses, and the infinite mass.

    Args:
      mixtures: P and Q.
      step, log_tail: as in `_both_orders`.
      positive: whether to take losses above 0 only; they begin where the loss is 0.
    """
    first, points = _points(mixtures, step, log_tail, positive, -_GRID_SHIFT)
    p, q = mixtures.masses(points)
    masses = _at_ends(p, q, first, step)
    if not positive:
        masses[1] += mixtures.beyond(points[0], above=False)[0]
    return first, masses, mixtures.beyond(points[-1], above=True)[0]


def _downwards(
    mixtures: MixturePair, step: float, log_tail: float
) -> tuple[int, np.ndarray, float]:
    """Losses `log(dQ/dP)` under Q: the lowest, the masses, and the infinite mass."""
    first, points = _points(mixtures, step, log_tail, False, _GRID_SHIFT)
    p, q = (masses[::-1] for masses in mixtures.masses(points))
    lowest = -(first + p.size)
    masses = _at_ends(q, p, lowest, step)
    masses[1] += mixtures.beyond(points[-1], above=True)[1]
    return lowest, masses, mixtures.beyond(points[0], above=False)[1]


def _at_ends(p: np.ndarray, q: np.ndarray, first: int, step: float) -> np.ndarray:
    """Masses at the points of the grid, from those in the intervals between them.

    Args:
      p, q: masses of the distribution and of its opposite in the intervals [first, first + 1],
        [first + 1, first + 2], ... of the grid.
      first: where the first interval begins, in steps.
      step: of the grid.
    """
    lower_ends = step * (first + np.arange(p.size))
    with np.errstate(divide='ignore', invalid='ignore', over='ignore'):
        # Of the smallest floats some digits are missing: they count as 0, which is pessimistic.
        log_ratios = np.where(q > 1e-290, np.log(q) - np.log(p) + lower_ends, -np.inf)
        shares = np.expm1(np.minimum(log_ratios, 0.0)) / np.expm1(-step)
    shares = np.where(p > 0, shares, 1.0) + 3 * _GRID_SHIFT + _MASS_ERROR / step
    shares = np.clip(shares, 0.0, 1.0)
    masses = np.zeros(p.size + 1)
    masses[1:] += p * shares
    masses[:-1] += p * (1 - shares)
    return masses


def _points(
    mixtures: MixturePair, step: float, log_tail: float, positive: bool, shift: float
) -> tuple[int, np.ndarray]:
    """The ends of the intervals whose losses lie between points of the grid.

    Args:
      mixtures: P and Q.
      step, log_tail, positive: as in `_upwards`.
      shift: by how much the losses of the inner ends are above the points of the grid, in steps.

    Returns:
      The first point of the grid, in steps, and the ends, float64 [intervals + 1].

    Raises:
      OverflowError: if there are too many points, or the loss is not exact enough for the grid.
    """
    low, high = dominating_pairs.ends(mixtures, positive, log_tail)
    table = np.linspace(low, high, _TABLE)
    losses = np.maximum.accumulate(mixtures.loss(table))
    # All inner ends lie between the outer ones, with their shift.
    first = 0 if positive else int(np.floor(losses[0] / step - min(shift, 0)))
    last = max(int(np.floor(losses[-1] / step - max(shift, 0))), first)
    if last - first > _MOST_POINTS_OF_ROUND:
        raise OverflowError('the grid has too many points')
    inner = step * np.arange(first + 1, last + 1)
    if not inner.size:
        return first, np.array([low, high])
    target = inner + shift * step
    place = np.clip(np.searchsorted(losses, target), 1, _TABLE - 1)
    least, most = table[place - 1], table[place]
    points = np.interp(target, losses, table)
    for _ in range(_REFINEMENTS):
        with np.errstate(divide='ignore', invalid='ignore'):
            better = points - (mixtures.loss(points) - target) / mixtures.slope(points)
        points = np.where(np.isfinite(better), np.clip(better, least, most), points)
    misses = (mixtures.loss(points) - target) / step
    if not np.abs(misses).max() < _GRID_SHIFT:
        raise OverflowError('the loss is not exact enough for the grid')
    return first, np.concatenate([[low], np.maximum.accumulate(points), [high]])


# Kinds of releases, and how often each happens.
SampledReleases = Sequence[tuple[SampledRelease, int]]
# Losses of independent releases, and how often each happens.
_Parts = Sequence[tuple[Losses, int]]


def epsilon(
    parts: SampledReleases, delta: float, most: float | None = None, coarseness: float = 1.0
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
        epsilons = []
        for order in orders:
            target = (delta - _infinite(order)) * (1 - _ROUNDING)
            if target <= 0:
                return math.inf
            theta = _tilt(order, math.log(target))
            # With a large delta the Chernoff bound is far from tight, and its tilt too steep.
            flatter = (1.0,) if delta < _LARGE_DELTA else _FLATTER_TILTS
            profiles = (_curve(order, theta * factor, step) for factor in flatter)
            epsilons.append(min(_crossing(*curve, step, target) for curve in profiles))
        return max(epsilons)
    except (OverflowError, ValueError, ZeroDivisionError, FloatingPointError):
        return math.inf  # dp_accounting does not support such small or large numbers.


def curves(parts: SampledReleases, coarseness: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
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
    parts: SampledReleases, delta: float, most: float | None, coarseness: float
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
        # As P(loss > epsilon) <= E[exp(exponent loss)] exp(-exponent epsilon).
        step = spread / _LEAST_POINTS
        most = max(
            min(
                (_log_sum(order, exponent * step) - math.log(delta / 2)) / exponent
                for exponent in _EXPONENTS.tolist()
            )
            for order in _on_grid(parts, step, log_tail)
        )
    step = max(
        min(_STEP, spread / _LEAST_POINTS), spread / _MOST_POINTS, most / _MOST_POINTS_OF_EPSILON
    )
    if coarseness > 1:
        step = 2.0 ** math.floor(math.log2(step * coarseness))
    if not step <= _WIDEST_STEP:
        raise OverflowError('the step of the grid is too wide')
    return _on_grid(parts, step, log_tail), step


def _on_grid(parts: SampledReleases, step: float, log_tail: float) -> list[_Parts]:
    losses = [(_both_orders(release, step, log_tail), count) for release, count in parts]
    sides = (0,) if all(both[0] is both[1] for both, _ in losses) else (0, 1)
    return [[(both[side], count) for both, count in losses] for side in sides]


def _spread(release: SampledRelease, log_tail: float) -> float:
    """Largest minus smallest loss of a release, without the tails."""
    if isinstance(release, DominatingPair):
        return dominating_pairs.spread(release, log_tail)
    if isinstance(release, dp.TruncatedPoissonDpEvent):
        _, placed = release.full()
        noise = release.event.noise_multiplier
        return max(
            _spread((release.sampling_probability, noise), log_tail),
            2 * dominating_pairs.spread_of_full(placed, noise, log_tail),
        )
    probability, noise_multiplier = release
    mu = 1 / noise_multiplier
    reach = math.sqrt(-2 * log_tail) * mu + mu * mu / 2
    absent = math.log1p(-probability) if probability < 1 else -math.inf
    return float(
        np.logaddexp(absent, math.log(probability) + reach)
        - np.logaddexp(absent, math.log(probability) - reach)
    )


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
    length = scipy.fft.next_fast_len(high - low + 1, real=True)
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
    deltas = scipy.signal.lfilter([-math.expm1(-step)], [1.0, -decay], beyond[::-1])[::-1]
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
    return math.exp(scipy.optimize.brentq(excess, low, high, xtol=0.02))


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
        spectrum *= scipy.fft.rfft(folded) ** count
        offset += count * part.lowest
    composed = np.roll(scipy.fft.irfft(spectrum, length), offset - low)
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
