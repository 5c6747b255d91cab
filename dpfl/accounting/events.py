"""From the events of dp_accounting to epsilon: what one or several releases guarantee together.

An event is a Gaussian release (such as a whole run of a mechanism without sampling), Gaussian
releases on random samples of the clients, a release that reveals everything with some probability,
or a composition of such events on the same clients. In a composition each release may depend on
those before it.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from dpfl import _validate, errors
from dpfl.accounting import dp, gaussian
from dpfl.accounting.gaussian import Bound
from dpfl.accounting.losses import dominating_pairs, loss_distribution
from dpfl.accounting.losses.dominating_pairs import (
    DominatingPair,
    Neighbours,
)
from dpfl.accounting.losses.loss_distribution import SampledRelease

# Absolute rounding errors of a divergence of order a, and of its moment, which is a - 1 times as
# large: the series of dp_accounting stops at exp(-30), and gave -1.6e-14 for a value above 0.
_ROUNDING, _ROUNDING_OF_MOMENT = 1e-13, 1e-12
# Relative rounding error of mu from the sum of the squares of several releases.
_ROUNDING_OF_MU = 1e-15
# Denominator of a sampling rate that is no quotient of two client counts; a power of 2, so that
# the division is exact.
_RATE_DENOMINATOR = 2**52
_ADJACENCIES = ('zero_out', 'replace_one')
# Number of kinds of releases whose divergences and moments are cached.
_CACHE_SIZE = 32
# Less noise than this counts as none: its square does not fit into a float.
_LEAST_NOISE = 1e-100
# More noise than this on a sample counts as this much: dp_accounting would lose all digits.
_MOST_NOISE = 1e6


@dataclasses.dataclass
class _Parts:
    """An event as one Gaussian release with `mu_squared`, and sampled releases with counts.

    Besides, it reveals everything with a probability of at most `delta`.
    """

    mu_squared: float = 0.0
    sampled: list[tuple[dp.Event, int]] = dataclasses.field(default_factory=list)
    neighbours: Neighbours = Neighbours()
    delta: float = 0.0


def epsilon_of_event(
    event: dp.Event,
    delta: float,
    method: str = 'pld',
    adjacency: str | None = None,
    group_size: int = 1,
) -> float:
    """Epsilon at `delta` of an event.

    Args:
      event: a `GaussianDpEvent`, a `PoissonSampledDpEvent`, `TruncatedPoissonDpEvent` or
        `SampledWithoutReplacementDpEvent` of a Gaussian event, a `RevealingDpEvent`, a
        `NoOpDpEvent`, a `NonPrivateDpEvent`, or a composition of these. The noise of a
        sampled release is divided by how far one client moves a sum: with Poisson samples between
        neighbours, and with fixed-size ones if another client takes its place.
      delta: strictly between 0 and 1.
      method: one of `gaussian.ACCOUNTANTS`. 'analytic_gaussian' supports only events without
        sampling, and groups of clients with sampling are supported by 'pld' only. 'best' takes the
        smallest epsilon of all methods that support the event.
      adjacency: which runs are neighbours, for samples. 'zero_out': a client's updates become zero;
        of a Poisson sample that is the same as adding or removing it. 'replace_one': they become
        any others. By default 'zero_out' for Poisson samples and 'replace_one' for samples of fixed
        size. Truncated Poisson samples have 'zero_out' only.
      group_size: number of clients that differ between neighbours, for samples. For other releases
        the noise already is divided by how far the group moves them. For truncated Poisson samples
        it must be 1, and the event of a plan with cyclic ones is that of one client only.

    Returns:
      An upper bound; infinity where there is no guarantee. The privacy loss distribution has no
      value if its grid would be too wide; the best of the others is returned then, and `bound` says
      so.

    Raises:
      ValueError: if an argument is out of its range, or the method or the samples do not support
        the neighbours, or samples of several kinds are composed without an adjacency.

    Example:
      >>> event = dp_accounting.GaussianDpEvent(noise_multiplier=1.0)
      >>> round(epsilon_of_event(event, 1e-6, 'analytic_gaussian'), 3)
      4.887
    """
    neighbours = None
    _validate.integer('group_size', group_size, minimum=1)
    if adjacency is not None or group_size != 1:
        adjacency = adjacency or _adjacency(_flatten(event))
        neighbours = Neighbours(_validate.choice('adjacency', adjacency, _ADJACENCIES), group_size)
    return bound(event, delta, method, neighbours=neighbours).epsilon


def bound(
    event: dp.Event,
    delta: float,
    method: str = 'pld',
    coarseness: float = 1.0,
    neighbours: Neighbours | None = None,
) -> Bound:
    """`epsilon_of_event`, and the accountant that showed it.

    `coarseness` is that of `loss_distribution.epsilon`: above 1, the privacy loss distribution of
    samples is looser, and quicker. Without `neighbours` they are the default of each sampling.
    """
    _validate.number('delta', delta, above=0, below=1)
    _validate.choice('method', method, gaussian.ACCOUNTANTS)
    parts = _flatten(event)
    if parts.delta:
        delta = left(delta, parts.delta)
        if not delta:
            return Bound(math.inf, 'analytic_gaussian')
    if not parts.sampled or math.isinf(parts.mu_squared):
        mu = math.sqrt(parts.mu_squared) * (1 + _ROUNDING_OF_MU)
        return gaussian.bound(mu, delta, method)
    parts.neighbours = _checked_neighbours(parts, neighbours)
    methods = methods_for(event, parts.neighbours)
    if method not in methods:
        raise errors.ArgumentError(
            'method', method, f'must be one of {", ".join(methods)} with sampling'
        )
    known = methods[:-1] if method == 'best' else (method,)
    least = _least(parts, delta, known, coarseness)
    if math.isfinite(least.epsilon):
        return least
    if parts.neighbours.group_size > 1:
        return gaussian.bound(_everybody(parts), delta, 'analytic_gaussian')
    return _least(parts, delta, methods[:-1], coarseness)


def methods_for(event: dp.Event, neighbours: Neighbours | None = None) -> tuple[str, ...]:
    """The accountants of `gaussian.ACCOUNTANTS` that support the event, in the same order.

    'best', the last, computes all of them and returns the smallest epsilon.
    """
    sampled = [part for part, _ in _flatten(event).sampled]
    if not sampled:
        return gaussian.ACCOUNTANTS
    if neighbours is not None and neighbours.group_size > 1:
        return ('pld', 'best')
    if any(isinstance(part, dp.TruncatedPoissonDpEvent) for part in sampled):
        return ('pld', 'rdp', 'best')
    return ('pld', 'rdp', 'moments', 'best')


def _least(parts: _Parts, delta: float, methods: Sequence[str], coarseness: float) -> Bound:
    return min(
        (Bound(_CONVERSIONS[method](parts, delta, coarseness), method) for method in methods),
        key=lambda bound: bound.epsilon,
    )


def _everybody(parts: _Parts) -> float:
    """`mu` if all clients that differ are in every sample, which is the worst there is."""
    size = parts.neighbours.group_size
    sampled = sum(
        count * (size / event.event.noise_multiplier) ** 2 for event, count in parts.sampled
    )
    return math.sqrt(parts.mu_squared + sampled) * (1 + _ROUNDING_OF_MU)


def _by_pld(parts: _Parts, delta: float, coarseness: float) -> float:
    releases = _releases(parts)
    # For samples that are not pairs the Renyi divergence is at hand, and is the tighter start.
    simple = not any(isinstance(release, DominatingPair) for release, _ in releases)
    most = _by_rdp(parts, delta, coarseness) if simple else None
    return loss_distribution.epsilon(releases, delta, most, coarseness)


def sampled_releases(
    event: dp.Event, neighbours: Neighbours | None = None
) -> loss_distribution.SampledReleases | None:
    """An event as the privacy loss distribution takes it, without its `revealing_probability`.

    None for an event without noise or without sampling, which `mu_without_amplification` describes.
    """
    parts = _flatten(event)
    if not parts.sampled or math.isinf(parts.mu_squared):
        return None
    parts.neighbours = _checked_neighbours(parts, neighbours)
    return _releases(parts)


def mu_without_amplification(event: dp.Event, neighbours: Neighbours | None = None) -> float:
    """Gaussian DP parameter of an event if all clients that differ are in every sample.

    What is left out is its `revealing_probability`.
    """
    parts = _flatten(event)
    parts.neighbours = neighbours or Neighbours()
    return math.inf if math.isinf(parts.mu_squared) else _everybody(parts)


def revealing_probability(event: dp.Event) -> float:
    """Probability that a part of an event reveals everything, an upper bound."""
    return min(_flatten(event).delta, 1.0)


def _releases(parts: _Parts) -> loss_distribution.SampledReleases:
    releases: list[tuple[SampledRelease, int]] = [
        (_release(event, parts.neighbours), count) for event, count in parts.sampled
    ]
    if parts.mu_squared:
        releases.append(((1.0, 1 / math.sqrt(parts.mu_squared)), 1))
    return releases


def _release(event: dp.Event, neighbours: Neighbours) -> SampledRelease:
    noise = event.event.noise_multiplier
    if isinstance(event, dp.TruncatedPoissonDpEvent):
        full, _ = event.full()
        # A cap that is reached with a probability below the smallest float changes no delta.
        return event if full > dominating_pairs.LEAST else (event.sampling_probability, noise)
    if isinstance(event, dp.SampledWithoutReplacementDpEvent):
        return dominating_pairs.fixed_size(
            event.source_dataset_size, event.sample_size, noise, neighbours
        )
    if neighbours == Neighbours():
        return event.sampling_probability, noise
    return dominating_pairs.poisson(event.sampling_probability, noise, neighbours)


def renyi_divergences(
    event: dp.Event, neighbours: Neighbours | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Orders, and upper bounds of the Renyi divergences of an event, float64 [orders] each.

    Raises:
      ArgumentError: if the event is not supported, such as a group of clients with samples, or one
        that reveals everything with some probability.
    """
    parts = _flatten(event)
    if parts.delta:
        raise errors.ArgumentError(
            'event', errors.NOT_SHOWN, 'must not have a delta of its own, for Renyi DP'
        )
    orders = dp.rdp.RdpAccountant()._orders
    if math.isinf(parts.mu_squared):
        return orders, np.full(orders.size, math.inf)
    if not parts.sampled:
        return orders, orders * parts.mu_squared * (1 + _ROUNDING_OF_MU) / 2
    parts.neighbours = _checked_neighbours(parts, neighbours)
    if parts.neighbours.group_size > 1:
        raise errors.ArgumentError(
            'group_size', parts.neighbours.group_size, 'must be 1 with sampling, for Renyi DP'
        )
    return orders, _with_rounding(_divergences_together(parts), parts)


def _by_rdp(parts: _Parts, delta: float, _: float) -> float:
    divergences = _with_rounding(_divergences_together(parts), parts)
    return float(dp.rdp.compute_epsilon(dp.rdp.RdpAccountant()._orders, divergences, delta)[0])


def _divergences_together(parts: _Parts) -> np.ndarray:
    releases = [(_for_moments(event, parts.neighbours), count) for event, count in parts.sampled]
    if parts.mu_squared:
        release = dp.GaussianDpEvent(1 / math.sqrt(parts.mu_squared))
        releases.insert(0, (release, 1))
    divergences = [count * _divergences(release) for release, count in releases]
    return np.sum(divergences, axis=0)


def _by_moments(parts: _Parts, delta: float, _: float) -> float:
    log_moments = gaussian.moments_of_gaussian(math.sqrt(parts.mu_squared))
    for event, count in parts.sampled:
        log_moments = log_moments + count * _log_moments(_for_moments(event, parts.neighbours))
    return gaussian.epsilon_from_moments(log_moments, delta)


def _for_moments(event: dp.Event, neighbours: Neighbours) -> dp.Event:
    """The event whose Renyi divergences bound those of a sampled release.

    A replaced client of a Poisson sample is a replaced client of a sample of fixed size if all
    others have the update 0. Bounds for fixed size depend on the quotient of the sizes only.
    """
    if neighbours.adjacency == 'zero_out' or not isinstance(event, dp.PoissonSampledDpEvent):
        return event
    return dp.SampledWithoutReplacementDpEvent(
        _RATE_DENOMINATOR, math.ceil(event.sampling_probability * _RATE_DENOMINATOR), event.event
    )


_CONVERSIONS = {'pld': _by_pld, 'rdp': _by_rdp, 'moments': _by_moments}


def _checked_neighbours(parts: _Parts, neighbours: Neighbours | None) -> Neighbours:
    """The neighbours of samples, by default those of their kind.

    Raises:
      ArgumentError: if there is no proof for a kind of sample with such neighbours.
    """
    if neighbours is None:
        return Neighbours(_adjacency(parts))
    if any(isinstance(event, dp.TruncatedPoissonDpEvent) for event, _ in parts.sampled):
        for name, allowed in (('adjacency', 'zero_out'), ('group_size', 1)):
            value = getattr(neighbours, name)
            if value != allowed:
                raise errors.ArgumentError(
                    name, value, f'must be {allowed} with truncated Poisson samples'
                )
    return neighbours


def _adjacency(parts: _Parts) -> str:
    """The adjacency that samples have if none is named."""
    kinds = {type(event) for event, _ in parts.sampled}
    if len(kinds) > 1:
        raise errors.ArgumentError(
            'event',
            errors.NOT_SHOWN,
            'Poisson samples, truncated ones and samples without replacement must not be composed '
            'without an adjacency; their neighbours differ',
        )
    return 'replace_one' if dp.SampledWithoutReplacementDpEvent in kinds else 'zero_out'


@functools.lru_cache(_CACHE_SIZE)
def _divergences(event: dp.Event) -> np.ndarray:
    """Renyi divergences of one release, [orders of dp_accounting]; takes up to 0.3 s."""
    if isinstance(event, dp.TruncatedPoissonDpEvent):
        whole = dp.PoissonSampledDpEvent(event.sampling_probability, event.event)
        orders = np.array(dp.rdp.RdpAccountant()._orders)
        return dominating_pairs.truncated_divergences(np.array(_divergences(whole)), event, orders)
    is_fixed_size = isinstance(event, dp.SampledWithoutReplacementDpEvent)
    relation = (
        dp.NeighboringRelation.REPLACE_ONE
        if is_fixed_size
        else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    # dp_accounting publishes the divergences only after its own conversion.
    return dp.rdp.RdpAccountant(neighboring_relation=relation).compose(event)._rdp


def _with_rounding(divergences: np.ndarray, parts: _Parts) -> np.ndarray:
    """Divergences with an allowance for rounding.

    For a rare sample under much noise a divergence vanishes in the rounding of a logarithm near 1.
    It may even come out below 0, which the conversion of dp_accounting refuses.
    """
    orders = dp.rdp.RdpAccountant()._orders
    rounding = _ROUNDING + _ROUNDING_OF_MOMENT / (orders - 1)
    releases = sum(count for _, count in parts.sampled)
    return np.maximum(divergences, 0) + releases * rounding


@functools.lru_cache(_CACHE_SIZE)
def _log_moments(event: dp.Event) -> np.ndarray:
    if isinstance(event, dp.PoissonSampledDpEvent):
        mu = 1 / event.event.noise_multiplier
        return gaussian.moments_of_poisson_sample(event.sampling_probability, mu)
    return gaussian.moments_of_fixed_sample(event)


def total_delta(deltas: Sequence[float]) -> float:
    """The probability that one of several releases reveals something, rounded up."""
    total = math.fsum(deltas)
    return math.nextafter(total, math.inf) if total else 0.0


def with_delta(event: dp.Event, delta: float) -> dp.Event:
    """An event that also reveals everything with probability `delta`."""
    return dp.ComposedDpEvent([event, dp.RevealingDpEvent(delta)]) if delta else event


def left(delta: float, spent: float) -> float:
    """The part of `delta` that Gaussian releases have beside an event that takes `spent` of it.

    Returns:
      A delta, rounded down; 0 if nothing is left, so that there is no guarantee at `delta`.
    """
    return max(0.0, math.nextafter(delta - spent, 0.0)) if spent else delta


def _flatten(event: dp.Event, count: int = 1, parts: _Parts | None = None) -> _Parts:
    """Collects the parts of an event that happens `count` times; Gaussian releases add up."""
    parts = _Parts() if parts is None else parts
    sampled = (
        dp.PoissonSampledDpEvent,
        dp.SampledWithoutReplacementDpEvent,
        dp.TruncatedPoissonDpEvent,
    )
    if isinstance(event, dp.NonPrivateDpEvent):
        parts.mu_squared = math.inf
    elif isinstance(event, dp.GaussianDpEvent):
        noise = event.noise_multiplier
        parts.mu_squared += count / noise**2 if noise > _LEAST_NOISE else math.inf
    elif isinstance(event, dp.ComposedDpEvent):
        for part in event.events:
            _flatten(part, count, parts)
    elif isinstance(event, dp.SelfComposedDpEvent):
        _flatten(event.event, count * event.count, parts)
    elif isinstance(event, sampled) and isinstance(event.event, dp.GaussianDpEvent):
        if event.event.noise_multiplier <= _LEAST_NOISE:
            parts.mu_squared = math.inf
        parts.sampled.append((_with_noise_that_counts(event), count))
    elif isinstance(event, dp.RevealingDpEvent):
        parts.delta = math.nextafter(parts.delta + count * event.delta, math.inf)
    elif not isinstance(event, dp.NoOpDpEvent):
        raise errors.ArgumentError(
            'event', type(event).__name__, 'must be made of Gaussian releases'
        )
    return parts


def _with_noise_that_counts(event: dp.Event) -> dp.Event:
    if event.event.noise_multiplier <= _MOST_NOISE:
        return event
    release = dp.GaussianDpEvent(_MOST_NOISE)
    if isinstance(event, dp.TruncatedPoissonDpEvent):
        return dataclasses.replace(event, event=release)
    if isinstance(event, dp.PoissonSampledDpEvent):
        return dp.PoissonSampledDpEvent(event.sampling_probability, release)
    return dp.SampledWithoutReplacementDpEvent(
        event.source_dataset_size, event.sample_size, release
    )
