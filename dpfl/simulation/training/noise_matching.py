"""The noise multiplier that matches another mechanism's, as in [McMahan24], section 5.

There the noise multiplier of BandMF is the one whose root mean square error is that of TreeAgg with
noise multiplier 7, and the noise multiplier of BLT the one whose guarantee is that of BandMF at the
desired round. A plan has the number alone: its guarantee follows from that. No TensorFlow.
"""

import dataclasses
import math
import re
from typing import NamedTuple

from dpfl import _validate, accounting, errors, mechanisms
from dpfl.simulation.training.mechanism import NamedMechanism

# The quantities that can be matched, with their descriptions.
_QUANTITIES = {
    'rmse': 'the root mean square of the noise of the prefix sums',
    'prefix_noise': 'the noise of the prefix sum',
    'rho': 'rho (zCDP)',
}
_ARGUMENT = 'match'
_NUMBER = r'[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?'
_TEXT = re.compile(
    rf'(?P<quantity>[a-z_]+):(?:(?P<mechanism>[^,]+),)?(?P<number>{_NUMBER})(?:@(?P<round>[0-9]{{1,9}}))?'
)
_FORM = 'must be QUANTITY:MECHANISM,NOISE_MULTIPLIER@ROUND or rho:RHO@ROUND, where QUANTITY is '


class Matched(NamedTuple):
    """The noise multiplier of a match.

    Attributes:
      noise_multiplier: the one with which a plan reaches `value`.
      value: the quantity of both mechanisms: in clip norms, but for rho.
      sentence: the match in words.
    """

    noise_multiplier: float
    value: float
    sentence: str


@dataclasses.dataclass(frozen=True)
class MatchRequest:
    """A match that is asked for.

    Attributes:
      text: the text that asks for it.
      quantity: one of `_QUANTITIES`. 'rmse': the root mean square, over the first rounds, of the
        standard deviations of the prefix sums ([McMahan24], section 3.2); 'prefix_noise': the
        standard deviation of the prefix sum of the last of these rounds; both in clip norms. 'rho':
        rho of a run that stops after these rounds.
      mechanism: the other mechanism; None if the value of rho is given.
      number: the noise multiplier of the other mechanism, or the value of rho; above 0.
      rounds: the number of rounds; None for all of the plan.
    """

    text: str
    quantity: str
    mechanism: NamedMechanism | None
    number: float
    rounds: int | None

    @property
    def is_at_hand(self) -> bool:
        """Whether the match takes neither a file of the user nor an optimiser."""
        return self.mechanism is None or self.mechanism.is_at_hand

    def matched(self, plan: accounting.PrivacyPlan) -> Matched:
        """The noise multiplier for a plan.

        Args:
          plan: its mechanism, schema, adjacency and rounding count; its noise multiplier does not.

        Raises:
          ArgumentError: if the round is not one of the plan, the other mechanism has fewer rounds,
            the plan has no rho to match, or noise that changes with the clip norm or with weights.
        """
        schema, quantity = plan.participation, self.quantity
        rounds = schema.rounds if self.rounds is None else self.rounds
        if not 1 <= rounds <= schema.rounds:
            raise self._refused(f'must have a round from 1 to {schema.rounds}')
        value, reference = self.number, ''
        if self.mechanism is not None:
            other = self.mechanism.make(schema.within(rounds), schema)
            if other is None:
                raise self._refused(f'must be a mechanism that has {rounds} rounds')
            value = reference_value(plan, other, self.number, quantity, rounds)
            reference = (
                f', as with the mechanism {other.name} (SHA-256 {other.digest()}) and noise '
                f'multiplier {self.number:g}'
            )
        span = f'over the first {rounds} rounds' if quantity == 'rmse' else f'after {rounds} rounds'
        unit = '' if quantity == 'rho' else ' clip norms'
        return Matched(
            noise_multiplier(plan, value, quantity, rounds),
            value,
            f'It was chosen so that {_QUANTITIES[quantity]} {span} is {value:.6g}{unit}'
            f'{reference}.',
        )

    def _refused(self, allowed: str) -> errors.ArgumentError:
        return errors.ArgumentError(_ARGUMENT, self.text, allowed)


def parse(text: str) -> MatchRequest:
    """Reads `QUANTITY:MECHANISM,NOISE_MULTIPLIER@ROUND` or `rho:RHO@ROUND`.

    `@ROUND` may be left out. The mechanism is a text of `NamedMechanism`.

    Raises:
      ArgumentError: if the text is neither, or names no mechanism.
    """
    match = _TEXT.fullmatch(text)
    refused = errors.ArgumentError(_ARGUMENT, text, _FORM + ', '.join(_QUANTITIES))
    if match is None or match['quantity'] not in _QUANTITIES:
        raise refused
    number = float(match['number'])
    rounds = None if match['round'] is None else int(match['round'])
    if not 0 < number < math.inf:
        raise errors.ArgumentError(_ARGUMENT, text, 'must have a finite number above 0')
    mechanism = None
    if match['mechanism'] is not None:
        mechanism = NamedMechanism.parse(match['mechanism'], _ARGUMENT)
        if mechanism.is_fresh:
            raise errors.ArgumentError(_ARGUMENT, text, 'must name a mechanism without best_')
    elif match['quantity'] != 'rho':
        raise refused
    return MatchRequest(text, match['quantity'], mechanism, number, rounds)


def reference_value(
    plan: accounting.PrivacyPlan,
    mechanism: mechanisms.Mechanism,
    noise_multiplier: float,
    quantity: str,
    rounds: int,
) -> float:
    """The quantity of another mechanism with its noise multiplier.

    Args:
      plan: the plan that is to get the noise; its schema, adjacency and rounding count for rho.
      mechanism: the other mechanism, over exactly `rounds` rounds for rho.
      noise_multiplier: its noise multiplier, above 0.
      quantity, rounds: as in `MatchRequest`.

    Raises:
      ArgumentError: if a value is out of its range, or the plan has no rho.
    """
    if quantity == 'rho':
        stopped = _stopped(plan, rounds)
        return _rho(
            dataclasses.replace(stopped, mechanism=mechanism, noise_multiplier=noise_multiplier)
        )
    return noise_multiplier * _error(mechanism, quantity, rounds)


def noise_multiplier(
    plan: accounting.PrivacyPlan, value: float, quantity: str, rounds: int
) -> float:
    """The noise multiplier with which a plan reaches a value of a quantity.

    For rho it is the least with which rho is not above the value.

    Args:
      plan: over at least `rounds` rounds; its noise multiplier does not count.
      value: above 0.
      quantity, rounds: as in `MatchRequest`.

    Raises:
      ArgumentError: if the plan has fewer rounds, no rho to match, or noise that changes with the
        clip norm or with weights.
    """
    for name, is_plain in (
        ('adaptive_clip', plan.adaptive_clip is None),
        ('clip_schedule', not plan.clip_schedule),
        ('estimator', plan.estimator.kind == 'fixed'),
    ):
        if not is_plain:
            raise errors.ArgumentError(name, errors.NOT_SHOWN, 'cannot be combined with match')
    if quantity != 'rho':
        return value / _error(plan.mechanism, quantity, rounds)
    stopped = dataclasses.replace(_stopped(plan, rounds), noise_multiplier=0.0)
    multiplier = stopped.noise_of_mu(math.sqrt(2 * value))
    while _rho(dataclasses.replace(stopped, noise_multiplier=multiplier)) > value:
        # The root or the quotient was rounded down.
        multiplier = math.nextafter(multiplier, math.inf) * (1 + 1e-15)
    return multiplier


def _error(mechanism: mechanisms.Mechanism, quantity: str, rounds: int) -> float:
    """The quantity 'rmse' or 'prefix_noise' of a mechanism for noise multiplier 1."""
    _validate.integer('rounds', rounds, minimum=1, maximum=mechanism.rounds)
    squared = mechanism.squared_error()[:rounds]
    return math.sqrt(squared.mean() if quantity == 'rmse' else squared[-1])


def _stopped(plan: accounting.PrivacyPlan, rounds: int) -> accounting.PrivacyPlan:
    """The plan of a run that stops after `rounds` rounds."""
    if plan.sampling is not None:
        raise errors.ArgumentError(
            'sampling',
            plan.sampling.name,
            'must be none to match rho, which a sampled plan has not',
        )
    for name, others in (('earlier', plan.earlier), ('before', plan.before)):
        if others:  # No noise of this run takes away the rho of earlier releases.
            raise errors.ArgumentError(
                name, errors.NOT_SHOWN, 'cannot be combined with match=rho: it would count them'
            )
    return dataclasses.replace(plan, participation=plan.participation.within(rounds))


def _rho(plan: accounting.PrivacyPlan) -> float:
    assert plan.rho is not None  # `_stopped` refuses plans with sampling.
    return plan.rho
