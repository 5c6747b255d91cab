"""From the events of dp_accounting to epsilon: what one release, or several together, guarantee.

An event is a Gaussian release (a whole run of a mechanism without sampling is one), Gaussian
releases on random samples of the clients, or a composition of such events on the same clients,
where each release may depend on those before it.
"""

import dataclasses
import math

import dp_accounting
import numpy as np
from dp_accounting import pld, rdp

from dpfl import _validate
from dpfl.accounting import gaussian, moments

_RELATION = dp_accounting.NeighboringRelation
# Of the logarithms in one divergence, absolute; -1.6e-14 was seen where the truth is above 0.
_ROUNDING = 1e-13
# More noise than this on a sample is counted as this much: beyond, dp_accounting loses all digits.
_MOST_NOISE = 1e6


def epsilon_of_event(
    event: dp_accounting.DpEvent, delta: float, method: str = 'pld'
) -> float:
    """Epsilon at `delta` of an event.

    Args:
      event: of `GaussianDpEvent`, `PoissonSampledDpEvent` and `SampledWithoutReplacementDpEvent`
        of a Gaussian one, `NoOpDpEvent`, `NonPrivateDpEvent`, and compositions of these. Samples
        without replacement count neighbours that replace a client, Poisson samples those that
        add or remove one, so they do not go together.
      delta: strictly between 0 and 1.
      method: one of `gaussian.ACCOUNTANTS`. 'analytic_gaussian' takes events without sampling
        only, 'pld' none without replacement.

    Returns:
      An upper bound; infinity where there is no guarantee.

    Raises:
      ValueError: if an argument is out of its range, or the method does not know the event.
    """
    _validate.number('delta', delta, above=0, below=1)
    _validate.choice('method', method, gaussian.ACCOUNTANTS)
    parts = _flatten(event)
    if math.isinf(parts.mu_squared):
        return math.inf
    mu = math.sqrt(parts.mu_squared)
    if not parts.sampled:
        return gaussian.epsilon_from_mu(mu, delta, method)
    relation = _relation(parts)
    if method not in (methods := methods_for(event)):
        raise ValueError(f'method={method}: must be one of {", ".join(methods)} with sampling')
    if method == 'moments':
        return moments.epsilon(
            moments.gaussian(mu) + sum(n * _log_moments(e) for e, n in parts.sampled), delta
        )
    accountant = (pld.PLDAccountant if method == 'pld' else rdp.RdpAccountant)(
        neighboring_relation=relation
    )
    if mu:
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    for sampled, count in parts.sampled:
        accountant.compose(sampled, count)
    if method == 'pld':
        return float(accountant.get_epsilon(delta))
    releases = sum(count for _, count in parts.sampled)
    return _epsilon_of_divergences(accountant, releases, delta)


def methods_for(event: dp_accounting.DpEvent) -> tuple[str, ...]:
    """The accountants of `gaussian.ACCOUNTANTS` that know the event, the tightest first."""
    sampled = [part for part, _ in _flatten(event).sampled]
    if not sampled:
        return gaussian.ACCOUNTANTS
    if any(isinstance(part, dp_accounting.SampledWithoutReplacementDpEvent) for part in sampled):
        return ('rdp', 'moments')
    return ('pld', 'rdp', 'moments')


@dataclasses.dataclass
class _Parts:
    """An event as one Gaussian release with `mu_squared` and sampled releases with counts."""

    mu_squared: float = 0.0
    sampled: list[tuple[dp_accounting.DpEvent, int]] = dataclasses.field(default_factory=list)


def _flatten(event: dp_accounting.DpEvent, count: int = 1, parts: _Parts | None = None) -> _Parts:
    """Collects the parts of an event that happens `count` times; Gaussian releases add up."""
    parts = _Parts() if parts is None else parts
    if isinstance(event, dp_accounting.NonPrivateDpEvent):
        parts.mu_squared = math.inf
    elif isinstance(event, dp_accounting.GaussianDpEvent):
        noise = event.noise_multiplier
        parts.mu_squared += count / noise**2 if noise else math.inf
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            _flatten(part, count, parts)
    elif isinstance(event, dp_accounting.SelfComposedDpEvent):
        _flatten(event.event, count * event.count, parts)
    elif _is_sampled_gaussian(event):
        if not event.event.noise_multiplier:
            parts.mu_squared = math.inf
        parts.sampled.append((_with_noise_that_counts(event), count))
    elif not isinstance(event, dp_accounting.NoOpDpEvent):
        raise ValueError(f'event={type(event).__name__}: must be made of Gaussian releases')
    return parts


def _with_noise_that_counts(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    if event.event.noise_multiplier <= _MOST_NOISE:
        return event
    release = dp_accounting.GaussianDpEvent(_MOST_NOISE)
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return dp_accounting.PoissonSampledDpEvent(event.sampling_probability, release)
    return dp_accounting.SampledWithoutReplacementDpEvent(
        event.source_dataset_size, event.sample_size, release
    )


def _is_sampled_gaussian(event: dp_accounting.DpEvent) -> bool:
    return isinstance(
        event,
        dp_accounting.PoissonSampledDpEvent | dp_accounting.SampledWithoutReplacementDpEvent,
    ) and isinstance(event.event, dp_accounting.GaussianDpEvent)


def _relation(parts: _Parts):
    kinds = {type(event) for event, _ in parts.sampled}
    if len(kinds) > 1:
        raise ValueError(
            'event: Poisson samples and samples without replacement must not be composed; their '
            'neighbours differ'
        )
    if kinds == {dp_accounting.PoissonSampledDpEvent}:
        return _RELATION.ADD_OR_REMOVE_ONE
    return _RELATION.REPLACE_ONE


def _epsilon_of_divergences(accountant: rdp.RdpAccountant, releases: int, delta: float) -> float:
    """The conversion of dp_accounting, safe from rounding.

    A divergence of a rare sample under much noise is lost in the rounding of a logarithm near 1,
    and may even come out below 0, which the conversion refuses.
    """
    divergences = np.maximum(accountant._rdp, 0) + releases * _ROUNDING
    return float(rdp.compute_epsilon(accountant._orders, divergences, delta)[0])


def _log_moments(event: dp_accounting.DpEvent):
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        mu = 1 / event.event.noise_multiplier
        return moments.poisson_sampled_gaussian(event.sampling_probability, mu)
    return moments.sampled_without_replacement(event)
