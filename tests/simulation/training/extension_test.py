"""Runs that go on with more rounds end as if these had been planned from the beginning."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.accounting.records import archive, ledger_lines
from dpfl.accounting.reports import history
from dpfl.errors import ArgumentError, RunError
from dpfl.simulation import extension, ledger, outputs, program, verification
from dpfl.simulation.training import TrainConfig, train
from tests import runs
from tests.accounting import archives
from tests.simulation import toy_experiment
from tests.simulation.training import small_config

_SHORT = small_config.BLT.with_values({'rounds': 12, 'eval_every': 100})
_LONG = _SHORT.with_values({'rounds': 18})


@pytest.fixture(scope='module', name='short')
def _short(tmp_path_factory):
    """A finished run of 12 rounds."""
    path = tmp_path_factory.mktemp('short') / 'run'
    return path, train(_SHORT, path, progress=False)


@pytest.fixture(scope='module', name='whole')
def _whole(tmp_path_factory):
    """A run of 18 rounds, planned as such."""
    path = tmp_path_factory.mktemp('whole') / 'run'
    return path, train(_LONG, path, progress=False)


@pytest.fixture(name='path')
def _path(short, tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(short[0], tmp_path / 'run')


def _assert_same(found, path, whole):
    for mine, same in zip(found.weights, whole[1].weights, strict=True):
        np.testing.assert_array_equal(mine, same)
    ours, theirs = runs.released(path), runs.released(whole[0])
    assert ours == theirs and len(ours) == 19
    assert found.report.guarantee == whole[1].report.guarantee
    assert found.report.observed == whole[1].report.observed


@pytest.mark.tff
def test_a_blt_goes_on_as_one_that_is_switched(short, path, tmp_path):
    mechanism = archive.read_plan(path).plan.mechanism
    switched = mechanisms.SwitchedBlt.after(
        mechanism, 12, mechanism.decay / 2, mechanism.scale / 2, gain=0.8, rounds=18
    )
    mechanisms.save(switched, tmp_path / 'switched.npz')
    strategy = str(tmp_path / 'switched.npz')
    settings = {'mechanism': 'switched_blt', 'strategy': strategy}
    for name in ('blt_decay', 'blt_scale'):
        settings[name] = None
    longer = _LONG.with_values(settings)
    whole = train(longer, tmp_path / 'whole', progress=False)
    found = train(longer, path, resume=True, progress=False)
    for mine, same in zip(found.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(mine, same)
    assert found.report.guarantee == whole.report.guarantee
    assert verification.verify(path).differences == ()


@pytest.mark.tff
def test_a_longer_run_is_the_one_that_was_planned_longer(short, path, whole):
    found = train(_LONG, path, resume=True, progress=False)
    _assert_same(found, path, whole)
    before, after = short[1].report.guarantee, found.report.guarantee
    assert (before.rounds, after.rounds) == (12, 18)
    assert after.epsilons[0] > before.epsilons[0] and after.max_participations == 5
    assert verification.verify(path).differences == ()
    assert TrainConfig.from_dict(json.loads((path / 'config.json').read_text())) == _LONG
    plan = json.loads((path / 'plan.json').read_text())
    assert plan['extensions'] == [{'released': 12, 'planned': 12, 'rounds': 18}]
    assert 'extended to 18 when 12' in (path / 'privacy_report.md').read_text()
    again = train(_LONG, path, resume=True, progress=False)
    assert again.report.to_json() == found.report.to_json()
    with pytest.raises(ArgumentError, match='rounds=12: must be 18'):
        train(_SHORT, path, resume=True, progress=False)


@pytest.mark.tff
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    'changes',
    [
        {'mechanism': 'tree', 'blt_decay': None, 'blt_scale': None},
        {
            'mechanism': 'tree',
            'blt_decay': None,
            'blt_scale': None,
            'restart_first': 2,
            'restart_every': 9,
        },
        {'noise': 'hardened'},
        {'adaptive_clip': True, 'count_stddev': 5.0, 'restart_first': 2, 'restart_every': 3},
        {'memory_limit': 0.0},
    ],
)
def test_other_noise_goes_on_as_well(tmp_path, changes):
    short, long = _SHORT.with_values(changes), _LONG.with_values(changes)
    train(short, tmp_path / 'run', progress=False)
    found = train(long, tmp_path / 'run', resume=True, progress=False)
    whole = train(long, tmp_path / 'whole', progress=False)
    _assert_same(found, tmp_path / 'run', (tmp_path / 'whole', whole))


@pytest.mark.tff
@pytest.mark.parametrize(
    'changes, message',
    [
        ({'noise_multiplier': 2.0}, 'noise_multiplier=2.0: must be 3.0, as when the run began'),
        ({'blt_scale': (0.1, 0.3)}, r'mechanism=blt: must have the strategy of the run in its'),
        ({'clip_norm': 0.2}, 'clip_norm=0.2: must be 0.3, as when the run began'),
        ({'max_participations': 3}, 'max_participations'),
        (
            {'target_epsilon': 9.0, 'noise_multiplier': None},
            'target_epsilon=9.0: cannot hold for more rounds.*noise_multiplier=3.0 instead',
        ),
        ({'min_separation': 3}, 'min_separation=3: must be 4, as when the run began'),
    ],
)
def test_nothing_else_may_change(short, changes, message):
    before = {each: each.read_bytes() for each in short[0].rglob('*') if each.is_file()}
    with pytest.raises(ArgumentError, match=message):
        train(_LONG.with_values(changes), short[0], resume=True, progress=False)
    assert {each: each.read_bytes() for each in short[0].rglob('*') if each.is_file()} == before


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_schedule_over_all_rounds_cannot_go_on(tmp_path):
    config = _SHORT.with_values({'rounds': 6, 'server_schedule': 'linear'})
    train(config, tmp_path / 'run', progress=False)
    longer = config.with_values({'rounds': 9})
    with pytest.raises(ArgumentError, match='server_schedule=linear: must be constant to extend'):
        train(longer, tmp_path / 'run', resume=True, progress=False)


@pytest.mark.tff
def test_a_matrix_of_given_rounds_cannot_go_on(tmp_path):
    diagonals = np.tile([1.0, 0.4], (12, 1))
    diagonals[0, 1] = 0.0
    banded = mechanisms.Banded(diagonals)
    mechanisms.save(banded, tmp_path / 'banded.npz')
    config = _SHORT.with_values(
        {
            'mechanism': 'banded',
            'strategy': str(tmp_path / 'banded.npz'),
            'blt_decay': None,
            'blt_scale': None,
        }
    )
    with pytest.raises(ArgumentError, match='rounds=18: must be'):
        train(config.with_values({'rounds': 18}), tmp_path / 'run', resume=True, progress=False)


def test_what_begins_like_another_mechanism():
    blt = mechanisms.Blt(6, [0.9], [0.2])
    assert mechanisms.Blt(9, [0.9], [0.2]).begins_like(blt, 6)
    assert not mechanisms.Blt(9, [0.9], [0.3]).begins_like(blt, 6)
    assert not mechanisms.BinaryTree(9).begins_like(blt, 6)
    assert not blt.begins_like(mechanisms.Blt(9, [0.9], [0.2]), 7)
    tree = mechanisms.BinaryTree
    short = mechanisms.Restarted.every(tree(6), 1, 3)
    assert mechanisms.Restarted.every(tree(9), 1, 3).begins_like(short, 6)
    assert not mechanisms.Restarted.every(tree(9), 1, 4).begins_like(short, 6)
    full = mechanisms.FullHonakerTree
    assert full(4).begins_like(full(4), 4) and not full(8).begins_like(full(4), 4)


class _KilledError(BaseException):
    pass


def _killing(monkeypatch, owner, name, after):
    """Lets a method raise, before or after it has done its work."""
    work = getattr(owner, name)

    def dying(*arguments, **options):
        if after:
            work(*arguments, **options)
        raise _KilledError

    monkeypatch.setattr(owner, name, dying)


@pytest.mark.tff
@pytest.mark.parametrize(
    'owner, name, after, is_longer',
    [
        pytest.param(
            outputs.RunDirectory, 'forget_digests', True, False, marks=pytest.mark.exhaustive
        ),
        (ledger.Ledger, 'extend', True, True),
        pytest.param(
            outputs.RunDirectory, 'forget_results', True, True, marks=pytest.mark.exhaustive
        ),
        (outputs.RunDirectory, 'write_plan', True, True),
        pytest.param(program, 'run_training', False, True, marks=pytest.mark.exhaustive),
    ],
)
def test_a_switch_that_is_killed_leaves_the_old_run_or_the_new_one(
    path, short, whole, monkeypatch, owner, name, after, is_longer
):
    with monkeypatch.context() as patched, pytest.raises(_KilledError):
        _killing(patched, owner, name, after)
        train(_LONG, path, resume=True, progress=False)
    if is_longer:
        with pytest.raises((ArgumentError, RunError), match='18'):
            train(_SHORT, path, resume=True, progress=False)
    else:
        old = train(_SHORT, path, resume=True, progress=False)
        assert old.report == short[1].report
        assert verification.verify(path).differences == ()
    _assert_same(train(_LONG, path, resume=True, progress=False), path, whole)
    assert verification.verify(path).differences == ()


def test_a_ledger_with_an_extension_is_read_back(tmp_path):
    path, plans = tmp_path / 'ledger.jsonl', ('a' * 64, 'b' * 64)
    entries = [ledger_lines.Entry(*(f'{digit}{t:063x}' for digit in 'cdef')) for t in range(3)]
    written = ledger.Ledger(path, plans[0])
    for t in range(2):
        written.record(t, entries[t])
    position = written.position(2)
    longer = ledger_lines.Extension(released=2, planned=2, rounds=5, plan=plans[1])
    written.extend(longer)
    written.record(2, entries[2])
    found = ledger.Ledger(path, plans[1])
    assert found.extensions == (longer,) and found.rounds == 3
    assert found.position(2) == position and found.position(3) == written.position(3)
    with pytest.raises(ledger.LedgerError, match='another plan, that of 5 rounds'):
        ledger.Ledger(path, plans[0])
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in (lines[:3] + lines[4:], lines[:2] + lines[3:], [*lines[:4], lines[3]]):
        with pytest.raises(ledger_lines.LineError, match='is damaged'):
            ledger_lines.parse(b''.join(changed))


def test_a_plan_that_hides_its_extension_is_noticed(tmp_path):
    record = archives.make_record()
    directory = archives.write(tmp_path)
    extended = dataclasses.replace(record, extensions=(history.Extension(2, 4, 6),))
    assert (
        archive.PlanRecord.from_dict(json.loads(extended.to_json()), record.plan.mechanism)
        == extended
    )
    (directory / archive.PLAN).write_text(extended.to_json())
    found = archives.with_new_digests(directory)
    assert any('has other extensions than' in line for line in found)


@pytest.mark.tff
def test_a_longer_run_with_other_cohorts_is_refused(tmp_path):
    experiment = toy_experiment.experiment()
    directory = outputs.RunDirectory(tmp_path)
    program.run_training(experiment, directory)
    start = dataclasses.replace(experiment.sampler, seed=1)
    other = dataclasses.replace(experiment, sampler=start)
    with pytest.raises(RunError, match='with this plan, round 0 would have had another cohort'):
        extension.commit(other, directory, None, {})  # type: ignore[arg-type]
