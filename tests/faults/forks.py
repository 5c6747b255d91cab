"""Runs pytest in forks of one process that has imported the libraries, which takes seconds."""

import atexit
import multiprocessing
import os
import pathlib
import sys
from collections.abc import Sequence

from tests import paths

# Imported before the forks. `dpfl` lets TFF be imported; each fork imports it again.
_LIBRARIES = ('dpfl', 'tensorflow_federated', 'scipy.optimize', 'scipy.stats', 'markdown', 'pytest')
_OURS = ('benchmarks', 'dpfl', 'experiments', 'scripts', 'tests')

_forks = multiprocessing.get_context('forkserver')


def run_pytest(
    tree: pathlib.Path, output: pathlib.Path, arguments: Sequence[str], limit: float
) -> int | None:
    """The exit status of pytest in a copy of the working tree; None if it does not end in time.

    Args:
      tree: root of the copy.
      output: file for what pytest prints.
      arguments: of pytest.
      limit: seconds.
    """
    os.environ.update(OPENBLAS_NUM_THREADS='1', TF_CPP_MIN_LOG_LEVEL='3')
    _forks.set_forkserver_preload([*_LIBRARIES])
    fork = _forks.Process(target=_run, args=(tree, output, [*arguments]))
    fork.start()
    fork.join(limit)
    fork.kill()
    fork.join()
    return None if fork.exitcode == -9 else fork.exitcode


def _run(tree, output, arguments):
    with open(output, 'w') as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(tree)
    sys.path = [str(tree), *(path for path in sys.path if path not in ('', str(paths.ROOT)))]
    for name in [*sys.modules]:
        if name.partition('.')[0] in _OURS:
            del sys.modules[name]
    import pytest

    status = pytest.main(arguments)
    atexit._run_exitfuncs()
    sys.exit(status)
