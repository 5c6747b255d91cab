"""Calls in a few processes of their own, each with its output in a log."""

import concurrent.futures
import ctypes
import multiprocessing
import os
import pathlib
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dpfl import _progress, errors
from dpfl.runtime import signals

_PR_SET_PDEATHSIG = 1
# Not forked: TensorFlow has threads.
_PROCESSES = multiprocessing.get_context('spawn')


def run(
    call: Callable[..., Any],
    arguments: Mapping[str, tuple],
    parallel: int,
    logs: pathlib.Path,
) -> dict[str, Any]:
    """The result of a call for each of the arguments, with a progress bar.

    Args:
      call: a function of a module, called as `call(*arguments[name])` in one of the processes.
      arguments: the arguments by the name of the job, begun in this order.
      parallel: number of processes.
      logs: folder of the logs, one for each job.

    Raises:
      RunError: if a call fails. The other running calls are ended by SIGTERM.
    """
    if not arguments:
        return {}
    logs.mkdir(parents=True, exist_ok=True)
    with (
        signals.Signals(),
        _progress.bar(total=len(arguments), desc=logs.parent.name, unit='job') as bar,
        concurrent.futures.ProcessPoolExecutor(
            min(parallel, len(arguments)), _PROCESSES, _end_with_parent, (os.getpid(),)
        ) as pool,
    ):
        found: dict[str, concurrent.futures.Future] = {}
        try:
            found |= {
                name: pool.submit(
                    _logged, name, logs / f'{name.replace("/", "__")}.log', call, each
                )
                for name, each in arguments.items()
            }
            for future in concurrent.futures.as_completed(found.values()):
                future.result()
                bar.update()
            return {name: future.result() for name, future in found.items()}
        except concurrent.futures.process.BrokenProcessPool:
            raise errors.RunError(f'a process ended before its job did; see {logs}') from None
        except BaseException:
            for future in found.values():
                future.cancel()
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _end_with_parent(parent: int) -> None:
    """Ends this process when the one that began it ends, however it does."""
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit()


def _logged(name: str, log: pathlib.Path, call: Callable[..., Any], arguments: tuple) -> Any:
    sys.stdout.flush()
    sys.stderr.flush()
    with open(log, 'ab') as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    try:
        return call(*arguments)
    except (errors.ArgumentError, errors.RunError, errors.DataError) as error:
        raise errors.RunError(f'{name}: {error} (see {log})') from None
    except Exception as error:
        traceback.print_exc()
        raise errors.RunError(f'{name}: {errors.shown(error)} (see {log})') from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
