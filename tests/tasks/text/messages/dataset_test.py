"""Data sets in Parquet: columns, counts, bounded row groups; read again as user_text."""

import json
import stat

import pytest
from pyarrow import parquet

from dpfl.errors import ArgumentError
from dpfl.tasks.text.files import public_text, user_text
from dpfl.tasks.text.messages import author_key, dataset
from tests.tasks.text.messages import repositories
from tests.tasks.text.messages.repositories import Commit


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))


def _client(author):
    return author_key.client(author_key.load(), author)


def _rows(path):
    return {tuple(row.values()) for row in parquet.read_table(path).to_pylist()}


def test_repositories(tmp_path):
    first = repositories.make(
        tmp_path / 'a.git', [Commit('A@x.org', 'One. Two'), Commit('b@x.org', 'Three')]
    )
    second = repositories.make(tmp_path / 'b', [Commit('a@x.org', 'Four\n\nOne.')])
    output = tmp_path / 'out.parquet'
    output.write_text('older')
    made = dataset.make('git', f'{first},{second}', output, max_words=0)
    table = parquet.read_table(output)
    assert table.column_names == ['client', 'source', 'text', 'sentence']
    a, b = _client('a@x.org'), _client('b@x.org')
    assert _rows(output) == {
        (a, 'a', 'One.', 0),
        (a, 'a', 'Two', 1),
        (a, 'b', 'Four', 2),
        (b, 'a', 'Three', 0),
    }
    assert made['clients'] == 2 and made['sources'] == ['a', 'b']
    assert made['history']['commits'] == 3 and made['removed']['repeated_sentences'] == 1
    assert made['kept'] == {'sentences': 4, 'words': 5}
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    # As a task, and as public text.
    training, heldout, description, _ = user_text.open_clients(output, 'client', 'text', 0.5)
    assert training.count + heldout.count == 2 and description['records'] == 4
    sentences = {' '.join(words) for words in public_text.sentences('vocabulary_text', output)}
    assert sentences == {'one .', 'two', 'four', 'three'}


def test_json_lines(tmp_path):
    path = tmp_path / 'a.jsonl'
    lines = [{'who': 7, 'said': 'One\n> two'}, {'who': '7', 'said': 'Three'}, {'who': 'x'}]
    path.write_text(''.join(json.dumps(line) + '\n' for line in lines))
    output = tmp_path / 'out.parquet'
    made = dataset.make(
        'jsonl', str(path), output, max_words=0, client_column='who', text_column='said'
    )
    client = _client('7')
    assert _rows(output) == {(client, 'a.jsonl', 'One', 0), (client, 'a.jsonl', 'Three', 1)}
    assert made['history'] == {'records': 3, 'malformed': 1, 'authors': 1}
    assert made['removed']['quoted_lines'] == 1


def test_mailboxes_have_the_clients_of_repositories(tmp_path):
    path = tmp_path / 'box'
    path.write_text('From x\nFrom: A <A@x.org>\n\nHello you. Bye\n')
    made = dataset.make('mbox', str(path), tmp_path / 'out.parquet', max_words=3)
    assert _rows(tmp_path / 'out.parquet') == {(_client('a@x.org'), 'box', 'Hello you.', 0)}
    assert made['history']['messages'] == 1 and made['removed']['words_over_cap'] == 1


def test_row_groups_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, '_ROWS_OF_A_GROUP', 10)
    path = tmp_path / 'a.jsonl'
    texts = [{'client': i % 3, 'text': f'text {i} here'} for i in range(35)]
    path.write_text(''.join(json.dumps(text) + '\n' for text in texts))
    dataset.make('jsonl', str(path), tmp_path / 'out.parquet', max_words=0)
    file = parquet.ParquetFile(tmp_path / 'out.parquet')
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert groups == [10, 10, 10, 5]


def test_what_cannot_be_read_leaves_an_older_file(tmp_path):
    output = tmp_path / 'out.parquet'
    output.write_text('older')
    (tmp_path / 'a.jsonl').write_text('{"client": 1, "text": "> x"}\n')
    (tmp_path / 'b.jsonl').write_text('{"who": 1, "text": "x"}\n{"who": 2, "text": "y"}\n')
    for path, message in (
        (tmp_path / 'a.jsonl', '^data_path: has no sentence'),
        (
            tmp_path / 'b.jsonl',
            r'^data_path: all records are malformed \(client_column=client, text_column=text\); '
            'the first one: .*b.jsonl, line 1: no client id$',
        ),
        (tmp_path / 'absent', r'^data_path=.*absent: cannot be read \(No such file'),
    ):
        with pytest.raises(ArgumentError, match=message):
            dataset.make('jsonl', str(path), output, max_words=0)
    assert output.read_text() == 'older'
    assert not (tmp_path / 'out.parquet.partial').exists()
