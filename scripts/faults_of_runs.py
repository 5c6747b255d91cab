"""Runs of the training binary that meet a fault, and what became of them."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable

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
# Parts of the usual lines on standard error: where noise is kept, and the progress bar.
_USUAL = ('noise: ', 'round/s', '?round/s', 's/round')


@dataclasses.dataclass
class Outcome:
    """What became of a run with a fault.

    Attributes:
      fault: name of the fault.
      happened: what was done to the run, and when.
      status: exit status, negative for a signal.
      lines: lines on standard error, without the usual ones.
      resumed: what `--resume` did with the run.
      worse: what is worse than one line of error and no loss; '' if nothing is.
    """

    fault: str
    happened: str
    status: int
    lines: list[str]
    resumed: str = ''
    worse: str = ''


class Run:
    """A process of the training binary that writes to a directory."""

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
        """Waits until a condition holds; False if the process ends first."""
        deadline = time.monotonic() + _SECONDS
        while not condition():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f'{self.path}: waited {_SECONDS} seconds')
            time.sleep(0.005)
        return True

    def wait_for_rounds(self, rounds: int) -> bool:
        """Waits until the ledger has at least `rounds` rounds; False if the process ends first."""
        return self.wait_for(lambda: rounds_of(self.path) >= rounds)

    def end(self) -> tuple[int, list[str]]:
        """Waits for the end; returns the exit status and the unusual lines on standard error."""
        try:
            status = self.process.wait(_SECONDS)
        finally:
            self.process.kill()
        text = self._log.read_text(errors='replace').replace('\r', '\n')
        lines = [line for line in text.splitlines() if line.strip()]
        return status, [line for line in lines if not any(usual in line for usual in _USUAL)]


def rounds_of(path: pathlib.Path) -> int:
    """Number of rounds that a run has begun."""
    ledger = path / 'ledger.jsonl'
    return ledger.read_bytes().count(b'"event": "began"') if ledger.exists() else 0


def saved_rounds(path: pathlib.Path) -> int:
    """Number of rounds in the newest checkpoint; -1 if there is none."""
    names = (path / 'checkpoints').glob('*.checkpoint')
    return max((int(name.stem) for name in names), default=-1)


class Stage:
    """Where faults are played: a folder for runs, and an undisturbed run as the reference."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.reference = folder / 'reference'
        status, lines = Run(self.reference).end()
        if status:
            raise RuntimeError(f'status {status}: {lines}')
        self._count = 0

    def path(self) -> pathlib.Path:
        """The path of a new run directory."""
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
        """Waits for a run, resumes it, compares it with the reference, and returns the outcome.

        Args:
          run: the run with the fault.
          fault: name of the fault.
          happened: what was done, and when.
          statuses: the exit statuses that are right.
          most_lines: limit on the unusual lines on standard error.
          path: where the run is now, if it was moved.
          saved: rounds of the newest checkpoint at the time of the fault.
          env: environment variables of the resumed run.
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
