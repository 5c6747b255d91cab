"""A run that was interrupted, in whatever way, ends as if it had not been."""

import dataclasses
import errno
import hashlib
import itertools
import os
import pathlib
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
import tree

from dpfl import (
    Participation,
    ParticipationLog,
    _storage,
    accounting,
    aggregators,
    errors,
)
from dpfl.accounting.records import archive, cohorts, journal
from dpfl.mechanisms.discretization import Discretization
from dpfl.simulation import checkpoint, program, run_directory, sampling
from dpfl.simulation import state as state_lib
from dpfl.simulation.training import ExecutionConfig
from tests import runs
from tests.accounting import archives, plans
from tests.simulation import toy_experiment

pytestmark = pytest.mark.usefixtures('undrawn')

_ROUNDS = 7


class _CrashError(Exception):
    pass


@pytest.fixture(scope='module', name='experiment')
def _experiment():
    """Without a noise seed: nothing but the first checkpoint has the noise key."""
    return toy_experiment.in_numpy(
        rounds=_ROUNDS, noise_seed=None, checkpoint_every=2, configuration={'model': 'toy'}
    )


@pytest.fixture(scope='module', name='origin')
def _origin(experiment, tmp_path_factory):
    """A run that crashed in its first round."""
    path = tmp_path_factory.mktemp('origin')
    _crash(experiment, path, 0)
    return path


@pytest.fixture(scope='module', name='reference')
def _reference(experiment, origin, tmp_path_factory):
    """That run, not interrupted since."""
    path = tmp_path_factory.mktemp('reference') / 'run'
    shutil.copytree(origin, path)
    _resume(experiment, path)
    return path


@pytest.fixture(scope='module', name='crashed')
def _crashed(experiment, origin, tmp_path_factory):
    """That run, crashed once more: it has four rounds in its ledger, and two in its checkpoint."""
    path = tmp_path_factory.mktemp('crashed') / 'run'
    shutil.copytree(origin, path)
    _crash(experiment, path, 3)
    return path


@pytest.fixture(name='path')
def _path(crashed, tmp_path):
    """A copy of the crashed run."""
    return shutil.copytree(crashed, tmp_path / 'run')


def _latest(path):
    return checkpoint.latest(path / 'checkpoints', pytest.fail)


def _resume(experiment, path, data=None):
    return program.run_training(experiment, run_directory.RunDirectory(path, resume=True), data)


def _crash(experiment, path, t):
    """Runs until round `t`, which counts from 0, is in the journal and about to be computed."""
    start = _latest(path)
    rounds = itertools.count(start.rounds if start else 0)

    def crash(*arguments):
        if next(rounds) == t:
            raise _CrashError
        return experiment.process.next(*arguments)

    process = types.SimpleNamespace(
        initialize=experiment.process.initialize,
        next=crash,
        get_model_weights=experiment.process.get_model_weights,
    )
    crashing = dataclasses.replace(experiment, process=process)
    with pytest.raises(_CrashError):
        program.run_training(crashing, run_directory.RunDirectory(path, resume=True))


def test_a_run_that_crashes_again_ends_as_if_it_had_not(experiment, path, reference):
    assert _latest(path).rounds == 2
    assert ParticipationLog.load(path / 'participation.npz').rounds == 4
    _crash(experiment, path, 2)
    # Four rounds were begun, and the report has to cover them, however far the next try came.
    assert ParticipationLog.load(path / 'participation.npz').rounds == 4
    report = accounting.PrivacyReport.from_json((path / 'privacy_report.json').read_text())
    assert report.observed.rounds == 4
    with open(path / 'metrics.csv', 'a') as file:
        file.write('4,0.')  # Killed in the middle of a row.
    _resume(experiment, path)
    assert runs.differences(path, reference) == []


def test_damaged_checkpoints_cost_rounds_and_no_bits(experiment, path, reference, caplog):
    saved = sorted((path / 'checkpoints').glob('*.checkpoint'))
    saved[-1].write_bytes(saved[-1].read_bytes()[:-9])
    _resume(experiment, path)
    assert f'refused: {saved[-1]}: is damaged or incomplete' in caplog.text
    assert 'going back to that of round 0' in caplog.text
    assert runs.differences(path, reference) == []


@pytest.mark.parametrize('whole, rest', [(0, 0), (0, 22), (2, 20)])
def test_a_crash_before_the_first_checkpoint_is_a_new_run(
    experiment, origin, tmp_path, whole, rest
):
    """Whether its keys were written or not: nothing was drawn, and no round began."""
    lines = (origin / 'ledger.jsonl').read_bytes().splitlines(keepends=True)
    (tmp_path / 'ledger.jsonl').write_bytes(b''.join(lines[:whole]) + lines[whole][:rest])
    if whole:
        (tmp_path / 'checkpoints').mkdir()
        (tmp_path / 'checkpoints' / '00000000.checkpoint.partial').write_bytes(b'dpfl')
    rarely = ExecutionConfig(checkpoint_every=100)
    _resume(dataclasses.replace(experiment, execution=rarely), tmp_path)
    saved = {path.stem for path in (tmp_path / 'checkpoints').glob('*.checkpoint')}
    assert saved == {'00000000', '00000007'} and archive.has_ended(tmp_path)


def test_data_that_are_mended_before_the_first_round_are_those_of_the_run(experiment, tmp_path):
    """The journal kept the digests of the damaged data, and the run could not be resumed."""

    def damaged(client):
        raise errors.DataError('damaged')

    with pytest.raises(errors.DataError):
        broken = dataclasses.replace(experiment, client_data=damaged)
        _resume(broken, tmp_path, {'keyed_digests': {'clients': '1'}})
    mended = {'keyed_digests': {'clients': '2'}}
    _resume(experiment, tmp_path, mended)
    assert archive.read_journal(tmp_path).state.built.data == mended
    assert run_directory.verify(tmp_path).differences == ()


def test_the_noise_follows_from_the_root_and_from_what_the_run_is_made_of(
    experiment, origin, reference, tmp_path
):
    """A copy that begins with the same settings has the same noise, one with others has not."""
    lines = (origin / 'ledger.jsonl').read_bytes().splitlines(keepends=True)
    other = dataclasses.replace(experiment, configuration={'model': 'other'})
    digests = []
    for number, (run, has_root) in enumerate(
        [(experiment, True), (other, True), (experiment, False)]
    ):
        path = tmp_path / str(number)
        (path / 'checkpoints').mkdir(parents=True)
        (path / 'ledger.jsonl').write_bytes(lines[0])
        if has_root:
            shutil.copy(origin / 'checkpoints' / 'keys', path / 'checkpoints')
        digests.append(_resume(run, path).noise_key_digest)
    assert len({*digests}) == 3
    assert runs.differences(tmp_path / '0', reference) == []
    for name in ('cohorts.bin', 'checkpoints/00000000.checkpoint'):
        assert (tmp_path / '0' / name).read_bytes() == (reference / name).read_bytes()
    assert _events(tmp_path / '0') == _events(reference)


def _without(name):
    return lambda path: (path / name).rename(path.with_name('elsewhere'))


def _with_damaged_journal(path):
    data = (path / 'ledger.jsonl').read_bytes()
    (path / 'ledger.jsonl').write_bytes(data[:100] + b'x' + data[101:])


def _events(path):
    return archive.read_journal(path).events


def _with_the_journal_of_another_run(path):
    """Another noise key: as long, and whole."""
    other = [
        dataclasses.replace(event, noise=f'{event.round:064}')
        if isinstance(event, journal.Began)
        else event
        for event in _events(path)
    ]
    (path / 'ledger.jsonl').write_bytes(archives.encoded(other))


def _cut(path, rounds, *, cohorts_too):
    """Cuts a journal back to its first rounds, at the end of a line."""
    events = _events(path)
    at = [i for i, e in enumerate(events) if isinstance(e, journal.Began) and e.round == rounds]
    (path / 'ledger.jsonl').write_bytes(archives.encoded(events[: at[0]]))
    if cohorts_too:
        found, *_ = cohorts.load(path / cohorts.NAME)
        data = b''.join(cohorts.record(t, found[t]) for t in range(rounds))
        (path / cohorts.NAME).write_bytes(data)


def _cut_to_one_round(path):
    _cut(path, 1, cohorts_too=True)
    (path / 'metrics.csv').unlink()


def _cut_beside_its_cohorts(path):
    _cut(path, 3, cohorts_too=False)


def _cut_beside_its_metrics(path):
    """Back to a run that has just begun."""
    _cut(path, 1, cohorts_too=True)
    (path / 'checkpoints' / '00000002.checkpoint').unlink()


def _cut_before_it_was_built(path):
    lines = (path / 'ledger.jsonl').read_bytes().splitlines(keepends=True)
    (path / 'ledger.jsonl').write_bytes(lines[0])
    for name in ('cohorts.bin', 'metrics.csv'):
        (path / name).unlink()
    for each in (path / 'checkpoints').glob('*.checkpoint'):
        each.unlink()


def _with_other_keys(path):
    (path / 'checkpoints' / 'keys').write_bytes(b'other')


def _with_another_state(path):
    """Without the past noise that the next round needs, for example; the file itself is whole."""
    _rewrite_checkpoint(path, state=lambda saved: [*saved[:-1], np.asarray(saved[-1]) + 1])


def _of_another_round(path):
    _rewrite_checkpoint(path, rounds=lambda rounds: rounds - 1)


def _rewrite_checkpoint(path, **changes):
    saved = _latest(path)
    values = {name: change(getattr(saved, name)) for name, change in changes.items()}
    other = dataclasses.replace(saved, **values)
    (path / 'checkpoints' / f'{saved.rounds:08d}.checkpoint').unlink()
    with open(path / 'checkpoints' / f'{other.rounds:08d}.checkpoint', 'wb') as file:
        other.write(file)


def _with_other_cohorts(experiment):
    schema = experiment.plan.participation
    return {'sampler': sampling.MinSeparationSampler(schema, 12, 3, seed=1)}


def _with_another_plan(experiment):
    plan = dataclasses.replace(experiment.plan, participation=Participation(_ROUNDS, 1))
    return {'record': dataclasses.replace(experiment.record, plan=plan)}


def _with_another_model(experiment):
    return {'configuration': {'model': 'large'}}


@pytest.mark.parametrize(
    'damage, change, message',
    [
        (_without('ledger.jsonl'), None, 'cohorts.bin: has 4 rounds, ledger.jsonl 0: the journal'),
        (_with_damaged_journal, None, 'ledger.jsonl: line 1 is damaged'),
        (_with_the_journal_of_another_run, None, 'checkpoint: shows more than ledger.jsonl'),
        (_cut_to_one_round, None, 'checkpoint: shows more than ledger.jsonl: the journal was cut'),
        (_cut_beside_its_cohorts, None, 'cohorts.bin: has 4 rounds, ledger.jsonl 3: the journal'),
        (_cut_beside_its_metrics, None, 'metrics.csv: has 3 rounds, ledger.jsonl 1: the journal'),
        (_cut_before_it_was_built, None, 'plan.json: ledger.jsonl has no event "built"'),
        (_without('checkpoints'), None, 'ledger.jsonl: has 4 rounds, and there is no checkpoint'),
        (_without('checkpoints/keys'), None, 'checkpoints/keys: No such file'),
        (_with_other_keys, None, 'checkpoints/keys: does not have the keys of ledger.jsonl'),
        (_with_another_state, None, 'the checkpoint of round 2 has another state than the round'),
        (_of_another_round, None, 'the checkpoint of round 1 has another state than the round'),
        (None, _with_other_cohorts, 'ledger.jsonl: round 3 had another cohort'),
        (None, _with_another_plan, 'participation.min_separation=1: must be 2, as when'),
        (None, _with_another_model, 'model=large: must be toy, as when the run began'),
    ],
)
def test_what_does_not_belong_together_is_refused(experiment, path, damage, change, message):
    if damage is not None:
        damage(path)
    if change is not None:
        experiment = dataclasses.replace(experiment, **change(experiment))
    before = runs.contents(path)
    with pytest.raises((errors.RunError, ValueError), match=message):
        _resume(experiment, path)
    assert runs.contents(path) == before


def test_every_shorter_journal_of_a_finished_run_is_refused(reference, tmp_path):
    """Cut back to its first checkpoint, a run went on with other data and the same noise."""
    path = shutil.copytree(reference, tmp_path / 'run')
    for saved in sorted((path / 'checkpoints').glob('*.checkpoint'))[1:]:
        saved.unlink()
    lines = (path / 'ledger.jsonl').read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if b'"event": "began"' in line)
    for count in range(last + 1):
        for rest in (b'', lines[count][:-1], bytes(40)):
            (path / 'ledger.jsonl').write_bytes(b''.join(lines[:count]) + rest)
            with pytest.raises(errors.RunError, match='the journal was cut|is missing'):
                with run_directory.RunDirectory(path, resume=True).in_use():
                    pass
    (path / 'ledger.jsonl').write_bytes(b''.join(lines[: last + 1]))
    with run_directory.RunDirectory(path, resume=True).in_use():
        pass


def _with_other_data_in(experiment, t):
    """Where a client of round `t` has other data than before."""
    changed = int(experiment.sampler.cohort(t)[1])

    def client_data(client):
        return toy_experiment.rows(client + 12 * (client == changed))

    return dataclasses.replace(experiment, client_data=client_data)


def test_other_data_are_refused_before_their_release(experiment, path):
    # Also in the first round that is repeated, which starts from the model of the checkpoint.
    with pytest.raises(errors.RunError, match='round 3: .*round 3 was released with other data'):
        _resume(_with_other_data_in(experiment, 2), path)
    assert len(runs.metrics(path)) == 3  # As of the first time.


def test_a_model_that_was_released_is_not_computed_again_from_other_data(
    experiment, reference, tmp_path
):
    """After the end of a run, with its last checkpoint and without it."""
    path = shutil.copytree(reference, tmp_path / 'run')
    other = _with_other_data_in(experiment, _ROUNDS - 1)
    _resume(other, path)
    (path / 'checkpoints' / f'{_ROUNDS:08d}.checkpoint').unlink()
    with pytest.raises(errors.RunError, match='round 7: .* was released with other data'):
        _resume(other, path)
    assert (path / 'model.npz').read_bytes() == (reference / 'model.npz').read_bytes()


def test_a_checkpoint_is_written_after_the_events_it_stands_on(experiment, path, monkeypatch):
    """Else a power failure would leave one that knows more than the journal."""
    synced, unsynced, append, sync = [], [], _storage.append, _storage.sync

    def appending(file, data, *args, sync=True, **kwargs):
        append(file, data, *args, sync=sync, **kwargs)
        if file.name == 'ledger.jsonl':
            unsynced.append(data)
            if sync:
                synced.extend(unsynced)
                unsynced.clear()

    def syncing(file):
        sync(file)
        synced.extend(unsynced)
        unsynced.clear()

    write = checkpoint.Checkpoint.write

    def writing(self, file):
        known = (path / 'ledger.jsonl').read_bytes()
        assert not any(self.head.encode() in data for data in unsynced)
        assert self.head.encode() in known
        write(self, file)

    monkeypatch.setattr(_storage, 'append', appending)
    monkeypatch.setattr(_storage, 'sync', syncing)
    monkeypatch.setattr(checkpoint.Checkpoint, 'write', writing)
    _resume(experiment, path)
    assert any(b'"event": "released"' in data for data in synced)


def test_a_model_is_on_the_disk_only_with_its_checkpoint(experiment, path, monkeypatch):
    """Whenever the machine stops: no order of a crash lets a released round be computed again."""
    names = []
    replace = os.replace

    def observe(old, new):
        names.append(pathlib.Path(new).name)
        replace(old, new)

    monkeypatch.setattr(os, 'replace', observe)
    _resume(experiment, path)
    assert names.index(f'{_ROUNDS:08d}.checkpoint') < names.index('model.npz')
    assert names[-1] == 'SHA256SUMS'


def test_what_is_interrupted_after_its_model_has_not_ended(experiment, tmp_path):
    """Else a run that continues would be taken for finished, and lack what follows the model."""
    called = []

    def finish(directory):
        called.append((directory / 'model.npz').exists())
        if len(called) == 1:
            raise KeyboardInterrupt

    path = tmp_path / 'run'
    finishing = dataclasses.replace(experiment, finish=finish)
    with pytest.raises(KeyboardInterrupt):
        program.run_training(finishing, run_directory.RunDirectory(path))
    assert (path / 'privacy_report.json').exists() and not archive.has_ended(path)
    _resume(finishing, path)
    assert called == [True, True] and archive.has_ended(path)


@pytest.mark.parametrize(
    'name, message',
    [
        ('00000004.checkpoint', 'round [45]: .*/00000004.checkpoint: No space left on device'),
        ('model.npz', '/model.npz: No space left on device'),
    ],
)
def test_a_full_disk_is_named_in_its_round_and_costs_nothing(
    experiment, path, reference, monkeypatch, name, message
):
    replace = os.replace

    def fail(old, new):
        if pathlib.Path(new).name == name:
            raise OSError(errno.ENOSPC, 'No space left on device')
        replace(old, new)

    monkeypatch.setattr(os, 'replace', fail)
    with pytest.raises(errors.StorageError, match=message) as caught:
        _resume(experiment, path)
    assert '\n' not in str(caught.value)
    assert not list(path.rglob('*.partial'))
    monkeypatch.undo()
    _resume(experiment, path)
    assert runs.differences(path, reference) == []


def test_a_state_of_another_process_is_refused(experiment):
    state = experiment.process.initialize()
    leaves = state_lib.leaves(state)
    restored = state_lib.restore(leaves, state)
    assert str(restored) == str(state) and type(restored) is type(state)
    with pytest.raises(checkpoint.CheckpointError, match='has 1 arrays, the state of the process'):
        state_lib.restore(leaves[:1], state)
    leaves[0] = leaves[0][:1]
    with pytest.raises(
        checkpoint.CheckpointError,
        match=(
            r'has float32\(1,\) for global_model_weights/trainable/0, the process float32\(2,\)'
        ),
    ):
        state_lib.restore(leaves, state)


def test_every_leaf_of_a_state_is_that_of_the_checkpoint():
    saved = [np.float32(0.7), np.int64(3), np.arange(2.0), b'key']
    template = [np.float32(0.5), np.int64(0), np.zeros(2), b'']
    for was, found in zip(saved, state_lib.restore(saved, template), strict=True):
        np.testing.assert_array_equal(found, was)
        assert type(found) is type(was)


def test_noise_is_found_in_the_state_or_missed(experiment):
    first, second = (experiment.process.initialize() for _ in range(2))
    one, other = (
        state_lib.began(0, state, 'a' * 64, [1, 2], 'd' * 64) for state in (first, second)
    )
    assert one.cohort == other.cohort
    assert state_lib.digests(first)[0] == state_lib.digests(second)[0]
    assert state_lib.digests(first)[1] != state_lib.digests(second)[1]
    assert one.noise != other.noise  # Another key.
    with pytest.raises(ValueError, match='process: must hold the noise of a privacy plan'):
        state_lib.began(0, first.global_model_weights, 'a' * 64, [1, 2], 'd' * 64)


def test_all_keys_of_a_state_follow_from_one_root():
    plan = plans.independent(
        3,
        clip_norm=0.5,
        adaptive_clip=accounting.AdaptiveClip(count_stddev=2.0),
        discretization=Discretization(scale=1e3, dimension=3, clip_norm=0.5),
    )
    made = aggregators.build_query(plan, 3, record_specs=tf.TensorSpec([3]))
    before, asked = made.initial_global_state(), []

    def key(purpose):
        asked.append(purpose)
        return hashlib.sha256(purpose.encode()).digest()

    after = state_lib.with_keys(before, key)
    assert len({*asked}) == len(asked) == 3
    keys = {np.frombuffer(key(purpose)[:16], '<i8').tobytes() for purpose in (*asked,)}
    leaves = [np.asarray(leaf) for leaf in tree.flatten(after)]
    fresh = [np.asarray(leaf) for leaf in tree.flatten(before)]
    assert {leaf.tobytes() for leaf in leaves if leaf.shape == (2,)} == keys
    for was, now in zip(fresh, leaves, strict=True):
        assert (was.dtype, was.shape) == (now.dtype, now.shape)
        assert np.array_equal(was, now) == (was.shape != (2,))
