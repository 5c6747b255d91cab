"""Names the fault that the traits of two generators point to, if there is one.

The traits of what one generator writes are compared with those of a reference. All differences are
corrected together for their number (Holm), and each includes an allowance for how trainings differ
by themselves. A fault has a signature: traits that it raises or lowers, all of them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpfl.debugging import differences
from dpfl.debugging.differences import Difference
from dpfl.debugging.text import traits

# Probability that any of all differences is called clear although none is there.
ALPHA = 0.01

# Share of words with bytes that no text has, above which no verdict is given without a reference.
MOST_NOISE = 0.05
# What a generator is held against if there is no reference.
NO_REFERENCE = 'no reference'

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
      clear: names of the traits that differ clearly.
      text: the verdict in one or two sentences.
      differences: all that was compared, traits minus those of the reference.
    """

    verdict: str
    faults: tuple[str, ...]
    clear: tuple[str, ...]
    text: str
    differences: tuple[Difference, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as JSON values."""
        return {
            'verdict': self.verdict,
            'faults': list(self.faults),
            'clear': list(self.clear),
            'text': self.text,
            'differences': [each.to_dict() for each in self.differences],
        }


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
    evidence = {
        each.name: f'{traits.ALL[each.name].meaning}: {shown_value(each.name, each.first)} against '
        f'{shown_value(each.name, each.second)}'
        for each in clear
    }
    found = [each for each in SIGNATURES if all(sign.is_in(clear) for sign in each.signs)]
    return _diagnosis(found, evidence, tuple(compared))


def alone(measures: traits.Measures) -> Diagnosis:
    """The verdict about a generator without a reference.

    Only the faults that leave what no text has are named: those whose signs all have a share that
    is the `most`. Its lower bound must exceed that, at the level 1 - ALPHA for all together.
    """
    bounded = {
        trait.name: trait.most
        for trait in traits.ALL.values()
        if trait.most is not None and trait.name in measures
    }
    noise = measures.get('noise')
    if noise is not None and not noise.value <= MOST_NOISE:
        reason = f'{traits.ALL["noise"].meaning}: {shown_value("noise", noise.value)}'
        text = f'the model draws too much at random to be judged without a reference ({reason}).'
        return Diagnosis(NOT_SEEN, (), (), text)
    level = 1 - 2 * ALPHA / max(len(bounded), 1)  # Only the lower bound of an interval counts.
    evidence = {
        name: f'{traits.ALL[name].meaning}: {shown_value(name, measures[name].value)}, where at '
        f'most {shown_value(name, most)} are expected'
        for name, most in bounded.items()
        if measures[name].interval(level)[0] > most
    }
    found = [each for each in SIGNATURES if {sign.trait for sign in each.signs} <= set(evidence)]
    return _diagnosis(found, evidence, ())


def _diagnosis(
    found: Sequence[Signature], evidence: Mapping[str, str], compared: tuple[Difference, ...]
) -> Diagnosis:
    """The verdict from complete signatures, and the evidence of all clear traits in words."""
    signs = {sign.trait for each in found for sign in each.signs}
    shown = '; '.join(text for name, text in evidence.items() if not found or name in signs)
    if found:
        verdict = FOUND
        text = '; '.join(f'{each.fault}: {each.meaning}' for each in found) + f' ({shown}).'
    elif evidence:
        verdict = SUSPECTED
        text = f'something differs, but not as any known fault would have it ({shown}).'
    else:
        verdict, text = NOT_SEEN, 'nothing is conspicuous.'
    faults = tuple(each.fault for each in found)
    return Diagnosis(verdict, faults, tuple(evidence), text, compared)


def shown_value(name: str, value: float) -> str:
    """A value of a trait with its unit."""
    unit = traits.ALL[name].unit
    return f'{value:.2%}' if unit == '%' else f'{value:.2f} {unit}'
