"""The privacy loss of one round, on a grid of losses, pessimistic.

Between two points of the grid the divergence of a pair (P, Q), as a function of alpha, is replaced
by the chord above it ("connect the dots", [Doroshenko22]): the masses of P and Q in each interval
move to its ends, and their sums stay the same. Whatever rounding could do goes to the upper end.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

from dpfl.accounting.losses import dominating_pairs
from dpfl.accounting.losses.dominating_pairs import DominatingPair, Mixtures
from dpfl.accounting.sampling import truncated
from dpfl.accounting.sampling.truncated import TruncatedPoissonDpEvent

# A sample of each client by itself with one probability, under noise: `(probability, noise)`.
Sample = tuple[float, float]
# One round; a truncated sample is one whose cap may be reached.
Release = Sample | TruncatedPoissonDpEvent | DominatingPair
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
_MOST_POINTS = 2**20


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
def both_orders(release: Release, step: float, log_tail: float) -> tuple[Losses, Losses]:
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
    if isinstance(release, TruncatedPoissonDpEvent):
        return _of_truncated(release, step, log_tail)
    # dp_accounting knows the pair of one client of a Poisson sample.
    distribution = privacy_loss_distribution.from_gaussian_mechanism(
        release[1],
        value_discretization_interval=step,
        sampling_prob=release[0],
        log_mass_truncation_bound=log_tail,
    )
    # dp_accounting publishes the masses only after its own composition.
    remove, add = distribution._pmf_remove, distribution._pmf_add
    return _from_pmf(remove.to_dense_pmf()), _from_pmf(add.to_dense_pmf())


def _of_truncated(
    event: TruncatedPoissonDpEvent, step: float, log_tail: float
) -> tuple[Losses, Losses]:
    full, placed = event.full()
    noise = event.event.noise_multiplier
    sampled = both_orders((event.sampling_probability, noise), step, log_tail)
    displacing = truncated.full_losses(placed, noise, step, log_tail)
    remove, add = (
        _mixture(one, _from_pmf(other.to_dense_pmf()), full)
        for one, other in zip(sampled, displacing, strict=True)
    )
    return remove, add


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
    losses = _symmetrised(positive[1:], infinite, step)
    return losses, losses


def _symmetrised(positive: np.ndarray, infinite: float, step: float) -> Losses:
    """Losses of which those above 0 are given, and those below 0 are of the opposite order.

    Args:
      positive: masses of the losses `step, 2 step, ...`.
      infinite: mass of an infinite loss.
      step: of the grid.
    """
    negative = positive * np.exp(-step * np.arange(1, positive.size + 1))
    # Symmetry leaves this to a loss of 0; it is below 0 by rounding only.
    none = max(1 - infinite - positive.sum() - negative.sum(), 0.0)
    masses = np.concatenate([negative[::-1], [none], positive])
    return _losses(-positive.size, masses, infinite)


def _upwards(
    mixtures: Mixtures, step: float, log_tail: float, positive: bool = False
) -> tuple[int, np.ndarray, float]:
    """Losses `log(dP/dQ)` under P: the lowest, the masses, and the infinite mass.

    Args:
      mixtures: P and Q.
      step, log_tail: as in `both_orders`.
      positive: whether to take losses above 0 only; they begin where the loss is 0.
    """
    first, points = _points(mixtures, step, log_tail, positive, -_GRID_SHIFT)
    p, q = mixtures.masses(points)
    masses = _at_ends(p, q, first, step)
    if not positive:
        masses[1] += mixtures.beyond(points[0], above=False)[0]
    return first, masses, mixtures.beyond(points[-1], above=True)[0]


def _downwards(mixtures: Mixtures, step: float, log_tail: float) -> tuple[int, np.ndarray, float]:
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
    mixtures: Mixtures, step: float, log_tail: float, positive: bool, shift: float
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
    if last - first > _MOST_POINTS:
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
