"""The journal of a run and its cohorts as bytes: what they hold, and what is refused."""

import dataclasses
import functools
import io
import itertools
import json
import math
import pickle
import random

import numpy as np
import pytest

from dpfl.accounting.records import cohorts, journal
from tests.accounting import archives
from tests.accounting.archives import PLANNED, began, ended, released
from tests.sizes import exhaustive

_INTENT = {'data': 'e' * 64, 'release': {'rho': 0.1, 'delta': 1e-6}, 'seed': 3}
_DREW = journal.Drew(what='words', intent=_INTENT)
_FOUND = dataclasses.replace(_DREW, result=['the', 'a'])
_BUILT = archives.built({'rounds': 2})
_EXTENDED = journal.Extended(
    released=2, planned=2, rounds=4, record={}, configuration={}, settings={}, files={}
)
_AUDITED = journal.Audited(scores='f' * 64)
# One that has every kind of event, each with all of its fields.
_ALL = (
    dataclasses.replace(PLANNED, settings={'seed': 3, 'eps': math.inf}, files={'flags.txt': 'é\n'}),
    _DREW,
    _FOUND,
    archives.built({'rounds': 2}, data={'clients': 3}, shows_clients=False),
    began(0),
    released(0, {'loss': math.nan, 'epsilon': math.inf, 'low': -math.inf, 'count': 3}),
    began(1),
    released(1),
    _AUDITED,
    ended(),
    _EXTENDED,
    began(2),
    released(2),
    dataclasses.replace(ended({'model.npz': 'a' * 64}), test={'accuracy': math.nan}),
)
_DATA = archives.encoded(_ALL)
_LINES = _DATA.splitlines(keepends=True)


def _replay(events) -> journal.State:
    return functools.reduce(journal.step, events, journal.State())


def _values(events) -> list[dict]:
    return [event.to_dict() for event in events]


def test_every_event_comes_back():
    assert {type(event) for event in _ALL} == set(journal.Event.__subclasses__())
    found = journal.parse(_DATA)
    assert _values(found.events) == _values(_ALL) and found.complete == len(_DATA)
    assert archives.encoded(found.events) == _DATA
    assert found.state == _replay(found.events)
    metrics = found.of_kind(journal.Released)[0].metrics
    assert math.isnan(metrics['loss']) and metrics['epsilon'] == math.inf == -metrics['low']
    assert type(metrics['count']) is int
    text = _DATA.decode()
    assert 'NaN' not in text and 'Infinity' not in text and text.count('"format": 3') == 1


_COLUMNS = (
    PLANNED,
    _DREW,
    _FOUND,
    _BUILT,
    began(1),
    began(2),
    released(1),
    _EXTENDED,
    _AUDITED,
    ended(),
)
_TWO = (PLANNED, _BUILT, began(0), released(0), began(1))
# Events, and which of `_COLUMNS` may come next.
_NEXT = [
    ((), 'x.........'),
    ((PLANNED,), 'xx.x......'),
    ((PLANNED, _DREW), 'xxx.......'),
    ((PLANNED, _DREW, PLANNED), 'xxx.......'),
    ((PLANNED, _DREW, _FOUND), 'x..x......'),
    ((PLANNED, _DREW, _FOUND, PLANNED), 'x..x......'),
    ((PLANNED, _BUILT), 'x.......xx'),
    ((PLANNED, _BUILT, PLANNED), 'xx.x......'),
    ((PLANNED, _BUILT, ended()), 'x.........'),
    ((PLANNED, _BUILT, _AUDITED, ended(), PLANNED, _BUILT), 'x.......xx'),
    ((PLANNED, _BUILT, began(0)), '..........'),
    ((PLANNED, _BUILT, began(0), released(0)), '....x...xx'),
    (_TWO, '......xx..'),
    ((*_TWO, released(1)), '.....x.xxx'),
    ((*_TWO, released(1), _AUDITED), '.......x.x'),
    ((*_TWO, released(1), _AUDITED, ended()), '.......x..'),
    ((*_TWO, released(1), ended()), '.......x..'),
    ((*_TWO, _EXTENDED), '......x...'),
    ((*_TWO, released(1), _EXTENDED), '.....x..xx'),
]


@pytest.mark.parametrize('before, expected', _NEXT)
def test_what_may_follow_what(before, expected):
    state, allowed = _replay(before), ''
    for event in _COLUMNS:
        try:
            after = journal.step(state, event)
        except journal.JournalError as error:
            assert f'does not allow an event "{event.name}" here' in str(error)
            allowed += '.'
        else:
            assert after == _replay([*before, event])
            allowed += 'x'
    assert allowed == expected


@pytest.mark.parametrize(
    'before, event',
    [
        ((PLANNED, _DREW), dataclasses.replace(_DREW, intent={**_INTENT, 'seed': 4})),
        ((PLANNED, _DREW), dataclasses.replace(_FOUND, intent={**_INTENT, 'seed': 4})),
        ((PLANNED, _DREW, _FOUND), dataclasses.replace(_FOUND, result=['the'])),
        (_TWO[:4], began(1, noise=began(0).noise)),
        (_TWO[:4], began(0, noise='9' * 64)),
        (_TWO, dataclasses.replace(_EXTENDED, released=1)),
        ((*_TWO, _EXTENDED), dataclasses.replace(_EXTENDED, rounds=6)),
    ],
)
def test_no_draw_and_no_noise_is_used_for_two_things(before, event):
    with pytest.raises(journal.JournalError, match='does not allow'):
        journal.step(_replay(before), event)


def test_draws_outlive_other_settings_and_the_longest_plan_is_in_force():
    planned = dataclasses.replace(PLANNED, settings={'rounds': 9})
    state = _replay([PLANNED, _DREW, _FOUND, _BUILT, planned])
    assert state.drawn == {'words': _FOUND} and state.record is None
    assert state.settings == {'rounds': 9}
    more = dataclasses.replace(
        _EXTENDED, record={'rounds': 4}, settings={'rounds': 4}, files={'flags.txt': ''}
    )
    state = _replay([*_TWO, released(1), ended(), more])
    assert (state.record, state.settings, state.files) == (more.record, more.settings, more.files)
    assert state.ended is None and state.begun == 2


_STEPS = [7, exhaustive(1)]


@pytest.mark.parametrize('step', _STEPS)
def test_a_journal_that_was_cut_holds_its_whole_events(step):
    ends = list(itertools.accumulate(map(len, _LINES), initial=0))
    for length in {*range(0, len(_DATA), step), *ends}:
        found = journal.parse(_DATA[:length])
        count = sum(end <= length for end in ends[1:])
        assert len(found.events) == count and found.complete == ends[count]
        if length % 9 == 0:  # A power failure may leave zeros.
            assert journal.parse(_DATA[:length] + bytes(9)).complete == ends[count]


@pytest.mark.parametrize('step', _STEPS)
def test_every_byte_that_was_changed_is_refused(step):
    """Only the end of the file may be lost, and then it is not complete."""
    for place in {*range(0, len(_DATA), step), len(_DATA) - 1}:
        byte = _DATA[place]
        other = (byte ^ 1, byte ^ 128, ord('\n'), ord('0'))[place % 4]
        if other == byte:
            continue
        try:
            found = journal.parse(_DATA[:place] + bytes([other]) + _DATA[place + 1 :])
        except journal.JournalError as error:
            assert len(str(error).splitlines()) == 1
        else:
            assert place == len(_DATA) - 1 and found.complete == len(_DATA) - len(_LINES[-1])


_OTHERS = archives.encoded([dataclasses.replace(PLANNED, date='2026-11-24'), *_ALL[1:]])
_OTHER_LINES = _OTHERS.splitlines(keepends=True)


def test_lines_that_were_moved_mixed_or_written_in_another_way_are_refused():
    for i, line in enumerate(_LINES[:-1]):
        later = _LINES[i + 1 :]
        for changed in (
            [line, line, *later],
            later,
            [later[0], line, *later[1:]],
            [line, *_OTHER_LINES[i + 1 :]],
            [_OTHER_LINES[i], *later],
            [line.replace(b': ', b':'), *later],
            [line.replace(b'{', b'{"x": 1, ', 1), *later],
            [line.replace(b'{', b'{"chain": 1, ', 1), *later],
            *(
                [more, line, *later]
                for more in (b'\n', b'[]\n', b'{"event": {}}\n', b'{"note": 3}\n')
            ),
        ):
            with pytest.raises(journal.JournalError, match=r'^[^\n]*$'):
                journal.parse(b''.join([*_LINES[:i], *changed]))


def test_a_line_with_another_head_is_refused():
    """Its own chain is whole: it was cut out of a journal, or put after another one."""
    with pytest.raises(journal.JournalError):
        journal.parse(archives.encoded(_ALL, head='0' * 64))
    tail, _ = journal.line('0' * 64, _ALL[-1])
    with pytest.raises(journal.JournalError, match=f'line {len(_ALL)} is damaged, or is not'):
        journal.parse(b''.join(_LINES[:-1]) + tail)
    # An event that cannot follow, with a chain as it must be.
    event = began(0)
    tail, _ = journal.line(journal.parse(b''.join(_LINES[:-1])).head(), event)
    with pytest.raises(journal.JournalError, match=f'line {len(_ALL)}: does not allow'):
        journal.parse(b''.join(_LINES[:-1]) + tail)


@pytest.mark.parametrize(
    'first, message',
    [
        ({'plan': 'a' * 64}, 'was begun before a run was a journal'),
        ({'format': 2}, 'was begun before a run was a journal'),
        ({'format': 4, 'event': 'planned'}, 'has format 4, this version reads 3'),
        ({'format': [3]}, 'has format'),
    ],
)
def test_another_format_is_named(first, message):
    with pytest.raises(journal.JournalError, match=message):
        journal.parse(json.dumps(first).encode() + b'\n')


def test_notes_do_not_matter():
    notes = [{'round': 0, 'seconds': 1.5}, {'round': 0.5, 'seconds': 1}, {'resumed': math.nan}]
    for seed in range(20):
        lines = [*_LINES]
        for values in notes:
            lines.insert(random.Random(seed).randint(0, len(lines)), journal.note(values))
        found = journal.parse(b''.join(lines))
        assert archives.encoded(found.events) == _DATA
        assert (found.head(), len(found.notes)) == (journal.parse(_DATA).head(), 3)
    seconds = [row.get('seconds') for row in found.rows()]
    assert seconds == [1.5, None, None]


@pytest.mark.parametrize(
    'name', ['../x.txt', '/x.txt', 'ledger.jsonl', 'a/b.txt', '.txt', 'x.txt\n']
)
def test_texts_of_a_run_have_names_of_no_other_file(name):
    for event in (PLANNED, _EXTENDED):
        with pytest.raises(ValueError, match='files=.*: must be a name such as notes.txt'):
            dataclasses.replace(event, files={name: ''})


@pytest.mark.parametrize(
    'kind, field, value',
    [
        (journal.Planned, 'settings', []),
        (journal.Planned, 'files', {'flags.txt': 1}),
        (journal.Planned, 'date', None),
        (journal.Planned, 'version', 1),
        (journal.Planned, 'keys', 'A' * 64),
        (journal.Drew, 'what', 1),
        (journal.Drew, 'intent', {'data': 'e' * 64}),
        (journal.Drew, 'intent', {'release': {}}),
        (journal.Built, 'record', None),
        (journal.Built, 'data', []),
        (journal.Built, 'shows_clients', 1),
        (journal.Began, 'round', -1),
        (journal.Began, 'round', True),
        (journal.Began, 'round', 1.0),
        (journal.Began, 'round', 10**30),
        (journal.Began, 'cohort', 'm' * 64),
        (journal.Began, 'noise', 'a' * 63),
        (journal.Released, 'state', None),
        (journal.Released, 'metrics', {'loss': 'NaN'}),
        (journal.Released, 'metrics', {'loss': True}),
        (journal.Released, 'metrics', {'loss': None}),
        (journal.Extended, 'rounds', 2),
        (journal.Extended, 'released', 3),
        (journal.Extended, 'files', None),
        (journal.Audited, 'scores', ''),
        (journal.Ended, 'why', None),
        (journal.Ended, 'results', {'model.npz': 'weights'}),
        (journal.Ended, 'test', {'loss': '1'}),
    ],
)
def test_values_of_another_form_are_refused(kind, field, value):
    event = next(each for each in _ALL if type(each) is kind)
    with pytest.raises(ValueError):
        dataclasses.replace(event, **{field: value})
    values = {**event.to_dict(), field: value, 'chain': '0' * 64}
    with pytest.raises(journal.JournalError, match='^line 1 is damaged'):
        journal.parse(json.dumps({'format': journal.FORMAT, **values}).encode() + b'\n')


def test_the_cost_of_a_line_does_not_grow():
    """Neither the line nor what has to be known to write it."""
    state, sizes = _replay([PLANNED, _BUILT]), {}
    head = journal.parse(archives.encoded([PLANNED, _BUILT])).head()
    for t in range(1500):
        for event in (began(t), released(t)):
            state, (line, head) = journal.step(state, event), journal.line(head, event)
        sizes[t] = len(pickle.dumps(state)), len(line)
    assert all(abs(sizes[1499][i] - sizes[10][i]) < 9 for i in (0, 1))


def test_digests_of_cohorts_and_arrays():
    assert journal.cohort_digest([3, 1, 2]) == journal.cohort_digest(np.array([1, 2, 3], np.int32))
    arrays = [[1, 2], [[1, 2]], [1, 2, 0], [1.0, 2.0], np.array([1, 2], np.int32)]
    assert len({journal.digest([each]) for each in arrays}) == len(arrays)
    assert journal.digest([[1], [2]]) != journal.digest([[1, 2]])


_COHORTS = ([3, 1, 2], [], [255, 0], [256], [1 << 32, 7], [(1 << 63) - 1])


def test_cohorts_come_back_in_their_order():
    data = b''.join(cohorts.record(t, each) for t, each in enumerate(_COHORTS))
    found, complete = cohorts.read(io.BytesIO(data))
    assert [each.tolist() for each in found] == list(map(list, _COHORTS))
    assert all(each.dtype == np.int64 for each in found) and complete == len(data)
    assert len(cohorts.record(0, range(100))) == 100 + len(cohorts.record(0, []))


def test_cohorts_end_before_the_first_record_that_is_not_whole():
    records = [cohorts.record(t, each) for t, each in enumerate(_COHORTS)]
    data, ends = b''.join(records), [0, *itertools.accumulate(map(len, records))]

    def is_read_to(changed, count):
        found, complete = cohorts.read(io.BytesIO(changed))
        return len(found) == count and complete == ends[count]

    for length in range(len(data)):
        count = sum(end <= length for end in ends[1:])
        assert is_read_to(data[:length], count) and is_read_to(data[:length] + bytes(99), count)
        for other in (data[length] ^ 1, data[length] ^ 128):
            assert is_read_to(data[:length] + bytes([other]) + data[length + 1 :], count), length
    assert is_read_to(records[1] + data, 0) and is_read_to(records[0] + data, 1)
    assert is_read_to(data + records[0], len(records))
