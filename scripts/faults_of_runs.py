"""Faults that the training binary meets, each in a process of its own. No flags."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from scripts import faults_at_writes
from tests import binaries

FLAGS = (
    '--flagfile=configs/quickstart.flags',
    '--population=60',
    '--clients_per_round=2',
    '--client_max_batches=1',
    '--eval_clients=2',
    '--eval_every=30',
    '--checkpoint_every=3',
    '--rounds=20',
    '--min_separation=20',
    '--noise_seed=1',
)
_SECONDS = 900.0
# On standard error of every run that comes so far: where noise is kept, and the bar.
_USUAL = ('noise: ', 'round/s', '?round/s', 's/round')


@dataclasses.dataclass
class Outcome:
    """What became of a run with a fault.

    Attributes:
      fault: its name.
      happened: what was done to the run, and when.
      status: exit status, negative for a signal.
      lines: on standard error, but for the usual ones.
      resumed: what `--resume` made of it.
      worse: why this is worse than a line and nothing lost; '' if it is not.
    """

    fault: str
    happened: str
    status: int
    lines: list[str]
    resumed: str = ''
    worse: str = ''


class Run:
    """The training binary as a process, on a directory."""

    def __init__(self, path: pathlib.Path, *flags, env=None, streams=None, preexec=None):
        self.path = path
        handle, name = tempfile.mkstemp('.stderr')
        self._log = pathlib.Path(name)
        with open(handle, 'wb') as errors:
            self.process = subprocess.Popen(
                binaries.command('train', *FLAGS, f'--output_dir={path}', *flags),
                cwd=binaries.ROOT,
                preexec_fn=preexec,
                env={**os.environ, **(env or {})},
                **{
                    'stdin': subprocess.DEVNULL,
                    'stdout': subprocess.DEVNULL,
                    'stderr': errors,
                    **(streams or {}),
                },
            )

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Waits until a condition holds; False if the process ends before."""
        deadline = time.monotonic() + _SECONDS
        while not condition():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f'{self.path}: waited {_SECONDS} seconds')
            time.sleep(0.005)
        return True

    def wait_for_rounds(self, rounds: int) -> bool:
        """Waits until the ledger has so many rounds."""
        return self.wait_for(lambda: rounds_of(self.path) >= rounds)

    def end(self) -> tuple[int, list[str]]:
        """Exit status, and the unusual lines on standard error, when the process has ended."""
        try:
            status = self.process.wait(_SECONDS)
        finally:
            self.process.kill()
        text = self._log.read_text(errors='replace').replace('\r', '\n')
        lines = [line for line in text.splitlines() if line.strip()]
        return status, [line for line in lines if not any(usual in line for usual in _USUAL)]


def rounds_of(path: pathlib.Path) -> int:
    """Rounds in a run's ledger; its lines but for a first one without a round."""
    ledger = path / 'ledger.jsonl'
    return ledger.read_bytes().count(b'"round": ') if ledger.exists() else 0


def saved_rounds(path: pathlib.Path) -> int:
    """Rounds of the newest checkpoint, -1 without one."""
    names = (path / 'checkpoints').glob('*.checkpoint')
    return max((int(name.stem) for name in names), default=-1)


class Stage:
    """Where faults are played: a folder, and a run that was not disturbed."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.reference = folder / 'reference'
        status, lines = Run(self.reference).end()
        if status:
            raise RuntimeError(f'status {status}: {lines}')
        self._count = 0

    def path(self) -> pathlib.Path:
        """A new directory's name."""
        self._count += 1
        return self.folder / f'run{self._count}'

    def judge(
        self,
        run: Run,
        fault: str,
        happened: str,
        *,
        statuses,
        most_lines: int = 1,
        path: pathlib.Path | None = None,
        saved: int = -1,
        env=None,
    ) -> Outcome:
        """The outcome of a run, which is waited for, resumed, and compared.

        Args:
          run: with the fault.
          fault: its name.
          happened: what was done.
          statuses: that are right.
          most_lines: that may stand on standard error.
          path: where the run is now, if it was moved.
          saved: rounds of the newest checkpoint when the fault came.
          env: of the resumed run.
        """
        status, lines = run.end()
        outcome = Outcome(fault, happened, status, lines)
        path = path or run.path
        if status not in statuses:
            outcome.worse = f'the status is none of {list(statuses)}'
        elif len(lines) > most_lines or any('Traceback' in line for line in lines):
            outcome.worse = f'more than {most_lines} lines'
        elif saved_rounds(path) < saved:
            outcome.worse = f'the checkpoint of round {saved} is lost'
        since = saved_rounds(path)
        status, lines = Run(path, '--resume', env=env).end()
        if status:
            outcome.resumed = f'resumed with status {status}: {lines[-1:]}'
            outcome.worse = outcome.worse or 'cannot be resumed'
            return outcome
        differing = faults_at_writes.differences(path, self.reference)
        outcome.resumed = f'resumed from {since} rounds: ' + (
            f'differs in {", ".join(differing)}' if differing else 'the same bits'
        )
        if differing:
            outcome.worse = outcome.worse or 'other bits'
        shutil.rmtree(path)
        return outcome


def play(folder: pathlib.Path, only: Sequence[str] = ('',)) -> Iterator[Outcome]:
    """Plays the faults whose names contain one of the words, one after the other."""
    from scripts import fault_list

    chosen = [
        fault for name, fault in fault_list.FAULTS.items() if any(word in name for word in only)
    ]
    if chosen:
        stage = Stage(folder)
        for fault in chosen:
            yield from fault(stage)
