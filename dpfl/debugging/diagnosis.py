"""Verdicts on faults of data from a comparison of generators: contrasts, signatures, power.

A trait is a share or a mean of everything that a generator wrote or drew. A contrast compares the
traits of a generator with those of a reference. All differences of all contrasts are corrected
together for their number (Holm), and each includes an allowance for the difference of two trainings
on equal data. A fault has a signature: traits that it raises or lowers, all of them.

A generator that has learned nothing makes the same with a fault in the data and without one. So a
fault that does not show was 'not seen' only if it would have been found with a probability of at
least `TOLD`; otherwise the verdict is 'cannot tell'. This power is computed, not measured: it
follows from the effect of the fault on held-out data, the share that the generators have learned,
and the test.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from dpfl.debugging import differences
from dpfl.debugging.differences import Difference, Mean, Share

FOUND, SUSPECTED, NOT_SEEN = 'found', 'suspected', 'not seen'
CANNOT_TELL = 'cannot tell'
# Least probability with which a fault that was not seen would have been found.
TOLD = 0.5
# Shares that are rarer vary by the draws more than by the training.
_RARE = 5e-4
_COMPUTED_SHARES = np.geomspace(0.001, 1, 61)

Measures = Mapping[str, Share | Mean]
# By fault and trait: by how much the trait of held-out data rises if all of them have the fault.
Effects = Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Trait:
    """A measured property of generated data.

    Attributes:
      name: short name.
      meaning: its description.
      spread: standard deviation of the difference of two trainings on equal data: of log odds for a
        share, relative to the value for a mean.
      least: differences below this are never called clear.
      unit: '%' for a share, otherwise the unit of a mean.
      most: largest share in text that is read rightly, whatever it is about: its tokeniser does not
        make such words, and a model writes few by mistake. None if that depends on the text.
      is_absolute: whether the spread is in the unit of the measure instead.
      is_least_relative: whether `least` is a share of the reference's value.
    """

    name: str
    meaning: str
    spread: float
    least: float
    unit: str = '%'
    most: float | None = None
    is_absolute: bool = False
    is_least_relative: bool = False

    def between(self, first: float, second: float) -> float:
        """Standard deviation of the difference of two trainings, in the unit of the measure."""
        if self.is_absolute:
            return self.spread
        if not np.isfinite(first + second):
            return 0.0
        if self.unit != '%':
            return self.spread * abs(first + second) / 2
        one, other = (float(np.clip(value, _RARE, 1 - _RARE)) for value in (first, second))
        odds = scipy.special.logit(one) - scipy.special.logit(other)
        # The slope between the two, so that the test is the one of log odds.
        slope = (one - other) / odds if odds else one * (1 - one)
        return float(self.spread * slope)

    def least_from(self, reference: float) -> float:
        """Least size of a clear difference from this value of the reference."""
        return self.least * abs(reference) if self.is_least_relative else self.least

    def shown(self, value: float, digits: int = 2) -> str:
        """A value with its unit."""
        return f'{value:.{digits}%}' if self.unit == '%' else f'{value:.2f} {self.unit}'.strip()


@dataclasses.dataclass(frozen=True)
class Sign:
    """A trait that a fault changes.

    Attributes:
      trait: name of the trait.
      is_higher: whether the fault raises it; otherwise it lowers it.
      span: number of tokens in a row that show it. A generator that gets a token right with some
        probability shows the trait with that probability to the power of the span.
      draws: number of draws that must all have the fault to show it.
    """

    trait: str
    is_higher: bool = True
    span: int = 1
    draws: int = 1

    def is_in(self, clear: Sequence[Difference]) -> bool:
        """Whether it is one of these differences."""
        return any(
            difference.name == self.trait and (difference.value > 0) == self.is_higher
            for difference in clear
        )


@dataclasses.dataclass(frozen=True)
class Signature:
    """The effects of a fault on the traits.

    Attributes:
      fault: name of the fault.
      signs: all of them must be clear for the fault to be named.
      meaning: the signs in words.
    """

    fault: str
    signs: tuple[Sign, ...]
    meaning: str


@dataclasses.dataclass(frozen=True)
class Learned:
    """How much of its data a generator has learned.

    Attributes:
      share: effect of a fault on a single draw, relative to a perfect generator; 0 for no effect.
      reason: the reason for a share of 0, in words.
      numbers: what it follows from, by name.
    """

    share: float
    reason: str
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Generated:
    """Traits of a generator.

    Attributes:
      of_what: its training data, in words.
      traits: traits of its samples.
      learned: how much of its data it has learned, by held-out data; not private.
    """

    of_what: str
    traits: Measures
    learned: Learned = Learned(0.0, 'nothing is known of it')

    def to_dict(self) -> dict[str, Any]:
        """Traits with intervals, and what has been learned."""
        return {
            'traits': {
                name: {'value': measure.value, 'interval': measure.interval()}
                for name, measure in self.traits.items()
            },
            'learned': {**self.learned.numbers, 'share': self.learned.share},
        }


@dataclasses.dataclass(frozen=True)
class Contrast:
    """A generator that may have learned a fault, and its reference; both may be the same."""

    first: Generated
    reference: Generated

    @property
    def learned(self) -> float:
        """Share of a single draw that both have learned, within [0, 1]."""
        return min(self.first.learned.share, self.reference.learned.share)

    @property
    def is_comparable(self) -> bool:
        """Whether a difference raises an alarm: only if the reference has learned something.

        The first one may be far from real data because of the fault.
        """
        return bool(self.reference.learned.share)

    @property
    def reason(self) -> str:
        """Why nothing can be told if `learned` is 0."""
        reasons = {
            f'the generator of {generated.of_what} has learned nothing: '
            f'{generated.learned.reason}': None
            for generated in (self.first, self.reference)
            if not generated.learned.share
        }
        return '; '.join(reasons)


# Probability that a sign is clear in a contrast if its trait is expected to rise by an amount.
Power = Callable[[Contrast, Sign, float], float]


@dataclasses.dataclass(frozen=True)
class FaultVerdict:
    """The verdict of a diagnosis on one fault.

    Attributes:
      fault: name of the fault.
      verdict: 'found', 'suspected', 'not seen' or 'cannot tell'.
      share: share of the data for which `power` holds.
      power: probability that the fault would be found if this share of the data had it.
      reason: the numbers, or why nothing can be told; empty if the verdict needs none.
    """

    fault: str
    verdict: str
    share: float
    power: float
    reason: str = ''


def compare(
    contrasts: Mapping[str, Contrast], traits: Mapping[str, Trait]
) -> dict[str, tuple[Difference, ...]]:
    """The differences of all traits by contrast, with Holm's correction over all of them.

    Args:
      contrasts: the contrasts by name; both generators of one have the same traits.
      traits: all traits by name.
    """
    compared = []
    for contrast in contrasts.values():
        for name, measure in contrast.first.traits.items():
            other = contrast.reference.traits[name]
            between = traits[name].between(measure.value, other.value)
            compared.append(differences.compare(name, measure, other, between=between))
    corrected = iter(differences.corrected(compared))
    return {
        key: tuple(itertools.islice(corrected, len(contrast.first.traits)))
        for key, contrast in contrasts.items()
    }


def power_at(level: float, traits: Mapping[str, Trait]) -> Power:
    """Probability that a sign is clear if its trait is expected some amount above the reference.

    Args:
      level: level of the test: that of all comparisons divided by their number, the first step of
        Holm's correction.
      traits: all traits by name.

    Returns:
      A function of the contrast, whose numbers of draws count, the sign, and the amount.
    """

    def power(contrast: Contrast, sign: Sign, shift: float) -> float:
        trait, other = traits[sign.trait], contrast.reference.traits[sign.trait]
        expected = differences.moved(contrast.first.traits[sign.trait], other.value + shift)
        between = trait.between(expected.value, other.value)
        difference = differences.compare(trait.name, expected, other, between=between)
        return differences.power(difference, level, trait.least_from(other.value))

    return power


def unseen(
    signature: Signature,
    contrasts: Mapping[str, Contrast],
    effects: Effects,
    power: Power,
    *,
    data: str,
    share: float | None = None,
) -> FaultVerdict:
    """The verdict about a fault that does not show: 'not seen', or 'cannot tell' and why.

    Args:
      signature: of the fault.
      contrasts: the contrasts by name; the one with the highest power counts.
      effects: of faults on the traits of held-out data.
      power: probability that a sign is clear in a contrast if its trait is expected to rise by some
        amount.
      data: the data in words, such as 'text'.
      share: the only share of the data to look at; None for the smallest that would be found.
    """
    effect = effects.get(signature.fault, {})

    def of_contrast(contrast: Contrast, share: float) -> float:
        """Lower bound of the probability that all signs are clear."""
        powers = []
        for sign in signature.signs:
            learned = contrast.learned**sign.span
            shift = learned * effect.get(sign.trait, 0.0) * share**sign.draws
            is_judged = sign.trait in contrast.first.traits
            shows = is_judged and (shift > 0 if sign.is_higher else shift < 0)
            powers.append(power(contrast, sign, shift) if shows else 0.0)
        return max(sum(powers) - (len(powers) - 1), 0.0)

    share, reached = smallest_share(
        lambda share: max(of_contrast(contrast, share) for contrast in contrasts.values()), share
    )
    if reached >= TOLD:
        return FaultVerdict(signature.fault, NOT_SEEN, share, reached)
    names = {sign.trait for sign in signature.signs}
    judged = [contrast for contrast in contrasts.values() if names <= contrast.first.traits.keys()]
    if not judged:
        reason = 'no trait that is judged here shows it'
    elif not any(contrast.learned for contrast in judged):
        reason = '; '.join(dict.fromkeys(contrast.reason for contrast in judged))
    elif not all(map(effect.get, names)):
        reason = f'it changes no trait of held-out {data}'
    else:
        reason = too_weak(share, reached, data)
    return FaultVerdict(signature.fault, CANNOT_TELL, share, reached, reason)


def too_weak(share: float, power: float, data: str) -> str:
    """Why nothing can be told if a fault would be found too rarely."""
    return f'{in_share(share, data)} it would be found with probability {power:.2g}'


def in_share(share: float, data: str) -> str:
    """Such as 'in 35 % of the images', for a share of 0.3548."""
    return f'in {float(f"{100 * share:.2g}"):g} % of the {data}'


def smallest_share(
    power: Callable[[float], float], share: float | None = None
) -> tuple[float, float]:
    """The smallest share of the data in which a fault is found with the power `TOLD`.

    Args:
      power: probability that the fault is found, given the share that it affects.
      share: the only share to look at; None for any from 0.1 % to all.

    Returns:
      The share and its power. If none has the power, the largest share.
    """
    shares = _COMPUTED_SHARES.tolist() if share is None else [share]
    # Power grows with the share.
    place = bisect.bisect_left(shares, TOLD, key=power)
    found = shares[min(place, len(shares) - 1)]
    return found, power(found)
