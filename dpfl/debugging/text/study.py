"""Runs the study: trains the generators of each case, and compares their output."""

import dataclasses
import functools
import hashlib
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl.debugging import page
from dpfl.debugging.diagnosis import Contrast, Effects
from dpfl.debugging.differences import Difference
from dpfl.debugging.text import against_model, clients, diagnosis, faults, results, traits
from dpfl.debugging.text.config import CHAR, WORD, Case, Generator, StudyConfig
from dpfl.simulation.training import TrainConfig, TrainResult, prepared_task, train
from dpfl.tasks import federated_task, selection
from dpfl.tasks.config import NOT_COVERED_OF_DUPLICATES, REAL_TASKS
from dpfl.tasks.text import tokenization, word_clients
from dpfl.tasks.text.models import architectures, generation, saved_models
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID, PAD_ID

# Sentences of a generator that the page shows.
_PHRASES = 10


@dataclasses.dataclass(frozen=True)
class Found:
    """Result of the study.

    Attributes:
      cases: The output of the generators of each case, the text as it is first.
      compared: The comparisons.
      ratios: Likelihood ratios against the primary model (T6), for each case; empty if not
        inspected.
      learned: Change of the primary model by private sentences (T5), for each case; empty if not
        inspected.
      together: Epsilon of all generators of all cases together; None if infinite.
    """

    cases: Sequence[results.CaseResult]
    compared: Sequence[results.Compared]
    ratios: Sequence[against_model.Ratios]
    learned: Sequence[against_model.Learned]
    together: float | None

    @property
    def written(self) -> list[results.Written]:
        """The output of all generators of all cases."""
        return [output for case in self.cases for output in case.written.values()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
      config: The inspections and comparisons.
      base: How the models are trained, except for their clip norms.
      opened: The text.
      directory: Directory of the study. Each model is a run in a folder of it.
      resume: Keep models that are finished, and continue one that was interrupted.
      overwrite: Replace an earlier study in the directory.
    """

    config: StudyConfig
    base: TrainConfig
    opened: clients.OpenedText
    directory: pathlib.Path
    resume: bool = False
    overwrite: bool = False

    def run(self) -> Found:
        """Trains the generators one after the other, and compares them.

        Raises:
          ArgumentError: If a value is not allowed.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        is_new = not (self.resume or self.overwrite)
        page.check_directory(self.directory, (page.NUMBERS,) if is_new else ())
        primary = self._primary  # A model that cannot be read is refused before the long part.
        cases = tuple(map(self.run_case, self.config.cases))
        ratios, learned, compared = [], [], [*self._compared(cases)]
        for case in cases:
            if primary is not None and 'T6' in self.config.inspect:
                of_case, against = against_model.ratios(
                    case,
                    primary,
                    self._question(case.case),
                    top=self.config.top,
                    seed=self.base.seed,
                )
                ratios.append(of_case)
                compared.append(against)
            if primary is not None and 'T5' in self.config.inspect:
                learned.append(against_model.learned(case, primary, self.base.seed))
        return Found(cases, compared, ratios, learned, results.epsilon_together(cases))

    def run_case(self, case: Case) -> results.CaseResult:
        """Trains the generators of one case, and lets them write.

        Args:
          case: The text that they learn from.

        Raises:
          ArgumentError: If a value is not allowed.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        written = {}
        for generator in self.config.generators:
            task = self._task(generator.kind, case)
            trained = self._train(generator, case, task)
            written[generator.name] = self._write(generator, case, task, trained)
        return results.CaseResult(case, written)

    @functools.cached_property
    def effects(self) -> Effects:
        """By fault and trait: by how much the fault raises the trait if all held-out text has it.

        Traits that held-out text does not have are left out.
        """
        kinds = dict.fromkeys(generator.kind for generator in self.config.generators)
        words = self.opened.text.vocabulary.words

        def values(case: Case) -> dict[str, float]:
            return {
                name: measure.value
                for kind in kinds
                for name, measure in results.traits_of(
                    kind, self._task(kind, case).heldout[:, 1:], words
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

    def judge(self, case: results.CaseResult) -> results.Compared:
        """The words that a case's character model writes, without a reference."""
        name, words = case.case.name, case.written[CHAR]
        alone = diagnosis.alone(Contrast(words, words), self._question(case.case))
        return results.Compared(name, name, diagnosis.NO_REFERENCE, alone)

    def compare(
        self,
        case: Case,
        first: Mapping[str, results.Written],
        reference: Mapping[str, results.Written],
        names: tuple[str, str],
    ) -> results.Compared:
        """The output of some generators, compared with that of others.

        Args:
          case: The case that is judged: the verdict is about its fault and share.
          first, reference: The outputs, by kind.
          names: `first` and `reference` in words.
        """
        contrasts = {kind: Contrast(output, reference[kind]) for kind, output in first.items()}
        verdict = diagnosis.diagnose(contrasts, self._question(case))
        words: tuple[Difference, ...] = ()
        if WORD in first:
            words = diagnosis.words_that_differ(
                first[WORD].tokens,
                reference[WORD].tokens,
                self.opened.text.vocabulary.words,
                self.config.top,
            )
        return results.Compared(case.name, *names, verdict, words)

    def _question(self, case: Case) -> diagnosis.Question:
        return diagnosis.Question(self.effects, case.share or None, case.fault)

    @functools.cached_property
    def _primary(self) -> saved_models.LanguageModel | None:
        if self.config.primary_model is None:
            return None
        return prepared_task.saved_model(
            'primary_model', self.config.primary_model, self.opened.text.vocabulary.words
        )

    def _compared(self, cases: tuple[results.CaseResult, ...]) -> Iterator[results.Compared]:
        clean = cases[0]
        for case in cases:
            if CHAR in case.written:
                yield self.judge(case)
        for case in cases[1:]:
            if case.whole:
                names = case.case.name, clean.case.name
                yield self.compare(case.case, case.whole, clean.whole, names)
        for case in cases:
            for pair in self.config.pairs:
                part, rest = (case.written[generator.name] for generator in pair)
                names = part.of_what, rest.of_what
                yield self.compare(case.case, {WORD: part}, {WORD: rest}, names)

    def _task(self, kind: str, case: Case) -> clients.Task:
        length = self.opened.config.text.sentence_length
        eval_clients, seed = self.base.evaluation.eval_clients, self.base.seed
        return clients.task(kind, self.opened.text, case, self.config, length, eval_clients, seed)

    def _train(self, generator: Generator, case: Case, task: clients.Task) -> TrainResult:
        """Trains a generator, or returns the one that an earlier study left."""
        made_from = {**self.opened.config.flat(), **self.config.made_from(generator, case)}
        scores = None
        if generator.selection.is_given:
            assert self._primary is not None  # The settings refuse this otherwise.
            scores = generation.scorer(self._primary.architecture, self._primary.weights)
            made_from['primary_model'] = _digest(self._primary)
        config = self.config.train_config(self.base, generator.kind)
        # Two generators with the same noise, or the same sampled cohorts, have no joint guarantee.
        own = zlib.crc32(f'{case.folder}/{generator.name}'.encode())
        if config.noise_seed is not None:
            config = dataclasses.replace(config, noise_seed=config.noise_seed + own)
        if config.sampling.is_amplified:
            config = dataclasses.replace(config, seed=config.seed + own)

        def examples(client: int, limit: int | None) -> federated_task.Examples:
            return word_clients.examples(task.rows(client))

        heldout = word_clients.examples(task.heldout)
        text = self.opened.text
        is_real = self.opened.config.task in REAL_TASKS
        is_duplicated = is_real and case.fault == 'duplicated_client'
        federated = federated_task.FederatedTask(
            model=architectures.build(task.architecture, task.num_tokens, task.length, config.seed),
            population=self.opened.population(self.base.sampling.population),
            client_batches=functools.partial(federated_task.client_batches, examples),
            heldout=lambda clients, batch_size: federated_task.dataset(heldout, batch_size),
            not_covered=(
                *text.not_covered,
                *([NOT_COVERED_OF_DUPLICATES] if is_duplicated else []),
            ),
            # Without the counts of clients and of records.
            description={k: v for k, v in text.data.description.items() if k == 'vocabulary'},
            made_from=made_from,
            language_model=(task.model, task.words),
        )
        federated = selection.select(generator.selection, federated, scores)
        directory = self.directory / case.folder / generator.name
        return train(
            config, directory, task=federated, resume=self.resume, overwrite=self.overwrite
        )

    def _write(
        self, generator: Generator, case: Case, task: clients.Task, trained: TrainResult
    ) -> results.Written:
        """Lets a trained generator write, and measures its text."""
        model = task.architecture, trained.weights
        draws: dict[str, Any] = dict(length=task.length, seed=self.base.seed)
        count, vocabulary = self.config.samples, self.opened.text.vocabulary
        heldout = task.heldout[:, 1:]
        tokens = generation.sample(*model, task.special, count=count, **draws).tokens
        shown: dict[str, Any]
        if generator.kind == WORD:
            outside, inside = (heldout == OOV_ID).sum(), (heldout >= NUM_SPECIAL_TOKENS).sum()
            phrases = tokenization.decode_sentences(tokens[:_PHRASES], vocabulary.words)
            shown = dict(
                positions=traits.unknown_by_position(tokens),
                phrases=tuple(phrases),
                heldout_oov_rate=float(outside / max(outside + inside, 1)),
            )
        else:
            ranking = generation.rank_words(
                *model, samples=count, top=self.config.top, known=vocabulary.ids, **draws
            )
            shown = dict(ranking=ranking)
        return results.Written(
            of_what=generator.of_what,
            traits=results.traits_of(generator.kind, tokens, vocabulary.words),
            learned=diagnosis.measure_learned(
                tokens,
                heldout,
                generation.log_probabilities(*model, task.special, heldout),
                num_tokens=task.num_tokens,
                never=(PAD_ID, task.special.begin),
            ),
            case=case,
            generator=generator,
            task=task,
            trained=trained,
            tokens=tokens,
            **shown,
        )


def _digest(model: saved_models.LanguageModel) -> str:
    """SHA-256 of the weights of a model: a run goes on with the same selection only."""
    digest = hashlib.sha256(model.name.encode())
    for weight in model.weights:
        digest.update(weight.tobytes())
    return digest.hexdigest()
