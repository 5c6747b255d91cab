"""Public text from files of several forms, and what is refused."""

import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet

from dpfl.errors import ArgumentError
from dpfl.tasks.text import vocabulary
from dpfl.tasks.text.files import public_text
from tests.tasks.text.messages import repositories
from tests.tasks.text.messages.repositories import Commit

_TEXTS = ['The cat sat. It sat!', 'A café \u2019s cat', 'b' * 10]


@pytest.fixture(name='paths')
def _paths(tmp_path):
    plain = '\ufeff' + ''.join(f'{text}\n' for text in _TEXTS)
    lines = ''.join(json.dumps({'text': text, 'other': 1}) + '\n\n' for text in _TEXTS)
    found = []
    for name, text in (('a.txt', plain), ('a.jsonl', lines), ('A.NDJSON', lines)):
        (tmp_path / name).write_text(text)
        (tmp_path / f'{name}.gz').write_bytes(gzip.compress(text.encode()))
        found += [tmp_path / name, tmp_path / f'{name}.gz']
    return found


def test_every_form_has_the_same_sentences(paths):
    expected = list(public_text.sentences('public_text', paths[0]))
    assert expected[0] == ['the', 'cat', 'sat', '.'] and len(expected) == 4
    for path in paths:
        assert list(public_text.sentences('public_text', path)) == expected, path
        assert vocabulary.count_public_text(path, 2).words == ('cat', 'sat')


def test_a_file_is_read_as_far_as_it_is_needed(tmp_path):
    path = tmp_path / 'a.jsonl'
    path.write_text('{"text": "good. line."}\nbad\n')
    sentences = public_text.sentences('public_text', path)
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
        list(public_text.sentences('public_text', tmp_path / name))
    with pytest.raises(ArgumentError, match='public_text=.*: cannot be read'):
        list(public_text.sentences('public_text', tmp_path / 'absent'))


def test_repositories_are_text(tmp_path):
    first = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One\n\nTwo. See `f(x)`')])
    second = repositories.make(tmp_path / 'b', [Commit('b@x.org', 'Three'), Commit('b@x.org', '1')])
    found = public_text.sentences('public_text', f'{first},{second}')
    assert list(found) == [['one'], ['two', '.'], ['see'], ['three']]
    empty = repositories.make(tmp_path / 'c', [])
    with pytest.raises(ArgumentError, match=f'public_text={empty}: is a repository without'):
        list(public_text.sentences('public_text', f'{first},{empty}'))


def test_a_column_of_parquet_is_text(tmp_path):
    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'text': ['One. Two', 'Three'], 'n': [1, 2]}), path)
    assert list(public_text.sentences('public_text', path)) == [['one', '.'], ['two'], ['three']]
    for column, message in (
        ('said', "must have a column 'said'"),
        ('n', "must have a column 'n' of text"),
    ):
        with pytest.raises(ArgumentError, match=f'public_text=.*: {message}'):
            list(public_text.sentences('public_text', path, column))
    path.write_bytes(b'PAR1')
    with pytest.raises(ArgumentError, match='public_text=.*: is not a complete Parquet file'):
        list(public_text.sentences('public_text', path))
    with pytest.raises(ArgumentError, match=r'public_text=.*: cannot be read \(No such file'):
        list(public_text.sentences('public_text', tmp_path / 'b.parquet'))
