"""Runs that go on with more rounds, or another matrix, end as if that had been planned.

`records_of_extensions_test.py` has what ledger and plan keep of it.
"""

import functools
import json
import pathlib
import shutil
import tempfile

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError, RunError
from dpfl.simulation import extension, ledger, outputs, program, verification
from dpfl.simulation.training import TrainConfig, train
from tests import runs
from tests.simulation.training import small_config

pytestmark = pytest.mark.tff

_PLANNED = small_config.BLT.with_values({'rounds': 10, 'eval_every': 100, 'checkpoint_every': 4})
_BLT = mechanisms.Blt(10, [0.9, 0.5], [0.1, 0.2])
_NO_PARAMETERS = {'blt_decay': None, 'blt_scale': None}
_TREE = {'mechanism': 'tree', **_NO_PARAMETERS}
_ADAPTIVE = {'adaptive_clip': True, 'count_stddev': 5.0}
# Rounds in the ledger when the run is killed; the last checkpoint has fewer.
_RELEASED = 6
# Settings of the run before, and the round from which it has another matrix, or None where it has
# more rounds. With restarts, a switch is within a segment that begins in round 2.
_CASES = {
    'longer': ({}, None),
    'switched': ({}, _RELEASED),
    'longer tree': (_TREE, None),
    'longer with restarts': ({**_TREE, 'restart_first': 2, 'restart_every': 9}, None),
    'longer with hardened noise': ({'noise': 'hardened'}, None),
    'longer adaptive': ({**_ADAPTIVE, 'restart_first': 2, 'restart_every': 3}, None),
    'longer in a file': ({'memory_limit': 0.0}, None),
    'switched with hardened noise': ({'noise': 'hardened'}, 7),
    'switched in a file': ({'memory_limit': 0.0}, 7),
    'switched with a schedule': ({'server_schedule': 'linear'}, 7),
    'switched adaptive': ({**_ADAPTIVE, 'restart_first': 1, 'restart_every': 8}, 5),
}
_STANDARD = ('longer', 'switched')


class _KilledError(BaseException):
    pass


def _switched(at, gain=0.7, rounds=10, first=_BLT):
    carry = [[0.5, 0.1], [0.2, 0.4]]
    return mechanisms.SwitchedBlt.after(
        first, at, [0.8, 0.3], [0.2, 0.1], gain=gain, carry=carry, rounds=rounds
    )


@functools.cache
def _folder() -> pathlib.Path:
    return pathlib.Path(tempfile.mkdtemp(prefix='continued_runs_'))


@pytest.fixture(scope='module', autouse=True)
def _removed():
    yield
    shutil.rmtree(_folder(), ignore_errors=True)


def _with_matrix(mechanism, planned=_PLANNED, **changes):
    """The configuration of a run with a mechanism in a file."""
    path = _folder() / f'{mechanism.digest()}.npz'
    mechanisms.save(mechanism, path)
    strategy = {'mechanism': mechanism.name, 'strategy': str(path)}
    return planned.with_values({**strategy, **_NO_PARAMETERS, **changes})


def _train(config, path, **options):
    return train(config, path, progress=False, **options)


def _copied_when_killed(config, path, copy, released=_RELEASED, **options):
    """Trains, and keeps a copy of what SIGKILL leaves of the run after a line of the ledger."""
    record = ledger.Ledger.record

    def copying(self, t, entry):
        record(self, t, entry)
        if t == released - 1:
            # Temporary files may vanish while they are copied.
            shutil.copytree(path, copy, ignore=shutil.ignore_patterns('*.partial'))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ledger.Ledger, 'record', copying)
        _train(config, path, **options)


@functools.cache
def _before(name):
    """Directories of a run as it was planned, finished and killed."""
    folder = _folder() / name / 'before'
    config = _PLANNED.with_values(_CASES[name][0])
    _copied_when_killed(config, folder / 'run', folder / 'killed')
    return folder / 'run', folder / 'killed'


def _after(name):
    """The configuration with which a run goes on."""
    changes, at = _CASES[name]
    planned = _PLANNED.with_values(changes)
    return (
        planned.with_values({'rounds': 14}) if at is None else _with_matrix(_switched(at), planned)
    )


@functools.cache
def _whole(name):
    """The run that was planned so from the beginning."""
    path = _folder() / name / 'whole'
    return path, _train(_after(name), path)


def _beginning(name, tmp_path):
    """A copy of the run before: finished where it gets more rounds, killed for another matrix."""
    finished, killed = _before(name)
    return shutil.copytree(finished if _CASES[name][1] is None else killed, tmp_path / 'run')


def _assert_same(found, path, whole):
    # A tree of more rounds has other buffers, on which the keys depend: the same law, other bits.
    mechanism = found.report.plan.mechanism
    if getattr(mechanism, 'base', mechanism).name != 'tree':
        for mine, same in zip(found.weights, whole[1].weights, strict=True):
            np.testing.assert_array_equal(mine, same)
        assert runs.released(path) == runs.released(whole[0])
    assert found.report.guarantee == whole[1].report.guarantee
    assert found.report.observed == whole[1].report.observed
    assert verification.verify(path).differences == ()


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(
            each, marks=pytest.mark.standard if each in _STANDARD else pytest.mark.exhaustive
        )
        for each in _CASES
    ],
)
def test_a_run_that_goes_on_is_the_one_that_was_planned_so(name, tmp_path):
    path = _beginning(name, tmp_path)
    lines = runs.released(path)
    found = _train(_after(name), path, resume=True)
    _assert_same(found, path, _whole(name))
    assert runs.released(path)[1 : len(lines)] == lines[1:]
    again = _train(_after(name), path, resume=True)
    assert again.report.to_json() == found.report.to_json()
    assert TrainConfig.from_dict(json.loads((path / 'config.json').read_text())) == _after(name)


@pytest.mark.standard
def test_reports_say_how_a_run_went_on(tmp_path, capfd):
    path = _beginning('longer', tmp_path / 'longer')
    before = archive.read_plan(path).report(None).guarantee
    after = _train(_after('longer'), path, resume=True).report.guarantee
    assert (before.rounds, after.rounds) == (10, 14)
    assert after.epsilons[0] > before.epsilons[0]
    plan = json.loads((path / 'plan.json').read_text())
    assert plan['extensions'] == [{'released': 10, 'planned': 10, 'rounds': 14}]
    assert 'extended to 14 when 10' in (path / 'privacy_report.md').read_text()
    with pytest.raises(ArgumentError, match='rounds=10: must be 14'):
        _train(_PLANNED, path, resume=True)

    path = _beginning('switched', tmp_path / 'switched')
    planned = archive.read_plan(path).plan
    capfd.readouterr()
    found = train(_after('switched'), path, resume=True)
    told = capfd.readouterr().err
    assert 'goes on with another matrix after 6 of 10 rounds; the guarantee becomes' in told
    epsilons = [each.epsilon(1e-3) for each in (found.report.plan, planned)]
    assert 'with epsilon {:.6g} at delta 0.001, planned {:.6g}'.format(*epsilons) in told
    assert found.report.plan.mechanism == _switched(_RELEASED)
    plan = json.loads((path / 'plan.json').read_text())
    extensions = [{'released': 6, 'planned': 10, 'rounds': 10, 'switched': True}]
    assert plan['extensions'] == extensions
    page = (path / 'privacy_report.md').read_text()
    assert 'another matrix; it got the present one when 6 had been released' in page
    with pytest.raises(ArgumentError, match='mechanism=blt: must have the strategy of the run'):
        _train(_PLANNED, path, resume=True)


@pytest.mark.standard
@pytest.mark.parametrize(
    'name, changes, message',
    [
        ('switched', {'noise_multiplier': 2.0}, 'noise_multiplier=2.0: must be 3.0, as when the'),
        ('switched', {'clip_norm': 0.2}, 'clip_norm=0.2: must be 0.3, as when the run began'),
        ('longer', {'noise_seed': 6}, 'noise_seed=6: must be 5, as when the run began'),
        ('longer', {'min_separation': 3}, 'min_separation=3: must be 4, as when the run began'),
        ('switched', {'max_participations': 2}, 'max_participations=2: must be at least 3'),
        (
            'longer',
            {'target_epsilon': 9.0, 'noise_multiplier': None},
            'target_epsilon=9.0: cannot hold for more rounds.*noise_multiplier=3.0 instead',
        ),
        ('longer', {'blt_scale': (0.1, 0.3)}, 'mechanism=blt: must have the strategy of the run'),
    ],
)
def test_nothing_else_may_change(name, tmp_path, changes, message):
    path = _beginning(name, tmp_path)
    before = _files(path)
    with pytest.raises(ArgumentError, match=message):
        _train(_after(name).with_values(changes), path, resume=True)
    assert _files(path) == before


def _files(path):
    return {each: each.read_bytes() for each in path.rglob('*') if each.is_file()}


@pytest.mark.standard
@pytest.mark.parametrize('at', [_RELEASED - 1])
def test_a_matrix_that_differs_in_a_released_round_is_refused(tmp_path, monkeypatch, at):
    killed, config = _beginning('switched', tmp_path), _with_matrix(_switched(at))
    before = _files(killed)
    with pytest.raises(ArgumentError, match='in its first 6 rounds, which are released'):
        _train(config, killed, resume=True)
    # Rounds that another process has released since the check.
    monkeypatch.setattr(extension, 'check', lambda *_: '')
    with pytest.raises(RunError, match='has 6 rounds, in which the other matrix differs'):
        _train(config, killed, resume=True)
    assert {name: _files(killed)[name] for name in before} == before


@pytest.mark.standard
def test_a_finished_run_has_no_rounds_for_another_matrix():
    finished, _ = _before('switched')
    before = _files(finished)
    with pytest.raises(ArgumentError, match='first 10 rounds, which are all released'):
        _train(_with_matrix(_switched(9)), finished, resume=True)
    assert _files(finished) == before


@pytest.mark.exhaustive
def test_a_second_switch_and_more_rounds(tmp_path):
    first, path = _switched(7), _beginning('switched', tmp_path)
    second = mechanisms.SwitchedBlt.after(first, 9, [0.6, 0.2], [0.1, 0.1], gain=1.2, rounds=13)
    twice = tmp_path / 'twice'
    _copied_when_killed(_with_matrix(first), path, twice, 9, resume=True)
    config = _with_matrix(second, rounds=13)
    found = _train(config, twice, resume=True)
    whole = _train(config, tmp_path / 'whole')
    _assert_same(found, twice, (tmp_path / 'whole', whole))
    assert archive.read_plan(twice).extensions == ((6, 10, 10, True), (9, 10, 13, True))


@pytest.mark.exhaustive
def test_a_banded_matrix_gets_other_rows_and_no_more(tmp_path):
    diagonals = np.tile([1.0, 0.4, 0.2], (10, 1))
    diagonals[[0, 0, 1], [1, 2, 2]] = 0.0
    other = diagonals.copy()
    other[7:, 1:] *= 0.5
    planned = _with_matrix(mechanisms.Banded(diagonals))
    killed = tmp_path / 'killed'
    _copied_when_killed(planned, tmp_path / 'run', killed)
    config = _with_matrix(mechanisms.Banded(other))
    found = _train(config, killed, resume=True)
    whole = _train(config, tmp_path / 'whole')
    _assert_same(found, killed, (tmp_path / 'whole', whole))
    with pytest.raises(ArgumentError, match='rounds=18: must be'):
        _train(config.with_values({'rounds': 18}), killed, resume=True)


@pytest.mark.exhaustive
def test_a_schedule_over_all_rounds_cannot_go_on(tmp_path):
    config = _PLANNED.with_values({'rounds': 4, 'server_schedule': 'linear'})
    _train(config, tmp_path / 'run')
    with pytest.raises(ArgumentError, match='server_schedule=linear: must be constant to extend'):
        _train(config.with_values({'rounds': 6}), tmp_path / 'run', resume=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', _STANDARD)
@pytest.mark.parametrize(
    'owner, method, after, is_new',
    [
        (outputs.RunDirectory, 'forget_digests', True, False),
        (ledger.Ledger, 'extend', True, True),
        (outputs.RunDirectory, 'forget_results', True, True),
        (outputs.RunDirectory, 'write_plan', True, True),
        (program, 'run_training', False, True),
    ],
)
def test_a_change_that_is_killed_leaves_the_old_run_or_the_new_one(
    name, tmp_path, monkeypatch, owner, method, after, is_new
):
    work, path = getattr(owner, method), _beginning(name, tmp_path)

    def dying(*arguments, **options):
        if after:
            work(*arguments, **options)
        raise _KilledError

    with monkeypatch.context() as patched, pytest.raises(_KilledError):
        patched.setattr(owner, method, dying)
        _train(_after(name), path, resume=True)
    if is_new:
        with pytest.raises((ArgumentError, RunError), match='14|matrix'):
            _train(_PLANNED, path, resume=True)
    else:
        old = shutil.copytree(path, tmp_path / 'old')
        _train(_PLANNED, old, resume=True)
        assert verification.verify(old).differences == ()
    _assert_same(_train(_after(name), path, resume=True), path, _whole(name))
