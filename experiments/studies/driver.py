"""Runs the jobs of a study in a few processes, each of which does many.

A small run takes longer to start than to train: TensorFlow Federated takes many seconds to import,
and the first graphs of a process are slow to build, since AutoGraph translates their source. So
this process imports it once, executes nothing with it, and forks workers that inherit the imports.
Each worker does one job after the other, as library calls (`work.run`).
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

from dpfl import errors
from dpfl.runtime import signals
from experiments.studies import jobs as jobs_lib
from experiments.studies import work

_IMPORTED_ONCE = (
    'dpfl.simulation.outputs',
    'dpfl.simulation.program',
    'dpfl.tasks.text.models.saved_models',
    'dpfl.tasks.text.synthetic_text',
    'dpfl.tasks.text.models.pretraining',
)
_POLL_SECONDS = 0.5
_END_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_FAILED = 1
# Fork, not spawn: the imports are what is to be kept. Nothing of TensorFlow runs in this process,
# and no thread but those of BLAS libraries, which are made for forks.
_FORK = multiprocessing.get_context('fork')


def run(jobs: Sequence[jobs_lib.Job], parallel: int, label: str) -> dict[str, dict]:
    """Does what is not done yet, with a progress bar.

    Args:
      jobs: in the order in which they are begun.
      parallel: how many at a time.
      label: of the bar.

    Returns:
      What each job printed, by its name.

    Raises:
      RunError: if one fails, or was done with other flags; the others that were running are ended,
        and can be continued.
    """
    results = {job.name: job.result() for job in jobs}
    missing = [job for job in jobs if results[job.name] is None]
    if missing:
        for name in _IMPORTED_ONCE:
            importlib.import_module(name)
        gc.freeze()  # Collections in the workers leave alone what was there before them.
        for job in missing:
            for path in (job.log, job.folder):
                path.parent.mkdir(parents=True, exist_ok=True)
        tqdm.tqdm.monitor_interval = 0  # No thread besides this one.
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
        """Runs a job."""
        self.job = job
        self.connection.send(job)

    def end(self) -> jobs_lib.Job:
        """The job that has ended; raises RunError if it failed."""
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
        """Until the process has ended: a run writes its report, and leaves its checkpoints."""
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Bar:
    """Rounds of all runs, those of earlier calls included; jobs that are no runs count as one."""

    def __init__(self, jobs, results, label):
        self._jobs = jobs
        self._results = results
        self._bar = tqdm.tqdm(
            total=sum(map(_size, jobs)),
            desc=label,
            unit='round',
            dynamic_ncols=True,
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
        """Shows what has been done by now."""
        # Never backwards: a run that is resumed repeats the rounds since its checkpoint.
        self._bar.update(max(0, self._count() - self._bar.n))


def _size(job: jobs_lib.Job) -> int:
    return max(job.rounds, 1)


def _reason(job: jobs_lib.Job, status: int) -> str:
    """The last line that a job wrote, which says why it ended."""
    with contextlib.suppress(OSError):
        lines = job.log.read_text(errors='replace').strip().splitlines()
        if lines:
            return f'{lines[-1].removeprefix("error: ")} (see {job.log})'
    return f'ended with status {status}'


def _serve(connection, parent: int) -> None:
    """Runs jobs and answers with their exit status, until the process is ended."""
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while True:
        status = _status(connection.recv())
        if status >= 128:  # By a signal, which was meant for this process.
            sys.exit(status)
        connection.send(status)


def _status(job: jobs_lib.Job) -> int:
    """The exit status of a job, after it."""
    for path, descriptor in ((job.output, 1), (job.log, 2)):
        with open(path, 'wb') as file:
            os.dup2(file.fileno(), descriptor)
    # New ones: what this process had not written yet is not for these files.
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
        gc.collect()  # Graphs refer to themselves.
