"""The noise match that a text asks for, such as `rmse:honaker_tree,7@2000`. No TensorFlow."""

import dataclasses
import math
import re

from dpfl import accounting, errors
from dpfl.accounting import noise_match
from dpfl.participation import Participation
from dpfl.simulation.training.mechanism_names import NamedMechanism

_ARGUMENT = 'match'
_NUMBER = r'[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?'
_TEXT = re.compile(
    rf'(?P<quantity>[a-z_]+):(?:(?P<mechanism>[^,]+),)?(?P<number>{_NUMBER})(?:@(?P<round>[0-9]{{1,9}}))?'
)
_FORM = 'must be QUANTITY:MECHANISM,NOISE_MULTIPLIER@ROUND or rho:RHO@ROUND, where QUANTITY is '


@dataclasses.dataclass(frozen=True)
class MatchRequest:
    """A match that is asked for.

    Attributes:
      text: the text that asks for it.
      quantity: one of `accounting.noise_match.QUANTITIES`.
      mechanism: the other mechanism; None if the value of rho is given.
      number: the noise multiplier of the other mechanism, or the value of rho; above 0.
      rounds: the round, counted from 1; None for the last.
    """

    text: str
    quantity: str
    mechanism: NamedMechanism | None
    number: float
    rounds: int | None

    def resolve(
        self,
        plan: accounting.PrivacyPlan,
        momentum: float = 0.0,
        design: Participation | None = None,
    ) -> accounting.PrivacyPlan:
        """The plan with the noise that was asked for.

        Args:
          plan: without noise.
          momentum: as in `NoiseMatch`.
          design: the schema that a KIND:SIZE without one of its own is optimised for; None for that
            of the plan.

        Raises:
          ArgumentError: if the round is not one of the plan, the other mechanism has fewer rounds,
            or a value is out of its range.
        """
        schema = plan.participation
        rounds = schema.rounds if self.rounds is None else self.rounds
        if not 1 <= rounds <= schema.rounds:
            raise self._refused(f'must have a round from 1 to {schema.rounds}')
        if self.mechanism is None:
            value = noise_match.NoiseMatch(self.quantity, rounds, self.number)
            return noise_match.matched(plan, value)
        other = self.mechanism.make(schema.within(rounds), design or schema)
        if other is None:
            raise self._refused(f'must be a mechanism that has {rounds} rounds')
        match = noise_match.reference(
            plan, other, self.number, quantity=self.quantity, rounds=rounds, momentum=momentum
        )
        return noise_match.matched(plan, match)

    def _refused(self, allowed: str) -> errors.ArgumentError:
        return errors.ArgumentError(_ARGUMENT, self.text, allowed)


def parse(text: str) -> MatchRequest:
    """Reads `QUANTITY:MECHANISM,NOISE_MULTIPLIER@ROUND` or `rho:RHO@ROUND`.

    `@ROUND` may be left out. The mechanism is a text of `mechanism_names`.

    Raises:
      ArgumentError: if the text is neither, or names no mechanism.
    """
    quantities = tuple(noise_match.QUANTITIES)
    found = _TEXT.fullmatch(text)
    refused = errors.ArgumentError(_ARGUMENT, text, _FORM + ', '.join(quantities))
    if found is None or found['quantity'] not in quantities:
        raise refused
    number = float(found['number'])
    rounds = None if found['round'] is None else int(found['round'])
    if not 0 < number < math.inf:
        raise errors.ArgumentError(_ARGUMENT, text, 'must have a finite number above 0')
    mechanism = None
    if found['mechanism'] is not None:
        mechanism = NamedMechanism.parse(found['mechanism'], _ARGUMENT)
        if mechanism.is_fresh:
            raise errors.ArgumentError(_ARGUMENT, text, 'must name a mechanism without best_')
    elif found['quantity'] != 'rho':
        raise refused
    return MatchRequest(text, found['quantity'], mechanism, number, rounds)
