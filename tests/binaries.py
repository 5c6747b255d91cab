"""The binaries of `experiments`, each run in a process of its own as its users would."""

import subprocess
import sys

from tests import forked_binaries, paths

ROOT = paths.ROOT
# The flags of a task of which a model is trained in seconds.
TASK = ['--vocabulary_size=96', '--sentence_length=10', '--model=micro']


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


def pretrain(path, *flags) -> dict:
    """Saves a model of `TASK` in `path`; what the binary says of it."""
    return forked_binaries.printed(
        'pretrain', *TASK, '--learning_rate=0.02', *flags, f'--output={path}'
    )
