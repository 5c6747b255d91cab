"""Names the fault that the traits of two generators point to, if there is one.

The traits of what one generator writes are compared with those of a reference. All differences are
corrected together for their number (Holm), and each includes an allowance for how trainings differ
by themselves. A fault has a signature: traits that it raises or lowers, all of them.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from dpfl.debugging import differences
from dpfl.debugging.differences import Difference
from dpfl.debugging.text import traits

# Probability that any of all differences is called clear although none is there.
ALPHA = 0.01

FOUND, SUSPECTED, NOT_SEEN = 'found', 'suspected', 'not seen'
VERDICTS = (FOUND, SUSPECTED, NOT_SEEN)


@dataclasses.dataclass(frozen=True)
class Sign:
    """A trait that a fault changes.

    Attributes:
      trait: name of the trait.
      is_higher: whether the fault raises it; otherwise it lowers it.
    """

    trait: str
    is_higher: bool = True

    def is_in(self, clear: Iterable[Difference]) -> bool:
        """Whether it is one of these differences."""
        return any(each.name == self.trait and (each.value > 0) == self.is_higher for each in clear)


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a fault does to the traits.

    Attributes:
      fault: name of the fault, one of `faults.NAMES`.
      signs: all of them must be clear for the fault to be named.
      meaning: what the signs say about the text.
    """

    fault: str
    signs: tuple[Sign, ...]
    meaning: str


SIGNATURES = (
    Signature(
        'joined_words',
        (Sign('inner_space'),),
        'words are joined to one token with the space between them',
    ),
    Signature(
        'wrong_tokenizer',
        (Sign('punctuated'),),
        'punctuation is not separated from the word before it',
    ),
    Signature(
        'encoding',
        (Sign('mis_decoded'),),
        'characters are decoded wrongly: UTF-8 read as Latin-1, or HTML entities',
    ),
    Signature(
        'truncated',
        (Sign('length', False), Sign('last_unknown')),
        'sentences are cut off, and the last word with them',
    ),
    Signature(
        'duplicated_client',
        (Sign('repeated'),),
        'the same sentences come again and again: many clients may hold the data of one',
    ),
)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What the comparison with a reference shows.

    Attributes:
      verdict: 'found' if the signature of a fault is there; 'suspected' if anything differs clearly
        but no signature is complete; 'not seen' if nothing differs clearly.
      faults: names of the faults whose signature is there.
      differences: all that was compared, traits minus those of the reference.
      clear: names of the traits that differ clearly.
    """

    verdict: str
    faults: tuple[str, ...]
    differences: tuple[Difference, ...]
    clear: tuple[str, ...]

    @property
    def text(self) -> str:
        """The verdict in one or two sentences."""
        if self.verdict == FOUND:
            named = [each for each in SIGNATURES if each.fault in self.faults]
            return '; '.join(f'{each.fault}: {each.meaning}' for each in named) + self._evidence()
        if self.verdict == SUSPECTED:
            return 'something differs, but not as any known fault would' + self._evidence()
        return 'nothing differs clearly.'

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as JSON values."""
        return {
            'verdict': self.verdict,
            'faults': list(self.faults),
            'clear': list(self.clear),
            'text': self.text,
            'differences': [each.to_dict() for each in self.differences],
        }

    def _evidence(self) -> str:
        signs = {
            sign.trait for each in SIGNATURES if each.fault in self.faults for sign in each.signs
        }
        shown = [
            each
            for each in self.differences
            if each.name in self.clear and (not signs or each.name in signs)
        ]
        parts = [
            f'{traits.ALL[each.name].meaning}: {shown_value(each.name, each.first)} against '
            f'{shown_value(each.name, each.second)}'
            for each in shown
        ]
        return f' ({"; ".join(parts)}).'


def compare(
    first: traits.Measures, reference: traits.Measures, *, level: float = 0.95
) -> tuple[Difference, ...]:
    """The differences of all traits, with the allowance of each and Holm's correction.

    Args:
      first: traits of what a generator writes.
      reference: the same traits of what the reference writes.
      level: level of each interval.

    Raises:
      ArgumentError: if the traits differ.
    """
    between = {
        name: traits.ALL[name].between(measure.value, reference[name].value)
        for name, measure in first.items()
        if name in reference
    }
    return differences.compare_all(first, reference, between=between, level=level)


def diagnose(first: traits.Measures, reference: traits.Measures) -> Diagnosis:
    """The verdict about a generator, compared with a reference.

    Args:
      first: traits of what it writes.
      reference: the same traits of what the reference writes.

    Raises:
      ArgumentError: if the traits differ.
    """
    return of_differences(compare(first, reference))


def of_differences(compared: Sequence[Difference]) -> Diagnosis:
    """The verdict from the differences of traits, corrected together."""
    clear = [each for each in compared if each.is_clear(ALPHA, traits.ALL[each.name].least)]
    found = tuple(
        each.fault for each in SIGNATURES if all(sign.is_in(clear) for sign in each.signs)
    )
    verdict = FOUND if found else SUSPECTED if clear else NOT_SEEN
    return Diagnosis(verdict, found, tuple(compared), tuple(each.name for each in clear))


def shown_value(name: str, value: float) -> str:
    """A value of a trait with its unit."""
    unit = traits.ALL[name].unit
    return f'{value:.2%}' if unit == '%' else f'{value:.2f} {unit}'
