"""Results of the study: what generators write, and how it differs, as JSON values."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl.debugging.differences import Difference, Share
from dpfl.debugging.text import diagnosis, learned, settings, traits, word_differences
from dpfl.debugging.text.config import CHAR, WORD, Case, Generator
from dpfl.simulation.training import TrainResult
from dpfl.tasks.text import oov_ranking, tokenization
from dpfl.tasks.text.models import generation
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID

_PHRASES = 10


@dataclasses.dataclass(frozen=True)
class Written:
    """What a generator has written.

    Attributes:
      generator: The generator.
      tokens: Token ids of sentences, or byte ids of words, [samples, L].
      traits: Traits of the sentences or words.
      positions: Share of unknown words at each position; empty for words.
      phrases: Some of the sentences; empty for words.
      ranking: The most probable words; None for sentences.
      heldout_oov_rate: Share of unknown words in the text of held-out clients; not private. None
        for words.
      learned: How much of the text it has learned, by held-out clients; not private.
      model: Metrics and guarantee of its run.
    """

    generator: Generator
    tokens: np.ndarray
    traits: traits.Measures
    positions: tuple[Share, ...]
    phrases: tuple[str, ...]
    ranking: oov_ranking.Ranking | None
    heldout_oov_rate: float | None
    learned: learned.Learned
    model: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON values, without the tokens."""
        return {
            'of_what': self.generator.of_what,
            'traits': {
                name: {
                    'value': _finite(each.value),
                    'interval': list(map(_finite, each.interval())),
                }
                for name, each in self.traits.items()
            },
            'oov_rate_by_position': [_finite(each.value) for each in self.positions],
            'phrases': list(self.phrases),
            'ranking': None if self.ranking is None else dataclasses.asdict(self.ranking),
            'heldout_oov_rate': self.heldout_oov_rate,
            'learned': self.learned.to_dict(),
            'model': dict(self.model),
        }


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """What the generators of a case have written.

    Attributes:
      case: The text that they learned from.
      written: What each wrote, by name of the generator.
      together: Epsilon of all generators of the case together, which learn from the same clients;
        None if infinite.
    """

    case: Case
    written: Mapping[str, Written]
    together: float | None

    @property
    def whole(self) -> tuple[Written, ...]:
        """What the generators of the whole text have written."""
        return tuple(self.written[name] for name in (WORD, CHAR) if name in self.written)

    @property
    def measures(self) -> dict[str, Any]:
        """Traits of the sentences and of the unknown words of the whole text."""
        return {name: each for one in self.whole for name, each in one.traits.items()}

    def to_dict(self) -> dict[str, Any]:
        """The case as JSON values."""
        return {
            'name': self.case.name,
            'inject': self.case.fault,
            'inject_share': self.case.share,
            'generators': {name: each.to_dict() for name, each in self.written.items()},
            'together': self.together,
        }


@dataclasses.dataclass(frozen=True)
class Compared:
    """What is compared, and what it shows.

    Attributes:
      case: Name of the case.
      first, reference: What is compared with what, in words.
      diagnosis: The verdict, and the differences of traits.
      words: Words that sentences of the one have clearly more often.
      examples: Unknown words that were written, the most frequent ones that have a trait, by the
        traits that are clearly more frequent.
    """

    case: str
    first: str
    reference: str
    diagnosis: diagnosis.Diagnosis
    words: tuple[Difference, ...] = ()
    examples: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """What is compared with what."""
        case = f' ({self.case})' if self.case != self.first else ''
        if self.reference == diagnosis.NO_REFERENCE:
            return f'{self.first}, by itself'
        return f'{self.first}, against {self.reference}{case}'

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            'case': self.case,
            'first': self.first,
            'reference': self.reference,
            **self.diagnosis.to_dict(),
            'words': [each.to_dict() for each in self.words],
            'examples': {name: list(words) for name, words in self.examples.items()},
        }


def write(
    generator: Generator,
    text: settings.Text,
    task: settings.Task,
    trained: TrainResult,
    *,
    samples: int,
    top: int,
    seed: int,
) -> Written:
    """Samples from a generator.

    Args:
      generator: The generator.
      text: The text as it is; only the vocabulary is read.
      task: What it was trained on.
      trained: The trained model.
      samples: Number of sentences or words to draw.
      top: Number of words in the ranking.
      seed: Seed of the draws.
    """
    tokens = generation.sample(
        task.architecture,
        trained.weights,
        task.special,
        count=samples,
        length=task.length,
        seed=seed,
    ).tokens
    words = text.vocabulary.words
    measures = traits_of(generator.kind, tokens, words)
    has_learned = learned.measure(
        tokens,
        task.heldout[:, 1:],
        generation.log_probabilities(
            task.architecture, trained.weights, task.special, task.heldout[:, 1:]
        ),
        num_tokens=task.num_tokens,
        never=(task.special.pad, task.special.begin),
    )
    if generator.kind == WORD:
        return Written(
            generator,
            tokens,
            measures,
            traits.unknown_by_position(tokens),
            tuple(tokenization.decode_sentences(tokens[:_PHRASES], words)),
            None,
            _oov_rate(task.heldout),
            has_learned,
            _model(task, trained),
        )
    ranking = oov_ranking.rank(
        task.architecture,
        trained.weights,
        samples=samples,
        length=task.length,
        top=top,
        seed=seed,
        known=text.vocabulary.ids,
    )
    model = _model(task, trained)
    return Written(generator, tokens, measures, (), (), ranking, None, has_learned, model)


def traits_of(kind: str, tokens: np.ndarray, words: Sequence[str]) -> dict[str, Any]:
    """Traits of what a generator of a kind writes, token ids [N, L], by name."""
    return traits.of_sentences(tokens, words) if kind == WORD else traits.of_words(tokens)


def evidence(
    effects: Mapping[str, Mapping[str, float]],
    case: Case,
    written: Iterable[Written],
    reference: Iterable[Written],
) -> diagnosis.Evidence:
    """What the power of a verdict follows from.

    Args:
      effects: By fault and trait, by how much the fault raises the trait in held-out text.
      case: The case that is judged; its fault and share are what the verdict is about.
      written: What the generators wrote that are judged.
      reference: What they are compared with; the same without a reference.
    """
    shares: dict[str, float] = {}
    reasons: dict[str, str] = {}
    reference = tuple(reference)
    for one in (*written, *reference):
        for name in one.traits:
            shares[name] = min(shares.get(name, 1.0), one.learned.share)
        if not one.learned.share:
            reasons[f'the generator of {one.generator.of_what}'] = one.learned.reason
    reason = '; '.join(f'{name}: {each}' for name, each in reasons.items())
    comparable = {name for one in reference if one.learned.share for name in one.traits}
    return diagnosis.Evidence(shares, effects, comparable, case.share or None, case.fault, reason)


def judge(found: CaseResult, effects: Mapping[str, Mapping[str, float]]) -> Compared:
    """A case by itself, without a reference; effects as for `evidence`."""
    name = found.case.name
    known = evidence(effects, found.case, found.whole, found.whole)
    found_alone = diagnosis.alone(found.measures, known)
    examples = _examples(found, found_alone.clear)
    return Compared(name, name, diagnosis.NO_REFERENCE, found_alone, examples=examples)


def compare_cases(
    found: CaseResult,
    clean: CaseResult,
    text: settings.Text,
    top: int,
    effects: Mapping[str, Mapping[str, float]],
) -> Compared:
    """A case with a fault, compared with the text as it is; effects as for `evidence`."""
    words: tuple[Difference, ...] = ()
    if WORD in found.written:
        tokens = found.written[WORD].tokens, clean.written[WORD].tokens
        words = words_that_differ(*tokens, text.vocabulary.words, top)
    known = evidence(effects, found.case, found.whole, clean.whole)
    verdict = diagnosis.diagnose(found.measures, clean.measures, known)
    name = found.case.name
    examples = _examples(found, verdict.clear)
    return Compared(name, name, clean.case.name, verdict, words, examples)


def compare_parts(
    case: Case,
    part: Written,
    rest: Written,
    text: settings.Text,
    top: int,
    effects: Mapping[str, Mapping[str, float]],
) -> Compared:
    """A part of the text, compared with the rest; effects as for `evidence`."""
    known = evidence(effects, case, (part,), (rest,))
    verdict = diagnosis.diagnose(part.traits, rest.traits, known)
    names = part.generator.of_what, rest.generator.of_what
    words = words_that_differ(part.tokens, rest.tokens, text.vocabulary.words, top)
    return Compared(case.name, *names, verdict, words)


def _examples(found: CaseResult, clear: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The most frequent of the unknown words that have a trait, by clear traits."""
    if CHAR not in found.written:
        return {}
    tokens = traits.not_empty(found.written[CHAR].tokens)
    examples = {}
    for name, mask in traits.words_with(tokens).items():
        if name in clear and mask.any():
            words, counts = np.unique(tokens[mask], axis=0, return_counts=True)
            most = np.argsort(-counts, kind='stable')[:_PHRASES]
            examples[name] = tuple(tokenization.decode_words(words[most]))
    return examples


def words_that_differ(
    first: np.ndarray, second: np.ndarray, vocabulary: Sequence[str], top: int
) -> tuple[Difference, ...]:
    """The words whose shares differ clearly between sentences, token ids [N, L] and [M, L]."""
    return word_differences.compare(first, second, vocabulary, alpha=diagnosis.ALPHA, top=top)


def _model(task: settings.Task, model: TrainResult) -> dict[str, Any]:
    plan, report = model.report.plan, model.report
    epsilon = report.guarantee.epsilons[0]
    return {
        'parameters': task.architecture.num_parameters(task.num_tokens),
        'rounds': plan.participation.rounds,
        'clients_per_round': plan.clients_per_round,
        'mechanism': plan.mechanism.name,
        'clip_norm': plan.clip_norm,
        'noise_multiplier': plan.noise_multiplier,
        'loss': model.last['loss'],
        'accuracy': model.last['accuracy'],
        'epsilon': None if epsilon is None else _finite(epsilon),
        'delta': report.deltas[0],
        'noise_is_seeded': report.noise_is_seeded,
    }


def _oov_rate(tokens: np.ndarray) -> float:
    """Share of words outside the vocabulary in rows of token ids."""
    outside, words = (tokens == OOV_ID).sum(), (tokens >= NUM_SPECIAL_TOKENS).sum()
    return float(outside / max(outside + words, 1))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
