"""Names the fault of text that generators point to, if there is one, and the words that differ.

A verdict is about everything that was compared: 'found' if the signature of a fault is complete,
'suspected' if anything else differs clearly. NumPy only, no TensorFlow.

A generator that has learned nothing writes the same with a fault in the text and without one, so
its output supports no verdict. Its trivial reference is the best distribution of single tokens:
that of the held-out tokens themselves, which no distribution without context beats.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import scipy

from dpfl.debugging import diagnosis, differences
from dpfl.debugging.diagnosis import (
    CANNOT_TELL,
    FOUND,
    NOT_SEEN,
    SUSPECTED,
    TOLD,
    Contrast,
    Effects,
    FaultVerdict,
    Learned,
    Sign,
    Signature,
)
from dpfl.debugging.differences import Difference, Mean, Share
from dpfl.debugging.text import traits
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID


def measure_learned(
    written: np.ndarray,
    heldout: np.ndarray,
    log_probabilities: np.ndarray,
    *,
    num_tokens: int,
    never: tuple[int, ...],
) -> Learned:
    """Compares a generator with held-out sequences and with the trivial reference.

    It has learned the share of its tokens that are as frequent as in held-out text (1 minus the
    total variation of token frequencies) if its held-out loss is below the trivial one with 97.5 %
    confidence over sequences, and nothing otherwise. The trivial one is that of the frequencies of
    the held-out tokens, the least loss without context.

    Args:
      written: token ids that the generator wrote, integers [N, L].
      heldout: token ids of held-out sequences, integers [M, L], without the begin token.
      log_probabilities: of the held-out sequences under the generator, in nats, float [M].
      num_tokens: number of token ids.
      never: ids that are no draws, such as padding and the begin token.
    """
    is_draw = ~np.isin(np.arange(num_tokens), never)

    def frequencies(tokens: np.ndarray) -> np.ndarray:
        counts = np.where(is_draw, np.bincount(tokens.ravel(), minlength=num_tokens), 0)
        return counts / max(counts.sum(), 1)

    shares = frequencies(heldout)
    # Tokens that are no draws have the share 0, and get the code length 0.
    lengths = -np.log(np.where(shares > 0, shares, 1.0))
    sizes, trivial = is_draw[heldout].sum(axis=1), lengths[heldout].sum(axis=1)
    loss = Mean.ratio(-log_probabilities, sizes).value
    least = Mean.ratio(trivial, sizes).value
    is_better = Mean.ratio(trivial + log_probabilities, sizes).interval()[0] > 0
    covered = float(np.minimum(frequencies(written), shares).sum())
    reason = (
        f'its held-out loss of {loss:.2f} nats per token is not clearly below {least:.2f}, that of '
        'the frequencies of single tokens'
    )
    numbers = {'loss': loss, 'trivial': least, 'is_better': is_better, 'covered': covered}
    return Learned(covered if is_better else 0.0, reason, numbers)


# Probability that any of all differences is called clear although none is there.
ALPHA = 0.01
# Share of words with bytes that no text has, above which no verdict is given without a reference.
_MOST_NOISE = 0.05
# Deviation by which the log odds of the share of a word differ from training to training.
_WORD_SPREAD = 0.4
# Smaller differences of the shares of sentences with a word are not shown.
_LEAST_OF_WORDS = 0.002
# Name of the reference of a generator that is judged alone.
NO_REFERENCE = 'no reference'

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
class Question:
    """The faults that a verdict is about.

    Attributes:
      effects: by how much faults raise traits of held-out text; without them, no fault is called
        not seen.
      share: share of the damaged sentences or clients; None for the smallest share that would be
        found.
      fault: the fault that was injected; None for any.
    """

    effects: Effects = dataclasses.field(default_factory=dict)
    share: float | None = None
    fault: str | None = None


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Verdicts from the comparison with a reference.

    Attributes:
      verdict: 'found' if the signature of a fault is there; 'suspected' if anything differs clearly
        but no signature is complete; 'not seen' if nothing differs clearly, and a fault would have
        been found with a probability of at least `TOLD`; otherwise 'cannot tell'.
      faults: names of the faults whose signature is there.
      clear: names of the traits that differ clearly, of generators that have learned something.
      text: the verdict in one or two sentences.
      differences: of all compared traits, minus those of the reference.
      of_faults: the verdict on each fault.
    """

    verdict: str
    faults: tuple[str, ...]
    clear: tuple[str, ...]
    text: str
    differences: tuple[Difference, ...] = ()
    of_faults: tuple[FaultVerdict, ...] = ()


def diagnose(contrasts: Mapping[str, Contrast], question: Question = Question()) -> Diagnosis:
    """The verdict about generators, each compared with a reference.

    Args:
      contrasts: the contrasts by name.
      question: the fault, its share, and effects of faults.
    """
    compared = diagnosis.compare(contrasts, traits.ALL)
    flat = tuple(difference for values in compared.values() for difference in values)
    clear = [
        difference
        for name, values in compared.items()
        if contrasts[name].is_comparable
        for difference in values
        if difference.is_clear(ALPHA, traits.ALL[difference.name].least)
    ]
    shown = {}
    for difference in clear:
        trait = traits.ALL[difference.name]
        first, second = trait.shown(difference.first), trait.shown(difference.second)
        shown[trait.name] = f'{trait.meaning}: {first} against {second}'
    complete = [
        signature for signature in SIGNATURES if all(sign.is_in(clear) for sign in signature.signs)
    ]
    power = diagnosis.power_at(ALPHA / len(flat), traits.ALL)
    return _diagnosis(complete, shown, flat, contrasts, power, question)


def alone(contrast: Contrast, question: Question = Question()) -> Diagnosis:
    """The verdict about a character model without a reference.

    Only faults whose signs all have a largest share in real text, `most`, can be named. The lower
    bound of each share must exceed it, at the level 1 - ALPHA for all together.

    Args:
      contrast: the generator, as its own reference.
      question: the fault, its share, and effects of faults.
    """
    measures, noise = contrast.first.traits, traits.ALL['noise']
    if not measures['noise'].value <= _MOST_NOISE:
        reason = f'{noise.meaning}: {noise.shown(measures["noise"].value)}'
        text = f'the model draws too much at random to be judged without a reference ({reason}).'
        unknown = tuple(
            FaultVerdict(signature.fault, CANNOT_TELL, 1, 0, reason) for signature in SIGNATURES
        )
        return Diagnosis(CANNOT_TELL, (), (), text, (), unknown)
    bounded = {trait: trait.most for trait in traits.OF_WORDS if trait.most is not None}
    level = 1 - 2 * ALPHA / len(bounded)  # Only the lower bound of an interval counts.
    shown = {
        trait.name: f'{trait.meaning}: {trait.shown(measures[trait.name].value)}, where at most '
        f'{trait.shown(most)} are expected'
        for trait, most in bounded.items()
        if contrast.is_comparable and measures[trait.name].interval(level)[0] > most
    }
    complete = [
        signature
        for signature in SIGNATURES
        if {sign.trait for sign in signature.signs} <= set(shown)
    ]

    def power(contrast: Contrast, sign: Sign, shift: float) -> float:
        # Nothing is known of the trait without the fault, so that all of it may be the fault's.
        expected = differences.moved(measures[sign.trait], shift)
        low = expected.interval(level)[0]
        deviation = (expected.value - low) / scipy.special.ndtri((1 + level) / 2)
        reached = (low - bounded[traits.ALL[sign.trait]]) / deviation if deviation > 0 else -np.inf
        return float(scipy.special.ndtr(reached))

    named = {trait.name: measures[trait.name] for trait in bounded}
    judged = Contrast(dataclasses.replace(contrast.first, traits=named), contrast.reference)
    return _diagnosis(complete, shown, (), {NO_REFERENCE: judged}, power, question)


def _diagnosis(
    complete: Sequence[Signature],
    shown: Mapping[str, str],
    compared: tuple[Difference, ...],
    contrasts: Mapping[str, Contrast],
    power: diagnosis.Power,
    question: Question,
) -> Diagnosis:
    """The verdict from complete signatures, and the evidence of all clear traits in words."""
    of_faults = []
    for signature in SIGNATURES:
        verdict = diagnosis.unseen(
            signature, contrasts, question.effects, power, data='text', share=question.share
        )
        if signature in complete:
            verdict = dataclasses.replace(verdict, verdict=FOUND, reason='')
        of_faults.append(verdict)
    signs = {sign.trait for signature in complete for sign in signature.signs}
    proof = '; '.join(text for name, text in shown.items() if not complete or name in signs)
    if complete:
        outcome = FOUND
        meanings = '; '.join(f'{signature.fault}: {signature.meaning}' for signature in complete)
        text = f'{meanings} ({proof}).'
    elif shown:
        outcome = SUSPECTED
        text = f'something differs, but not as any known fault would have it ({proof}).'
    else:
        is_seen = any(
            fault_verdict.verdict == NOT_SEEN and question.fault in (None, fault_verdict.fault)
            for fault_verdict in of_faults
        )
        outcome = NOT_SEEN if is_seen else CANNOT_TELL
        text = f'nothing is conspicuous. {_limits(of_faults)}'
    faults = tuple(signature.fault for signature in complete)
    return Diagnosis(outcome, faults, tuple(shown), text, compared, tuple(of_faults))


def _limits(of_faults: Sequence[FaultVerdict]) -> str:
    """Which faults would have been found, and which not, in a sentence each."""
    seen = ', '.join(
        f'{fault_verdict.fault} {diagnosis.in_share(fault_verdict.share, "text")}'
        for fault_verdict in of_faults
        if fault_verdict.verdict == NOT_SEEN
    )
    reasons: dict[str, list[str]] = {}
    for fault_verdict in of_faults:
        if fault_verdict.verdict == CANNOT_TELL:
            reasons.setdefault(fault_verdict.reason, []).append(fault_verdict.fault)
    parts = [f'{", ".join(names)} ({reason})' for reason, names in reasons.items()]
    told = [f'Found with a probability of {TOLD:g} or more would be: {seen}.'] if seen else []
    return ' '.join([*told, *([f'Cannot tell: {"; ".join(parts)}.'] if parts else [])])


def words_that_differ(
    first: np.ndarray,
    second: np.ndarray,
    vocabulary: Sequence[str],
    top: int,
) -> tuple[Difference, ...]:
    """The words whose shares of sentences differ most, among those that differ clearly.

    P-values are corrected by Holm over all words.

    Args:
      first, second: token ids of sentences of two generators, [N, L] and [M, L].
      vocabulary: words by token id, from NUM_SPECIAL_TOKENS on. UNK stands for all others.
      top: number of words at most.

    Returns:
      Differences of the shares of sentences with a word, the largest first.
    """
    counts = (_sentences_with(tokens, len(vocabulary)).tolist() for tokens in (first, second))
    compared = []
    for name, hits, other_hits in zip(('UNK', *vocabulary), *counts, strict=True):
        share, other = Share(hits, len(first)), Share(other_hits, len(second))
        middle = (share.value + other.value) / 2
        between = _WORD_SPREAD * middle * (1 - middle)
        compared.append(differences.compare(name, share, other, between=between))
    clear = [
        difference
        for difference in differences.corrected(compared)
        if difference.is_clear(ALPHA, _LEAST_OF_WORDS)
    ]
    return tuple(sorted(clear, key=lambda difference: -abs(difference.value))[:top])


def _sentences_with(tokens: np.ndarray, num_words: int) -> np.ndarray:
    """Number of sentences with each word, int64 [1 + words]; the first is for unknown words."""
    rows = np.sort(np.asarray(tokens), axis=1)
    is_first = np.ones(rows.shape, bool)
    is_first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    counts = np.bincount(rows[is_first], minlength=NUM_SPECIAL_TOKENS + num_words)
    return counts[OOV_ID:]
