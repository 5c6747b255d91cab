"""Logs and round times from files, against dictionaries that are filled row by row."""

import collections
import csv
import importlib.util
import io
import itertools
import tracemalloc

import numpy as np
import pytest

from dpfl import Participation, errors
from dpfl.participation import columns, read_log, read_round_times

_needs_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec('pyarrow') is None, reason='pyarrow is not installed'
)


def _rows(count, seed=0):
    """Rows (client, round, time) in random order; each client at most once in a round."""
    generator = np.random.default_rng(seed)
    pairs = {(int(c), int(t)) for c, t in generator.integers((40, 25), size=(count, 2))}
    pairs |= {(99, t) for t in range(25)}
    rows = [(f'{c * 7919:0{1 + c % 21}x}', 100 + t, 1.7e9 + 600 * t + c / 8) for c, t in pairs]
    return [rows[i] for i in generator.permutation(len(rows))]


def _by_client(rows):
    """The rounds of each client, sorted."""
    seen = collections.defaultdict(list)
    for client, number, _ in rows:
        seen[client].append(number - 100)
    return sorted(tuple(sorted(rounds)) for rounds in seen.values())


def _write(path, rows, header=('client', 'round', 'time'), **options):
    with path.open('w', newline='') as file:
        writer = csv.writer(file, **options)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def _patterns(log):
    return sorted(tuple(row) for _, rounds in log.by_client().patterns() for row in rounds.tolist())


@pytest.mark.parametrize(
    'part, options',
    [(64, {}), (1000, {'quoting': csv.QUOTE_ALL}), (1 << 22, {'lineterminator': '\n'})],
)
def test_a_log_is_a_count_of_its_rows(tmp_path, monkeypatch, part, options):
    monkeypatch.setattr(columns, '_PART', part)
    rows = _rows(400)
    found = read_log(_write(tmp_path / 'log.csv', rows, **options))
    seen = _by_client(rows)
    pairs = [pair for rounds in seen for pair in itertools.pairwise(rounds)]
    separation = min(j - i for i, j in pairs)
    assert found.log.observed() == Participation(25, separation, max(map(len, seen)))
    assert _patterns(found.log) == seen
    assert (found.rows, found.first_round, found.last_round) == (len(rows), 100, 124)
    starts = [min(time for _, number, time in rows if number == 100 + t) for t in range(25)]
    hours = min((starts[j] - starts[i]) / 3600 for i, j in pairs)
    assert found.shortest_hours() == pytest.approx(hours, abs=1e-9)


def test_other_names_orders_and_columns_of_the_header(tmp_path):
    rows = _rows(100)
    turned = [(f'country {i}', number, client) for i, (client, number, _) in enumerate(rows)]
    path = _write(tmp_path / 'log.csv', turned, header=('Country', 'Round', 'Device'))
    found = read_log(path)
    assert _patterns(found.log) == _by_client(rows)
    assert found.times is None and found.shortest_hours() is None
    path.write_bytes(b'\xef\xbb\xbf' + path.read_bytes() + b'\r\n\r\n')
    assert _patterns(read_log(path).log) == _by_client(rows)


def test_ids_that_differ_in_one_letter_are_different_clients(tmp_path):
    # Of all lengths, around the words of 8 bytes that are read at a time.
    ids = [letter * length + 'x' for length in range(1, 40) for letter in 'ab']
    ids += [f'{"a" * length}y' for length in range(1, 40)] + ['0', '00', '000', 'A', 'a', '1', '01']
    found = read_log(_write(tmp_path / 'log.csv', [(i, t, t) for t in (0, 1) for i in ids]))
    assert found.log.statistics().clients == len(set(ids)) == len(ids)
    assert found.log.statistics().participations == {2: len(ids)}
    assert found.log.observed().min_separation == 1


def test_keys_do_not_depend_on_the_part_but_on_the_secret():
    text = b''.join(b'%x,%d\n' % (i * 104729, i) for i in range(50))
    arrays = {'client': ['client']}
    [whole] = columns.read(io.BytesIO(b'client,round\n' + text), arrays)
    keys = whole['client'].keys(5)
    assert np.unique(keys).size == 50 and not np.isin(whole['client'].keys(6), keys).any()
    [later] = columns.read(io.BytesIO(b'client,round\n' + text[text.index(b'\n') + 1 :]), arrays)
    assert (later['client'].keys(5) == keys[1:]).all()


def _refused(reader, path, name, message):
    """An error in one line, without anything that the file holds."""
    with pytest.raises(errors.ArgumentError) as caught:
        reader(path)
    text = str(caught.value)
    assert caught.value.name == name and message in text
    assert '\n' not in text and 'SECRET' not in text


@pytest.mark.parametrize(
    'header, rows, message',
    [
        ('client;round', '', 'the header must have one column client or device, has 0'),
        ('client,device,round', '', 'the header must have one column client or device, has 2'),
        ('client,start', '', 'the header must have one column round, has 0'),
        ('', '', 'the header must have one column client or device, has 0'),
    ]
    + [
        ('client,round', rows, message)
        for rows, message in (
            ('a,1\nb,2\na,1\n', 'row 3: its client is in the same round in row 1 already'),
            ('a,1\nb\n', 'row 2: has 1 fields, must have 2'),
            ('a,1\nb,2,3\n', 'row 2: has 3 fields, must have 2'),
            ('a,1\n\nb,2\n', 'row 2: has 1 fields'),
            ('a,1\n,2\n', 'row 2: client must not be empty'),
            ('a,1\n b,2\n', 'row 2: client must not begin or end with a space'),
            ('a,1\na\t,2\n', 'row 2: client must not begin or end with a space'),
            ('a,1\nb,\n', 'row 2: round must be an integer >= 0'),
            ('a,1\nb,-2\n', 'row 2: round must be an integer >= 0'),
            ('a,1\nb,2.0\n', 'row 2: round must be an integer >= 0'),
            ('a,1\nb,2' + '0' * 18, 'row 2: round must be an integer >= 0'),
            ('a,1\nb,9999999\n', 'must be <= 4194304'),
            ('a,1\n"b,2",2\n', 'row 2: has 3 fields'),
            ('a,1\n"b""c",2\n', 'row 2: client must not have a quote inside'),
            ('a,1\nb"c,2\n', 'row 2: client must not have a quote inside'),
            ('a,1\nb,3\n', 'has no row of round 2 (1 such rounds): missing_rounds must say'),
            ('', 'has no rows'),
        )
    ],
)
def test_malformed_logs_are_refused(tmp_path, header, rows, message):
    path = tmp_path / 'log.csv'
    path.write_text(f'{header}\n' + rows.replace('b', 'SECRET'))
    _refused(read_log, path, 'participation_log', message)
    for unreadable in (tmp_path / 'absent', tmp_path):
        _refused(read_log, unreadable, 'participation_log', 'cannot be read')


def test_the_row_of_an_error_in_a_later_part(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, '_PART', 100)
    rows = [(f'id{i}', i, 60 * i) for i in range(500)]
    for column, bad in ((1, 'x'), (2, 'y'), (2, '1e400'), (0, '')):
        wrong = [list(row) for row in rows]
        wrong[321][column] = bad
        with pytest.raises(errors.ArgumentError, match='row 322: '):
            read_log(_write(tmp_path / 'log.csv', wrong))
    with pytest.raises(errors.ArgumentError, match='row 41: is longer than 100 bytes'):
        read_log(_write(tmp_path / 'log.csv', [*rows[:40], ('x' * 300, 40, 0)]))


def test_what_a_number_without_rows_means(tmp_path):
    path = _write(tmp_path / 'log.csv', [('a', 5), ('a', 9), ('b', 6)], header=('client', 'round'))
    empty, unused = (read_log(path, missing_rounds=each) for each in ('empty', 'unused'))
    assert empty.log.observed() == Participation(5, 4, 2)
    assert empty.log.cohort_sizes.tolist() == [1, 1, 0, 0, 1]
    assert unused.log.observed() == Participation(3, 2, 2)  # Nothing was released in 7 and 8.
    assert empty.missing_rounds == unused.missing_rounds == 2
    with pytest.raises(errors.ArgumentError, match='missing_rounds=some: must be one of'):
        read_log(path, missing_rounds='some')
    path = _write(tmp_path / 'log.csv', [('a', 1, 50), ('b', 2, 70), ('c', 2, 49)])
    with pytest.raises(errors.ArgumentError, match='row 3: its round begins before the previous'):
        read_log(path)


@_needs_pyarrow
def test_parquet_is_read_as_csv_is(tmp_path):
    import pyarrow
    from pyarrow import parquet

    rows = _rows(300)
    clients, numbers, times = zip(*rows, strict=True)
    stamps = pyarrow.array([int(t * 1e6) for t in times], pyarrow.timestamp('us', 'UTC'))
    expected = read_log(_write(tmp_path / 'log.csv', rows))
    for client, time in (
        (pyarrow.array(clients), pyarrow.array(times)),
        (pyarrow.array(clients).dictionary_encode(), stamps),
    ):
        table = pyarrow.table({'x': times, 'device': client, 'time': time, 'round': numbers})
        parquet.write_table(table, tmp_path / 'log.parquet', row_group_size=100)
        found = read_log(tmp_path / 'log.parquet')
        assert _patterns(found.log) == _patterns(expected.log)
        assert (found.times.starts == expected.times.starts).all()
    whole = (tmp_path / 'log.parquet').read_bytes()
    (tmp_path / 'log.parquet').write_bytes(whole[:-50])
    with pytest.raises(errors.ArgumentError, match='is not a complete Parquet file'):
        read_log(tmp_path / 'log.parquet')
    table = pyarrow.table({'client': ['a', 'b', None], 'round': [1, 2, 3]})
    parquet.write_table(table, tmp_path / 'log.parquet')
    with pytest.raises(errors.ArgumentError, match='row 3: client must not be empty'):
        read_log(tmp_path / 'log.parquet')


def test_memory_is_in_proportion_to_the_rows(tmp_path):
    path = tmp_path / 'log.csv'
    rows = 100_000
    with path.open('w') as file:
        file.write('client,round\n')
        file.writelines(f'{i % 5000:064x},{i // 5000}\n' for i in range(rows))
    tracemalloc.start()
    found = read_log(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.log.observed() == Participation(20, 1, 20)
    # Parts of the file, and 50 bytes for each row.
    assert most < 100e6 + 50 * rows


def test_dates_are_those_of_the_calendar(tmp_path):
    micros = np.sort(np.random.default_rng(4).integers(-(10**15), 4 * 10**15, size=500))
    later, path = micros[micros >= 0], tmp_path / 'times.csv'
    for texts, expected in (
        (micros.astype('M8[us]').astype(str), micros),
        ([f'{t // 10**6}.{t % 10**6:06}789' for t in later], later),
    ):
        _write(path, enumerate(texts), header=('round', 'time'))
        assert (read_round_times(path).starts == expected).all()
    # In any order of rows and arrays, and without seconds.
    path.write_text('start,round\n2023-05-31T22:15:00.25Z,6\n2023-05-31 22:15,5\n')
    first = np.datetime64('2023-05-31T22:15', 'us').astype(int)
    assert read_round_times(path).starts.tolist() == [first, first + 250_000]


@pytest.mark.parametrize(
    'rows, message',
    [
        ('1,50\n2,60\n1,70\n', 'row 3: its round is in an earlier row'),
        ('1,50\n3,40\n2,60\n', 'row 2: its round starts before the previous round'),
        ('1,50\n', 'must be int64 microseconds of at least two rounds'),
        ('', 'has no rows'),
        ('1,50\n2,nan\n', 'row 2: time must be seconds, or a date'),
        ('1,50\n2,2023-05-31T22:15:00\n', 'row 2: time must be seconds'),
        *(
            (f'1,{time}\n', 'row 1: time must be seconds, or a date')
            for time in (
                '1_0',
                '1.2.3',
                '1685571300000',
                '2023-05-31',
                '2023-05-31T22:15:00-05:00',
                '2023-05-31T22:15:00+05:00',
                '2023-02-31T22:15:00',
                '2023-13-01T22:15:00',
                '2023-02-01T24:15:00',
                '2023-02-01T22:15:99',
                '2023-02-01T22:15:',
            )
        ),
    ],
)
def test_malformed_times_are_refused(tmp_path, rows, message):
    path = tmp_path / 'times.csv'
    path.write_text('round,start\n' + rows)
    _refused(read_round_times, path, 'round_times', message)
