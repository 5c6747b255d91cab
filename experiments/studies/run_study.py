r"""Runs a study: many trainings that differ in a few flags, a table and a figure of the results.

Example:
  python -m experiments.studies.run_study --study=mechanisms --output_dir=runs/mechanisms

A study is a file in experiments/studies/grids, or a file of your own in the same form. Every run is
a run of dpfl train in its own directory. If the study is interrupted, the same command continues
it: finished runs are kept, and an interrupted one continues from its last checkpoint. At the end
the directory has study.html, study.md, results.json and study.png, and prediction.png if the study
asks which measure predicts another.
"""

import concurrent.futures
import ctypes
import dataclasses
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from dpfl import _progress, _setting_texts, _storage, errors
from dpfl._settings import Settings, setting
from dpfl.accounting.records import archive
from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.runtime import signals
from dpfl.simulation.training import TrainConfig
from experiments.studies.shared import files, grid, page, planting, results


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunStudyConfig(Settings):
    """The study, its seeds, and how it is run."""

    study: str | None = setting(None, 'Name of a study, or a JSON file.')
    seeds: tuple[int, ...] | None = setting(
        None, 'Seeds of the runs, comma-separated; by default those of the study.'
    )
    jobs: int = setting(os.cpu_count() or 1, 'Number of parallel runs.', minimum=1)


_CONFIG = SettingsFlags(RunStudyConfig)
_DIRECTORY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the study.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_TRAIN = 'train'
_PR_SET_PDEATHSIG = 1
# Not forked: TensorFlow has threads.
_PROCESSES = multiprocessing.get_context('spawn')


@dataclasses.dataclass(frozen=True)
class Job:
    """A command that is run once.

    Attributes:
      name: its path in the directory of the study, such as `runs/tree/seed_1`.
      binary: the command.
      flags: its flags.
      directory: directory of the study.
    """

    name: str
    binary: str
    flags: Mapping[str, str]
    directory: pathlib.Path

    @property
    def folder(self) -> pathlib.Path:
        """Directory of the run, if the job is a run."""
        return self.directory / self.name

    @property
    def lines(self) -> list[str]:
        """The flags as on a command line."""
        return [f'--{name}={value}' for name, value in sorted(self.flags.items())]

    @property
    def _record(self) -> pathlib.Path:
        return self.directory / 'jobs' / f'{self.name.replace("/", "__")}.json'

    def is_done(self) -> bool:
        """Whether it has finished.

        Raises:
          RunError: if it has finished with other flags.
        """
        if not self._record.exists():
            return False
        with _storage.naming(self._record):
            before = json.loads(self._record.read_text())
        changed = sorted({*before} ^ {self.binary, *self.lines})
        if changed:
            raise errors.RunError(
                f'{self._record}: was made with other flags ({", ".join(changed)}); give another '
                'directory, or delete what depends on them'
            )
        return True

    def run(self) -> None:
        """Runs it, or continues it, and records that it has finished."""
        if self.binary == _TRAIN:
            config, planted = settings(self.flags)
            planting.train(
                config,
                planted,
                self.folder,
                resume=True,
                # Flags of secrets are no settings of `train`, whose file of flags this is.
                files={} if planted.secrets else {archive.FLAGS: '\n'.join(self.lines) + '\n'},
            )
        else:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, '-m', f'experiments.{self.binary}', *self.lines]
            status = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
            if status:
                raise errors.RunError(f'{self.binary} ended with status {status}')
        files.write(self._record, json.dumps([self.binary, *self.lines], indent=1))


def settings(flags: Mapping[str, str]) -> tuple[TrainConfig, planting.PlantingConfig]:
    """The configuration of a run, and the secrets in its data, from its flags as text."""
    none = planting.PlantingConfig()
    of_secrets = flags.keys() & none.flat().keys()
    config = {name: text for name, text in flags.items() if name not in of_secrets}
    planted = {name: flags[name] for name in of_secrets}
    return (
        _setting_texts.with_texts(TrainConfig(), config),
        _setting_texts.with_texts(none, planted),
    )


def preparations(study: grid.Study, directory: pathlib.Path, seeds: Sequence[int]) -> list[Job]:
    """The jobs that come before the runs. The arguments are those of `runs`."""
    made = []
    for preparation in study.preparations:
        shared = {name: study.flags[name] for name in preparation.shared if name in study.flags}
        each = seeds if '{seed}' in preparation.name else (None,)
        for seed in each:
            name = f'prepared/{_filled(preparation.name, directory, seed)}'
            flags = _all({**shared, **preparation.flags}, directory, seed)
            made.append(Job(name, preparation.binary, flags, directory))
    return made


def runs(
    study: grid.Study, directory: pathlib.Path, seeds: Sequence[int]
) -> dict[tuple[str, int], Job]:
    """The runs by point and seed. All points of a seed come before the next seed.

    Args:
      study: the study.
      directory: directory of the study.
      seeds: seeds of the runs. A seed also seeds the noise, so that points are compared in pairs.
    """
    found = {}
    for seed in seeds:
        for point in study.points:
            flags = {**point.flags, 'seed': str(seed), 'noise_seed': str(seed)}
            name = page.run_name(point.name, seed)
            found[point.name, seed] = Job(name, _TRAIN, _all(flags, directory, seed), directory)
    return found


def _all(flags: grid.Flags, directory: pathlib.Path, seed: int | None) -> dict[str, str]:
    return {
        name: _filled(value, directory, seed) for name, value in flags.items() if value is not None
    }


def _filled(value: str, directory: pathlib.Path, seed: int | None) -> str:
    text = str(value).replace('{prepared}', str(directory / 'prepared'))
    return text.replace('{seed}', str(seed))


def _run(jobs: Iterable[Job], parallel: int, directory: pathlib.Path) -> None:
    missing = {job.name: job.run for job in jobs if not job.is_done()}
    in_processes(missing, parallel, directory / 'jobs')


def in_processes(calls: Mapping[str, Callable[[], Any]], parallel: int, logs: pathlib.Path) -> None:
    """Makes calls in other processes, with a progress bar.

    Args:
      calls: by the name of the job, begun in this order: functions of a module with their
        arguments, or methods.
      parallel: number of processes.
      logs: folder of the logs, one for each job.

    Raises:
      RunError: if a call fails. The other running calls are ended by SIGTERM.
    """
    if not calls:
        return
    logs.mkdir(parents=True, exist_ok=True)
    with (
        signals.Signals(),
        _progress.bar(total=len(calls), desc=logs.parent.name, unit='job') as bar,
        concurrent.futures.ProcessPoolExecutor(
            min(parallel, len(calls)), _PROCESSES, _end_with_parent, (os.getpid(),)
        ) as pool,
    ):
        running: list[concurrent.futures.Future] = []
        try:
            for name, call in calls.items():
                log = logs / f'{name.replace("/", "__")}.log'
                running.append(pool.submit(_logged, name, log, call))
            for future in concurrent.futures.as_completed(running):
                future.result()
                bar.update()
        except concurrent.futures.process.BrokenProcessPool:
            raise errors.RunError(f'a process ended before its job did; see {logs}') from None
        except BaseException:
            for future in running:
                future.cancel()
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _end_with_parent(parent: int) -> None:
    """Ends this process when the one that began it ends, however it does."""
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit()


def _logged(name: str, log: pathlib.Path, call: Callable[[], Any]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    with open(log, 'ab') as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    try:
        call()
    except (errors.ArgumentError, errors.RunError, errors.DataError) as error:
        raise errors.RunError(f'{name}: {error} (see {log})') from None
    except Exception as error:
        traceback.print_exc()
        raise errors.RunError(f'{name}: {errors.shown(error)} (see {log})') from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main() -> None:
    """Runs what is missing; writes table, figure and page; prints the table."""
    config = _CONFIG.read()
    name = command_line.required(config, 'study')
    directory = output_flags.directory(_DIRECTORY.read())
    with command_line.refusing_bad_values():
        study = grid.load(name)
        seeds = study.seeds if config.seeds is None else config.seeds
        grid.check_seeds(seeds)
    with _storage.naming(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with _storage.locked(directory):
        made = runs(study, directory, seeds)
        _run(preparations(study, directory, seeds), config.jobs, directory)
        _run(made.values(), config.jobs, directory)
        with command_line.refusing_bad_values():
            measured = {
                point.name: [results.read(study, made[point.name, seed].folder) for seed in seeds]
                for point in study.points
            }
            found = results.Results(study, measured, seeds)
            text = page.text(found, _command())
        for file, content in page.files(found, text).items():
            files.write(directory / file, content)
    output_flags.show(_FORMAT, found.values(), f'{text}\nPage: {directory / page.HTML}')


def _command() -> str:
    given = [
        flags.FLAGS[name].serialize()
        for name in ('study', 'output_dir', 'seeds')
        if flags.FLAGS[name].value is not None
    ]
    return program.command('studies.run_study', *given)


if __name__ == '__main__':
    command_line.run(main)
