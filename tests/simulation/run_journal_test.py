"""The journal of a run on the disk: what is written stays, and what repeats is compared."""

import dataclasses

import numpy as np
import pytest

from dpfl import errors
from dpfl.accounting.records import cohorts, journal
from dpfl.simulation import run_directory, run_journal
from tests.accounting import archives

_KEY = np.array([81985529216486895, -1], np.int64)
_COHORT = [1, 7]


def _began(t, **other):
    digests = {
        'cohort': journal.cohort_digest(_COHORT),
        'model': journal.digest([np.float32(t)]),
        'noise': journal.digest([_KEY, np.int64(t)]),
        'data': journal.digest([np.int8(t)]),
    }
    return journal.Began(round=t, **digests | other)


def _released(t, **other):
    model, state = journal.digest([np.float32(t + 1)]), journal.digest([np.float64(t)])
    values = {'model': model, 'state': state, 'metrics': {'loss': 0.5 + t}}
    return journal.Released(round=t, **values | other)


def _extended(record):
    fields = dict(configuration={}, settings={}, files={})
    return journal.Extended(released=3, planned=6, rounds=8, record=record, **fields)


@pytest.fixture(name='path')
def _path(tmp_path):
    """A run of three rounds."""
    found = run_journal.RunJournal(tmp_path)
    found.append(archives.PLANNED)
    found.append(archives.built({'rounds': 6}))
    for t in range(3):
        found.begin(_began(t), _COHORT)
        found.release(_released(t), 0.5)
    return tmp_path


def _bytes(path):
    return (path / 'ledger.jsonl').read_bytes(), (path / cohorts.NAME).read_bytes()


def test_a_round_that_is_run_again_leaves_its_records_as_they_are(path):
    before = _bytes(path)
    again = run_journal.RunJournal(path)
    assert again.state.begun == again.log.rounds == 3 and again.state.is_released
    for t in range(3):
        again.begin(_began(t), _COHORT)
        row = again.release(_released(t, metrics={'loss': (0.5 + t) * (1 + 1e-12)}))
        assert row == {'round': t + 1, 'loss': 0.5 + t}  # The recorded value stays.
    assert _bytes(path) == before
    again.begin(_began(3), _COHORT)
    assert run_journal.RunJournal(path).state.begun == 4


@pytest.mark.parametrize('changed', ['cohort', 'model', 'noise', 'data'])
def test_a_round_is_not_run_again_with_anything_else(path, changed):
    before = _bytes(path)
    message = f'round 2 was released with (an)?other {changed}; the plan counts'
    with pytest.raises(errors.RunError, match=message):
        run_journal.RunJournal(path).begin(_began(1, **{changed: 'f' * 64}), _COHORT)
    assert _bytes(path) == before


@pytest.mark.parametrize(
    'other', [{'state': 'f' * 64}, {'metrics': {'loss': 0.5001}}, {'metrics': {}}]
)
def test_a_round_does_not_give_another_result(path, other):
    with pytest.raises(errors.RunError, match='round 1 gave another result than before'):
        run_journal.RunJournal(path).release(_released(0, **other))


def test_noise_is_not_used_in_two_rounds(path):
    found = run_journal.RunJournal(path)
    for earlier in (0, 2):
        with pytest.raises(errors.RunError, match='the noise of round 4 was used before'):
            found.begin(_began(3, noise=_began(earlier).noise), _COHORT)


@pytest.mark.parametrize('name', ['ledger.jsonl', cohorts.NAME])
def test_what_a_crash_cut_off_is_written_anew(path, name):
    """Whatever of the last round is missing: the round is run again, and the files are the same."""
    found = run_journal.RunJournal(path)
    least = (path / name).stat().st_size
    found.begin(_began(3), _COHORT)
    if name == 'ledger.jsonl':  # A journal without the event would be one that was cut.
        least = (path / name).stat().st_size
    found.release(_released(3))
    whole, content = _bytes(path), (path / name).read_bytes()
    for length in range(least, len(content)):
        for zeros in (b'', b'\0' * (len(content) - length)):
            (path / name).write_bytes(content[:length] + zeros)
            again = run_journal.RunJournal(path)
            again.complete_cohorts(lambda t: _COHORT)
            again.begin(_began(3), _COHORT)
            again.release(_released(3))
            assert _bytes(path) == whole


@pytest.mark.parametrize('name', ['ledger.jsonl', cohorts.NAME])
def test_a_link_that_leads_to_nothing_is_no_missing_file(path, name):
    """It read as a run that had not begun, whose lines were then written to wherever it leads."""
    (path / name).rename(path / 'kept')
    (path / name).symlink_to('nowhere')
    with pytest.raises(errors.RunError, match=f'{name}: .*No such file or directory') as caught:
        with run_directory.RunDirectory(path, resume=True).in_use():
            pass
    assert '\n' not in str(caught.value) and not (path / 'nowhere').exists()


def test_what_others_write_meanwhile_is_refused_and_not_dropped(path):
    ours = run_journal.RunJournal(path)
    assert ours.is_current()
    more = (path / 'ledger.jsonl').read_bytes() + b'of another run, with more rounds\n'
    (path / 'ledger.jsonl').write_bytes(more)
    assert not ours.is_current()
    with pytest.raises(errors.StorageError, match=f'ledger.jsonl: has {len(more)} bytes, must hav'):
        ours.begin(_began(3), _COHORT)
    assert (path / 'ledger.jsonl').read_bytes() == more


def test_more_rounds_move_the_place_of_checkpoints_behind_the_event(path):
    """A checkpoint that is saved from then on is known to be one of the longer run."""
    found = run_journal.RunJournal(path)
    heads = [found.head_after(rounds) for rounds in range(4)]
    assert len(set(heads)) == 4 and set(heads) <= set(found.heads)
    record = found.state.record
    found.append(_extended(record))
    assert {found.head_after(rounds) for rounds in range(4)} == {found.heads[-1]}
    assert dataclasses.replace(found.state, extended=()).record == record


@pytest.mark.parametrize('clients, most', [(100, 1_100), (6_500, 14_000)])
def test_what_a_round_writes(path, clients, most):
    """docs/reference/files.md has the numbers."""
    before, found = sum(map(len, _bytes(path))), run_journal.RunJournal(path)
    cohort = range(60_000, 60_000 - clients, -1)
    found.begin(_began(3, cohort=journal.cohort_digest(cohort)), cohort)
    metrics = {'loss': 6.123456789012345, 'accuracy': 0.234567890123456, 'epsilon': 1.234567890123}
    found.release(_released(3, metrics=metrics), 1.234567890123)
    assert sum(map(len, _bytes(path))) - before < most


def test_a_round_of_a_run_with_more_rounds_need_not_be_evaluated_again(path):
    """The last round is evaluated, and killed before its checkpoint, the run gets more rounds."""
    found = run_journal.RunJournal(path)
    found.append(_extended({}))
    row = found.release(_released(2, state='f' * 64, metrics={'epsilon': 1.0}))
    assert row == {'round': 3, 'loss': 2.5}
    for other in ({'model': 'f' * 64}, {'metrics': {'loss': 0.1}}):
        with pytest.raises(errors.RunError, match='round 3 gave another result than before'):
            found.release(_released(2, **other))
