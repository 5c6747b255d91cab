"""From the events of dp_accounting to epsilon: what one or several releases guarantee together.

An event is a Gaussian release (such as a whole run of a mechanism without sampling), Gaussian
releases on random samples of the clients, or a composition of such events on the same clients. In a
composition each release may depend on those before it.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import dp_accounting
import numpy as np
from dp_accounting import rdp

from dpfl import _validate, errors
from dpfl.accounting import gaussian, loss_distribution, moments
from dpfl.accounting.gaussian import Bound
from dpfl.accounting.sampling import truncated
from dpfl.accounting.sampling.truncated import TruncatedPoissonDpEvent

_RELATION = dp_accounting.NeighboringRelation
# Absolute rounding errors of a divergence of order a, and of its moment, which is a - 1 times as
# large: the series of dp_accounting stops at exp(-30), and gave -1.6e-14 for a value above 0.
_ROUNDING, _ROUNDING_OF_MOMENT = 1e-13, 1e-12
# Relative rounding error of mu from the sum of the squares of several releases.
_ROUNDING_OF_MU = 1e-15
# Less noise than this counts as none: its square does not fit into a float.
_LEAST_NOISE = 1e-100
# More noise than this on a sample counts as this much: dp_accounting would lose all digits.
_MOST_NOISE = 1e6
# Kinds of releases whose divergences and moments are kept.
_KEPT = 32


def epsilon_of_event(event: dp_accounting.DpEvent, delta: float, method: str = 'pld') -> float:
    """Epsilon at `delta` of an event.

    Args:
      event: a `GaussianDpEvent`, a `PoissonSampledDpEvent` or `SampledWithoutReplacementDpEvent` of
        a Gaussian event, a `NoOpDpEvent`, a `NonPrivateDpEvent`, or a composition of these. Samples
        without replacement have neighbours that replace a client, Poisson samples neighbours that
        add or remove one, so the two cannot be composed.
      delta: strictly between 0 and 1.
      method: one of `gaussian.ACCOUNTANTS`. 'analytic_gaussian' supports only events without
        sampling; 'pld' does not support sampling without replacement. 'best' takes the smallest
        epsilon of all methods that support the event.

    Returns:
      An upper bound; infinity where there is no guarantee. The privacy loss distribution has no
      value if its grid would be too wide; the best of the others is returned then, and `bound` says
      so.

    Raises:
      ValueError: if an argument is out of its range, or the method does not support the event.
    """
    return bound(event, delta, method).epsilon


def bound(
    event: dp_accounting.DpEvent, delta: float, method: str = 'pld', coarseness: float = 1.0
) -> Bound:
    """`epsilon_of_event`, and the accountant that showed it.

    `coarseness` is that of `loss_distribution.epsilon`: above 1, the privacy loss distribution of
    samples is looser, and quicker.
    """
    _validate.number('delta', delta, above=0, below=1)
    _validate.choice('method', method, gaussian.ACCOUNTANTS)
    parts = _flatten(event)
    if not parts.sampled or math.isinf(parts.mu_squared):
        mu = math.sqrt(parts.mu_squared) * (1 + _ROUNDING_OF_MU)
        return gaussian.bound(mu, delta, method)
    _refuse_mixtures(parts)
    if method not in (methods := methods_for(event)):
        raise errors.ArgumentError(
            'method', method, f'must be one of {", ".join(methods)} with sampling'
        )
    known = methods[:-1] if method == 'best' else (method,)
    found = _least(parts, delta, known, coarseness)
    if math.isfinite(found.epsilon):
        return found
    return _least(parts, delta, methods[:-1], coarseness)


def methods_for(event: dp_accounting.DpEvent) -> tuple[str, ...]:
    """The accountants of `gaussian.ACCOUNTANTS` that support the event, in the same order.

    Which of them gives the smallest epsilon depends on the numbers: 'best', the last, finds out.
    """
    sampled = [part for part, _ in _flatten(event).sampled]
    if not sampled:
        return gaussian.ACCOUNTANTS
    if any(isinstance(part, dp_accounting.SampledWithoutReplacementDpEvent) for part in sampled):
        return ('rdp', 'moments', 'best')
    if any(isinstance(part, TruncatedPoissonDpEvent) for part in sampled):
        return ('pld', 'rdp', 'best')
    return ('pld', 'rdp', 'moments', 'best')


def _least(parts: '_Parts', delta: float, methods: Sequence[str], coarseness: float) -> Bound:
    return min(
        (Bound(_CONVERSIONS[method](parts, delta, coarseness), method) for method in methods),
        key=lambda found: found.epsilon,
    )


def _by_pld(parts: '_Parts', delta: float, coarseness: float) -> float:
    releases = [
        (
            (
                event.sampling_probability,
                event.event.noise_multiplier,
                *(event.full() if isinstance(event, TruncatedPoissonDpEvent) else ()),
            ),
            count,
        )
        for event, count in parts.sampled
    ]
    if parts.mu_squared:
        releases.append(((1.0, 1 / math.sqrt(parts.mu_squared)), 1))
    most = _by_rdp(parts, delta, coarseness)
    return loss_distribution.epsilon(releases, delta, most, coarseness)


def _by_rdp(parts: '_Parts', delta: float, _: float) -> float:
    releases = list(parts.sampled)
    if parts.mu_squared:
        release = dp_accounting.GaussianDpEvent(1 / math.sqrt(parts.mu_squared))
        releases.insert(0, (release, 1))
    relation = _relation(parts)
    divergences = sum(count * _divergences(release, relation) for release, count in releases)
    return _epsilon_of_divergences(divergences, sum(count for _, count in parts.sampled), delta)


def _by_moments(parts: '_Parts', delta: float, _: float) -> float:
    log_moments = moments.gaussian(math.sqrt(parts.mu_squared))
    return moments.epsilon(
        log_moments + sum(count * _log_moments(event) for event, count in parts.sampled), delta
    )


_CONVERSIONS = {'pld': _by_pld, 'rdp': _by_rdp, 'moments': _by_moments}


@dataclasses.dataclass
class _Parts:
    """An event as one Gaussian release with `mu_squared`, and sampled releases with counts."""

    mu_squared: float = 0.0
    sampled: list[tuple[dp_accounting.DpEvent, int]] = dataclasses.field(default_factory=list)


def _flatten(event: dp_accounting.DpEvent, count: int = 1, parts: _Parts | None = None) -> _Parts:
    """Collects the parts of an event that happens `count` times; Gaussian releases add up."""
    parts = _Parts() if parts is None else parts
    if isinstance(event, dp_accounting.NonPrivateDpEvent):
        parts.mu_squared = math.inf
    elif isinstance(event, dp_accounting.GaussianDpEvent):
        noise = event.noise_multiplier
        parts.mu_squared += count / noise**2 if noise > _LEAST_NOISE else math.inf
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            _flatten(part, count, parts)
    elif isinstance(event, dp_accounting.SelfComposedDpEvent):
        _flatten(event.event, count * event.count, parts)
    elif _is_sampled_gaussian(event):
        if event.event.noise_multiplier <= _LEAST_NOISE:
            parts.mu_squared = math.inf
        parts.sampled.append((_with_noise_that_counts(event), count))
    elif not isinstance(event, dp_accounting.NoOpDpEvent):
        raise errors.ArgumentError(
            'event', type(event).__name__, 'must be made of Gaussian releases'
        )
    return parts


def _with_noise_that_counts(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    if event.event.noise_multiplier <= _MOST_NOISE:
        return event
    release = dp_accounting.GaussianDpEvent(_MOST_NOISE)
    if isinstance(event, TruncatedPoissonDpEvent):
        return dataclasses.replace(event, event=release)
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return dp_accounting.PoissonSampledDpEvent(event.sampling_probability, release)
    return dp_accounting.SampledWithoutReplacementDpEvent(
        event.source_dataset_size, event.sample_size, release
    )


def _is_sampled_gaussian(event: dp_accounting.DpEvent) -> bool:
    return isinstance(
        event,
        dp_accounting.PoissonSampledDpEvent
        | dp_accounting.SampledWithoutReplacementDpEvent
        | TruncatedPoissonDpEvent,
    ) and isinstance(event.event, dp_accounting.GaussianDpEvent)


def _refuse_mixtures(parts: _Parts) -> None:
    if len({type(event) for event, _ in parts.sampled}) > 1:
        raise errors.ArgumentError(
            'event',
            errors.NOT_SHOWN,
            'Poisson samples, truncated ones and samples without replacement must not be composed; '
            'their neighbours differ',
        )


def _relation(parts: _Parts):
    if isinstance(parts.sampled[0][0], dp_accounting.SampledWithoutReplacementDpEvent):
        return _RELATION.REPLACE_ONE
    return _RELATION.ADD_OR_REMOVE_ONE


@functools.lru_cache(_KEPT)
def _divergences(event: dp_accounting.DpEvent, relation: dp_accounting.NeighboringRelation):
    """Renyi divergences of one release, [orders of dp_accounting]; takes up to 0.3 s."""
    if isinstance(event, TruncatedPoissonDpEvent):
        whole = dp_accounting.PoissonSampledDpEvent(event.sampling_probability, event.event)
        orders = np.array(rdp.RdpAccountant()._orders)
        return truncated.divergences(np.array(_divergences(whole, relation)), event, orders)
    # dp_accounting publishes the divergences only after its own conversion.
    return rdp.RdpAccountant(neighboring_relation=relation).compose(event)._rdp


def _epsilon_of_divergences(divergences: np.ndarray, releases: int, delta: float) -> float:
    """Epsilon by the conversion of dp_accounting, with an allowance for rounding.

    For a rare sample under much noise a divergence vanishes in the rounding of a logarithm near 1.
    It may even come out below 0, which the conversion refuses.
    """
    orders = rdp.RdpAccountant()._orders
    rounding = _ROUNDING + _ROUNDING_OF_MOMENT / (orders - 1)
    divergences = np.maximum(divergences, 0) + releases * rounding
    return float(rdp.compute_epsilon(orders, divergences, delta)[0])


@functools.lru_cache(_KEPT)
def _log_moments(event: dp_accounting.DpEvent) -> np.ndarray:
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        mu = 1 / event.event.noise_multiplier
        return moments.poisson_sampled_gaussian(event.sampling_probability, mu)
    return moments.sampled_without_replacement(event)
