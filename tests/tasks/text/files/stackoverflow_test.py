"""Files written by TFF, read as TFF reads them; damaged files, and files of other kinds."""

import collections
import contextlib
import sqlite3

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.errors import DataError
from dpfl.tasks.text.files import stackoverflow

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


def _write(path, splits=None):
    tff.simulation.datasets.save_to_sql_client_data(
        _CLIENTS, _dataset, str(path), split_names_by_client_id=splits
    )
    return path


def _execute(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture(scope='module', name='plain')
def _plain(tmp_path_factory):
    return _write(tmp_path_factory.mktemp('plain') / 'a.sqlite')


@pytest.fixture(scope='module', name='split')
def _split(tmp_path_factory):
    """A file with splits, of which a training client and a held-out one are in `test`, too."""
    splits = {c: ('train', 'heldout', 'test')[i % 3] for i, c in enumerate(_CLIENTS)}
    path = _write(tmp_path_factory.mktemp('split') / 'a #?%.sqlite', splits)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for client in _CLIENTS[3:5]:
            for table, more in (
                ('client_metadata', 'num_examples'),
                ('examples', 'serialized_example_proto'),
            ):
                connection.execute(
                    f'INSERT INTO {table} (client_id, split_name, {more}) '
                    f"SELECT client_id, 'test', {more} FROM {table} WHERE client_id = ?",
                    (client,),
                )
    return path


def _sentences(clients):
    return [list(clients.sentences(client)) for client in range(clients.count)]


@pytest.mark.parametrize('indexed', [False, True])
def test_the_splits_of_the_file_are_used(split, indexed, tmp_path):
    path = split
    if indexed:
        path = tmp_path / 'indexed.sqlite'
        path.write_bytes(split.read_bytes())
        _execute(path, 'CREATE INDEX i ON examples (client_id)')
    training, heldout, test, description = stackoverflow.open_clients(path, 0.5)
    for clients, part in ((training, 0), (heldout, 1), (test, 2)):
        expected = [
            [f'sentence {j} of {number} : <URL> caf\u00e9'.split() for j in range(number % 4 + 1)]
            for number in sorted(range(part, 30, 3), key=lambda n: _CLIENTS[n])
        ]
        assert _sentences(clients) == expected
    assert description['clients'] == {'training': 10, 'heldout': 10}
    assert description['splits'] == {'train': 10, 'heldout': 10, 'test': 12}


def test_a_file_without_splits_has_a_share_held_out(plain):
    training, heldout, test, description = stackoverflow.open_clients(plain, 0.2)
    assert (training.count, heldout.count, test.count) == (24, 6, 0)
    every = _sentences(training) + _sentences(heldout)
    assert len(every) == len({tuple(client[0]) for client in every}) == 30
    assert description['splits'] == {'default_split': 30}
    more = stackoverflow.open_clients(plain, 0.5)[1]
    assert {tuple(c[0]) for c in _sentences(heldout)} < {tuple(c[0]) for c in _sentences(more)}


def test_clients_whose_rows_are_scattered(tmp_path):
    path = _write(tmp_path / 'a.sqlite')
    expected = [sorted(client) for client in _sentences(stackoverflow.open_clients(path, 0.2)[0])]
    _execute(
        path,
        'CREATE TABLE other AS SELECT * FROM examples ORDER BY substr(client_id, -3, 1)',
        'DROP TABLE examples',
        'ALTER TABLE other RENAME TO examples',
    )
    training = stackoverflow.open_clients(path, 0.2)[0]
    assert [sorted(client) for client in _sentences(training)] == expected


def _damaged(kind: str, plain, path):
    whole = plain.read_bytes()
    if kind == 'missing':
        return
    path.write_bytes(
        {
            'empty': b'',
            'text': b'no database at all' * 100,
            'cut': whole[: len(whole) // 2],
            'header only': whole[:100],
            'zeros': whole[:4096] + bytes(len(whole) - 4096),
        }.get(kind, whole)
    )
    statements = {
        'no examples': 'DROP TABLE examples',
        'no metadata': 'DROP TABLE client_metadata',
        'no column': 'ALTER TABLE examples RENAME COLUMN serialized_example_proto TO other',
        'no rows': 'DELETE FROM examples',
        'one client': "DELETE FROM client_metadata WHERE client_id != 'user 3''s'",
        'no proto': "UPDATE examples SET serialized_example_proto = x'ff00'",
        'no tokens': "UPDATE examples SET serialized_example_proto = x''",
    }
    if kind in statements:
        _execute(path, statements[kind])


@pytest.mark.parametrize(
    'kind, message',
    [
        ('missing', r'cannot be read \(No such file or directory\)'),
        ('empty', 'must be an SQLite file'),
        ('text', 'must be an SQLite file'),
        ('cut', r'is truncated, it has \d+ of \d+ bytes'),
        ('header only', r'is truncated, it has 100 of \d+ bytes'),
        ('zeros', 'is damaged or not an SQLite file'),
        ('no examples', 'has no table examples'),
        ('no metadata', 'has no table client_metadata'),
        ('no column', 'table examples has no column serialized_example_proto'),
        ('no rows', 'has no examples'),
        ('one client', 'has 1 clients to train on, must have at least 2'),
        ('no proto', 'has an example that is not a tf.train.Example'),
        ('no tokens', 'has an example without the feature tokens'),
    ],
)
def test_damaged_and_other_files_are_one_line(kind, message, plain, tmp_path):
    path = tmp_path / 'a.sqlite'
    _damaged(kind, plain, path)
    with pytest.raises(ValueError, match=f'^data_path={path}: {message}'):
        stackoverflow.open_clients(path, 0.2)


def test_damage_that_shows_up_later_is_one_line_as_well(tmp_path):
    path = _write(tmp_path / 'a.sqlite')
    training = stackoverflow.open_clients(path, 0.2)[0]
    _execute(path, "UPDATE examples SET serialized_example_proto = x'ff00'")
    with pytest.raises(DataError, match=r'a\.sqlite: has an example that is not'):
        list(training.sentences(0))
