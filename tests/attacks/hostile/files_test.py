"""Hostile files: special ones, false headers, bombs, pickles; bad values behind right digests."""

import contextlib
import functools
import io
import json
import os
import pathlib
import sqlite3
import zipfile

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from dpfl import ParticipationLog, _files, _npz, errors, mechanisms
from dpfl.accounting.records import archive, verification
from dpfl.simulation import checkpoint, run_journal
from dpfl.simulation.training import run_model
from dpfl.tasks.images import emnist
from dpfl.tasks.text import client_texts, record_files, vocabulary
from tests.accounting import archives
from tests.attacks.hostile import targets
from tests.attacks.hostile.mutations import npy_described, npy_header
from tests.attacks.hostile.refusals import refused, within_seconds
from tests.tasks import sqlite_files


def _user_text(path):
    return client_texts.open_user_text(path, 'client', 'text', 0.5)


def _public_text(path):
    return next(vocabulary.public_texts('public_text', path))


def _stackoverflow(path):
    return client_texts.open_stackoverflow(path, 0.5)


# The name of a file, how it is read, and how it is refused.
_READERS = [
    ('a.npz', mechanisms.load, ValueError),
    ('a.npz', ParticipationLog.load, ValueError),
    ('a.npz', _npz.load, (ValueError, OSError)),
    ('model.npz', lambda path: run_model.weights(path.parent), errors.RunError),
    ('plan.json', lambda path: archive.read_plan(path.parent), ValueError),
    ('ledger.jsonl', lambda path: archive.read_journal(path.parent), ValueError),
    ('ledger.jsonl', lambda path: run_journal.RunJournal(path.parent), errors.RunError),
    ('1.checkpoint', checkpoint.Checkpoint.read, errors.RunError),
    ('1.checkpoint', checkpoint.read_head, errors.RunError),
    ('words.txt', vocabulary.load, ValueError),
    *((f'a.{kind}', _user_text, ValueError) for kind in ('jsonl', 'csv', 'parquet')),
    *((f'a.{kind}', _public_text, ValueError) for kind in ('jsonl', 'csv', 'parquet')),
    ('a.sqlite', emnist.EmnistFile, errors.DataError),
    ('a.sqlite', _stackoverflow, ValueError),
    ('a', _files.read_bytes, OSError),
]
_SPECIAL = {
    'directory': pathlib.Path.mkdir,
    'FIFO': os.mkfifo,
    'link to itself': lambda path: path.symlink_to(path.name),
    **{
        device: lambda path, device=device: path.symlink_to(device)
        for device in ('/dev/zero', '/dev/urandom', '/nowhere')
    },
}


@pytest.mark.parametrize('special', _SPECIAL)
def test_no_special_file_is_waited_for_or_read_without_end(special, tmp_path):
    for number, (name, read, kind) in enumerate(_READERS):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        _SPECIAL[special](path)
        if not (special == '/nowhere' and name == 'ledger.jsonl'):
            refused(functools.partial(read, path), kind)


def test_a_text_of_gigabytes_is_not_read(tmp_path):
    path = tmp_path / 'sparse'
    with open(path, 'wb') as file:
        file.truncate(1 << 40)
    assert 'too large' in refused(lambda: _files.read_bytes(path), OSError)
    refused(lambda: checkpoint.Checkpoint.read(path), errors.RunError)
    refused(lambda: mechanisms.load(path))


# --- Archives and arrays.


def _archive(path, *members, method=zipfile.ZIP_STORED):
    """Writes an archive with these names and bytes; returns its path."""
    with zipfile.ZipFile(path, 'w', method) as file:
        for name, data in members:
            file.writestr(zipfile.ZipInfo(name), data, method)
    return path


def _npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    'data, message',
    [
        (npy_described('(1000000000000,)'), 'not all there'),
        (npy_described('(4294967296, 4294967296)'), 'not all there'),
        (npy_described('(2,)'), 'longer than its header says'),
        (npy_described('(2,)', '|O'), 'not one of plain numbers'),
        (npy_described('(2,)', '<V0'), 'not one of plain numbers'),
        (npy_described('(' * 300 + ')' * 300), 'not one of plain numbers'),
        (npy_described('(-1,)'), 'not one of plain numbers'),
        (npy_header("{'descr': '<f8'"), 'not one of plain numbers'),
        (b'\x93NUMPY\3\0', 'no header'),
        (b'\x93NUMPY\2\0\xff\xff\xff\xff', 'too long'),
        (b'no array', 'no header'),
        (npy_described('()', '<U1', data=b'\xff' * 4), 'no character'),
    ],
)
def test_an_array_is_read_only_if_its_bytes_are_there(data, message, tmp_path):
    path = _archive(tmp_path / 'a.npz', ('a.npy', data))
    assert message in refused(lambda: _npz.load(path))


def test_a_bomb_is_not_unpacked(tmp_path):
    size = 1 << 26
    data = npy_described(f'({size},)', '|u1', data=bytes(size))
    path = _archive(tmp_path / 'a.npz', ('a.npy', data), method=zipfile.ZIP_DEFLATED)
    del data
    assert path.stat().st_size < 1 << 20
    assert 'unpacks to more than' in refused(lambda: _npz.load(path, beside=1 << 24))
    assert 'unpacks to more than' in refused(lambda: mechanisms.load(path))


@pytest.mark.filterwarnings('ignore:Duplicate name')
def test_other_compressions_and_arrays_of_one_name_are_refused(tmp_path):
    member = ('a.npy', _npy(np.ones(3)))
    path = _archive(tmp_path / 'a.npz', member, method=zipfile.ZIP_LZMA)
    assert 'compressed in another way' in refused(lambda: _npz.load(path))
    path = _archive(tmp_path / 'b.npz', member, member)
    assert 'two arrays' in refused(lambda: _npz.load(path))


def test_pickles_are_never_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (pathlib.Path(tmp_path / 'executed').touch, ())

    np.savez(tmp_path / 'model.npz', a=np.array([Evil()], dtype=object))
    refused(lambda: _npz.load(tmp_path / 'model.npz'))
    refused(lambda: run_model.weights(tmp_path), errors.StorageError)
    assert not (tmp_path / 'executed').exists()


# --- Files of a run.


@pytest.mark.parametrize(
    'change',
    [
        *({'rounds': -1}, {'rounds': 'one'}, {'rounds': 10**30}),
        *({'leaves': 10**9}, {'leaves': 1}, {'bytes': [-1]}, {'bytes': [5]}),
        *({'head': []}, {'head': None}),
        *(b'', npy_described('(1000000000000,)'), npy_header('(' * 5000)),
        npy_header("{'descr': '\\d"),
    ],
)
def test_a_checkpoint_of_other_contents_is_refused_behind_its_digest(change, tmp_path):
    target = targets.checkpoint_file()
    parts = dict(target.examples[0])
    if isinstance(change, bytes):
        parts['0.npy'] = change
    else:
        values = json.loads(parts['header.json']) | change
        parts['header.json'] = json.dumps(values).encode()
    ((name, data),) = target.seal(parts).items()
    (tmp_path / name).write_bytes(data)
    refused(lambda: target.read(tmp_path), checkpoint.CheckpointError)


@pytest.mark.parametrize(
    'change, message',
    [
        *(
            ({'files': json.loads(value)}, 'line 1 is damaged')
            for value in ('5', 'null', '[' * 900 + ']' * 900, '{"a": 1}', '1e5')
        ),
        ({'format': '\x1b[2J\n'}, 'has format \\x1b[2J, this version'),
    ],
)
def test_a_journal_of_other_values_is_refused_behind_its_chain(change, message, tmp_path):
    values = json.loads(targets.journal_file().examples[0]['0.json'])
    for changes, is_good in (({}, True), (change, False)):
        line = json.dumps(values | changes).encode()
        (tmp_path / 'ledger.jsonl').write_bytes(targets.chained([line]))
        if is_good:
            run_journal.RunJournal(tmp_path)
    assert message in refused(lambda: run_journal.RunJournal(tmp_path), errors.RunError)


def test_names_in_a_list_of_digests_are_shown_in_one_line(tmp_path):
    sums = archives.write(tmp_path) / archive.SUMS
    sums.write_text(sums.read_text() + f'{"0" * 64}  a\x1b[2J\x85b\n')
    differences = verification.verify(tmp_path).differences
    assert differences and all(line.isprintable() for line in differences)


# --- Data sets.


def test_a_parquet_file_that_kills_its_reader_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'client': ['a'] * 9, 'text': ['b'] * 9}), path)
    reader = 'import os, signal; os.kill(os.getpid(), signal.SIGSEGV)'
    monkeypatch.setattr(record_files, '_READER', reader)
    message = refused(lambda: _user_text(path))
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
    path = tmp_path / 'a.parquet'
    times = pyarrow.array([2**62] * 2).cast(pyarrow.timestamp('us'))
    parquet.write_table(pyarrow.table({'client': times, 'text': ['a', 'b']}), path)
    with open(path, 'rb') as file:
        records = list(record_files.parquet_rows(file, 'client', 'text'))
    reason = 'client id is neither a string nor a number'
    assert records == [record_files.Record(row, reason=reason) for row in (1, 2)]


_ENDLESS = (
    'CREATE VIEW {} AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) '
    "SELECT n AS client_id, 'train' AS split_name, 1 AS num_examples, x'00' AS "
    'serialized_example_proto FROM r'
)


def test_views_of_an_sqlite_file_are_not_queried(tmp_path):
    path = tmp_path / 'a.sqlite'
    sqlite_files.execute(path, *map(_ENDLESS.format, ('CLIENT_metadata', 'examples')))
    assert 'not an ordinary table' in refused(lambda: _stackoverflow(path))
    assert 'not an ordinary table' in refused(lambda: emnist.EmnistFile(path), errors.DataError)


def test_a_client_without_a_name_is_a_client(tmp_path):
    path = tmp_path / 'a.sqlite'
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE client_metadata (client_id, split_name)')
        columns = 'client_id, split_name, serialized_example_proto'
        connection.execute(f'CREATE TABLE examples ({columns})')
        for client in (None, 'a', 'b'):
            row = (client, 'train', sqlite_files.of_sentence('a'))
            connection.execute('INSERT INTO client_metadata VALUES (?, ?)', row[:2])
            connection.execute('INSERT INTO examples VALUES (?, ?, ?)', row)
    data = client_texts.open_stackoverflow(path, 0.3)
    found = [
        list(part.sentences(i)) for part in (data.training, data.heldout) for i in range(part.count)
    ]
    assert found == [[['a']]] * 3
