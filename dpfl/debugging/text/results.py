"""Results of the study: output of the generators, and its differences, as JSON values."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import _json
from dpfl.accounting.reports import two_reports
from dpfl.debugging.diagnosis import Generated, Measures
from dpfl.debugging.differences import Difference, Share
from dpfl.debugging.text import diagnosis, traits
from dpfl.debugging.text.clients import Task
from dpfl.debugging.text.config import CHAR, WORD, Case, Generator
from dpfl.simulation.training import TrainResult
from dpfl.tasks.text.models import generation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written(Generated):
    """The output of a generator.

    Attributes:
      case: The case of the text that it learned from.
      generator: The generator.
      task: Its training data.
      trained: The trained model.
      tokens: Token ids of sentences, or byte ids of words, [samples, L].
      positions: Share of unknown words at each position; empty for words.
      phrases: Some of the sentences; empty for words.
      heldout_oov_rate: Share of unknown words in the text of held-out clients; not private. None
        for words.
      ranking: The most probable words; None for sentences.
    """

    case: Case
    generator: Generator
    task: Task
    trained: TrainResult
    tokens: np.ndarray
    positions: tuple[Share, ...] = ()
    phrases: tuple[str, ...] = ()
    heldout_oov_rate: float | None = None
    ranking: generation.Ranking | None = None

    @property
    def title(self) -> str:
        """Its name and that of its case."""
        return f'{self.generator.name} ({self.case.name})'

    @property
    def model(self) -> dict[str, Any]:
        """Metrics and guarantee of its run, as JSON values."""
        report = self.trained.report
        plan, epsilon = report.plan, report.guarantee.epsilons[0]
        return {
            'parameters': self.task.architecture.num_parameters(self.task.num_tokens),
            'rounds': plan.participation.rounds,
            'clients_per_round': plan.clients_per_round,
            'mechanism': plan.mechanism.name,
            'clip_norm': plan.clip_norm,
            'noise_multiplier': plan.noise_multiplier,
            'loss': self.trained.last['loss'],
            'accuracy': self.trained.last['accuracy'],
            'epsilon': _json.finite(epsilon),
            'delta': report.deltas[0],
            'noise_is_seeded': report.noise_is_seeded,
            'sampling_is_seeded': report.sampling_is_seeded and report.uses_sampling,
        }

    def to_dict(self) -> dict[str, Any]:
        """The results, without the tokens."""
        return {
            **super().to_dict(),
            'of_what': self.of_what,
            'oov_rate_by_position': [share.value for share in self.positions],
            'phrases': self.phrases,
            'ranking': self.ranking,
            'heldout_oov_rate': self.heldout_oov_rate,
            'model': self.model,
        }


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """The output of the generators of a case.

    Attributes:
      case: The text that they learned from.
      written: The outputs by name of the generator.
    """

    case: Case
    written: Mapping[str, Written]

    @functools.cached_property
    def together(self) -> float | None:
        """Epsilon of all generators of the case together; None if infinite."""
        return epsilon_together([self])

    @property
    def whole(self) -> dict[str, Written]:
        """The outputs of the generators of the whole text, by kind."""
        return {kind: self.written[kind] for kind in (WORD, CHAR) if kind in self.written}

    def to_dict(self) -> dict[str, Any]:
        """The case, its outputs, and their guarantee together."""
        return {
            'name': self.case.name,
            'inject': self.case.fault,
            'inject_share': self.case.share,
            'generators': self.written,
            'together': self.together,
        }


@dataclasses.dataclass(frozen=True)
class Compared:
    """A comparison of generators, with its verdict.

    Attributes:
      case: Name of the case.
      first, reference: The two sides, in words.
      diagnosis: The verdict, and the differences of traits.
      words: Words that sentences of the one have clearly more often.
    """

    case: str
    first: str
    reference: str
    diagnosis: diagnosis.Diagnosis
    words: tuple[Difference, ...] = ()

    @property
    def title(self) -> str:
        """The two sides, and the case."""
        case = f' ({self.case})' if self.case != self.first else ''
        if self.reference == diagnosis.NO_REFERENCE:
            return f'{self.first}, by itself'
        return f'{self.first}, against {self.reference}{case}'

    def to_dict(self) -> dict[str, Any]:
        """The comparison, with the fields of its verdict."""
        return {
            'case': self.case,
            'first': self.first,
            'reference': self.reference,
            **vars(self.diagnosis),
            'words': self.words,
        }


def epsilon_together(cases: Iterable[CaseResult]) -> float | None:
    """Epsilon of all generators of cases together, which learn from the same clients.

    None if it is infinite.
    """
    reports = [output.trained.report for case in cases for output in case.written.values()]
    return two_reports.guarantee(reports).finite_epsilon


def traits_of(kind: str, tokens: np.ndarray, words: Sequence[str]) -> Measures:
    """Traits of the token ids [N, L] that a generator of a kind wrote, by name."""
    return traits.of_sentences(tokens, words) if kind == WORD else traits.of_words(tokens)
