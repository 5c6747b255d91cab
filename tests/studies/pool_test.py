"""Jobs run in processes of their own; a failure is named, and none outlives the study."""

import os
import signal
import sys
import threading
import time

import pytest

from dpfl import errors
from tests.studies import scripts_of_studies

run_study = scripts_of_studies.load('run_study')

pytestmark = pytest.mark.standard


def number(value):
    print('noise', file=sys.stderr)
    return value, os.getpid()


def fail():
    raise errors.ArgumentError('clip_norm', 0, 'must be > 0')


def crash():
    os.kill(os.getpid(), signal.SIGKILL)


def wait(path):
    path.write_text(str(os.getpid()))
    time.sleep(60)


def test_jobs_run_in_other_processes_with_a_log_each(tmp_path):
    found = run_study.in_processes(number, {f'runs/{i}': (i,) for i in range(4)}, 2, tmp_path)
    assert [value for value, _ in found.values()] == [0, 1, 2, 3]
    processes = {process for _, process in found.values()}
    assert len(processes) <= 2 and os.getpid() not in processes
    assert (tmp_path / 'runs__3.log').read_text() == 'noise\n'


def test_a_failure_is_named_with_its_reason(tmp_path):
    with pytest.raises(errors.RunError, match=r'^b: clip_norm=0: must be > 0 \(see .*b.log\)'):
        run_study.in_processes(fail, {'b': ()}, 2, tmp_path)
    with pytest.raises(errors.RunError, match='a process ended before its job did'):
        run_study.in_processes(crash, {'b': ()}, 2, tmp_path)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_what_ends_the_study_ends_its_jobs(tmp_path, number):
    paths = [tmp_path / name for name in ('a', 'b')]

    def interrupt():
        while not all(path.exists() and path.read_text() for path in paths):
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt).start()
    started = time.monotonic()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        run_study.in_processes(wait, {path.name: (path,) for path in paths}, 2, tmp_path / 'logs')
    assert time.monotonic() - started < 20
    for path in paths:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)
