"""`train`: a run in its directory, which it begins, continues, or returns if it is finished."""

import dataclasses
import functools
import html
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import _storage, accounting, mechanisms
from dpfl.accounting import gaussian
from dpfl.accounting.records import archive, journal
from dpfl.errors import ArgumentError, RunError, StorageError
from dpfl.planning import feasibility
from dpfl.simulation import extension
from dpfl.simulation.training import (
    fedavg,
    gan,
    prepared_task,
    run_data,
    run_model,
    warm_start,
)
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training.config import GanConfig, TrainConfig
from dpfl.simulation.training.plan import build_plan, check_schedule
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.federated_task import FederatedTask, TaskSource

if TYPE_CHECKING:
    from dpfl.simulation import run_directory
    from dpfl.simulation.experiment import Experiment


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """A finished run.

    Attributes:
      directory: the directory of the run.
      report: its privacy report.
      metrics: its metrics by name, each an array with an entry per round; NaN in rounds without a
        value.
      weights: trainable weights of the final model, in the order of the model.
      reference_accuracies: accuracies to compare with, by name.
      test_metrics: metrics of the final model on test clients, by name; empty without a test.

    Example:
      >>> config = TrainConfig(
      ...     task=TaskConfig(task='synthetic_glyphs', model='tiny'),
      ...     privacy=PrivacyConfig(mechanism='gaussian', noise_multiplier=2.0, delta=1e-3),
      ...     sampling=SamplingConfig(rounds=2, population=20, clients_per_round=2))
      >>> result: TrainResult = train(config, 'run', progress=False)
      >>> len(result.metrics['accuracy'])
      2
    """

    directory: pathlib.Path
    report: accounting.PrivacyReport
    metrics: Mapping[str, np.ndarray]
    weights: tuple[np.ndarray, ...]
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    test_metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def _repr_html_(self) -> str:
        """The page of the report in a frame, as which notebooks show a result."""
        from dpfl.simulation import run_directory

        page = (self.directory / run_directory.HTML_REPORT).read_text(encoding='utf-8')
        style = 'width: 100%; height: 40rem; border: 0'
        return f'<iframe srcdoc="{html.escape(page)}" style="{style}"></iframe>'

    @property
    def last(self) -> dict[str, float]:
        """The metrics of the last round, which is always evaluated; NaN if training diverged."""
        return {name: float(column[-1]) for name, column in self.metrics.items() if name != 'round'}

    def summary(self) -> dict[str, Any]:
        """The last metrics and the guarantee, by name."""
        report, measured = self.report, self.report.measured
        return {
            'output_dir': str(self.directory),
            'rounds': len(self.metrics['round']),  # Fewer than the guarantee has, after a stop.
            **self.last,
            **self.reference_accuracies,
            **{
                f'test_{name}': value
                for name, value in self.test_metrics.items()
                if not math.isnan(value)
            },
            'rho': report.guarantee.rho,
            'epsilon': report.guarantee.epsilons[0],
            'delta': report.deltas[0],
            **(
                {}
                if measured is None
                else {'epsilon_estimate': measured.to_dict()['epsilon_estimate']}
            ),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a configuration. What it consists of is made when it is first needed, and once.

    Attributes:
      config: the configuration; of a custom task, if there is a task of one's own.
      own_task: that task; None for the one that the configuration names.
      directory: the directory of the run, in use; None for a run that is only shown.
      files: texts that describe the run, by the names of their files, as in `journal.Planned`.
      progress: show a progress bar and messages on standard error.
      notice: a message to show before the first round.
    """

    config: TrainConfig | GanConfig
    own_task: FederatedTask | None = None
    directory: 'run_directory.RunDirectory | None' = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    progress: bool = True
    notice: str = ''

    @functools.cached_property
    def tell(self) -> Callable[[str], None]:
        """Shows messages to the person who started the run."""
        return teller(self.progress)

    @functools.cached_property
    def configuration(self) -> Mapping[str, Any]:
        """The settings with which alone the run can be continued, by name, as JSON values."""
        made_from = {} if self.own_task is None else self.own_task.made_from
        return {**self.config.fixed(), **made_from}

    @functools.cached_property
    def settings(self) -> Mapping[str, Any]:
        """All settings, as in `journal.Planned`."""
        return json.loads(json.dumps(self.config.to_dict()))

    @property
    def _state(self) -> journal.State:
        return journal.State() if self.directory is None else self.directory.state

    @property
    def _has_begun(self) -> bool:
        """Whether rounds were released, so that the settings are fixed."""
        return self._state.begun > 0

    @property
    def _is_longer(self) -> bool:
        """Whether the run is to have more rounds than it was planned for."""
        return self._has_begun and extension.is_wanted(
            self._state.configuration, self.configuration
        )

    @functools.cached_property
    def _before(self) -> BeforeTraining:
        """How the run makes its releases before training."""
        if self.own_task is not None:  # It has no words to find.
            return BeforeTraining()
        if self.directory is None:
            return prepared_task.of_run(self.config)
        draw = functools.partial(prepared_task.draw, self.directory, self._begin)
        return prepared_task.of_run(self.config, draw)

    def _begin(self) -> None:
        """Deletes an earlier run in the directory, if that was wanted, and begins this one."""
        assert self.directory is not None
        if not self._has_begun:
            self.directory.begin(self.settings, self.files)

    @functools.cached_property
    def source(self) -> TaskSource:
        """The task, opened as far as questions need it."""
        if isinstance(self.config, GanConfig):
            return gan.GanTask(self.config, self.own_task)
        return fedavg.opened(self.config, self.own_task, self.tell, self._before)

    def clients(self) -> int:
        """The number of clients to train on; opens the data."""
        return self.source.population(self.config.sampling.population)

    @functools.cached_property
    def _origin(self) -> warm_start.Origin:
        return warm_start.taken_over(self.config, self.directory)

    @functools.cached_property
    def _candidates(self) -> list[mechanisms.Candidate]:
        """The mechanisms that the plan's was chosen from, that one first; filled by `plan`."""
        return []

    @functools.cached_property
    def plan(self) -> accounting.PrivacyPlan:
        """The privacy plan. Nothing has taken long when it is made.

        Raises:
          ArgumentError: if a value is not allowed.
          RunError: if the plan of a run that continues is damaged.
        """
        before, config = self._before, self.config
        releases, origin = before.releases, self._origin
        if self._has_begun and not self._is_longer:
            return self._recorded()
        drawn = self._state.drawn

        def made(dimension: Callable[[], int], **how: Any) -> accounting.PrivacyPlan:
            plan = build_plan(
                self._with_strategy().privacy,
                config.sampling,
                population=self.clients,
                dimension=dimension,
                earlier=origin.plans,
                before=prepared_task.counted(releases, drawn),
                **how,
            )
            check_schedule(plan)
            return plan

        if releases and not drawn:
            # The size of the model may depend on a draw: refuse bad settings before making it.
            first = made(self.source.most_parameters)
            config.sampling.sampler(first, self.clients(), config.seed)
        plan = made(self.source.num_parameters, on_choice=self._candidates.extend)
        # Raises early if delta is out of range, or the accountant does not know the plan.
        plan.epsilon(config.privacy.delta, config.privacy.accountant_of(plan))
        return plan

    def _with_strategy(self) -> TrainConfig | GanConfig:
        """The configuration from which the plan is made.

        Where the mechanism is optimised, a run that is to have more rounds keeps its own.
        """
        if (
            not self._is_longer
            or self._state.configuration.get('mechanism') != self.configuration['mechanism']
            or not mechanism_lib.is_optimized(self.config.privacy)
        ):
            return self.config
        used = self._recorded().mechanism
        base = used.base if isinstance(used, mechanisms.Restarted) else used
        return self.config.with_values({'mechanism': base})

    def _recorded(self) -> accounting.PrivacyPlan:
        assert self.directory is not None  # As rounds were released.
        try:
            return archive.read_plan(self.directory.path).plan
        except ValueError as error:
            raise RunError(str(error)) from None

    def load(self) -> tuple[FederatedTask, int]:
        """The task as it is trained, and the number of clients to train on."""
        population = self.clients()  # Opens the data.
        if text := gaussian.delta_warning(self.config.privacy.delta, population):
            self.tell(text)
        task = prepared_task.prepared(self.config.task, self.source.load())
        origin = self._origin
        seeds = {warm_start.EARLIER_SEEDS: list(origin.seeds)} if origin.seeds else {}
        return dataclasses.replace(
            task,
            not_covered=(*task.not_covered, *origin.not_covered),
            description={**task.description, **seeds},
        ), population

    def record(self, task: FederatedTask) -> archive.PlanRecord:
        """The inputs of the report, except the log, that are known before the run begins."""
        config, plan, origin = self.config, self.plan, self._origin
        return archive.PlanRecord(
            plan,
            (config.privacy.delta,),
            config.privacy.accountant_of(plan),
            noise_is_seeded=config.noise_seed is not None or origin.noise_is_seeded,
            # All samplers draw their cohorts from a seed.
            sampling_is_seeded=plan.sampling is not None,
            # A run may state the same as the run whose model it begins with.
            also_not_covered=tuple(dict.fromkeys((*config.not_covered, *task.not_covered))),
            train_metrics_released=config.evaluation.release_train_metrics,
            stop_at_accuracy=config.course.stop_at_accuracy,
            earlier_noise_key_digests=origin.noise_key_digests,
            warm_start_is_public=config.course.warm_start_is_public or origin.warm_start_is_public,
            remarks=config.remarks(plan.participation.rounds),
            about=accounting.About(
                task=config.task.task,
                model=config.model_name,
                parameters=self.source.num_parameters(),
            ),
        )

    def noise_storage(self) -> mechanisms.NoiseStorage:
        """Where the past noise of the run is kept."""
        plan, privacy = self.plan, self.config.privacy
        kernel = plan.mechanism.with_rounds(plan.participation.rounds).kernel()
        size = self.source.num_parameters()
        return mechanisms.choose_noise_storage(kernel, size, privacy.memory_limit, plan.noise)

    def experiment(self, task: FederatedTask, population: int) -> 'Experiment':
        """What the training loop needs.

        Args:
          task: the task, with its initial model.
          population: number of clients to train on.

        Raises:
          ArgumentError: if the task lacks data that the configuration needs.
        """
        from dpfl.auditing import canaries
        from dpfl.simulation.experiment import Experiment

        config, plan, storage, design = self.config, self.plan, self.noise_storage(), None

        def sampler(seed: int) -> Any:
            return config.sampling.sampler(plan, population, seed)

        if config.audit.audit:
            size = self.source.num_parameters()
            design = canaries.design(plan, config.audit.canaries, config.seed, size, sampler)
        if isinstance(config, GanConfig):
            path = None if self.directory is None else self.directory.path
            trained = gan.trained(config, plan, task, storage, path, design)
        else:
            trained = fedavg.trained(config, plan, task, storage, design)
        return Experiment(
            record=self.record(task),
            sampler=sampler(config.seed),
            eval_every=config.evaluation.eval_every,
            noise_is_seeded=config.noise_seed is not None,
            execution=config.execution,
            configuration=self.configuration,
            progress=self.progress,
            **trained,
        )

    def execute(self) -> TrainResult:
        """Trains the rounds that are not done yet. Nothing is loaded if the run is finished.

        Raises:
          ArgumentError: if a value is not allowed, or differs from that of the run to be continued.
          RunError: if a file cannot be read or written, or the run cannot be continued. The message
            is one line.
        """
        directory = self.directory
        assert directory is not None
        is_longer, state, path = self._is_longer, directory.state, directory.path
        if self._has_begun and not is_longer:
            extension.require_configuration(state.configuration, self.configuration)
        plan = self.plan
        if is_longer:
            self.tell(
                f'{path}: {extension.check(directory.journal, self.configuration, plan, path)}'
            )
        elif state.ended is not None:
            done, planned = state.begun, plan.participation.rounds
            is_whole = done == planned
            how = f'all {done} rounds are done' if is_whole else f'stopped after {done} rounds'
            self.tell(f'{path}: is finished, {how}')
            for name in state.ended.results:
                if not (path / name).exists():
                    raise RunError(
                        f'{path / name}: is missing, and a run that has ended does not make it '
                        f'again ({archive.LEDGER} has its digest): restore it from a copy'
                    )
            if not (path / archive.SUMS).exists():  # The process ended before its last files.
                directory.write_pages()
            return _result(directory, read_report(path))
        # Importing TensorFlow takes seconds, so everything else is checked first.
        from dpfl.simulation import program

        task, population = self.load()
        experiment, candidates = self.experiment(task, population), self._candidates
        if candidates and not self._has_begun:
            from dpfl.reporting import choice_page  # Loads matplotlib.

            self._begin()
            page = choice_page.render(candidates, plan.participation)
            directory.write_text(archive.CHOICE, page)
            name = candidates[0].name
            self.tell(f'mechanism: {name}; reasons in {path / archive.CHOICE}')
        for what, draw in directory.state.drawn.items():
            if draw.result is None:
                raise RunError(
                    f'{path}: {what} were drawn and their result is not known, which counts: '
                    'continue with the settings of the draw, which repeats it, or begin in another '
                    'directory and count both'
                )
        self._begin()
        data, saved = run_data.described(directory, task), None
        if self._has_begun:
            assert state.built is not None  # As a round has begun.
            run_data.require(state.built.data, data)
            saved = program.start(directory, self.tell)
            assert saved is not None  # As a round has begun.
            run_data.require_released(directory, experiment)
            if is_longer:
                extension.commit(
                    experiment, directory, saved.state, settings=self.settings, files=self.files
                )
        about = experiment.record.about
        if about is not None and about.parameters is not None:
            self.tell(f'model {about.model}'.rstrip() + f': {about.parameters:,} parameters')
            delta, accountant = experiment.delta, experiment.accountant
            self.tell(str(feasibility.estimate(plan, about.parameters, delta, accountant)))
        self.tell(str(experiment.noise_storage))
        if self.notice:
            self.tell(self.notice)
        return _result(directory, program.run_training(experiment, directory, data, saved))


def _result(
    directory: 'run_directory.RunDirectory', report: accounting.PrivacyReport
) -> TrainResult:
    rows = directory.journal.rows
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}
    path, built, ended = directory.path, directory.state.built, directory.state.ended
    assert built is not None and ended is not None  # All rounds are done, or the run has stopped.
    return TrainResult(
        path,
        report,
        columns,
        run_model.weights(path),
        built.references or {},
        ended.test or {},
    )


def train(
    config: TrainConfig | GanConfig,
    directory: str | os.PathLike[str],
    *,
    task: FederatedTask | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    files: Mapping[str, str] | None = None,
    notice: str = '',
) -> TrainResult:
    """Trains a model, and writes the run to a directory, with its privacy report.

    A `GanConfig` trains a generator of images by DP-FedAvg-GAN ([Augenstein20], algorithm 1). The
    weights of the result are those of the generator. In the directory, `plots/` has a sheet of
    generated images for each evaluation, and `generator/` the generator as a SavedModel.

    It can be called any number of times in a process. Ctrl-C ends it with KeyboardInterrupt. With
    `resume`, an interrupted run continues, and ends with the same results, bit for bit.

    Args:
      config: the configuration of the run.
      directory: the directory of the run; created if it does not exist.
      task: your own task, for example from `dpfl.tasks.own_data.from_arrays`; by default the task
        that the configuration names. A GAN needs no model in it: all batches of a client are
        read, and in every round images are drawn from them.
      resume: continue the run in the directory, which must have had the same configuration. If
        there is none, begin one; if it is finished, return its result. With more rounds, the run
        goes on beyond those it was planned for, and the guarantee becomes that of all rounds.
      overwrite: replace an earlier run in the directory.
      progress: show a progress bar and messages on standard error.
      files: further texts to write to the directory when the run begins, by the names of their
        files, `*.txt`.
      notice: a message to show before the first round.

    Raises:
      ArgumentError: if a value is not allowed. Raised before anything that takes long.
      RunError: if a file or Ray fails. Saved rounds stay intact.
      DataError: if the data can no longer be read.

    Example:
      >>> config = TrainConfig(
      ...     task=TaskConfig(task='synthetic_glyphs', model='tiny'),
      ...     privacy=PrivacyConfig(mechanism='gaussian', noise_multiplier=2.0, delta=1e-3),
      ...     sampling=SamplingConfig(rounds=2, population=20, clients_per_round=2))
      >>> result = train(config, 'run', progress=False)
      >>> round(result.report.guarantee.rho, 3)
      0.25
    """
    if resume and overwrite:
        raise ArgumentError('resume', True, 'cannot be combined with overwrite')
    if task is not None:
        config = config.of_own_task()
    from dpfl.simulation.run_directory import RunDirectory

    used = RunDirectory(directory, overwrite=overwrite, resume=resume)
    with used.in_use():
        run = Run(
            config=config,
            own_task=task,
            directory=used,
            files=files or {},
            progress=progress,
            notice=notice,
        )
        return run.execute()


def teller(progress: bool) -> Callable[[str], None]:
    """A function that prints messages to standard error, or drops them if `progress` is False."""

    def tell(text: str) -> None:
        if progress:
            print(text, file=sys.stderr)

    return tell


def read_report(directory: pathlib.Path) -> accounting.PrivacyReport:
    """The privacy report of a finished run, computed from what its directory has recorded.

    Raises:
      StorageError: if it cannot be read.
    """
    with _storage.naming(directory / archive.PLAN):
        try:
            return archive.Records.read(directory).report()
        except ValueError as error:
            raise StorageError(str(error)) from None
