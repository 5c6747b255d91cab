"""Jobs run in children of their own, at most so many at a time; what is done stays done."""

import contextlib
import io
import json
import os
import pathlib
import signal
import sys
import threading
import time

import pytest

from dpfl import errors
from dpfl.studies import driver, jobs, work


@pytest.fixture(autouse=True)
def _no_tensorflow(monkeypatch):
    monkeypatch.setattr(driver, '_IMPORTED_ONCE', ())
    monkeypatch.setattr(driver, '_POLL_SECONDS', 0.05)


def _jobs(folder, count, **flags):
    return [
        jobs.Job(f'runs/{i}', 'train', {'rounds': '3', 'number': str(i), **flags}, folder)
        for i in range(count)
    ]


def _binary(monkeypatch, run):
    """`run` in place of the work: forked children have it, too."""

    def work_run(binary, flags):
        assert binary == 'train'
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            run(flags)
        return json.loads(printed.getvalue())

    monkeypatch.setattr(work, 'run', work_run)


def _mark(folder, number):
    with open(folder / 'begun', 'a') as file:
        file.write(f'{number} {os.getpid()}\n')


def _begun(folder):
    path = folder / 'begun'
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_each_job_runs_once_in_one_of_the_workers(tmp_path, monkeypatch):
    def run(flags):
        _mark(tmp_path, flags['number'])
        print('noise', file=sys.stderr)
        print(json.dumps({'number': int(flags['number'])}))

    _binary(monkeypatch, run)
    found = driver.run(_jobs(tmp_path, 4), 2, 'test')
    assert found == {f'runs/{i}': {'number': i} for i in range(4)}
    numbers, processes = zip(*_begun(tmp_path), strict=True)
    assert sorted(numbers) == ['0', '1', '2', '3']
    assert len({*processes}) == 2 and str(os.getpid()) not in processes
    assert driver.run(_jobs(tmp_path, 4), 2, 'test') == found
    assert len(_begun(tmp_path)) == 4
    assert _jobs(tmp_path, 1)[0].log.read_text() == 'noise\n'


def test_only_so_many_run_at_a_time(tmp_path, monkeypatch):
    def run(flags):
        folder = pathlib.Path(flags['running'])
        mine = folder / flags['number']
        mine.touch()
        most = 0
        for _ in range(10):
            most = max(most, len(list(folder.iterdir())))
            time.sleep(0.02)
        mine.unlink()
        print(json.dumps({'most': most}))

    _binary(monkeypatch, run)
    running = tmp_path / 'running'
    running.mkdir()
    made = driver.run(_jobs(tmp_path, 5, running=str(running)), 2, 'test')
    assert max(each['most'] for each in made.values()) == 2


def test_a_job_that_fails_is_named_with_its_reason_and_the_others_stay_done(tmp_path, monkeypatch):
    def run(flags):
        _mark(tmp_path, flags['number'])
        if flags['number'] == '1' and not (tmp_path / 'mended').exists():
            print('error: --clip_norm=0: must be > 0', file=sys.stderr)
            sys.exit(2)
        print('{}')

    _binary(monkeypatch, run)
    with pytest.raises(errors.RunError, match=r'^runs/1: --clip_norm=0: must be > 0 \(see .*log\)'):
        driver.run(_jobs(tmp_path, 3), 1, 'test')
    (tmp_path / 'mended').touch()
    assert len(driver.run(_jobs(tmp_path, 3), 1, 'test')) == 3
    assert [number for number, _ in _begun(tmp_path)] == ['0', '1', '1', '2']


def test_a_crash_is_a_failure_too(tmp_path, monkeypatch):
    _binary(monkeypatch, lambda flags: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(errors.RunError, match='runs/0: ended with status -9'):
        driver.run(_jobs(tmp_path, 1), 1, 'test')


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_what_ends_the_study_ends_its_runs(tmp_path, monkeypatch, number):
    def run(flags):
        _mark(tmp_path, flags['number'])
        time.sleep(60)

    def interrupt():
        while len(_begun(tmp_path)) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    _binary(monkeypatch, run)
    threading.Thread(target=interrupt).start()
    started = time.monotonic()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        driver.run(_jobs(tmp_path, 2), 2, 'test')
    assert time.monotonic() - started < 20
    for _, process in _begun(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)
    assert all(job.result() is None for job in _jobs(tmp_path, 2))


def test_other_flags_are_refused_before_anything_runs(tmp_path, monkeypatch):
    _binary(monkeypatch, lambda flags: print('{}'))
    driver.run(_jobs(tmp_path, 1), 1, 'test')
    with pytest.raises(errors.RunError, match='other flags'):
        driver.run(_jobs(tmp_path, 1, rounds='9'), 1, 'test')
