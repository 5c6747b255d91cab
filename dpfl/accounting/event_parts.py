"""Events of dp_accounting as the parts of which accountants compose them."""

import dataclasses
import math

import dp_accounting

from dpfl import errors
from dpfl.accounting.before_training import RevealingDpEvent
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.sampling.truncated import TruncatedPoissonDpEvent

# Less noise than this counts as none: its square does not fit into a float.
_LEAST_NOISE = 1e-100
# More noise than this on a sample counts as this much: dp_accounting would lose all digits.
_MOST_NOISE = 1e6


@dataclasses.dataclass
class Parts:
    """An event as one Gaussian release with `mu_squared`, and sampled releases with counts.

    Besides, it reveals everything with a probability of at most `delta`.
    """

    mu_squared: float = 0.0
    sampled: list[tuple[dp_accounting.DpEvent, int]] = dataclasses.field(default_factory=list)
    neighbours: Neighbours = Neighbours()
    delta: float = 0.0


def flatten(event: dp_accounting.DpEvent, count: int = 1, parts: Parts | None = None) -> Parts:
    """Collects the parts of an event that happens `count` times; Gaussian releases add up."""
    parts = Parts() if parts is None else parts
    if isinstance(event, dp_accounting.NonPrivateDpEvent):
        parts.mu_squared = math.inf
    elif isinstance(event, dp_accounting.GaussianDpEvent):
        noise = event.noise_multiplier
        parts.mu_squared += count / noise**2 if noise > _LEAST_NOISE else math.inf
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            flatten(part, count, parts)
    elif isinstance(event, dp_accounting.SelfComposedDpEvent):
        flatten(event.event, count * event.count, parts)
    elif _is_sampled_gaussian(event):
        if event.event.noise_multiplier <= _LEAST_NOISE:
            parts.mu_squared = math.inf
        parts.sampled.append((_with_noise_that_counts(event), count))
    elif isinstance(event, RevealingDpEvent):
        parts.delta = math.nextafter(parts.delta + count * event.delta, math.inf)
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
