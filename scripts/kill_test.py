"""Kills training runs at random moments, resumes them, and compares the results bit for bit.

  python scripts/kill_test.py --runs=100

Each run draws words, trains a toy model, and is killed with SIGKILL at a random
moment. It may be resumed and killed once more, and is then resumed to its end. Draws, model,
participation log, ledger and report must equal those of an uninterrupted run, byte for byte; so
must the metrics, except `seconds`. No event that was in the ledger at a kill may be lost. Every
other run has no noise seed: it begins with the keys of the uninterrupted run and nothing else, and
must have the same chain. With --notff rounds take no time and there are no figures, so that most
kills meet a write. Exits with status 1 if a run differs.
"""

import collections
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback

import numpy as np
from absl import flags

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from dpfl.accounting.records import archive, journal  # noqa: E402
from dpfl.cli.command import command_line  # noqa: E402
from dpfl.simulation import program, run_directory  # noqa: E402
from scripts import crashes_at_writes, faults_at_writes  # noqa: E402
from tests import runs  # noqa: E402
from tests.simulation import toy_experiment  # noqa: E402

_RUNS = flags.DEFINE_integer('runs', 100, 'Number of runs that are killed.', lower_bound=1)
_ROUNDS = flags.DEFINE_integer('rounds', 40, 'Number of rounds of a run.', lower_bound=1)
_CHECKPOINT_EVERY = flags.DEFINE_integer(
    'checkpoint_every', 3, 'Rounds between two checkpoints.', lower_bound=1
)
_SEED = flags.DEFINE_integer(
    'seed', 0, 'Seed of the moments at which runs are killed.', lower_bound=0
)

_TFF = flags.DEFINE_bool('tff', True, 'Whether rounds are computed by TFF, or by a few lines.')

_SECONDS_TO_END = 120.0


def main() -> None:
    random = np.random.default_rng(_SEED.value)
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        kinds = [_Kind(folder / 'seeded', 5), _Kind(folder / 'unseeded', None)]
        for run in range(_RUNS.value):
            kind = kinds[run % len(kinds)]
            path = folder / f'run{run}'
            kills = _interrupt(path, kind, random)
            counts['kills'] += len(kills)
            differing = kind.differences(path)
            counts['different runs'] += bool(differing)
            print(
                f'run {run} ({kind.name}): killed {", ".join(kills)}: '
                f'{"differs in " + ", ".join(differing) if differing else "the same"}',
                flush=True,
            )
            shutil.rmtree(path)
    print(f'{_RUNS.value} runs, {counts["kills"]} kills, {counts["different runs"]} differ')
    if counts['different runs']:
        sys.exit(1)


class _Kind:
    """Runs that begin with the same noise key, among them an uninterrupted one."""

    def __init__(self, folder: pathlib.Path, noise_seed: int | None):
        self.name = folder.name
        self.noise_seed = noise_seed
        self._origin = folder / 'origin'
        self._reference = folder / 'reference'
        if noise_seed is None:
            directory = run_directory.RunDirectory(self._origin)
            with directory.in_use():
                directory.begin({}, {})
        self.begin(self._reference)
        child = _Child(self._reference, self)
        started = time.monotonic()
        child.finish()
        self.seconds = time.monotonic() - started

    def begin(self, path: pathlib.Path) -> None:
        """Creates the directory of a run, with the keys that all runs begin with, if any."""
        if self._origin.exists():
            shutil.copytree(self._origin, path)

    def differences(self, path: pathlib.Path) -> list[str]:
        """What differs from the uninterrupted run: names of files, `draws` or `chain`."""
        names = runs.differences(path, self._reference)
        names += ['metrics.csv'] * (runs.metrics(path) != runs.metrics(self._reference))
        own, other = (archive.read_journal(each) for each in (path, self._reference))
        drawn = [
            {what: each.result for what, each in found.state.drawn.items()}
            for found in (own, other)
        ]
        names += ['draws'] * (drawn[0] != drawn[1] or len(drawn[0]) != 1)
        return names + ['chain'] * (self.noise_seed is None and own.chain != other.chain)


def _interrupt(path: pathlib.Path, kind: _Kind, random: np.random.Generator) -> list[str]:
    """Runs to the end with one or two kills.

    Returns:
      When each came, in words.

    Raises:
      RuntimeError: if an event is lost.
    """
    kills, chains = [], []
    while not kills:
        shutil.rmtree(path, ignore_errors=True)
        kind.begin(path)
        for _ in range(random.integers(1, 3)):
            child = _Child(path, kind)
            time.sleep(random.uniform(0, kind.seconds))
            if not child.kill():
                break  # The run had ended by itself.
            found = archive.read_journal(path) or journal.Journal()
            chains.append(found.chain)
            drawn = sum(each.result is not None for each in found.state.drawn.values())
            kills.append(
                f'after {drawn} draws' * (drawn < 1) or f'after {found.state.begun} rounds'
            )
    _Child(path, kind).finish()
    after = archive.read_journal(path).chain
    if any(after[: len(chain)] != chain for chain in chains):
        raise RuntimeError(f'{path}: an event is lost')
    return kills


class _Child:
    """A forked process that trains. It is ready to train when the constructor returns.

    The process is forked because the imports of a new one take longer than the run. TensorFlow must
    not have executed anything in this process before.
    """

    def __init__(self, path: pathlib.Path, kind: _Kind):
        self._log = path.with_name(f'{path.name}.log')
        self._log.parent.mkdir(exist_ok=True)
        ready, say = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.dup2(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
                _train(path, kind.noise_seed, lambda: os.write(say, b'.'))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(say)
        with open(ready, 'rb') as pipe:
            if not pipe.read(1):
                raise self._failed()

    def kill(self) -> bool:
        """Kills the process and waits for its end; False if it had already ended by itself."""
        os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            raise self._failed()
        return os.WIFSIGNALED(status)

    def finish(self) -> None:
        """Waits until the process has ended."""
        deadline = time.monotonic() + _SECONDS_TO_END
        ended = status = 0
        while not ended:
            if time.monotonic() > deadline:
                raise TimeoutError(f'waited {_SECONDS_TO_END} seconds')
            time.sleep(0.01)
            ended, status = os.waitpid(self._pid, os.WNOHANG)
        if status:
            raise self._failed()

    def _failed(self) -> RuntimeError:
        return RuntimeError(f'the run failed: {self._log.read_text()[-2000:]}')


def _train(path: pathlib.Path, noise_seed: int | None, say_ready) -> None:
    make = toy_experiment.experiment if _TFF.value else toy_experiment.in_numpy
    if not _TFF.value:
        faults_at_writes.be_fast()
    experiment = make(
        rounds=_ROUNDS.value, noise_seed=noise_seed, checkpoint_every=_CHECKPOINT_EVERY.value
    )
    directory = run_directory.RunDirectory(path, resume=True)
    say_ready()
    with directory.in_use():
        if not directory.state.begun:
            crashes_at_writes.draw(directory, noise_seed)
        program.run_training(experiment, directory)


if __name__ == '__main__':
    command_line.run(main)
