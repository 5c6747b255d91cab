"""Files written by TFF, read as TFF reads them; damaged files, and files of other kinds."""

import collections

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.errors import DataError
from dpfl.tasks.text import client_texts
from tests.tasks import sqlite_files

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
    for table, more in (
        ('client_metadata', 'num_examples'),
        ('examples', 'serialized_example_proto'),
    ):
        yield (
            f"UPDATE {table} SET split_name = CASE {number} % 3 WHEN 0 THEN 'train' "
            "WHEN 1 THEN 'heldout' ELSE 'test' END"
        )
        yield (
            f'INSERT INTO {table} (client_id, split_name, {more}) '
            f"SELECT client_id, 'test', {more} FROM {table} WHERE {number} IN (3, 4)"
        )


def _sentences(clients):
    return [list(clients.sentences(client)) for client in range(clients.count)]


@pytest.mark.parametrize('indexed', [False, True])
def test_the_splits_of_the_file_are_used(copy, indexed):
    path = copy(*_in_splits(), name='a #?%.sqlite')
    if indexed:
        sqlite_files.execute(path, 'CREATE INDEX i ON examples (client_id)')
    training, heldout, test, description = client_texts.open_stackoverflow(path, 0.5)
    for clients, part in ((training, 0), (heldout, 1), (test, 2)):
        expected = [
            [f'sentence {j} of {number} : <URL> caf\u00e9'.split() for j in range(number % 4 + 1)]
            for number in sorted(range(part, 30, 3), key=lambda n: _CLIENTS[n])
        ]
        assert _sentences(clients) == expected
    assert description['clients'] == {'training': 10, 'heldout': 10}
    assert description['splits'] == {'train': 10, 'heldout': 10, 'test': 12}


def test_a_file_without_splits_has_a_share_held_out(plain):
    training, heldout, test, description = client_texts.open_stackoverflow(plain, 0.2)
    assert (training.count, heldout.count, test.count) == (24, 6, 0)
    every = _sentences(training) + _sentences(heldout)
    assert len(every) == len({tuple(client[0]) for client in every}) == 30
    assert description['splits'] == {'default_split': 30}
    more = client_texts.open_stackoverflow(plain, 0.5)[1]
    assert {tuple(c[0]) for c in _sentences(heldout)} < {tuple(c[0]) for c in _sentences(more)}


def test_clients_whose_rows_are_scattered(plain, copy):
    expected = [
        sorted(client) for client in _sentences(client_texts.open_stackoverflow(plain, 0.2)[0])
    ]
    path = copy(
        'CREATE TABLE other AS SELECT * FROM examples ORDER BY substr(client_id, -3, 1)',
        'DROP TABLE examples',
        'ALTER TABLE other RENAME TO examples',
    )
    training = client_texts.open_stackoverflow(path, 0.2)[0]
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
        sqlite_files.execute(path, statements[kind])


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
        client_texts.open_stackoverflow(path, 0.2)


def test_damage_that_shows_up_later_is_one_line_as_well(copy):
    path = copy()
    training = client_texts.open_stackoverflow(path, 0.2)[0]
    sqlite_files.execute(path, "UPDATE examples SET serialized_example_proto = x'ff00'")
    with pytest.raises(DataError, match=r'a\.sqlite: has an example that is not'):
        list(training.sentences(0))
