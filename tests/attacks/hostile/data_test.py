"""Hostile data sets: Parquet and SQLite."""

import contextlib
import sqlite3

import pyarrow

from dpfl.errors import DataError
from dpfl.tasks.images import emnist
from dpfl.tasks.text import client_texts, record_files
from tests.attacks.hostile.refusals import refused, within_seconds


def test_a_parquet_file_that_kills_its_reader_is_one_line(tmp_path, monkeypatch):
    from pyarrow import parquet

    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'client': ['a'] * 9, 'text': ['b'] * 9}), path)
    reader = 'import os, signal; os.kill(os.getpid(), signal.SIGSEGV)'
    monkeypatch.setattr(record_files, '_READER', reader)
    message = refused(lambda: client_texts.open_user_text(path, 'client', 'text', 0.5))
    assert message.endswith('is not a complete Parquet file (the reader ended with signal 11)')


def test_a_reader_is_ended_with_its_last_row_that_is_wanted(tmp_path, monkeypatch):
    path = tmp_path / 'a.parquet'
    path.write_bytes(b'PAR1')
    monkeypatch.setattr(record_files, '_READER', 'while True: print("{}", flush=True)')
    with open(path, 'rb') as file, within_seconds(10):
        records = record_files.parquet_rows(file, 'client', 'text')
        assert next(records).reason == 'no text'
        records.close()


def test_columns_of_any_type_of_a_parquet_file_are_malformed_records(tmp_path):
    from pyarrow import parquet

    path = tmp_path / 'a.parquet'
    times = pyarrow.array([2**62] * 2).cast(pyarrow.timestamp('us'))
    parquet.write_table(pyarrow.table({'client': times, 'text': ['a', 'b']}), path)
    with open(path, 'rb') as file:
        records = list(record_files.parquet_rows(file, 'client', 'text'))
    reason = 'client id is neither a string nor a number'
    assert records == [record_files.BadRecord(row, reason) for row in (1, 2)]


_ENDLESS = (
    'CREATE VIEW {} AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) '
    "SELECT n AS client_id, 'train' AS split_name, 1 AS num_examples, x'00' AS "
    'serialized_example_proto FROM r'
)


def test_views_of_an_sqlite_file_are_not_queried(tmp_path):
    path = tmp_path / 'a.sqlite'
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in ('client_metadata', 'examples'):
            connection.execute(_ENDLESS.format(table))
        connection.commit()
    assert 'not an ordinary table' in refused(lambda: client_texts.open_stackoverflow(path, 0.5))
    assert 'not an ordinary table' in refused(lambda: emnist.EmnistFile(path), DataError)


def test_a_client_without_a_name_is_a_client(tmp_path):
    path = tmp_path / 'a.sqlite'
    # A tf.train.Example whose feature `tokens` is the bytes 'a'.
    example = b'\n\x11\n\x0f\n\x06tokens\x12\x05\n\x03\n\x01a'
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE client_metadata (client_id, split_name)')
        columns = 'client_id, split_name, serialized_example_proto'
        connection.execute(f'CREATE TABLE examples ({columns})')
        for client in (None, 'a', 'b'):
            connection.execute('INSERT INTO client_metadata VALUES (?, ?)', (client, 'train'))
            connection.execute('INSERT INTO examples VALUES (?, ?, ?)', (client, 'train', example))
        connection.commit()
    training, heldout, _, _ = client_texts.open_stackoverflow(path, 0.3)
    found = [list(part.sentences(i)) for part in (training, heldout) for i in range(part.count)]
    assert found == [[['a']]] * 3
