"""The mechanisms of --mechanisms: several of them, each with its noise, in one table and figure."""

import collections
import dataclasses
import math
from collections.abc import Sequence

from dpfl import mechanisms
from dpfl.errors import ArgumentError
from dpfl.participation import Participation
from dpfl.simulation.training.mechanism import NamedMechanism

_ARGUMENT = 'mechanisms'


@dataclasses.dataclass(frozen=True)
class Contender:
    """A mechanism that is compared with others.

    Attributes:
      label: Its name in the table and the figure.
      named: The mechanism.
      noise_multiplier: Its noise multiplier, at least 0; None for the amount of all mechanisms.
    """

    label: str
    named: NamedMechanism
    noise_multiplier: float | None

    def make(self, schema: Participation) -> mechanisms.Mechanism | None:
        """The mechanism over the rounds of a schema; None if it was made for fewer."""
        return self.named.make(schema, self.named.design or schema)


def parse(texts: Sequence[str]) -> list[Contender]:
    """Reads NAME or NAME=NOISE_MULTIPLIER; NAME is a text of `mechanism.NamedMechanism`.

    Raises:
      ArgumentError: If a text is not of this form, occurs twice, or leaves open what a mechanism
        is optimised for.
    """
    found = []
    pairs = [_split(text) for text in texts]
    times = collections.Counter(name for name, _ in pairs)
    for text, (name, noise) in zip(texts, pairs, strict=True):
        named = NamedMechanism.parse(name, _ARGUMENT)
        if named.size is not None and named.design is None and not named.is_fresh:
            raise ArgumentError(
                _ARGUMENT,
                name,
                'must have the schema that it is made for, as in blt:4@2000/400, or best_ to make '
                'it for each plan',
            )
        if texts.count(text) > 1:
            raise ArgumentError(_ARGUMENT, text, 'must not be given twice')
        found.append(Contender(name if times[name] == 1 else text, named, noise))
    return found


def _split(text: str) -> tuple[str, float | None]:
    name, separator, number = text.rpartition('=')
    if not separator or text.endswith('.npz'):
        return text, None
    try:
        noise = float(number)
    except ValueError:
        noise = math.nan
    if not 0 <= noise < math.inf:
        raise ArgumentError(
            _ARGUMENT, text, 'must be NAME or NAME=NOISE_MULTIPLIER, a finite number >= 0'
        )
    return name, noise
