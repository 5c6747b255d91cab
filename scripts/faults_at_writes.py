"""Lets every system call of a run that changes a file fail once, and then resumes the run.

The runs train a toy model, one after the other in one child process (`system_calls.Child`), so that
everything that is built once serves all of them. Figures are left out, because they take longer
than all the rest. A call is identified by its place: its name, its file, and how often it has been
made on that file before.
"""

import collections
import dataclasses
import errno
import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable

from matplotlib import figure

from dpfl import errors
from dpfl.reporting import plots, privacy_page
from dpfl.runtime import compilation
from dpfl.simulation import program, run_directory
from scripts import system_calls
from tests import runs
from tests.simulation import toy_experiment

_NEEDED = ('model.npz', 'participation.npz', 'ledger.jsonl', 'privacy_report.json')
# Parts of file names that differ from run to run.
_RANDOM = re.compile(r'(?<=events\.out\.tfevents\.).*|(?<=_temp)\d+')
_TAKES_SPACE = {
    'open',
    'creat',
    'write',
    'pwrite',
    'writev',
    'sendfile',
    'copy_file_range',
    'fallocate',
    'mkdir',
    'ftruncate',
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """How the chosen call fails, and which later ones.

    Attributes:
      name: description of the fault.
      number: the error number.
      lasts: whether later calls fail as well.
      calls: names of the calls that fail later; the chosen one always fails.
    """

    name: str
    number: int
    lasts: bool
    calls: frozenset[str] = frozenset()


FAULTS = (
    Fault('one call fails: no space', errno.ENOSPC, lasts=False),
    Fault('full disk from a call on', errno.ENOSPC, lasts=True, calls=frozenset(_TAKES_SPACE)),
    Fault(
        'read-only from a call on',
        errno.EROFS,
        lasts=True,
        calls=frozenset(_TAKES_SPACE | {'rename', 'rmdir', 'unlink', 'fsync', 'fdatasync'}),
    ),
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a run with a fault.

    Attributes:
      fault: name of the fault.
      place: place of the call.
      said: the error message; '' if the run ended normally.
      worse: what is worse than one line of error and no loss; '' if nothing is.
    """

    fault: str
    place: str
    said: str
    worse: str


def differences(path: pathlib.Path, reference: pathlib.Path) -> list[str]:
    """Names of the files that differ between two runs, or are missing in the first."""
    missing = [name for name in _NEEDED if not (path / name).exists()]
    if missing:
        return missing
    differing = runs.differences(path, reference)
    return differing + ['metrics.csv'] * (runs.metrics(path) != runs.metrics(reference))


def saved_rounds(path: pathlib.Path) -> int:
    """Number of rounds in the newest checkpoint; -1 if there is none."""
    names = (path / 'checkpoints').glob('*.checkpoint')
    return max((int(name.stem) for name in names), default=-1)


def play(
    folder: pathlib.Path, noise_seed: int | None, every: int, faults=FAULTS, rounds: int = 3
) -> tuple[int, list[Outcome]]:
    """Plays faults at every `every`-th place.

    Args:
      folder: an empty folder for the runs.
      noise_seed: noise seed of the runs. None takes noise keys from the operating system; all runs
        then begin from the same first checkpoint, which is the only way to repeat the noise.
      every: 1 for all places.
      faults: the faults to play.
      rounds: number of rounds of a run.

    Returns:
      The number of places, and the outcomes.
    """
    judge = _Judge(folder)
    in_child(folder, lambda ask: _Runs(folder, noise_seed, rounds, ask).play(every, faults), judge)
    return judge.num_places, judge.outcomes


def in_child(
    folder: pathlib.Path, play: Callable[[Callable[[bytes], bytes]], None], parent
) -> None:
    """Plays runs in a child process, and waits for its end.

    Args:
      folder: gets what the child writes to standard error.
      play: called in the child with `ask`, which sends bytes to the parent and returns its answer.
      parent: its methods `decide` and `answer` are those of `system_calls.Child`.

    Raises:
      RuntimeError: if the child ends with an error.
    """

    def work(ask):
        os.dup2(os.open(folder / 'stderr', os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        be_fast()
        play(ask)
        return 0

    status = system_calls.Child(work, parent.decide, parent.answer).wait()
    if status:
        raise RuntimeError(f'status {status}: {(folder / "stderr").read_text()[-2000:]}')


def be_fast() -> None:
    """Skips slow steps that do not affect the results: figures, and repeated compilation."""
    privacy_page.render = lambda report, *_, **others: report.render()
    plots.training_curves = lambda *arguments: figure.Figure()
    compile_once, kept = compilation.compiled, {}

    def compiled(computation):
        if id(computation) not in kept:
            kept[id(computation)] = computation, compile_once(computation)
        return kept[id(computation)][1]

    compilation.compiled = compiled


class _Judge:
    """Lets calls fail, in the parent process. The child says which, and reports the outcomes."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._run = None
        self._met = collections.Counter()
        self._fault = self._place = None
        self._failed = False
        self._places: list[str] = []
        self.num_places = 0
        self.outcomes: list[Outcome] = []

    def answer(self, message: bytes) -> bytes:
        """Answers a message of the child: a run begins or ends, or an outcome."""
        values = json.loads(message)
        if 'outcome' in values:
            self.outcomes.append(Outcome(**values['outcome']))
            return b''
        if 'run' in values:
            self._run = self._folder / values['run']
            self._met.clear()
            self._places.clear()
            self._failed = False
            self._fault = FAULTS[values['fault']] if 'fault' in values else None
            self._place = values.get('place')
            return b''
        places, self._run = self._places, None
        self.num_places = max(self.num_places, len(places) if self._fault is None else 0)
        if 'page' in values:
            return json.dumps(places[values['page'] : values['page'] + 200]).encode()
        return str(int(self._failed)).encode()

    def decide(self, call: system_calls.Call) -> int:
        """The error number with which a call fails; 0 to execute it."""
        run = self._run
        if run is None or (run != call.path and run not in call.path.parents):
            return 0
        name = _RANDOM.sub('', str(call.path.relative_to(run)))
        self._met[call.name, name] += 1
        place = f'{call.name} {name} #{self._met[call.name, name]}'
        self._places.append(place)
        if self._fault is None:
            return 0
        if place == self._place:
            self._failed = True
            return self._fault.number
        later = self._failed and self._fault.lasts and call.name in self._fault.calls
        return self._fault.number if later else 0


class _Runs:
    """Plays the runs, in the child process."""

    def __init__(self, folder, noise_seed, rounds, ask):
        self._folder, self._ask = folder, ask
        self._experiment = toy_experiment.experiment(
            rounds=rounds,
            noise_seed=noise_seed,
            checkpoint_every=1,
            noise_multiplier=0.5,
            accountant='analytic_gaussian',
        )
        self._origin = folder / 'origin'
        self._origin.mkdir()
        if noise_seed is None:
            self._begin()
        self._reference = self._copy('reference')
        self._train(self._reference)

    def play(self, every: int, faults) -> None:
        """Plays all faults at every `every`-th place of an undisturbed run."""
        path = self._copy('counted')
        self._tell(run=path.name)
        self._train(path)
        for number, place in enumerate(self._places()):
            if number % every == 0:
                for fault in faults:
                    self._tell(outcome=dataclasses.asdict(self._one(fault, place)))
        shutil.rmtree(path)

    def _one(self, fault: Fault, place: str) -> Outcome:
        path = self._copy('run')
        self._tell(run=path.name, fault=FAULTS.index(fault), place=place)
        said = worse = ''
        try:
            self._train(path)
        except (errors.RunError, ValueError) as error:
            said = str(error)
            worse = 'more than a line' if '\n' in said else ''
        except BaseException as error:
            said = worse = f'{type(error).__name__}: {error}'
        before = saved_rounds(path)
        has_failed = self._ask(json.dumps({'end': True}).encode()) == b'1'
        if not has_failed and not worse:
            worse = 'the call did not come'
        try:
            self._train(path)
            differing = differences(path, self._reference)
            left = [p.name for p in path.rglob('*.partial')]
            worse = worse or ', '.join(f'{name} differs' for name in differing) or ', '.join(left)
        except BaseException as error:
            worse = worse or f'cannot be resumed after {before} rounds: {error}'
        shutil.rmtree(path)
        return Outcome(fault.name, place, said.replace(str(path), ''), worse)

    def _begin(self) -> None:
        """Begins a run and ends it before its first round, with the noise key in a checkpoint."""

        class NoRoundError(Exception):
            pass

        def no_data(client):
            raise NoRoundError

        try:
            program.run_training(
                dataclasses.replace(self._experiment, client_data=no_data),
                run_directory.RunDirectory(self._origin, resume=True),
            )
        except NoRoundError:
            pass

    def _copy(self, name: str) -> pathlib.Path:
        return shutil.copytree(self._origin, self._folder / name)

    def _train(self, path: pathlib.Path) -> None:
        directory = run_directory.RunDirectory(path, resume=True)
        program.run_training(self._experiment, directory)

    def _tell(self, **values) -> None:
        self._ask(json.dumps(values).encode())

    def _places(self) -> list[str]:
        places = []
        while page := json.loads(self._ask(json.dumps({'page': len(places)}).encode())):
            places += page
        return places


if __name__ == '__main__':
    sys.exit('error: this is a part of scripts/fault_test.py')
