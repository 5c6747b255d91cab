"""Runs the study: trains the generators of each case, and compares what they write."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpfl.simulation.training import TrainConfig, TrainResult, prepared_task
from experiments.debugging.text import results, settings, training
from experiments.debugging.text.clients import OpenedText
from experiments.debugging.text.config import CHAR, WORD, Case, Generator, StudyConfig

if TYPE_CHECKING:
    from dpfl.tasks.text.models import saved_models
    from experiments.debugging.text import against_model


@dataclasses.dataclass(frozen=True)
class Found:
    """What the study found.

    Attributes:
      cases: What the generators of each case have written, the text as it is first.
      compared: What was compared.
      ratios: What the primary model finds improbable (T6), for each case; empty if not inspected.
      learned: What it learns from private sentences (T5), for each case; empty if not inspected.
      together: Epsilon of all generators of all cases together; None if infinite.
    """

    cases: tuple[results.CaseResult, ...]
    compared: tuple[results.Compared, ...]
    ratios: tuple['against_model.Ratios', ...]
    learned: tuple['against_model.Learned', ...]
    together: float | None

    def to_dict(self) -> dict[str, Any]:
        """The study as JSON values."""
        return {
            'cases': [case.to_dict() for case in self.cases],
            'compared': [each.to_dict() for each in self.compared],
            'ratios': [each.to_dict() for each in self.ratios],
            'learned': [each.to_dict() for each in self.learned],
            'together': self.together,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
      config: What is inspected and compared.
      base: How the models are trained, except for their clip norms.
      opened: The text.
    """

    config: StudyConfig
    base: TrainConfig
    opened: OpenedText

    def run(self, directory: pathlib.Path, *, resume: bool, overwrite: bool) -> Found:
        """Trains the generators one after the other, and compares them.

        Args:
          directory: Directory of the study. Each model is a run in a folder of it.
          resume: Keep models that are finished, and continue one that was interrupted.
          overwrite: Replace an earlier study in the directory.

        Raises:
          ArgumentError: If a value is not allowed.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        text, primary = self.opened.text(), None
        if self.config.primary_model is not None:
            primary = prepared_task.saved_model(
                'primary_model', self.config.primary_model, text.vocabulary.words
            )
        cases: list[results.CaseResult] = []
        reports = []
        ratios, learned = [], []
        for case in self.config.cases:
            written, of_case = {}, []
            for generator in self.config.generators:
                task = self._task(generator.kind, case, text)
                trained = self._train(
                    generator,
                    case,
                    text,
                    task,
                    primary,
                    directory / case.folder / generator.name,
                    resume=resume,
                    overwrite=overwrite,
                )
                of_case.append(trained.report)
                written[generator.name] = results.write(
                    generator,
                    text,
                    task,
                    trained,
                    samples=self.config.samples,
                    top=self.config.top,
                    seed=self.base.seed,
                )
                if generator.name == WORD and primary is not None:
                    own = self._against(primary, case, written[WORD], task, trained)
                    ratios += own[0]
                    learned += own[1]
            cases.append(results.CaseResult(case, written, results.together(of_case)))
            reports += of_case
        compared = (*self._compared(cases, text), *(each.compared for each in ratios))
        everything = results.together(reports)
        return Found(tuple(cases), compared, tuple(ratios), tuple(learned), everything)

    def _against(
        self,
        primary: 'saved_models.LanguageModel',
        case: Case,
        written: results.Written,
        task: settings.Task,
        trained: TrainResult,
    ) -> tuple[list['against_model.Ratios'], list['against_model.Learned']]:
        """What tasks T6 and T5 find in a case, as far as they are inspected."""
        from experiments.debugging.text import against_model

        ratios, learned = [], []
        top, seed = self.config.top, self.base.seed
        if 'T6' in self.config.inspect:
            ratios.append(
                against_model.ratios(case.name, written, task, trained, primary, top=top, seed=seed)
            )
        if 'T5' in self.config.inspect:
            learned.append(against_model.learned(case.name, written, task, primary, seed))
        return ratios, learned

    def _compared(
        self, cases: list[results.CaseResult], text: settings.Text
    ) -> Iterator[results.Compared]:
        top = self.config.top
        for found in cases:
            if CHAR in found.written:
                yield results.judge(found)
        for found in cases[1:]:
            if found.measures:
                yield results.compare_cases(found, cases[0], text, top)
        for found in cases:
            for part, rest in self.config.pairs:
                written = found.written[part.name], found.written[rest.name]
                yield results.compare_parts(found.case, *written, text, top)

    def _task(self, kind: str, case: Case, text: settings.Text) -> settings.Task:
        return settings.task(
            kind,
            text,
            case,
            model=self.config.model(kind),
            sentence_length=self.opened.config.text.sentence_length,
            word_length=self.config.word_length,
            eval_clients=self.base.evaluation.eval_clients,
            seed=self.base.seed,
        )

    def _train(
        self,
        generator: Generator,
        case: Case,
        text: settings.Text,
        task: settings.Task,
        primary: 'saved_models.LanguageModel | None',
        directory: pathlib.Path,
        *,
        resume: bool,
        overwrite: bool,
    ) -> TrainResult:
        from dpfl.tasks.text.models import row_scores

        made_from = {**self.opened.config.flat(), **self.config.made_from(generator, case)}
        scores = None
        if generator.selection.is_given:
            assert primary is not None  # The settings refuse this otherwise.
            scores = row_scores.of_model(primary)
            made_from['primary_model'] = _digest(primary)
        return training.train_model(
            self.config.train_config(self.base, generator.kind),
            task,
            directory,
            population=self.opened.population(self.base.sampling.population),
            not_covered=text.not_covered,
            made_from=made_from,
            selection=generator.selection,
            scores=scores,
            resume=resume,
            overwrite=overwrite,
        )


def _digest(model: 'saved_models.LanguageModel') -> str:
    """SHA-256 of the weights of a model: a run goes on with the same selection only."""
    digest = hashlib.sha256(model.name.encode())
    for weight in model.weights:
        digest.update(weight.tobytes())
    return digest.hexdigest()
