"""Runs the study: trains the generators of each case, and compares what they write."""

import dataclasses
import functools
import hashlib
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import accounting
from dpfl.accounting.reports import joint
from dpfl.debugging.text import faults, results, settings, training
from dpfl.debugging.text.clients import OpenedText
from dpfl.debugging.text.config import CHAR, WORD, Case, Generator, StudyConfig
from dpfl.simulation.training import TrainConfig, TrainResult, prepared_task

if TYPE_CHECKING:
    from dpfl.debugging.text import against_model
    from dpfl.tasks.text.models import saved_models


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


@dataclasses.dataclass(frozen=True)
class CaseRun:
    """The generators of a case.

    Attributes:
      result: What they have written.
      tasks: What each was trained on, by its name.
      trained: How each was trained, by its name.
    """

    result: results.CaseResult
    tasks: Mapping[str, settings.Task]
    trained: Mapping[str, TrainResult]


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
        ratios: list[against_model.Ratios] = []
        learned: list[against_model.Learned] = []
        for case in self.config.cases:
            found = self.run_case(case, directory, resume=resume, overwrite=overwrite)
            cases.append(found.result)
            reports += [trained.report for trained in found.trained.values()]
            if self._primary is not None and WORD in found.trained:
                own = self._against(self._primary, found)
                ratios += own[0]
                learned += own[1]
        compared = (*self._compared(cases, self._text), *(each.compared for each in ratios))
        together = joint.guarantee(reports).finite_epsilon
        return Found(tuple(cases), compared, tuple(ratios), tuple(learned), together)

    def _against(
        self, primary: 'saved_models.LanguageModel', found: CaseRun
    ) -> tuple[list['against_model.Ratios'], list['against_model.Learned']]:
        """What tasks T6 and T5 find in a case, as far as they are inspected."""
        from dpfl.debugging.text import against_model

        ratios, learned = [], []
        name, written = found.result.case.name, found.result.written[WORD]
        task, trained = found.tasks[WORD], found.trained[WORD]
        top, seed = self.config.top, self.base.seed
        if 'T6' in self.config.inspect:
            known = results.evidence(self.effects, found.result.case, (written,), (written,))
            ratios.append(
                against_model.ratios(
                    name, written, task, trained, primary, known, top=top, seed=seed
                )
            )
        if 'T5' in self.config.inspect:
            learned.append(against_model.learned(name, written, task, primary, seed))
        return ratios, learned

    def run_case(
        self, case: Case, directory: pathlib.Path, *, resume: bool, overwrite: bool
    ) -> CaseRun:
        """Trains the generators of one case, and lets them write.

        Args:
          case: The text that they learn from.
          directory: As for `run`, with `resume` and `overwrite`.

        Raises:
          ArgumentError: If a value is not allowed.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        written, tasks, trained = {}, {}, {}
        for generator in self.config.generators:
            name = generator.name
            tasks[name] = self._task(generator.kind, case, self._text)
            trained[name] = self._train(
                generator,
                case,
                self._text,
                tasks[name],
                self._primary,
                directory / case.folder / name,
                resume=resume,
                overwrite=overwrite,
            )
            written[name] = results.write(
                generator,
                self._text,
                tasks[name],
                trained[name],
                samples=self.config.samples,
                top=self.config.top,
                seed=self.base.seed,
            )
        together = joint.guarantee([each.report for each in trained.values()])
        result = results.CaseResult(case, written, together.finite_epsilon)
        return CaseRun(result, tasks, trained)

    @functools.cached_property
    def effects(self) -> Mapping[str, Mapping[str, float]]:
        """By fault and trait: by how much the fault raises the trait if all held-out text has it.

        Traits that held-out text does not have are left out.
        """
        kinds = dict.fromkeys(each.kind for each in self.config.generators)
        words = self._text.vocabulary.words

        def values(case: Case) -> dict[str, float]:
            return {
                name: measure.value
                for kind in kinds
                for name, measure in results.traits_of(
                    kind, self._task(kind, case, self._text).heldout[:, 1:], words
                ).items()
            }

        clean = values(Case())
        return {
            fault: {
                name: value - clean[name]
                for name, value in values(Case(fault, 1.0)).items()
                if np.isfinite(value - clean[name])
            }
            for fault in faults.NAMES
        }

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
            if CHAR in found.written:
                yield results.judge(found, self.effects)
        for found in cases[1:]:
            if found.measures:
                yield results.compare_cases(found, cases[0], text, top, self.effects)
        for found in cases:
            for part, rest in self.config.pairs:
                written = found.written[part.name], found.written[rest.name]
                yield results.compare_parts(found.case, *written, text, top, self.effects)

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
        from dpfl.tasks.text.models import saved_models

        made_from = {**self.opened.config.flat(), **self.config.made_from(generator, case)}
        scores = None
        if generator.selection.is_given:
            assert primary is not None  # The settings refuse this otherwise.
            scores = saved_models.of_model(primary)
            made_from['primary_model'] = _digest(primary)
        config = self.config.train_config(self.base, generator.kind)
        # Two generators with the same noise, or the same sampled cohorts, have no joint guarantee.
        own = zlib.crc32(f'{case.folder}/{generator.name}'.encode())
        if config.noise_seed is not None:
            config = dataclasses.replace(config, noise_seed=config.noise_seed + own)
        if config.sampling.is_amplified:
            config = dataclasses.replace(config, seed=config.seed + own)
        return training.train_model(
            config,
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
