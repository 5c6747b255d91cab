"""Text in files of users and public text: splits, refused files, and files that change."""

import csv
import gzip
import hashlib
import json
import tempfile

import pyarrow
import pytest
from pyarrow import parquet

from dpfl.errors import ArgumentError
from dpfl.tasks.text import client_texts, record_files, vocabulary
from tests.tasks.text import repositories
from tests.tasks.text.repositories import Commit

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
        ('parquet', {'who': pyarrow.dictionary(pyarrow.int32(), pyarrow.string())}),
    ],
    ids=str,
)
def test_csv_and_parquet_give_the_same_clients(kind, types, tmp_path, request):
    if types:  # Without them the reader is a child process, as it is for users.
        request.getfixturevalue('parquet_in_process')
    rows = [(client, text) for client, texts in _TEXTS.items() for text in texts]
    expected = _open(_write_json(tmp_path / 'a.jsonl'))
    path = tmp_path / f'a.{kind}'
    found = _open(_write_csv(path, rows) if kind == 'csv' else _write_parquet(path, rows, **types))
    assert [*map(_sentences, found[:2])] == [*map(_sentences, expected[:2])]
    assert found[2]['format'] == kind and found[2]['records'] == len(rows)
    assert found[3] == hashlib.sha256(path.read_bytes()).hexdigest()
    # A size and a digest without a key are tests of guesses at the texts.
    assert not {'bytes', 'sha256'} & set(found[2]) and found[3] not in json.dumps(found[2])


@pytest.mark.usefixtures('parquet_in_process')
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
def test_ids_of_parquet_are_those_of_json_lines(ids, keys, tmp_path):
    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'who': ids, 'said': ['text'] * len(ids)}), path)
    with open(path, 'rb') as file:
        records = list(record_files.parquet_rows(file, 'who', 'said'))
    good = [each.client for each in records if isinstance(each, record_files.Record)]
    assert good == keys and [each.line for each in records] == [*range(1, len(ids) + 1)]


@pytest.mark.usefixtures('parquet_in_process')
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


def test_a_file_that_changes_later_changes_no_text(tmp_path):
    path = _write_json(tmp_path / 'a.jsonl')
    training, *_ = _open(path)
    before = _sentences(training)
    path.write_text('nonsense')
    assert _sentences(training) == before


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
    clients = _open(_write_json(tmp_path / 'a.jsonl'))
    assert _sentences(clients[0]) and not [*tmp_path.glob('*/*')]


_PUBLIC_TEXTS = ['The cat sat. It sat!', 'A café \u2019s cat', 'b' * 10]


@pytest.fixture(name='paths')
def _paths(tmp_path):
    plain = '\ufeff' + ''.join(f'{text}\n' for text in _PUBLIC_TEXTS)
    lines = ''.join(json.dumps({'text': text, 'other': 1}) + '\n\n' for text in _PUBLIC_TEXTS)
    found = []
    for name, text in (('a.txt', plain), ('a.jsonl', lines), ('A.NDJSON', lines)):
        (tmp_path / name).write_text(text)
        (tmp_path / f'{name}.gz').write_bytes(gzip.compress(text.encode()))
        found += [tmp_path / name, tmp_path / f'{name}.gz']
    return found


def test_every_form_has_the_same_sentences(paths):
    expected = list(vocabulary.public_sentences('public_text', paths[0]))
    assert expected[0] == ['the', 'cat', 'sat', '.'] and len(expected) == 4
    for path in paths:
        assert list(vocabulary.public_sentences('public_text', path)) == expected, path
        assert vocabulary.count_public_text(path, 2).words == ('cat', 'sat')


def test_a_file_is_read_as_far_as_it_is_needed(tmp_path):
    path = tmp_path / 'a.jsonl'
    path.write_text('{"text": "good. line."}\nbad\n')
    sentences = vocabulary.public_sentences('public_text', path)
    assert next(sentences) == ['good', '.'] and next(sentences) == ['line', '.']
    with pytest.raises(ArgumentError, match=r'line 2 must be a JSON object with a text'):
        next(sentences)


@pytest.mark.parametrize(
    'name, data, message',
    [
        ('a.jsonl', b'{"texts": "a"}\n', "line 1 must be a JSON object with a text 'text'"),
        ('a.jsonl', b'[1]\n', 'line 1 must be a JSON object'),
        ('a.txt', b'good\n\xff\n', 'must be UTF-8 text'),
        ('a.txt.gz', b'not compressed', 'must be a whole gzip file'),
        ('a.txt.gz', gzip.compress(b'a line\n' * 9000, mtime=0)[:-20], 'must be a whole gzip file'),
    ],
)
def test_bad_files_are_refused(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ArgumentError, match=f'public_text=.*: {message}'):
        list(vocabulary.public_sentences('public_text', tmp_path / name))
    with pytest.raises(ArgumentError, match='public_text=.*: cannot be read'):
        list(vocabulary.public_sentences('public_text', tmp_path / 'absent'))


def test_repositories_are_text(tmp_path):
    first = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One\n\nTwo. See `f(x)`')])
    second = repositories.make(tmp_path / 'b', [Commit('b@x.org', 'Three'), Commit('b@x.org', '1')])
    found = vocabulary.public_sentences('public_text', f'{first},{second}')
    assert list(found) == [['one'], ['two', '.'], ['see'], ['three']]
    empty = repositories.make(tmp_path / 'c', [])
    with pytest.raises(ArgumentError, match=f'public_text={empty}: is a repository without'):
        list(vocabulary.public_sentences('public_text', f'{first},{empty}'))


@pytest.mark.usefixtures('parquet_in_process')
def test_a_column_of_parquet_is_text(tmp_path):
    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'text': ['One. Two', 'Three'], 'n': [1, 2]}), path)
    assert list(vocabulary.public_sentences('public_text', path)) == [
        ['one', '.'],
        ['two'],
        ['three'],
    ]
    for column, message in (
        ('said', "must have a column 'said'"),
        ('n', "must have a column 'n' of text"),
    ):
        with pytest.raises(ArgumentError, match=f'public_text=.*: {message}'):
            list(vocabulary.public_sentences('public_text', path, column))
    path.write_bytes(b'PAR1')
    with pytest.raises(ArgumentError, match='public_text=.*: is not a complete Parquet file'):
        list(vocabulary.public_sentences('public_text', path))
    with pytest.raises(ArgumentError, match=r'public_text=.*: cannot be read \(No such file'):
        list(vocabulary.public_sentences('public_text', tmp_path / 'b.parquet'))
