"""Runs the jobs of a study in a few worker processes, each of which runs many jobs.

A small run takes longer to start than to train: TensorFlow Federated takes many seconds to import,
and the first graphs of a process are slow to build, because AutoGraph translates their source. So
this process imports TensorFlow Federated once, executes nothing with it, and forks workers that
inherit the imports. A worker runs its jobs one after the other, as library calls (`work.run`).
"""

import contextlib
import ctypes
import gc
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import traceback
from collections.abc import Sequence

import tqdm

from dpfl import _progress, errors
from dpfl.runtime import signals
from dpfl.studies import jobs as jobs_lib
from dpfl.studies import work

_IMPORTED_ONCE = (
    'dpfl.simulation.run_directory',
    'dpfl.simulation.program',
    'dpfl.tasks.text.models.saved_models',
    'dpfl.tasks.text.synthetic_text',
    'dpfl.tasks.text.models.pretraining',
)
_POLL_SECONDS = 0.5
_END_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_FAILED = 1
# Fork, not spawn, so that workers inherit the imports. This process executes nothing with
# TensorFlow, and has no threads except those of BLAS libraries, which can be forked.
_FORK = multiprocessing.get_context('fork')


def run(jobs: Sequence[jobs_lib.Job], parallel: int, label: str) -> dict[str, dict]:
    """Runs the jobs that are not finished yet, with a progress bar.

    Args:
      jobs: Jobs, started in this order.
      parallel: How many jobs run at a time.
      label: Label of the progress bar.

    Returns:
      What each job printed, by the name of the job.

    Raises:
      RunError: If a job fails, or was finished with other flags. The other running jobs are
        stopped, and can be continued.
    """
    results = {job.name: job.result() for job in jobs}
    missing = [job for job in jobs if results[job.name] is None]
    if missing:
        for name in _IMPORTED_ONCE:
            importlib.import_module(name)
        gc.freeze()  # Garbage collection in the workers skips what was imported here.
        for job in missing:
            for path in (job.log, job.folder):
                path.parent.mkdir(parents=True, exist_ok=True)
        tqdm.tqdm.monitor_interval = 0  # No second thread, for the fork.
        with signals.Signals(), _Bar(jobs, results, label) as bar:
            _run(missing, parallel, results, bar)
    return {name: result for name, result in results.items() if result is not None}


def _run(missing, parallel, results, bar) -> None:
    waiting, workers = list(missing), []
    try:
        for _ in range(min(parallel, len(waiting))):
            workers.append(_Worker())
        for worker in workers:
            worker.begin(waiting.pop(0))
        while any(worker.job for worker in workers):
            busy = {worker.connection: worker for worker in workers if worker.job}
            for connection in multiprocessing.connection.wait(list(busy), _POLL_SECONDS):
                job = busy[connection].end()
                results[job.name] = job.finish()
                if waiting:
                    busy[connection].begin(waiting.pop(0))
            bar.show()
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.wait()


class _Worker:
    """A process that runs jobs one after the other."""

    def __init__(self):
        self.connection, other = _FORK.Pipe()
        self.process = _FORK.Process(target=_serve, args=(other, os.getpid()), daemon=True)
        self.process.start()
        other.close()
        self.job = None

    def begin(self, job: jobs_lib.Job) -> None:
        """Starts a job."""
        self.job = job
        self.connection.send(job)

    def end(self) -> jobs_lib.Job:
        """Returns the job, which has ended; raises RunError if it failed."""
        job, self.job = self.job, None
        try:
            status = self.connection.recv()
        except EOFError:
            self.process.join()
            status = self.process.exitcode
        if status:
            raise errors.RunError(f'{job.name}: {_reason(job, status)}')
        return job

    def wait(self) -> None:
        """Waits for the process to end: a run that is stopped still writes its report."""
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Bar:
    """Progress bar over the rounds of all runs, including those of earlier calls.

    A job that is not a run counts as one round.
    """

    def __init__(self, jobs, results, label):
        self._jobs = jobs
        self._results = results
        self._bar = _progress.bar(
            total=sum(map(_size, jobs)),
            desc=label,
            unit='round',
            initial=self._count(),
            smoothing=0.02,
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._bar.close()

    def _count(self) -> int:
        return sum(
            min(job.rounds_begun(), job.rounds) if self._results[job.name] is None else _size(job)
            for job in self._jobs
        )

    def show(self) -> None:
        """Updates the bar."""
        # Never backwards, although a resumed run repeats the rounds since its checkpoint.
        self._bar.update(max(0, self._count() - self._bar.n))


def _size(job: jobs_lib.Job) -> int:
    return max(job.rounds, 1)


def _reason(job: jobs_lib.Job, status: int) -> str:
    """The last line of a job's log, which says why the job ended."""
    with contextlib.suppress(OSError):
        lines = job.log.read_text(errors='replace').strip().splitlines()
        if lines:
            return f'{lines[-1].removeprefix("error: ")} (see {job.log})'
    return f'ended with status {status}'


def _serve(connection, parent: int) -> None:
    """Runs the jobs that arrive and answers with their exit status, until the process ends."""
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while True:
        status = _status(connection.recv())
        if status >= 128:  # A signal ended the job, and was meant for this process.
            sys.exit(status)
        connection.send(status)


def _status(job: jobs_lib.Job) -> int:
    """Runs a job and returns its exit status."""
    for path, descriptor in ((job.output, 1), (job.log, 2)):
        with open(path, 'wb') as file:
            os.dup2(file.fileno(), descriptor)
    # New streams: text that this process has buffered must not go to the files of the job.
    sys.stdout, sys.stderr = (open(descriptor, 'w', closefd=False) for descriptor in (1, 2))
    try:
        print(json.dumps(work.run(job.binary, job.flags)))
        return 0
    except (errors.ArgumentError, errors.RunError, errors.DataError) as error:
        print(f'error: {error}', file=sys.stderr)
        return _FAILED
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return _FAILED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()  # Graphs are reference cycles.
