"""Runs that meet faults: they begin, end, continue, and are compared with an undisturbed one."""

import dataclasses
import functools
import pathlib
import shutil
import traceback
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib import figure

from dpfl import errors
from dpfl.accounting.records import archive, journal
from dpfl.reporting import plots, privacy_page
from dpfl.runtime import compilation
from dpfl.simulation import program, run_directory
from dpfl.simulation.training import prepared_task
from dpfl.tasks import before_training
from scripts import system_calls
from tests import runs
from tests.simulation import toy_experiment

ANNOUNCED = '.announced'


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a run with a fault.

    Attributes:
      fault: its name.
      place: when it came: a system call, a round.
      said: what the run or the runtime said.
      worse: what is worse than one line of error and no loss; '' if nothing is.
      seconds: from the fault to the end of its round, or of the run; 0 if they were not measured.
    """

    fault: str
    place: str
    said: str
    worse: str
    seconds: float = 0.0


def events(path: pathlib.Path) -> journal.Journal:
    """The journal of a run, which may have none yet."""
    return archive.read_journal(path) or journal.Journal()


class Toy:
    """Runs of a toy model with the same noise: an undisturbed one, and those that meet faults.

    Args:
      folder: for the runs.
      noise_seed: of the runs. With None, those of `new` begin with the same keys.
      is_in_tff: whether rounds are computed by TFF, or by a few lines that take no time.
      draws: whether words are drawn before the training.
      is_drawn: whether figures are drawn, which take longer than all the rest.
      **fields: of `toy_experiment.experiment`.

    Attributes:
      reference: path of the undisturbed run.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        noise_seed: int | None,
        *,
        is_in_tff: bool = False,
        draws: bool = True,
        is_drawn: bool = False,
        **fields: Any,
    ):
        folder.mkdir(exist_ok=True)
        self._folder, self._noise_seed, self._fields = folder, noise_seed, fields
        self._is_in_tff, self._draws, self._is_drawn = is_in_tff, draws, is_drawn
        self.reference = folder / 'reference'

    @functools.cached_property
    def _keys(self) -> pathlib.Path:
        """A run that has read no data yet."""
        directory = run_directory.RunDirectory(self._folder / 'keys')
        with directory.in_use():
            directory.begin({}, {})
        return directory.path

    def new(self, path: pathlib.Path) -> pathlib.Path:
        """The directory of a run that is about to begin."""
        if self._noise_seed is None:
            shutil.copytree(self._keys, path)
        return path

    def child(self, is_watched: bool = False) -> system_calls.Child:
        """A process that trains a run, or continues it, when it gets its path.

        It answers with the error that ended the run. An error that is more than one line long, or
        of another kind than those that a command shows in one, has several.
        """
        return system_calls.Child(self._trainer, self._folder / 'stderr', is_watched)

    def _trainer(self) -> Callable[[str], str]:
        if not self._is_drawn:
            _be_fast()
        make = toy_experiment.experiment if self._is_in_tff else toy_experiment.in_numpy
        experiment = make(noise_seed=self._noise_seed, **self._fields)
        experiment = dataclasses.replace(experiment, process=self._announcing(experiment.process))

        def train(path: str) -> str:
            try:
                directory = run_directory.RunDirectory(pathlib.Path(path), resume=True)
                with directory.in_use():
                    if self._draws and not directory.state.begun:
                        self._draw(directory)
                    program.run_training(experiment, directory)
            except (errors.RunError, ValueError) as error:
                return str(error)
            except BaseException:
                return traceback.format_exc()[-2000:]
            return ''

        return train

    def _draw(self, directory: run_directory.RunDirectory) -> None:
        """Draws words, as a run does before its training."""
        found = before_training.BeforeTraining(
            words=before_training.WordRelease.of_guarantee(3.0, 1e-3, words_per_client=2),
            noise_seed=self._noise_seed,
            draw=functools.partial(
                prepared_task.draw, directory, functools.partial(directory.begin, {}, {})
            ),
        )

        def find(noise):
            self._announce('drew')
            return noise.standard_normal(3).tolist()

        found.find([np.arange(9)], find)

    def _announcing(self, process: Any) -> Any:
        """The process, which announces each round before it computes it."""

        def announced(*arguments):
            self._announce('began')
            return process.next(*arguments)

        return types.SimpleNamespace(
            initialize=process.initialize,
            get_model_weights=process.get_model_weights,
            next=announced,
        )

    def _announce(self, event: str) -> None:
        """Opens a file beside the runs, which an observer of system calls sees."""
        (self._folder / f'{event}{ANNOUNCED}').write_bytes(b'')

    def differences(self, path: pathlib.Path) -> list[str]:
        """What differs from the undisturbed run: names of files, `draws` or `chain`."""
        names = runs.differences(path, self.reference)
        own, other = events(path), events(self.reference)
        drawn = [
            {what: draw.result for what, draw in found.state.drawn.items()}
            for found in (own, other)
        ]
        names += ['draws'] * (drawn[0] != drawn[1] or len(drawn[0]) != int(self._draws))
        return names + ['chain'] * (self._noise_seed is None and own.chain != other.chain)


def _be_fast() -> None:
    """Skips slow steps that do not affect the results: figures, and repeated compilation."""
    privacy_page.render = lambda report, *_, **others: report.render()
    plots.training_curves = lambda *arguments: figure.Figure()
    compilation.compiled = functools.lru_cache(None)(compilation.compiled)
