"""What a run releases before its first round, such as a vocabulary that was found privately.

All clients take part in such a release, whatever the sampling of the rounds is, so nothing
amplifies it. It is a Gaussian release of sums over the clients, or of several sums one after the
other, each of which may depend on those before it. It may also have a probability `delta` of
revealing anything. docs/research/before_training.md has the theorem: neighbours are as hard to
tell apart as by a Gaussian release that with probability `delta` is replaced by the answer itself.
"""

import dataclasses
import math
from collections.abc import Sequence

import dp_accounting

from dpfl import _json, _validate, errors
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.mechanisms import rounding


@dataclasses.dataclass(frozen=True)
class RevealingDpEvent(dp_accounting.DpEvent):
    """With probability `delta` everything is revealed, else nothing: it is (0, delta)-DP.

    Attributes:
      delta: at least 0 and below 1.
    """

    delta: float


@dataclasses.dataclass(frozen=True)
class ReleaseBefore(_json.JsonFields):
    """A release before training.

    Attributes:
      name: what was released, for people.
      noise_multiplier: standard deviation of the noise divided by the L2 bound of what one client
        adds to the sums, above 0.
      replaced: how far the sums move if a client is replaced by another one, in these bounds, above
        0 and at most 2.
      delta: probability that something is revealed in spite of the noise, at least 0 and below 1.

    Raises:
      ArgumentError: if a field is out of its range.
    """

    name: str
    noise_multiplier: float
    replaced: float = 2.0
    delta: float = 0.0

    def __post_init__(self):
        if not isinstance(self.name, str) or not self.name:
            raise errors.ArgumentError('name', self.name, 'must be a text')
        _validate.number(
            'noise_multiplier',
            self.noise_multiplier,
            minimum=_validate.LEAST_SCALE,
            maximum=_validate.MOST_SCALE,
        )
        _validate.number('replaced', self.replaced, above=0, maximum=2)
        _validate.number('delta', self.delta, minimum=0, below=1)

    def mu(self, neighbours: Neighbours) -> float:
        """Gaussian DP parameter of the noised sums."""
        shift = 1.0 if neighbours.adjacency == 'zero_out' else self.replaced
        return rounding.quotient_up(shift * neighbours.group_size, self.noise_multiplier)


def total_delta(releases: Sequence[ReleaseBefore]) -> float:
    """The probability that one of several releases reveals something, rounded up."""
    total = math.fsum(each.delta for each in releases)
    return math.nextafter(total, math.inf) if total else 0.0


def events(
    releases: Sequence[ReleaseBefore], neighbours: Neighbours
) -> list[dp_accounting.DpEvent]:
    """The releases as events, for composition with those of the rounds."""
    found: list[dp_accounting.DpEvent] = [
        dp_accounting.GaussianDpEvent(1 / each.mu(neighbours)) for each in releases
    ]
    delta = total_delta(releases)
    return [*found, RevealingDpEvent(delta)] if delta else found


def with_delta(event: dp_accounting.DpEvent, delta: float) -> dp_accounting.DpEvent:
    """An event that also reveals everything with probability `delta`."""
    return dp_accounting.ComposedDpEvent([event, RevealingDpEvent(delta)]) if delta else event


def left(delta: float, spent: float) -> float:
    """The part of `delta` that Gaussian releases have beside an event that takes `spent` of it.

    Returns:
      A delta, rounded down; 0 if nothing is left, so that there is no guarantee at `delta`.
    """
    return max(0.0, math.nextafter(delta - spent, 0.0)) if spent else delta
