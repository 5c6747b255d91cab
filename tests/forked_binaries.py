"""Runs command lines of one binary in forks of a process that has imported what the binary needs.

An import of TensorFlow Federated takes seconds, a fork takes none. Each command line still gets a
process of its own, with its own flags, standard streams and exit status, and runs the binary as
`python -m` does. Forks are for command lines that start no TensorFlow runtime, such as those that
are refused: threads do not survive a fork.
"""

import ast
import contextlib
import functools
import gc
import importlib
import importlib.util
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile

import pytest

from tests import paths

# `also_import` of binaries that train.
TRAINING = ('tensorflow_federated', 'dpfl.simulation.program', 'dpfl.tasks.text.synthetic_task')
# Of one command line; what hangs is ended.
_MOST_SECONDS = 120


class ForkedBinary:
    """A process that waits for command lines of one binary."""

    def __init__(self, binary: str, *, also_import: tuple[str, ...] = (), **environment: str):
        """Starts the process.

        Args:
          binary: its name in `experiments`.
          also_import: slow modules that its `main` imports.
          **environment: variables that the command lines see besides those of the tests.
        """
        self._process = subprocess.Popen(
            [sys.executable, '-m', __name__, f'experiments.{binary}', *also_import],
            cwd=paths.ROOT,
            # Without threads of its own, which a fork would lose.
            env={**os.environ, 'OPENBLAS_NUM_THREADS': '1', **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *flags) -> subprocess.CompletedProcess:
        """What `binaries.run` returns for these flags."""
        arguments = list(map(str, flags))
        self._process.stdin.write(json.dumps(arguments) + '\n')
        self._process.stdin.flush()
        status, output, errors = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(arguments, status, output, errors)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


_started = functools.cache(ForkedBinary)


def run(binary: str, *flags) -> subprocess.CompletedProcess:
    """As `binaries.run`, in forks of one process that ends with the tests."""
    return _started(binary).run(*flags)


def fixture(binary: str, *flags: str, name: str = 'forked', **kwargs):
    """A fixture of a test file: a function that runs the binary with `flags` and its arguments."""

    @pytest.fixture(scope='module', name=name)
    def forked():
        process = ForkedBinary(binary, **kwargs)
        yield functools.partial(process.run, *flags)
        process.close()

    return forked


def _import_what_is_imported_by(module: str) -> None:
    """Imports what a module imports at its top, but not the module: it defines flags."""
    with open(importlib.util.find_spec(module).origin) as file:
        tree = ast.parse(file.read())
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            importlib.import_module(node.module)
            for alias in node.names:
                with contextlib.suppress(ModuleNotFoundError):
                    importlib.import_module(f'{node.module}.{alias.name}')


def _fork(module: str, arguments: list[str], streams: list[int]) -> int:
    """The exit status of a fork in which the module runs with these arguments and streams."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    signal.alarm(_MOST_SECONDS)
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name='__main__', alter_sys=True)
    sys.exit()


def _serve(module: str, also_import: list[str]) -> None:
    _import_what_is_imported_by(module)
    for name in also_import:
        importlib.import_module(name)
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), 'w')
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    gc.freeze()  # A collection in a fork copies no memory of this process.
    while line := requests.readline():
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            files = [nothing, output.fileno(), errors.fileno()]
            status = _fork(module, json.loads(line), files)
            texts = [os.pread(file, os.fstat(file).st_size, 0).decode() for file in files[1:]]
        answers.write(json.dumps([status, *texts]) + '\n')
        answers.flush()


if __name__ == '__main__':
    _serve(sys.argv[1], sys.argv[2:])
