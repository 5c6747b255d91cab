"""Runs in their directories: beginning one, continuing one, or returning a finished one."""

import dataclasses
import hashlib
import hmac
import html
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from dpfl import _random, _storage, accounting, mechanisms
from dpfl.accounting.records import archive, journal
from dpfl.errors import ArgumentError, RunError, StorageError
from dpfl.planning import feasibility
from dpfl.simulation import earlier_settings, extension
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training import run_data, run_model
from dpfl.simulation.training.config import GanConfig, TrainConfig

if TYPE_CHECKING:
    from dpfl.simulation import run_directory
    from dpfl.simulation.training.prepared_run import PreparedRun

_Config = TypeVar('_Config', TrainConfig, GanConfig)


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
    """A run that is about to be executed. Its directory is in use.

    Attributes:
      directory: the directory of the run.
      configuration: the settings that it is made from, by name, as JSON values. A run can only be
        continued with the same ones, or with more rounds.
      settings: all settings, as in `journal.Planned`.
      files: texts that describe the run, by the names of their files, as in `journal.Planned`.
      tell: called with messages for the person who started the run.
      notice: one of these messages, for before the first round.
    """

    directory: 'run_directory.RunDirectory'
    configuration: Mapping[str, Any]
    settings: Mapping[str, Any] | None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tell: Callable[[str], None] = lambda text: None
    notice: str = ''

    @property
    def _has_begun(self) -> bool:
        """Whether rounds were released, so that the settings are fixed."""
        return self.directory.state.begun > 0

    @property
    def is_longer(self) -> bool:
        """Whether the run is to have more rounds than it was planned for."""
        before = self.directory.state.configuration
        return self._has_begun and extension.is_wanted(before, self.configuration)

    def require_settings(self) -> None:
        """Checks that a run that continues has the settings with which it began.

        Raises:
          ArgumentError: if another setting differs; it names the setting.
        """
        if self._has_begun and not self.is_longer:
            before = self.directory.state.configuration
            extension.require_configuration(before, self.configuration)

    def with_strategy(self, config: _Config) -> _Config:
        """The configuration from which the plan is made.

        Where the mechanism is optimised, a run that is to have more rounds keeps its own.

        Raises:
          RunError: if the plan of the run is damaged.
        """
        before = self.directory.state.configuration
        if (
            not self.is_longer
            or before.get('mechanism') != self.configuration['mechanism']
            or not mechanism_lib.is_optimized(config.privacy)
        ):
            return config
        used = self._recorded().mechanism
        base = used.base if isinstance(used, mechanisms.Restarted) else used
        return config.with_values({'mechanism': base})

    def known_plan(self) -> accounting.PrivacyPlan | None:
        """The plan of a run that continues with it; None for one that makes its plan.

        Raises:
          RunError: if it is damaged.
        """
        return self._recorded() if self._has_begun and not self.is_longer else None

    def _recorded(self) -> accounting.PrivacyPlan:
        try:
            return archive.read_plan(self.directory.path).plan
        except ValueError as error:
            raise RunError(str(error)) from None

    def draw(
        self,
        what: str,
        intent: Mapping[str, Any],
        data: Iterable[np.ndarray],
        find: Callable[[np.random.Generator], Any],
        noise_seed: int | None,
    ) -> Any:
        """The result of a release before training, from the journal or a new draw.

        The draw is in the journal before it is made, and its result before anybody sees it. Its
        noise is a function of the root of the run's keys and of all its inputs: a repeated draw
        gives the same result, and a draw from other data has other noise.

        Args:
          what: name of the draw.
          intent: as in `journal.Drew`, without `data`.
          data: arrays from which the draw is made.
          find: makes the draw from a source of noise; the result is a JSON value.
          noise_seed: makes the noise repeatable, and the run a simulation.

        Raises:
          ArgumentError: if it was drawn under other settings.
          RunError: if it was drawn from other data.
        """
        directory = self.directory
        if not self._has_begun:
            directory.begin(self.settings, self.files)
        total = hmac.new(directory.data_key(), what.encode() + b'\n', hashlib.sha256)
        total.update(journal.digest(data).encode())
        whole = json.loads(
            json.dumps({**intent, 'noise_seed': noise_seed, 'data': total.hexdigest()})
        )
        event = journal.Drew(what=what, intent=whole)
        known = directory.state.drawn.get(what)
        if (
            known is not None
            and known.intent != whole
            # Without its result, another intent would have another noise.
            and (known.result is None or earlier_settings.left_out(known.intent) != whole)
        ):
            _refuse_draw(directory.path, known, event)
        if known is not None and known.result is not None:
            return known.result
        if known is None:
            directory.journal.append(event)
        if noise_seed is not None:
            noise = _random.generator(f'noise.{what}', noise_seed)
        else:
            key = directory.key(f'draw {what}\n{json.dumps(whole, sort_keys=True)}')
            noise = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], 'little')))
        result = json.loads(json.dumps(find(noise)))
        directory.journal.append(dataclasses.replace(event, result=result))
        directory.write_tables()
        return result

    def execute(self, prepared: 'PreparedRun', progress: bool) -> TrainResult:
        """Trains the rounds that are not done yet.

        Args:
          prepared: the run with its plan; nothing is loaded if it is finished.
          progress: show a progress bar on standard error.

        Raises:
          ArgumentError: if a value is not allowed, or differs from that of the run to be continued.
          RunError: if a file cannot be read or written, or the run cannot be continued. The message
            is one line.
        """
        directory, path, plan = self.directory, self.directory.path, prepared.plan
        is_longer, state = self.is_longer, directory.state
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
            return _result(directory, read_report(path), directory.journal.rows)
        # Importing TensorFlow takes seconds, so everything else is checked first.
        from dpfl.simulation import program

        task, population = prepared.load()
        experiment = dataclasses.replace(
            prepared.experiment(task, population),
            configuration=self.configuration,
            progress=progress,
        )
        if prepared.candidates and not self._has_begun:
            from dpfl.reporting import choice_page  # Loads matplotlib.

            directory.begin(self.settings, self.files)
            page = choice_page.render(prepared.candidates, plan.participation)
            directory.write_text(archive.CHOICE, page)
            name = prepared.candidates[0].name
            self.tell(f'mechanism: {name}; reasons in {path / archive.CHOICE}')
        for what, draw in directory.state.drawn.items():
            if draw.result is None:
                raise RunError(
                    f'{path}: {what} were drawn and their result is not known, which counts: '
                    'continue with the settings of the draw, which repeats it, or begin in another '
                    'directory and count both'
                )
        if not self._has_begun:
            directory.begin(self.settings, self.files)
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
        if experiment.noise_storage is not None:
            self.tell(str(experiment.noise_storage))
        if self.notice:
            self.tell(self.notice)
        result = program.run_training(experiment, directory, data, saved)
        return _result(directory, result.report, result.rows)


def _refuse_draw(path: pathlib.Path, known: journal.Drew, now: journal.Drew) -> NoReturn:
    """Refuses to repeat a draw with other settings, or from other data."""
    for name in sorted({*known.intent, *now.intent} - {'data', 'release'}):
        if known.intent.get(name) != now.intent.get(name):
            raise ArgumentError(
                name,
                now.intent.get(name),
                f'must be {known.intent.get(name)}, with which {known.what} were drawn: the draw '
                'counts, and another one would be a further release',
            )
    raise RunError(
        f'{path / archive.LEDGER}: {known.what} were drawn from other data of the clients; a run '
        'must continue with the data with which it began'
    )


def _result(
    directory: 'run_directory.RunDirectory',
    report: accounting.PrivacyReport,
    rows: Sequence[Mapping[str, float]],
) -> TrainResult:
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
