"""Users' files: splits, refused files with their messages, and files that change."""

import csv
import hashlib
import json
import os

import pyarrow
import pytest
from pyarrow import parquet

from dpfl.errors import DataError
from dpfl.tasks.text.files import user_text

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
    return user_text.open_clients(path, 'who', 'said', fraction, **kwargs)


def _sentences(clients):
    return [list(clients.sentences(client)) for client in range(clients.count)]


_EXPECTED = {
    tuple(w for j in range(i % 3 + 1) for w in ('text', str(j), 'of', str(i), '.', 'bye', '!'))
    for i in range(20)
}


def _joined(sentences):
    return tuple(word for sentence in sentences for word in sentence)


def test_clients_are_split_and_each_is_there_once(tmp_path):
    path = _write_json(tmp_path / 'a.jsonl')
    training, heldout, description, _ = _open(path)
    assert (training.count, heldout.count) == (15, 5)
    every = [*map(_joined, _sentences(training)), *map(_joined, _sentences(heldout))]
    assert len(every) == 20 and set(every) == _EXPECTED
    assert description['clients'] == {'training': 15, 'heldout': 5}
    assert description['records'] == sum(map(len, _TEXTS.values()))
    assert description['left_out'] == {'empty': 0} and 'first_malformed' not in description
    assert not any(client in json.dumps(description) for client in _TEXTS)
    # A pure function: as often as it is asked for.
    assert _sentences(training) == _sentences(training) == _sentences(_open(path)[0])
    # A larger share holds out the same clients and more.
    more = _open(path, 0.5)[1]
    assert {*map(_joined, _sentences(heldout))} < {*map(_joined, _sentences(more))}


def test_csv_gives_the_same_clients(tmp_path):
    path = tmp_path / 'a.csv'
    with open(path, 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['said', 'who'])
        writer.writerows((text, client) for client, texts in _TEXTS.items() for text in texts)
    expected = _open(_write_json(tmp_path / 'a.jsonl'))
    found = _open(path)
    assert _sentences(found[0]) == _sentences(expected[0])
    assert _sentences(found[1]) == _sentences(expected[1])


def _write_parquet(path, rows, **types):
    columns = {
        name: pyarrow.array([row[i] for row in rows], types.get(name))
        for i, name in enumerate(('who', 'said'))
    }
    parquet.write_table(pyarrow.table(columns | {'other': [0] * len(rows)}), path, row_group_size=7)
    return path


@pytest.mark.parametrize(
    'types',
    [
        {},
        {'said': pyarrow.large_string()},
        {'who': pyarrow.dictionary(pyarrow.int32(), pyarrow.string())},
    ],
    ids=str,
)
def test_parquet_gives_the_same_clients(types, tmp_path):
    rows = [(client, text) for client, texts in _TEXTS.items() for text in texts]
    expected = _open(_write_json(tmp_path / 'a.jsonl'))
    found = _open(_write_parquet(tmp_path / 'a.parquet', rows, **types))
    assert _sentences(found[0]) == _sentences(expected[0])
    assert _sentences(found[1]) == _sentences(expected[1])
    assert found[2]['format'] == 'parquet' and found[2]['records'] == len(rows)
    data = (tmp_path / 'a.parquet').read_bytes()
    assert found[3] == hashlib.sha256(data).hexdigest()
    # A size and a digest without a key are tests of guesses at the texts.
    assert not {'bytes', 'sha256'} & set(found[2]) and found[3] not in json.dumps(found[2])


def test_rows_of_parquet_that_are_malformed_are_counted(tmp_path):
    rows = [(7, b'one.'), (7, None), (8, b'caf\xe9'), (None, b'three.'), (9, b'four.'), (9, b' ')]
    binary = pyarrow.array([text for _, text in rows], pyarrow.binary())
    # As a file may have it: bytes that are said to be text, and are not UTF-8.
    said = pyarrow.StringArray.from_buffers(len(rows), *binary.buffers()[1:], binary.buffers()[0])
    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'who': [who for who, _ in rows], 'said': said}), path)
    training, heldout, description, _ = _open(path)
    assert training.count + heldout.count == 2 == description['records']
    assert description['left_out'] == {'empty': 1, 'no text': 1, 'not UTF-8': 1, 'no client id': 1}
    assert description['first_malformed'] == 'line 2: no text'
    parquet.write_table(pyarrow.table({'who': rows and ['a'] * 6, 'said': binary}), path)
    with pytest.raises(
        ValueError, match='^text_column=said: must be a column of text, not of binary'
    ):
        _open(path)


def test_a_parquet_file_that_is_cut_or_damaged_is_refused(tmp_path):
    rows = [(str(i), f'Text {i}.') for i in range(500)]
    path = _write_parquet(tmp_path / 'a.parquet', rows)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(ValueError, match='^data_path=.*: is not a complete Parquet file'):
        _open(path)
    path.write_bytes(b'PAR1' + bytes(2000) + whole[2004:])
    with pytest.raises(ValueError, match='^data_path=.*: is not a complete Parquet file'):
        _open(path)


def test_parquet_without_a_column_names_its_flag(tmp_path):
    path = tmp_path / 'a.pq'
    parquet.write_table(pyarrow.table({'who': ['a'], 'text': ['b']}), path)
    with pytest.raises(
        ValueError, match='^text_column=said: must be one of the 2 columns: who, text$'
    ):
        _open(path)


def test_json_lines_without_a_column_say_which_there_are(tmp_path):
    path = tmp_path / 'a.jsonl'
    lines = [json.dumps({'who': str(i), 'words': 'secret'}) for i in range(9)]
    path.write_text('\n'.join(lines))
    with pytest.raises(ValueError, match='^text_column=said: must be one of the 2 columns: who, w'):
        _open(path)
    many = {f'column {i}\n': 'secret' for i in range(20)}
    path.write_text(json.dumps(many))
    with pytest.raises(
        ValueError, match=r'of the 20 columns: column 0, .*column 11, \.\.\.$'
    ) as error:
        _open(path)
    assert 'secret' not in str(error.value) and '\n' not in str(error.value)


def test_malformed_lines_are_left_out_unless_strict(tmp_path):
    path = _write_json(tmp_path / 'a.jsonl')
    with open(path, 'a') as file:
        file.write('nonsense\n')
    lines = sum(map(len, _TEXTS.values()))
    description = _open(path)[2]
    assert description['left_out'] == {'empty': 0, 'not JSON': 1}
    assert description['first_malformed'] == f'line {lines + 1}: not JSON'
    with pytest.raises(ValueError, match=f'data_path=.*: line {lines + 1} is malformed: not JSON'):
        _open(path, strict=True)


@pytest.mark.parametrize(
    'name, content, message',
    [
        ('a.jsonl', None, r'cannot be read \(No such file'),
        ('a.txt', b'', r'must be a file whose name ends in one of \.jsonl, '),
        ('a.parquet', None, r'cannot be read \(No such file'),
        ('a.parquet', b'PAR1', r'is not a complete Parquet file \('),
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


def test_a_missing_column_names_its_flag(tmp_path):
    path = tmp_path / 'a.csv'
    path.write_text('who,text\na,b\n')
    with pytest.raises(ValueError, match='^text_column=said: must be one of the 2 columns'):
        _open(path)


@pytest.mark.parametrize('change', ['append', 'other bytes'])
def test_a_file_that_changes_is_noticed(change, tmp_path):
    path = _write_json(tmp_path / 'a.jsonl')
    training, *_ = _open(path)
    status = os.stat(path)
    if change == 'append':
        with open(path, 'a') as file:
            file.write('\n')
    else:
        path.write_bytes(b'x' * status.st_size)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DataError, match='a.jsonl: has changed since it was indexed'):
        list(training.sentences(0))
