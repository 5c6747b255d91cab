"""Text of clients in files of users and of TFF: order, splits, memory, and what is refused."""

import collections
import contextlib
import csv
import hashlib
import itertools
import json
import random
import sqlite3
import tempfile
import tracemalloc

import pyarrow
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from pyarrow import parquet

from dpfl.errors import DataError
from dpfl.tasks.text import client_texts, record_files
from dpfl.tasks.text.client_texts import ClientTexts
from tests.tasks import sqlite_files


def test_texts_are_grouped_by_client_and_clients_are_in_the_order_of_their_digests():
    rng = random.Random(0)
    odd = ['', 'caf\u00e9', 'half a pair: \ud800', 'line\r\nbreaks\n', '\0']
    records = [(f'c{rng.randrange(40)}', f'text {i}') for i in range(500)]
    records = [*records, *(('\udc00', text) for text in odd), ('', 'of nobody')]
    grouped = {}
    for client, text in records:
        key = client.encode('utf-8', 'surrogatepass')
        grouped.setdefault(hashlib.blake2b(key, digest_size=16).digest(), []).append(text)
    texts = ClientTexts(records)
    assert (texts.num_texts, texts.num_clients) == (506, len(grouped))
    found = [list(texts.of_client(client)) for client in range(texts.num_clients)]
    assert found == [grouped[digest] for digest in sorted(grouped)]


def test_a_text_takes_few_bytes_of_memory():
    peaks = []
    for count in (2_000, 8_000):
        tracemalloc.start()
        ClientTexts((f'c{i % 97}', f'text {i} ' * 20) for i in range(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 64 * 6_000  # Lists grow in steps.


_TEXTS = {f'user {i}': [f'Text {j} of {i}. Bye!' for j in range(i % 3 + 1)] for i in range(20)}


def _write_json(path):
    path.write_text(
        ''.join(
            json.dumps({'who': client, 'said': text}) + '\n'
            for j in range(3)
            for client, texts in _TEXTS.items()
            for text in texts[j : j + 1]
        )
    )
    return path


def _open(path, fraction=0.25, **kwargs):
    return client_texts.open_user_text(path, 'who', 'said', fraction, **kwargs)


def _sentences(clients):
    return [list(clients.sentences(client)) for client in range(clients.count)]


def _clients(*parts):
    """Each client as the tuple of its words."""
    return [tuple(itertools.chain(*sentences)) for part in parts for sentences in _sentences(part)]


def test_clients_are_split_and_each_is_there_once(tmp_path):
    path = _write_json(tmp_path / 'a.jsonl')
    data = _open(path)
    training, heldout, description = data.training, data.heldout, data.description
    every = _clients(training, heldout)
    assert len(every) == 20 and set(every) == {
        tuple(w for j in range(i % 3 + 1) for w in ('text', str(j), 'of', str(i), '.', 'bye', '!'))
        for i in range(20)
    }
    assert description['clients'] == {'training': 15, 'heldout': 5}
    assert description['records'] == sum(map(len, _TEXTS.values()))
    assert description['left_out'] == {'empty': 0} and 'first_malformed' not in description
    assert not any(client in json.dumps(description) for client in _TEXTS)
    # As often as they are asked for, and although the file changes later.
    path.write_text('nonsense')
    assert _clients(training, heldout) == every
    # A larger share holds out the same clients and more.
    more = _open(_write_json(path), 0.5).heldout
    assert {*_clients(heldout)} < {*_clients(more)}


def _write_parquet(path, rows, **types):
    columns = {
        name: pyarrow.array([row[i] for row in rows], types.get(name))
        for i, name in enumerate(('who', 'said'))
    }
    parquet.write_table(pyarrow.table(columns | {'other': [0] * len(rows)}), path, row_group_size=7)
    return path


def _write_csv(path, rows):
    with open(path, 'w', newline='') as file:
        csv.writer(file).writerows([('who', 'said'), *rows])
    return path


@pytest.mark.parametrize(
    'kind, types',
    [
        ('csv', {}),
        ('parquet', {}),
        ('parquet', {'said': pyarrow.large_string()}),
        ('parquet', {'who': pyarrow.string_view(), 'said': pyarrow.string_view()}),
        ('parquet', {'who': pyarrow.dictionary(pyarrow.int32(), pyarrow.string())}),
    ],
    ids=str,
)
def test_csv_and_parquet_give_the_same_clients(kind, types, tmp_path, request, monkeypatch):
    if types:  # Without them the reader is a child process, as it is for users.
        request.getfixturevalue('parquet_in_process')
    rows = [(client, text) for client, texts in _TEXTS.items() for text in texts]
    expected = _open(_write_json(tmp_path / 'a.jsonl'))
    (tmp_path / 'json.py').write_text('raise ValueError')  # No code of the folder is executed.
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f'a.{kind}'
    found = _open(_write_csv(path, rows) if kind == 'csv' else _write_parquet(path, rows, **types))
    assert _sentences(found.training) == _sentences(expected.training)
    assert _sentences(found.heldout) == _sentences(expected.heldout)
    facts = found.description
    assert facts['format'] == kind and facts['records'] == len(rows)
    digest = found.fingerprints['data']
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    # A size and a digest without a key are tests of guesses at the texts.
    assert not {'bytes', 'sha256'} & set(facts) and digest not in json.dumps(facts)


@pytest.mark.usefixtures('parquet_in_process')
def test_rows_of_parquet_that_are_malformed_are_counted(tmp_path):
    rows = [(7, b'one.'), (7, None), (8, b'caf\xe9'), (None, b'three.'), (9, b'four.'), (9, b' ')]
    binary = pyarrow.array([text for _, text in rows], pyarrow.binary())
    # As a file may have it: bytes that are said to be text, and are not UTF-8.
    said = pyarrow.StringArray.from_buffers(len(rows), *binary.buffers()[1:], binary.buffers()[0])
    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'who': [who for who, _ in rows], 'said': said}), path)
    data = _open(path)
    description = data.description
    assert data.training.count + data.heldout.count == 2 == description['records']
    assert description['left_out'] == {'empty': 1, 'no text': 1, 'not UTF-8': 1, 'no client id': 1}
    assert description['first_malformed'] == 'line 2: no text'
    parquet.write_table(pyarrow.table({'who': rows and ['a'] * 6, 'said': binary}), path)
    with pytest.raises(
        ValueError, match='^text_column=said: must be a column of text, not of binary'
    ):
        _open(path)


@pytest.mark.usefixtures('parquet_in_process')
@pytest.mark.parametrize(
    'ids, keys',
    [
        (['007', '7', ''], ['007', '7']),
        ([7, 8, None], ['7', '8']),
        ([7.0, 7.5, float('nan')], ['7', '7.5']),
        ([2**53, 2**53 + 1], [str(2**53), str(2**53 + 1)]),
        ([True, False], []),
        ([b'7', b'8'], []),
    ],
)
def test_ids_of_parquet_are_those_of_json_lines(ids, keys, tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, 'MAX_BYTES', 80)  # Of the text, not of its escapes.
    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'who': ids, 'said': ['\u4e2d' * 9] * len(ids)}), path)
    with open(path, 'rb') as file:
        records = list(record_files.parquet_rows(file, 'who', 'said'))
    good = [each.client for each in records if not each.reason]
    assert good == keys and [each.line for each in records] == [*range(1, len(ids) + 1)]


@pytest.mark.usefixtures('parquet_in_process')
def test_a_parquet_file_that_is_cut_or_damaged_is_refused(tmp_path):
    path = _write_parquet(tmp_path / 'a.parquet', [(str(i), f'Text {i}.') for i in range(500)])
    whole = path.read_bytes()
    for damaged in (whole[:-20], b'PAR1' + bytes(2000) + whole[2004:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match='^data_path=.*: is not a complete Parquet file'):
            _open(path)


_MANY = {'who': 'secret', **{f'column {i}\n': 'secret' for i in range(19)}}


@pytest.mark.parametrize(
    'records, message',
    [
        (
            [_MANY, {**_MANY, 'other': 1}],
            r'text_column=said: .* one of the 20 columns: who, column 0, .*column 10, \.\.\.$',
        ),
        # Keys may be ids of clients.
        ([{'secret': 'x'}], r'client_column=who: .* the 1 columns of the only object \(not shown'),
        ([{'secret': 'x'}, {'Bob': 'y'}], 'client_column=who: must be one of the 0 columns$'),
    ],
)
def test_json_lines_without_a_column_say_which_there_are(records, message, tmp_path):
    path = tmp_path / 'a.jsonl'
    path.write_text('\n'.join(map(json.dumps, records)))
    with pytest.raises(ValueError, match=f'^{message}') as error:
        _open(path)
    assert 'secret' not in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize(
    'name, content, message',
    [
        ('a.jsonl', None, r'cannot be read \(No such file'),
        ('a.txt', b'', r'must be a file whose name ends in one of \.jsonl, '),
        ('a.jsonl', b'', r'must have texts of at least 2 clients, has 0'),
        ('a.jsonl', b'{"who": 1, "said": "x"}\n', r'has 1$'),
        (
            'a.jsonl',
            b'[\n]\n',
            r'has 0 \(2 malformed records; the first is in line 1: not J',
        ),
        ('a.csv', b'\xff', r'must begin with a header of column names'),
    ],
)
def test_files_that_are_refused(name, content, message, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=f'^data_path={path}: .*{message}'):
        _open(path)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = _write_json(tmp_path / 'a.jsonl')

    def changing(file, *columns):
        yield from record_files.json_lines(file, *columns)
        with open(path, 'a') as other:
            other.write('\n')

    monkeypatch.setitem(record_files.FORMATS, '.jsonl', ('jsonl', changing))
    with pytest.raises(ValueError, match=f'^data_path={path}: has changed while it was read$'):
        _open(path)


def test_a_full_disk_for_the_copy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, 'TemporaryFile', lambda prefix: open('/dev/full', 'wb'))
    message = r'cannot be copied to the directory for temporary files, TMPDIR \(No space left'
    with pytest.raises(ValueError, match=message):
        _open(_write_json(tmp_path / 'a.jsonl'))


def test_nothing_of_a_file_is_kept_on_disk(tmp_path, monkeypatch):
    for name in ('DPFL_CACHE_DIR', 'TMPDIR'):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(tempfile, 'tempdir', None)
    data = _open(_write_json(tmp_path / 'a.jsonl'))
    assert _sentences(data.training) and not [*tmp_path.glob('*/*')]


# Sorted by key this is another order than sorted by number.
_CLIENTS = [f"user {i}'s" for i in range(30)]


def _dataset(client):
    number = _CLIENTS.index(client)
    count = number % 4 + 1
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
            creation_date=['2010-01-08'] * count,
            score=tf.constant([3] * count, tf.int64),
            tokens=[f'sentence {j} of {number} : <URL> caf\u00e9 ' for j in range(count)],
        )
    )


@pytest.fixture(scope='module', name='plain')
def _plain(tmp_path_factory):
    """A file that TFF has written."""
    path = tmp_path_factory.mktemp('plain') / 'a.sqlite'
    tff.simulation.datasets.save_to_sql_client_data(_CLIENTS, _dataset, str(path))
    return path


@pytest.fixture(name='copy')
def _copy(plain, tmp_path):
    """Copies the file, and changes the copy by SQL statements."""

    def copy(*statements, name='a.sqlite'):
        path = tmp_path / name
        path.write_bytes(plain.read_bytes())
        sqlite_files.execute(path, *statements)
        return path

    return copy


def _in_splits():
    """Statements that make splits; a training client and a held-out one are in `test`, too."""
    number = 'CAST(substr(client_id, 6) AS INTEGER)'
    split = f"CASE {number} % 3 WHEN 0 THEN 'train' WHEN 1 THEN 'heldout' ELSE 'test' END"
    for table, more in (
        ('client_metadata', 'num_examples'),
        ('examples', 'serialized_example_proto'),
    ):
        yield f'UPDATE {table} SET split_name = {split}'
        yield (
            f'INSERT INTO {table} (client_id, split_name, {more}) '
            f"SELECT client_id, 'test', {more} FROM {table} WHERE {number} IN (3, 4)"
        )


# Statements that scatter the rows of a client over the file: first the first one of each client.
_SCATTER = (
    'CREATE TABLE other AS SELECT * FROM examples '
    'ORDER BY row_number() OVER (PARTITION BY client_id, split_name ORDER BY rowid), rowid',
    'DROP TABLE examples',
    'ALTER TABLE other RENAME TO examples',
)


@pytest.mark.parametrize(
    'statements',
    [(), ('CREATE INDEX i ON examples (client_id)',), _SCATTER],
    ids=['as TFF writes', 'indexed', 'scattered'],
)
def test_the_splits_of_the_file_are_used(copy, statements):
    path = copy(*_in_splits(), *statements, name='a #?%.sqlite')
    data = client_texts.open_stackoverflow(path, 0.5)
    for clients, part in ((data.training, 0), (data.heldout, 1), (data.test, 2)):
        expected = [
            [f'sentence {j} of {number} : <URL> caf\u00e9'.split() for j in range(number % 4 + 1)]
            for number in sorted(range(part, 30, 3), key=lambda n: _CLIENTS[n])
        ]
        assert _sentences(clients) == expected
    assert data.description['clients'] == {'training': 10, 'heldout': 10}
    assert data.description['splits'] == {'train': 10, 'heldout': 10, 'test': 12}


def test_a_file_without_splits_has_a_share_held_out(plain):
    data = client_texts.open_stackoverflow(plain, 0.2)
    assert (data.training.count, data.heldout.count, data.test) == (24, 6, None)
    assert len({*_clients(data.training, data.heldout)}) == 30
    assert data.description['splits'] == {'default_split': 30}


@pytest.mark.parametrize('kind', ['TEXT COLLATE NOCASE', 'INTEGER'])
def test_ids_that_a_column_takes_for_equal_are_those_of_different_clients(kind, copy):
    path = copy(
        'DROP TABLE examples',
        f'CREATE TABLE examples (split_name, client_id {kind}, serialized_example_proto)',
        'CREATE INDEX i ON examples (client_id)',
        'DELETE FROM client_metadata',
    )
    clients = ['07', '7', 'A', 'a', 'B', 'b']
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for client in clients:
            connection.execute('INSERT INTO client_metadata VALUES (?, ?, 1)', (client, 'train'))
            example = sqlite_files.of_sentence(f'of {client}')
            connection.execute('INSERT INTO examples VALUES (?, ?, ?)', ('train', client, example))
    data = client_texts.open_stackoverflow(path, 0.5)
    texts = [text for text in _sentences(data.training) + _sentences(data.heldout) if text]
    expected = [[['of', client]] for client in clients if kind != 'INTEGER' or client.isalpha()]
    assert sorted(texts) == sorted(expected)


_PROTO = 'UPDATE examples SET serialized_example_proto = '
_COLUMN = 'ALTER TABLE examples RENAME COLUMN serialized_example_proto TO other'


@pytest.mark.parametrize(
    'damage, message',
    [
        (None, r'cannot be read \(No such file or directory\)'),
        (lambda whole: b'', 'must be an SQLite file'),
        (lambda whole: b'no database at all' * 100, 'must be an SQLite file'),
        (lambda whole: whole[: len(whole) // 2], r'is truncated, it has \d+ of \d+ bytes'),
        (lambda whole: whole[:100], r'is truncated, it has 100 of \d+ bytes'),
        (lambda whole: whole[:4096] + bytes(len(whole) - 4096), 'is damaged or not an SQLite file'),
        ('DROP TABLE examples', 'has no table examples'),
        ('DROP TABLE client_metadata', 'has no table client_metadata'),
        (_COLUMN, 'table examples has no column serialized_example_proto'),
        ('DELETE FROM examples', 'has no examples'),
        (
            "UPDATE client_metadata SET client_id = CAST(x'6964ff' AS TEXT)",
            r"is damaged or not an SQLite file \(Could not decode to UTF-8 column 'client_id'\)$",
        ),
        (
            "DELETE FROM client_metadata WHERE client_id != 'user 3''s'",
            'has 1 clients to train on, must have at least 2',
        ),
        (f"{_PROTO}x'ff00'", 'has an example that is not a tf.train.Example'),
        (f"{_PROTO}x''", 'has an example without the feature tokens'),
    ],
)
def test_damaged_and_other_files_are_one_line(damage, message, plain, tmp_path):
    path = tmp_path / 'a.sqlite'
    if damage is not None:
        whole = plain.read_bytes()
        path.write_bytes(damage(whole) if callable(damage) else whole)
    if isinstance(damage, str):
        sqlite_files.execute(path, damage)
    with pytest.raises(ValueError, match=f'^data_path={path}: {message}'):
        client_texts.open_stackoverflow(path, 0.2)


def test_damage_that_shows_up_later_is_one_line_as_well(copy):
    path = copy()
    training = client_texts.open_stackoverflow(path, 0.2).training
    sqlite_files.execute(path, f"{_PROTO}x'ff00'")
    with pytest.raises(DataError, match=r'a\.sqlite: has an example that is not'):
        list(training.sentences(0))
