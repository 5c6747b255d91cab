"""Runs command lines of the binaries in forks of one process that has imported the libraries.

An import of TensorFlow Federated takes seconds, a fork takes none. Each command line still gets a
process of its own, with its own flags, standard streams and exit status, and runs the binary as
`python -m` does. The process that forks computes nothing with TensorFlow, whose threads would not
survive a fork. Use `binaries.run` for what depends on a new process: signals, memory, Ray,
and what is imported.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from tests import json_schema, paths

# What the binaries import, except the modules of `experiments`, which define flags.
_IMPORTED = (
    'tensorflow_federated',
    'matplotlib.pyplot',
    'scipy.optimize',
    'dpfl.auditing.config',
    'dpfl.cli.command.command_line',
    'dpfl.cli.flags.output_flags',
    'dpfl.cli.flags.settings_flags',
    'dpfl.cli.results.plan_answer',
    'dpfl.cli.results.report_files',
    'dpfl.cli.results.verified_run',
    'dpfl.learning.gan',
    'dpfl.reporting.plots',
    'dpfl.reporting.privacy_page',
    'dpfl.simulation.training.execution',
    'dpfl.simulation.training.gan',
    'dpfl.simulation.training.suggestion',
    'dpfl.tasks.images.image_task',
    'dpfl.tasks.text.models.saved_models',
    'dpfl.tasks.text.text_task',
)
# Of one command line; what hangs is ended.
_MOST_SECONDS = 600
_Done = subprocess.CompletedProcess


class _Server:
    """A process that waits for command lines of any binary."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, '-m', __name__],
            cwd=paths.ROOT,
            # No threads of its own, which a fork would lose, and the kernels of the binaries.
            env={**os.environ, 'OPENBLAS_NUM_THREADS': '1', 'TF_ENABLE_ONEDNN_OPTS': '1'},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, module: str, environment: Mapping[str, str], *arguments: Any) -> _Done:
        """The process of a module that is run with these arguments, when it is done."""
        arguments = list(map(str, arguments))
        request = [module, dict(environment), arguments]
        self._process.stdin.write(json.dumps(request) + '\n')
        self._process.stdin.flush()
        status, output, errors = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(arguments, status, output, errors)


_server = functools.cache(_Server)


def run(binary: str, *flags: Any, check: bool = False, **environment: str) -> _Done:
    """As `binaries.run`, in a fork of one process that ends with the tests.

    Args:
      binary: its name in `experiments`.
      *flags: its flags.
      check: whether it must succeed.
      **environment: variables that the binary sees besides those of the tests.
    """
    done = _server().run(f'experiments.{binary}', environment, *flags)
    assert done.returncode == 0 or not check, done.stderr
    return done


def printed(binary: str, *flags: Any, **environment: str) -> Any:
    """The values that a binary, which must succeed, prints as JSON."""
    return json.loads(run(binary, *flags, '--format=json', check=True, **environment).stdout)


def run_module(module: str, *arguments: Any) -> _Done:
    """The same for `python -m module arguments`."""
    return _server().run(module, {}, *arguments)


def _fork(module: str, environment: dict, arguments: list[str], streams: list[int]) -> int:
    """The exit status of a fork in which the module runs with these arguments and streams."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    signal.alarm(_MOST_SECONDS)
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    os._exit(_status_of(module))


def _status_of(module: str) -> int:
    """Runs a module as `python -m` does; its exit status.

    The interpreter is not finalized: that would touch, and so copy, all memory of the libraries.
    """
    try:
        runpy.run_module(module, run_name='__main__', alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _draw_once() -> None:
    """Draws a figure: each fork would find fonts and read glyphs again."""
    charts = importlib.import_module('dpfl.reporting.charts')
    html_page = importlib.import_module('dpfl.reporting.html_parts')
    line = charts.Line('a line', [1.0, 10.0], [1.0, 10.0], color=0)
    panel = charts.Panel('a title', 'x', 'y', [line], x_log=True, y_log=True)
    html_page.svg(charts.draw([panel], columns=1))


def _serve() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    json_schema.check_every_report()
    _draw_once()
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), 'w')
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    gc.freeze()  # A collection in a fork copies no memory of this process.
    while line := requests.readline():
        module, environment, arguments = json.loads(line)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            files = [nothing, output.fileno(), errors.fileno()]
            status = _fork(module, environment, arguments, files)
            texts = [os.pread(file, os.fstat(file).st_size, 0).decode() for file in files[1:]]
        answers.write(json.dumps([status, *texts]) + '\n')
        answers.flush()


if __name__ == '__main__':
    _serve()
