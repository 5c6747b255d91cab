"""Names the fault that the traits of two generators point to, if there is one.

The traits of what one generator writes are compared with those of a reference. All differences are
corrected together for their number (Holm), and each includes an allowance for how trainings differ
by themselves. A fault has a signature: traits that it raises or lowers, all of them.

A fault whose signature is not there was 'not seen' only if it would have been found with a
probability of at least `power.TOLD`; otherwise the verdict is 'cannot tell'. The power follows from
what the fault does to held-out text, how much the generators have learned, and the test.
"""

import dataclasses
import functools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from dpfl.debugging import differences
from dpfl.debugging import power as power_lib
from dpfl.debugging.differences import Difference
from dpfl.debugging.text import traits

# Probability that any of all differences is called clear although none is there.
ALPHA = 0.01

# Share of words with bytes that no text has, above which no verdict is given without a reference.
MOST_NOISE = 0.05
# What a generator is held against if there is no reference.
NO_REFERENCE = 'no reference'

FOUND, SUSPECTED, NOT_SEEN = 'found', 'suspected', 'not seen'
CANNOT_TELL = 'cannot tell'


@dataclasses.dataclass(frozen=True)
class Sign:
    """A trait that a fault changes.

    Attributes:
      trait: name of the trait.
      is_higher: whether the fault raises it; otherwise it lowers it.
      span: number of tokens in a row that show it. A generator that gets a token right with some
        probability shows the trait with that probability to the power of the span.
    """

    trait: str
    is_higher: bool = True
    span: int = 1

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
        (Sign('inner_space', span=3),),
        'words are joined to one token with the space between them',
    ),
    Signature(
        'wrong_tokenizer',
        (Sign('punctuated', span=3),),
        'punctuation is not separated from the word before it',
    ),
    Signature(
        'encoding',
        (Sign('mis_decoded', span=4),),
        'characters are decoded wrongly: UTF-8 read as Latin-1, or HTML entities',
    ),
    Signature(
        'truncated',
        (Sign('length', False), Sign('last_unknown', span=2)),
        'sentences are cut off, and the last word with them',
    ),
    Signature(
        'duplicated_client',
        (Sign('repeated', span=traits.LONG + 1),),
        'the same sentences come again and again: many clients may hold the data of one',
    ),
)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What the power of a diagnosis follows from. Without any, nothing can be told.

    Attributes:
      learned: by trait, the share of a single token that its generator has learned, within [0, 1]:
        the smaller one of the two generators that are compared.
      effects: by fault and trait, by how much the fault raises the trait in held-out text if all
        sentences, or all clients, have it.
      comparable: traits of generators that have learned something, the reference above all: only
        these raise an alarm.
      share: share of the damaged sentences or clients that the verdict is about; None for the
        smallest share that would be found.
      fault: the fault that the verdict is about, if one was injected; None for any.
      reason: what the shares learned follow from, in words.
    """

    learned: Mapping[str, float] = dataclasses.field(default_factory=dict)
    effects: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    comparable: Container[str] = frozenset()
    share: float | None = None
    fault: str | None = None
    reason: str = 'nothing is known of how much the generators have learned'

    def shift(self, fault: str, sign: Sign, share: float) -> float:
        """By how much a fault in a share of the text is expected to raise a trait."""
        learned = self.learned.get(sign.trait, 0.0) ** sign.span
        return learned * share * self.effects.get(fault, {}).get(sign.trait, 0.0)


@dataclasses.dataclass(frozen=True)
class FaultVerdict:
    """What a diagnosis says about one fault.

    Attributes:
      fault: name of the fault.
      verdict: 'found', 'not seen' or 'cannot tell'.
      share: share of the text for which `power` holds.
      power: probability that the fault would be found in this share of the text.
      reason: why nothing can be told; empty otherwise.
    """

    fault: str
    verdict: str
    share: float
    power: float
    reason: str = ''


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What the comparison with a reference shows.

    Attributes:
      verdict: 'found' if the signature of a fault is there; 'suspected' if anything differs clearly
        but no signature is complete; 'not seen' if nothing differs clearly, and a fault would have
        been found with a probability of at least `power.TOLD`; otherwise 'cannot tell'.
      faults: names of the faults whose signature is there.
      clear: names of the traits that differ clearly, of generators that have learned something.
      text: the verdict in one or two sentences.
      differences: all that was compared, traits minus those of the reference.
      of_faults: the verdict on each fault.
    """

    verdict: str
    faults: tuple[str, ...]
    clear: tuple[str, ...]
    text: str
    differences: tuple[Difference, ...] = ()
    of_faults: tuple[FaultVerdict, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as JSON values."""
        return {
            'verdict': self.verdict,
            'faults': list(self.faults),
            'clear': list(self.clear),
            'text': self.text,
            'differences': [each.to_dict() for each in self.differences],
            'of_faults': [dataclasses.asdict(each) for each in self.of_faults],
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


def diagnose(
    first: traits.Measures, reference: traits.Measures, evidence: Evidence | None = None
) -> Diagnosis:
    """The verdict about a generator, compared with a reference.

    Args:
      first: traits of what it writes.
      reference: the same traits of what the reference writes.
      evidence: what the power follows from; without it, no fault is called not seen.

    Raises:
      ArgumentError: if the traits differ.
    """
    evidence = evidence or Evidence()
    compared = compare(first, reference)
    clear = [
        each
        for each in compared
        if each.name in evidence.comparable and each.is_clear(ALPHA, traits.ALL[each.name].least)
    ]
    shown = {
        each.name: f'{traits.ALL[each.name].meaning}: {shown_value(each.name, each.first)} against '
        f'{shown_value(each.name, each.second)}'
        for each in clear
    }
    found = [each for each in SIGNATURES if all(sign.is_in(clear) for sign in each.signs)]

    def power(sign: Sign, shift: float) -> float:
        """Power of one sign, at the level of the first step of Holm's correction."""
        trait, measure, other = traits.ALL[sign.trait], first[sign.trait], reference[sign.trait]
        expected = differences.moved(measure, other.value + shift)
        between = trait.between(expected.value, other.value)
        difference = differences.compare(trait.name, expected, other, between=between)
        return differences.power(difference, ALPHA / len(compared), trait.least)

    of_faults = _of_faults(found, set(first), evidence, power)
    return _diagnosis(found, shown, compared, of_faults, evidence.fault)


def alone(measures: traits.Measures, evidence: Evidence | None = None) -> Diagnosis:
    """The verdict about a generator without a reference.

    Only the faults that leave what no text has are named: those whose signs all have a share that
    is the `most`. Its lower bound must exceed that, at the level 1 - ALPHA for all together.

    Args:
      measures: traits of what it writes.
      evidence: what the power follows from; without it, no fault is called not seen.
    """
    evidence = evidence or Evidence()
    bounded = {
        trait.name: trait.most
        for trait in traits.ALL.values()
        if trait.most is not None and trait.name in measures
    }
    noise = measures.get('noise')
    if noise is not None and not noise.value <= MOST_NOISE:
        reason = f'{traits.ALL["noise"].meaning}: {shown_value("noise", noise.value)}'
        text = f'the model draws too much at random to be judged without a reference ({reason}).'
        unknown = tuple(FaultVerdict(each.fault, CANNOT_TELL, 1, 0, reason) for each in SIGNATURES)
        return Diagnosis(CANNOT_TELL, (), (), text, (), unknown)
    level = 1 - 2 * ALPHA / max(len(bounded), 1)  # Only the lower bound of an interval counts.
    shown = {
        name: f'{traits.ALL[name].meaning}: {shown_value(name, measures[name].value)}, where at '
        f'most {shown_value(name, most)} are expected'
        for name, most in bounded.items()
        if name in evidence.comparable and measures[name].interval(level)[0] > most
    }
    found = [each for each in SIGNATURES if {sign.trait for sign in each.signs} <= set(shown)]

    def power(sign: Sign, shift: float) -> float:
        # Nothing is known of the trait without the fault, so that all of it may be the fault's.
        expected = differences.moved(measures[sign.trait], shift)
        low = expected.interval(level)[0]
        deviation = (expected.value - low) / special.ndtri((1 + level) / 2)
        reached = (low - bounded[sign.trait]) / deviation if deviation > 0 else -np.inf
        return float(special.ndtr(reached))

    of_faults = _of_faults(found, set(bounded), evidence, power)
    return _diagnosis(found, shown, (), of_faults, evidence.fault)


def _of_faults(
    found: Sequence[Signature],
    known: Container[str],
    evidence: Evidence,
    power: Callable[[Sign, float], float],
) -> tuple[FaultVerdict, ...]:
    """The verdict on each fault.

    Args:
      found: the faults that were found.
      known: traits that are judged.
      evidence: what the power follows from.
      power: probability that a sign is clear, if its trait is expected to rise by some amount.
    """

    def of_fault(each: Signature, share: float) -> float:
        """Lower bound of the probability that all signs are clear."""
        missed = 0.0
        for sign in each.signs:
            shift = evidence.shift(each.fault, sign, share)
            seen = sign.trait in known and (shift > 0 if sign.is_higher else shift < 0)
            missed += 1 - power(sign, shift) if seen else 1.0
        return max(1 - missed, 0.0)

    verdicts = []
    for each in SIGNATURES:
        share, reached = power_lib.smallest_share(functools.partial(of_fault, each), evidence.share)
        if each in found:
            verdicts.append(FaultVerdict(each.fault, FOUND, share, reached))
        elif reached >= power_lib.TOLD:
            verdicts.append(FaultVerdict(each.fault, NOT_SEEN, share, reached))
        else:
            reason = _why_not(each, known, evidence, share, reached)
            verdicts.append(FaultVerdict(each.fault, CANNOT_TELL, share, reached, reason))
    return tuple(verdicts)


def _why_not(
    signature: Signature, known: Container[str], evidence: Evidence, share: float, power: float
) -> str:
    """Why nothing can be told about a fault."""
    for sign in signature.signs:
        if sign.trait not in known:
            return 'no trait that is judged here shows it'
        if not evidence.learned.get(sign.trait):
            return evidence.reason
        if not evidence.effects.get(signature.fault, {}).get(sign.trait):
            return 'it changes no trait of held-out text'
    return f'in {100 * share:.2g} % of the text it would be found with probability {power:.2g}'


def _diagnosis(
    found: Sequence[Signature],
    shown: Mapping[str, str],
    compared: tuple[Difference, ...],
    of_faults: tuple[FaultVerdict, ...],
    fault: str | None,
) -> Diagnosis:
    """The verdict from complete signatures, and the evidence of all clear traits in words."""
    signs = {sign.trait for each in found for sign in each.signs}
    proof = '; '.join(text for name, text in shown.items() if not found or name in signs)
    if found:
        verdict = FOUND
        text = '; '.join(f'{each.fault}: {each.meaning}' for each in found) + f' ({proof}).'
    elif shown:
        verdict = SUSPECTED
        text = f'something differs, but not as any known fault would have it ({proof}).'
    else:
        is_seen = any(
            each.verdict == NOT_SEEN and fault in (None, each.fault) for each in of_faults
        )
        verdict = NOT_SEEN if is_seen else CANNOT_TELL
        text = f'nothing is conspicuous. {_limits(of_faults)}'
    faults = tuple(each.fault for each in found)
    return Diagnosis(verdict, faults, tuple(shown), text, compared, of_faults)


def _limits(of_faults: Sequence[FaultVerdict]) -> str:
    """Which faults would have been found, and which not, in a sentence each."""
    seen = ', '.join(
        f'{each.fault} in {100 * each.share:.2g} % of the text'
        for each in of_faults
        if each.verdict == NOT_SEEN
    )
    reasons: dict[str, list[str]] = {}
    for each in of_faults:
        if each.verdict == CANNOT_TELL:
            reasons.setdefault(each.reason, []).append(each.fault)
    parts = [f'{", ".join(names)} ({reason})' for reason, names in reasons.items()]
    told = (
        [f'Found with a probability of {power_lib.TOLD:g} or more would be: {seen}.']
        if seen
        else []
    )
    return ' '.join([*told, *([f'Cannot tell: {"; ".join(parts)}.'] if parts else [])])


def shown_value(name: str, value: float) -> str:
    """A value of a trait with its unit."""
    unit = traits.ALL[name].unit
    return f'{value:.2%}' if unit == '%' else f'{value:.2f} {unit}'
