"""Runs that go on with another matrix before their last round, as if it had been planned."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from dpfl import mechanisms
from dpfl.accounting.records import archive, ledger_lines
from dpfl.accounting.reports import history
from dpfl.aggregators.noise import correlated
from dpfl.errors import ArgumentError, RunError
from dpfl.simulation import extension, ledger, outputs, program, state, verification
from dpfl.simulation.training import train
from tests import runs
from tests.accounting import archives
from tests.simulation.training import small_config

_PLANNED = small_config.BLT.with_values({'rounds': 10, 'eval_every': 100, 'checkpoint_every': 4})
_BLT = mechanisms.Blt(10, [0.9, 0.5], [0.1, 0.2])
# Rounds in the ledger when the run is killed; the last checkpoint has fewer.
_RELEASED, _SAVED = 6, 4


class _KilledError(BaseException):
    pass


def _switched(at, gain=0.7, rounds=10, first=_BLT):
    carry = [[0.5, 0.1], [0.2, 0.4]]
    return mechanisms.SwitchedBlt.after(
        first, at, [0.8, 0.3], [0.2, 0.1], gain=gain, carry=carry, rounds=rounds
    )


def _config(folder, mechanism, planned=_PLANNED, **changes):
    """The configuration of a run with a mechanism in a file."""
    path = folder / f'{mechanism.digest()}.npz'
    mechanisms.save(mechanism, path)
    strategy = {'mechanism': mechanism.name, 'strategy': str(path)}
    return planned.with_values({**strategy, 'blt_decay': None, 'blt_scale': None, **changes})


def _killed(config, path, copy, released=_RELEASED, **options):
    """Trains and keeps what SIGKILL leaves of the run after a line of the ledger."""
    record = ledger.Ledger.record

    def dying(self, t, entry):
        record(self, t, entry)
        if t == released - 1:
            shutil.copytree(path, copy)
            raise _KilledError

    with pytest.MonkeyPatch.context() as patched, pytest.raises(_KilledError):
        patched.setattr(ledger.Ledger, 'record', dying)
        train(config, path, progress=False, **options)
    return copy


@pytest.fixture(scope='module', name='killed')
def _killed_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp('killed')
    return _killed(_PLANNED, folder / 'run', folder / 'killed')


@pytest.fixture(scope='module', name='whole')
def _whole(tmp_path_factory):
    """A run that was planned with the switch."""
    folder = tmp_path_factory.mktemp('whole')
    return folder / 'run', train(
        _config(folder, _switched(_RELEASED)), folder / 'run', progress=False
    )


@pytest.fixture(name='path')
def _path(killed, tmp_path):
    return shutil.copytree(killed, tmp_path / 'run')


def _files(path):
    return {each: each.read_bytes() for each in path.rglob('*') if each.is_file()}


def _assert_same(found, path, whole):
    for mine, same in zip(found.weights, whole[1].weights, strict=True):
        np.testing.assert_array_equal(mine, same)
    assert runs.released(path) == runs.released(whole[0])
    assert found.report.guarantee == whole[1].report.guarantee
    assert found.report.observed == whole[1].report.observed
    assert verification.verify(path).differences == ()


@pytest.mark.tff
def test_a_switch_is_the_run_that_was_planned_with_it(killed, path, whole, tmp_path, capfd):
    config = _config(tmp_path, _switched(_RELEASED))
    found = train(config, path, resume=True)
    _assert_same(found, path, whole)
    assert runs.released(path)[1 : 1 + _RELEASED] == runs.released(killed)[1:]
    told = capfd.readouterr().err
    before, after = archive.read_plan(killed).plan, found.report.plan
    assert 'goes on with another matrix after 6 of 10 rounds; the guarantee becomes' in told
    epsilons = [plan.epsilon(1e-3) for plan in (after, before)]
    assert 'with epsilon {:.6g} at delta 0.001, planned {:.6g}'.format(*epsilons) in told
    assert after.noise_multiplier == before.noise_multiplier and epsilons[0] != epsilons[1]
    assert after.mechanism == _switched(_RELEASED)
    plan = json.loads((path / 'plan.json').read_text())
    extensions = [{'released': 6, 'planned': 10, 'rounds': 10, 'switched': True}]
    assert plan['extensions'] == extensions
    page = (path / 'privacy_report.md').read_text()
    assert 'another matrix; it got the present one when 6 had been released' in page
    again = train(config, path, resume=True, progress=False)
    assert again.report.to_json() == found.report.to_json()
    with pytest.raises(ArgumentError, match='mechanism=blt: must have the strategy of the run'):
        train(_PLANNED, path, resume=True, progress=False)


@pytest.mark.tff
@pytest.mark.parametrize('at', [_SAVED, _RELEASED - 1])
def test_a_matrix_that_differs_in_a_released_round_is_refused(killed, tmp_path, monkeypatch, at):
    before, config = _files(killed), _config(tmp_path, _switched(at))
    with pytest.raises(ArgumentError, match='in its first 6 rounds, which are released'):
        train(config, killed, resume=True, progress=False)
    # Rounds that another process has released since the check.
    monkeypatch.setattr(extension, 'check', lambda *_: '')
    with pytest.raises(RunError, match='has 6 rounds, in which the other matrix differs'):
        train(config, killed, resume=True, progress=False)
    assert {name: _files(killed)[name] for name in before} == before


@pytest.mark.tff
@pytest.mark.parametrize(
    'changes, message',
    [
        ({'noise_multiplier': 2.0}, 'noise_multiplier=2.0: must be 3.0, as when the run began'),
        ({'clip_norm': 0.2}, 'clip_norm=0.2: must be 0.3, as when the run began'),
        ({'noise_seed': 6}, 'noise_seed=6: must be 5, as when the run began'),
        ({'min_separation': 3}, 'min_separation=3: must be 4, as when the run began'),
        ({'max_participations': 2}, 'max_participations=2: must be at least 3'),
        (
            {'target_epsilon': 9.0, 'noise_multiplier': None},
            'target_epsilon=9.0: cannot hold for another matrix.*noise_multiplier=3.0 instead',
        ),
    ],
)
def test_nothing_else_may_change(killed, tmp_path, changes, message):
    before = _files(killed)
    with pytest.raises(ArgumentError, match=message):
        train(_config(tmp_path, _switched(8), **changes), killed, resume=True, progress=False)
    assert _files(killed) == before


@pytest.mark.tff
def test_a_finished_run_has_no_rounds_for_another_matrix(whole, tmp_path):
    before = _files(whole[0])
    with pytest.raises(ArgumentError, match='first 10 rounds, which are all released'):
        train(_config(tmp_path, _switched(9)), whole[0], resume=True, progress=False)
    assert _files(whole[0]) == before


@pytest.mark.tff
@pytest.mark.exhaustive
def test_a_second_switch_and_more_rounds(path, tmp_path):
    first = _switched(7)
    second = mechanisms.SwitchedBlt.after(first, 9, [0.6, 0.2], [0.1, 0.1], gain=1.2, rounds=13)
    config = _config(tmp_path, first)
    twice = _killed(config, path, tmp_path / 'twice', 9, resume=True)
    config = _config(tmp_path, second, rounds=13)
    found = train(config, twice, resume=True, progress=False)
    whole = train(config, tmp_path / 'whole', progress=False)
    _assert_same(found, twice, (tmp_path / 'whole', whole))
    extensions = archive.read_plan(twice).extensions
    assert extensions == ((6, 10, 10, True), (9, 10, 13, True))
    assert 'it got the present one and was extended to 13 when 9 had been released' in str(
        found.report.render()
    )


@pytest.mark.tff
@pytest.mark.parametrize(
    'owner, name, after, is_new',
    [
        pytest.param(
            outputs.RunDirectory, 'forget_digests', True, False, marks=pytest.mark.exhaustive
        ),
        (ledger.Ledger, 'extend', True, True),
        pytest.param(outputs.RunDirectory, 'write_plan', True, True, marks=pytest.mark.exhaustive),
        pytest.param(program, 'run_training', False, True, marks=pytest.mark.exhaustive),
    ],
)
def test_a_switch_that_is_killed_leaves_the_old_run_or_the_new_one(
    path, whole, tmp_path, monkeypatch, owner, name, after, is_new
):
    work, config = getattr(owner, name), _config(tmp_path, _switched(_RELEASED))

    def dying(*arguments, **options):
        if after:
            work(*arguments, **options)
        raise _KilledError

    with monkeypatch.context() as patched, pytest.raises(_KilledError):
        patched.setattr(owner, name, dying)
        train(config, path, resume=True, progress=False)
    if not is_new:
        train(_PLANNED, path, resume=True, progress=False)
        assert verification.verify(path).differences == ()
        return
    for other in (_PLANNED, _config(tmp_path, _switched(8))):
        with pytest.raises((ArgumentError, RunError), match='matrix|first 6 rounds'):
            train(other, path, resume=True, progress=False)
    _assert_same(train(config, path, resume=True, progress=False), path, whole)


@pytest.mark.tff
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    'changes',
    [
        {'noise': 'hardened'},
        {'memory_limit': 0.0},
        {'server_schedule': 'linear'},
        {'adaptive_clip': True, 'count_stddev': 5.0, 'restart_first': 1, 'restart_every': 8},
    ],
)
def test_other_noise_is_switched_as_well(tmp_path, changes):
    # With restarts, the switch is in round 7 of a segment that begins in round 2.
    at = 5 if 'restart_first' in changes else 7
    planned = _PLANNED.with_values(changes)
    killed = _killed(planned, tmp_path / 'run', tmp_path / 'killed')
    config = _config(tmp_path, _switched(at), planned)
    found = train(config, killed, resume=True, progress=False)
    whole = train(config, tmp_path / 'whole', progress=False)
    _assert_same(found, killed, (tmp_path / 'whole', whole))


@pytest.mark.tff
@pytest.mark.exhaustive
def test_a_banded_matrix_gets_other_rows(tmp_path):
    diagonals = np.tile([1.0, 0.4, 0.2], (10, 1))
    diagonals[[0, 0, 1], [1, 2, 2]] = 0.0
    other = diagonals.copy()
    other[7:, 1:] *= 0.5
    planned = _config(tmp_path, mechanisms.Banded(diagonals))
    killed = _killed(planned, tmp_path / 'run', tmp_path / 'killed')
    config = _config(tmp_path, mechanisms.Banded(other))
    found = train(config, killed, resume=True, progress=False)
    whole = train(config, tmp_path / 'whole', progress=False)
    _assert_same(found, killed, (tmp_path / 'whole', whole))


@pytest.mark.parametrize('at', [3, 7])
def test_noise_after_a_switch_is_that_of_the_whole_matrix(at):
    switched, key, specs = _switched(at), np.array([3, 4]), [tf.TensorSpec([5], tf.float32)]
    plan = correlated.initial_state(_BLT.kernel(), specs, key)
    rows = []
    for _ in range(at):
        [row], plan = correlated.next_noise(_BLT.kernel(), 10, plan, specs)
        rows.append(row)
    buffers = correlated.buffers_after(switched.kernel(), key, at, tf.float32, 5)
    # The buffers of the plan are those of the new kernel, bit for bit.
    np.testing.assert_array_equal(buffers, plan.past['float32'])
    following = plan._replace(past={'float32': buffers})
    for _ in range(10 - at):
        [row], following = correlated.next_noise(switched.kernel(), 10, following, specs)
        rows.append(row)
    noise = [correlated.independent_noise(key, t, specs)[0] for t in range(10)]
    dense = np.linalg.solve(switched.strategy_matrix(), np.stack(noise))
    np.testing.assert_allclose(np.stack(rows), dense, atol=1e-5)
    fresh = correlated.initial_state(switched.kernel(), specs, key)
    for row in rows:
        [again], fresh = correlated.next_noise(switched.kernel(), 10, fresh, specs)
        np.testing.assert_array_equal(again, row)


def test_a_matrix_is_another_one_also_if_it_is_only_streamed_otherwise():
    same = mechanisms.SwitchedBlt.after(_BLT, 7, _BLT.decay, _BLT.scale)
    assert extension._has_released(same, _BLT, 7)
    wider = mechanisms.Restarted(_BLT, (3,), 10)
    assert not extension._has_released(wider, _BLT, 2)
    wide = np.where(np.arange(3) <= np.arange(10)[:, None], 1.0, 0.0)
    pair = mechanisms.Banded(wide), mechanisms.Banded(wide[:, :2])
    assert np.array_equal(*(each.with_rounds(2).strategy_matrix() for each in pair))
    assert extension._has_released(pair[0], pair[0], 2)
    assert not extension._has_released(*pair, 2)
    assert not extension._has_released(same, _BLT, 0)


def test_before_the_first_round_a_run_begins_anew(tmp_path):
    before = archives.make_record().plan
    other = dataclasses.replace(before, mechanism=mechanisms.Blt(6, [0.5, 0.1], [0.2, 0.3]))
    assert extension._is_other(other, before)
    with pytest.raises(ArgumentError, match='no round is released, so begin a new run'):
        extension._require_released(other, before, 0, tmp_path)


def test_past_noise_in_another_place_is_refused():
    plan, saved = archives.make_record().plan, [np.zeros(1), np.zeros(2)]
    state.require_places(saved, {'a': saved[0], 'b': saved[1]}, plan)
    with pytest.raises(RunError, match='past noise of 2 copies of the model would be kept in'):
        state.require_places(saved, {'a': saved[0]}, plan)


def test_ledger_and_plan_know_a_switch(tmp_path):
    path, plans = tmp_path / 'ledger.jsonl', ('a' * 64, 'b' * 64)
    entries = [ledger_lines.Entry(*(f'{digit}{t:063x}' for digit in 'cdef')) for t in range(3)]
    written = ledger.Ledger(path, plans[0])
    for t in range(2):
        written.record(t, entries[t])
    switch = ledger_lines.Extension(released=2, planned=5, rounds=5, plan=plans[1], switched=True)
    written.extend(switch)
    written.record(2, entries[2])
    found = ledger.Ledger(path, plans[1])
    assert found.extensions == (switch,) and found.history == ((2, 5, 5, True),)
    with pytest.raises(ledger.LedgerError, match='matrix with which it goes on after 2 rounds'):
        ledger.Ledger(path, plans[0])


@pytest.mark.parametrize('changes', [{'switched': False}, {'planned': 2}, {'rounds': 4}])
def test_no_ledger_and_no_plan_has_an_extension_of_nothing(changes):
    fields = {'released': 2, 'planned': 5, 'rounds': 5, 'switched': True, **changes}
    text, chain = ledger_lines.first_line('a' * 64)
    for t in range(2):
        line, chain = ledger_lines.line(chain, t, ledger_lines.Entry('c', 'd', f'{t}', 'f'))
        text += line
    bad = ledger_lines.Extension(plan='b' * 64, **fields)
    with pytest.raises(ledger_lines.LineError, match='is damaged'):
        ledger_lines.parse(text + ledger_lines.extension_line(chain, bad)[0])
    with pytest.raises(ArgumentError, match='rounds='):
        archive._extensions([fields])
    good = dataclasses.replace(bad, planned=5, rounds=6, switched=True)
    assert ledger_lines.parse(text + ledger_lines.extension_line(chain, good)[0]).extensions


def test_the_history_of_plain_extensions_has_the_words_that_it_had():
    plan = archives.make_record().plan
    plain = history.sentences(plan, [history.Extension(2, 4, 6)], None, None)
    assert plain[0] == 'It was planned for 4 rounds, and extended to 6 when 2 had been released.'
    assert 'epsilon is larger than that of the shorter run' in plain[1]
