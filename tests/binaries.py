"""The binaries of `experiments`, each run in a process of its own as its users would."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests import forked_binaries, paths, runs

ROOT = paths.ROOT
# The flags of a task of which a model is trained in seconds.
TASK = ['--vocabulary_size=96', '--sentence_length=10', '--model=micro']
# Limit on the time that a command takes.
_SECONDS = 900.0


def command(binary, *flags) -> list[str]:
    return [sys.executable, '-m', f'experiments.{binary}', *map(str, flags)]


def run(binary, *flags, check=False, **kwargs):
    """The process when it is done, with what it printed; `kwargs` are for `subprocess.run`."""
    return subprocess.run(
        command(binary, *flags),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=check,
        stdin=subprocess.DEVNULL,
        **kwargs,
    )


class Process:
    """A command that trains in a process of its own.

    Args:
      path: directory of the run.
      command: the command.
      **options: of `subprocess.Popen`. Streams lead nowhere by default; standard error is kept.

    Attributes:
      path: directory of the run.
      process: the process.
      saved: rounds of the newest checkpoint when `wait_for_rounds` has returned; -1 before.
    """

    def __init__(self, path: pathlib.Path, command: Sequence[str], **options: Any):
        self.path, self.saved = path, -1
        self._errors = tempfile.TemporaryFile()
        streams = {'stdin': subprocess.DEVNULL, 'stdout': subprocess.DEVNULL}
        self.process = subprocess.Popen(
            command, cwd=ROOT, **{**streams, 'stderr': self._errors, **options}
        )

    def wait_for_rounds(self, rounds: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Waits until `rounds` rounds have begun, or the process ends."""
        deadline = time.monotonic() + _SECONDS
        while runs.begun_rounds(self.path) < rounds and self.process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f'{self.path}: waited {_SECONDS:g} seconds')
            meanwhile()
            time.sleep(0.005)
        self.saved = runs.saved_rounds(self.path)

    def end(self) -> tuple[int, list[str]]:
        """Waits for the end; the exit status, and the lines on standard error."""
        try:
            status = self.process.wait(_SECONDS)
        finally:
            self.process.kill()
        size = os.fstat(self._errors.fileno()).st_size
        text = os.pread(self._errors.fileno(), size, 0).decode(errors='replace')
        return status, [line for line in text.replace('\r', '\n').splitlines() if line.strip()]


def pretrain(path, *flags) -> dict:
    """Saves a model of `TASK` in `path`; what the binary says of it."""
    return forked_binaries.printed(
        'pretrain', *TASK, '--learning_rate=0.02', *flags, f'--output={path}'
    )
