"""Runs the study: trains the generators of each case, and compares what they write."""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpfl import accounting
from dpfl.simulation.training import TrainConfig, TrainResult, prepared_task
from experiments.debugging.text import results, settings, training
from experiments.debugging.text.clients import OpenedText
from experiments.debugging.text.config import Case, Generator, StudyConfig

if TYPE_CHECKING:
    from dpfl.tasks.text.models import saved_models


@dataclasses.dataclass(frozen=True)
class Found:
    """What the study found.

    Attributes:
      cases: What the generators of each case have written, the text as it is first.
      compared: What was compared.
      together: Epsilon of all generators of all cases together; None if infinite.
    """

    cases: tuple[results.CaseResult, ...]
    compared: tuple[results.Compared, ...]
    together: float | None

    def to_dict(self) -> dict[str, Any]:
        """The study as JSON values."""
        return {
            'cases': [case.to_dict() for case in self.cases],
            'compared': [each.to_dict() for each in self.compared],
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
        cases: list[results.CaseResult] = []
        reports: list[accounting.PrivacyReport] = []
        for case in self.config.cases:
            found, of_case = self.run_case(case, directory, resume=resume, overwrite=overwrite)
            cases.append(found)
            reports += of_case
        compared = tuple(self._compared(cases, self._text))
        return Found(tuple(cases), compared, results.together(reports))

    def run_case(
        self, case: Case, directory: pathlib.Path, *, resume: bool, overwrite: bool
    ) -> tuple[results.CaseResult, list[accounting.PrivacyReport]]:
        """Trains the generators of one case; returns what they write, and their reports.

        Args:
          case: The text that they learn from.
          directory: As for `run`, with `resume` and `overwrite`.

        Raises:
          ArgumentError: If a value is not allowed.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        written, reports = {}, []
        for generator in self.config.generators:
            task = self._task(generator.kind, case, self._text)
            trained = self._train(
                generator,
                case,
                self._text,
                task,
                self._primary,
                directory / case.folder / generator.name,
                resume=resume,
                overwrite=overwrite,
            )
            reports.append(trained.report)
            written[generator.name] = results.write(
                generator,
                self._text,
                task,
                trained,
                samples=self.config.samples,
                top=self.config.top,
                seed=self.base.seed,
            )
        return results.CaseResult(case, written, results.together(reports)), reports

    @functools.cached_property
    def _text(self) -> settings.Text:
        return self.opened.text()

    @functools.cached_property
    def _primary(self) -> 'saved_models.LanguageModel | None':
        if self.config.primary_model is None:
            return None
        return prepared_task.saved_model(
            'primary_model', self.config.primary_model, self._text.vocabulary.words
        )

    def _compared(
        self, cases: list[results.CaseResult], text: settings.Text
    ) -> Iterator[results.Compared]:
        top = self.config.top
        for found in cases:
            if found.measures:
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
