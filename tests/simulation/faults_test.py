"""A run that meets a fault ends in one line, loses nothing that was saved, and is resumed."""

import dataclasses
import itertools
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from dpfl import ParticipationLog, _storage, accounting, errors
from dpfl.accounting.records import archive
from dpfl.simulation import checkpoint
from dpfl.simulation.training import ExecutionConfig
from tests import paths, runs
from tests.simulation import toy_experiment

_ROUNDS = 5


@pytest.fixture(scope='module', name='experiment')
def _experiment():
    return toy_experiment.in_numpy(rounds=_ROUNDS, checkpoint_every=10)


@pytest.fixture(scope='module', name='reference')
def _reference(experiment, tmp_path_factory):
    path = tmp_path_factory.mktemp('reference')
    toy_experiment.run(experiment, path)
    return path


def _assert_stated(path, experiment, rounds):
    """Log and report have the rounds that were begun."""
    log = ParticipationLog.load(path / archive.LOG)
    assert log == ParticipationLog(map(experiment.sampler.cohort, range(rounds)))
    report = accounting.PrivacyReport.from_json((path / archive.REPORT).read_text())
    assert report.basis == 'plan' and report.observed.rounds == rounds


def _assert_resumed(experiment, path, reference):
    toy_experiment.run(experiment, path)
    assert not runs.differences(path, reference)


@pytest.mark.usefixtures('undrawn')
def test_without_memory_the_rounds_before_are_saved(experiment, reference, tmp_path):
    def fail():
        np.ones(1 << 55)

    with pytest.raises(MemoryError, match='Unable to allocate'):
        toy_experiment.run(toy_experiment.failing(experiment, 3, fail), tmp_path)
    # No checkpoint was due.
    assert checkpoint.latest(tmp_path / 'checkpoints', pytest.fail).rounds == 3
    # The data of the fourth were missing: nothing was released of it, nor about to be.
    _assert_stated(tmp_path, experiment, 3)
    assert len((tmp_path / 'metrics.csv').read_text().splitlines()) == 4
    _assert_resumed(experiment, tmp_path, reference)


@pytest.mark.usefixtures('undrawn')
@pytest.mark.parametrize('name', ['ledger.jsonl', 'cohorts.bin'])
def test_an_interrupt_between_disk_and_memory_leaves_a_true_log_and_report(
    experiment, reference, tmp_path, name, monkeypatch
):
    append = _storage.append

    def appending(path, data, *options, **more):
        append(path, data, *options, **more)
        if path.name == name and (b'"began"' in data or name == 'cohorts.bin') and next(seen) == 3:
            raise KeyboardInterrupt

    seen = itertools.count()
    monkeypatch.setattr(_storage, 'append', appending)
    with pytest.raises(KeyboardInterrupt):
        toy_experiment.run(experiment, tmp_path)
    _assert_stated(tmp_path, experiment, 4)
    _assert_resumed(experiment, tmp_path, reference)


def _remove(path):
    # In one step: a checkpoint may be on its way.
    shutil.rmtree(path.rename(path.with_name('trash')), ignore_errors=True)


def _rename(path):
    path.rename(path.with_name('there'))


def _replace_by_empty(path):
    _rename(path)
    path.mkdir()


def _replace_by_copy(path):
    _rename(path)
    _copy(path.with_name('there'), path)


def _copy(path, other):
    # The run goes on meanwhile: a checkpoint may be on its way, and no longer be there when it is
    # copied, and the journal comes last because it has to know all that the other files show.
    shutil.copytree(path, other, ignore=shutil.ignore_patterns('*.partial'))
    shutil.copy2(path / 'ledger.jsonl', other)


def _remove_ledger(path):
    (path / 'ledger.jsonl').unlink()


@pytest.mark.usefixtures('undrawn')
@pytest.mark.parametrize(
    'change', [_remove, _rename, _replace_by_empty, _replace_by_copy, _remove_ledger]
)
def test_no_round_is_released_into_another_directory(experiment, reference, tmp_path, change):
    path, kept, there = tmp_path / 'run', tmp_path / 'kept', tmp_path / 'there'
    contents = []

    def fail():
        _copy(path, kept)
        change(path)
        contents.append(_contents(path))

    with pytest.raises(errors.StorageError, match=f'{path}') as caught:
        often = dataclasses.replace(experiment, execution=ExecutionConfig(checkpoint_every=1))
        toy_experiment.run(toy_experiment.failing(often, 3, fail), path)
    assert '\n' not in str(caught.value)
    if change is not _remove_ledger:
        assert _contents(path) == contents[0]
    assert not (path / 'ledger.jsonl').exists() or change is _replace_by_copy
    _assert_resumed(experiment, there if there.exists() else kept, reference)


def _contents(path):
    """Files of a directory, but for those that may be on their way when it is replaced."""
    on_their_way = ('metrics.csv', 'tensorboard', 'checkpoints')
    return {
        each: content
        for each, content in runs.contents(path).items()
        if not {each.name, each.parent.name} & {*on_their_way}
    }


def _lines_of_script(name, *flags) -> list[str]:
    done = subprocess.run(
        [sys.executable, f'scripts/{name}.py', *flags],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.exhaustive
def test_faults_of_a_sample_of_system_calls():
    flags = ('--noruns', '--every=17', '--crashes=0', '--noise=unseeded')
    lines = _lines_of_script('fault_test', *flags)
    assert lines[-1].endswith(' 0 worse than one line')
    assert int(lines[0].split(', ')[1].split()[0]) >= 15


@pytest.mark.exhaustive
def test_what_an_end_at_every_system_call_leaves_is_continued():
    """Each draw and each round is released once, and none is lost."""
    lines = _lines_of_script('fault_test', '--noruns', '--every=0')
    assert lines[-1].endswith(' 0 worse than one line')
    for how in ('killed', 'torn', 'power'):
        assert int(re.search(rf'{how} +(\d+)', '\n'.join(lines))[1]) >= 20, lines


@pytest.mark.tff
@pytest.mark.exhaustive
def test_killed_runs_end_as_if_they_had_not_been():
    """A sample of what scripts/kill_test.py does at length."""
    *_, last = _lines_of_script('kill_test', '--runs=3', '--rounds=20', '--seed=5')
    assert last.startswith('3 runs, ') and last.endswith(' kills, 0 differ')
    assert int(last.split()[2]) >= 3
