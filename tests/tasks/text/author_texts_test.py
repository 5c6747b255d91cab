"""From messages to authors, to clients of repositories, and to data sets."""

import collections
import json
import os
import stat

import pytest
from pyarrow import parquet

from dpfl.errors import ArgumentError, StorageError
from dpfl.tasks.text import author_texts, client_texts, git_log, vocabulary
from dpfl.tasks.text.author_texts import Message
from tests.studies import scripts_of_studies
from tests.tasks.text import repositories
from tests.tasks.text.repositories import Commit

dataset = scripts_of_studies.load('make_dataset')

_KEY = bytes(range(32))


@pytest.fixture(name='cache', autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


def _grouped(messages, max_words=0, key=_KEY):
    counts = collections.Counter()
    found = {}
    for part in author_texts.by_author(messages, key, max_words, counts):
        assert part.client not in list(found)[:-1], 'the parts of a client are together'
        found.setdefault(part.client, []).append((part.source, part.sentences))
    return found, counts


def _of(found, author, key=_KEY):
    return found[author_texts.client_of(key, author)]


def test_the_messages_of_an_author_are_joined_over_all_sources_in_order():
    messages = [
        Message('a@x', 0, 'One. Two'),
        Message('b@x', 0, 'Three'),
        Message('a@x', 1, 'Four'),
    ]
    found, counts = _grouped(iter(messages))
    assert len(found) == 2
    assert _of(found, 'a@x') == [(0, ['One.', 'Two']), (1, ['Four'])]
    assert _of(found, 'b@x') == [(0, ['Three'])]
    assert +counts == {'authors': 2, 'sentences': 4, 'words': 5}


def test_identical_sentences_of_one_author_are_there_once():
    messages = [
        Message('a@x', 0, 'Fix it. fix  IT.'),
        Message('b@x', 0, 'Fix it.'),
        Message('a@x', 1, 'Fix it.\n\nFix it now.'),
    ]
    found, counts = _grouped(messages)
    assert _of(found, 'a@x') == [(0, ['Fix it.']), (1, ['Fix it now.'])]
    assert _of(found, 'b@x') == [(0, ['Fix it.'])]
    assert counts['repeated_sentences'] == 2 and counts['sentences'] == 3


def test_the_first_sentences_that_fit_are_kept():
    messages = [Message('a@x', 0, 'one two three'), Message('a@x', 0, 'four five. six')] * 2
    found, counts = _grouped(messages, 5)
    assert _of(found, 'a@x') == [(0, ['one two three']), (0, ['six'])]
    assert counts['words'] == 4 and counts['sentences'] == 2
    assert counts['sentences_over_cap'] == 1 and counts['words_over_cap'] == 3
    # All are counted, and another author has words of its own.
    found, _ = _grouped([*messages, Message('b@x', 0, 'one two three four five')], 5)
    assert _of(found, 'b@x') == [(0, ['one two three four five'])]


def test_the_key_is_made_once_and_only_for_its_owner(cache):
    key = author_texts.load_key()
    assert len(key) == 32 and author_texts.load_key() == key
    assert stat.S_IMODE((cache / 'authors.key').stat().st_mode) == 0o600
    assert os.listdir(cache) == ['authors.key']
    (cache / 'authors.key').unlink()
    assert author_texts.load_key() != key


def test_a_key_that_another_process_has_made_meanwhile_stays(cache, monkeypatch):
    other = bytes(range(32))

    def urandom(count):
        (cache / 'authors.key').write_bytes(other)
        return bytes(count)

    monkeypatch.setattr(os, 'urandom', urandom)
    assert author_texts.load_key() == other


def test_keys_that_cannot_be_used_are_named(cache, monkeypatch):
    cache.mkdir()
    (cache / 'authors.key').write_bytes(b'short')
    with pytest.raises(StorageError, match=r'authors\.key: must have 32 bytes; remove it'):
        author_texts.load_key()
    monkeypatch.setenv('DPFL_CACHE_DIR', str(cache / 'authors.key'))
    with pytest.raises(StorageError, match='authors.key: '):
        author_texts.load_key()
    monkeypatch.setenv('DPFL_CACHE_DIR', '')
    with pytest.raises(ArgumentError, match='data_path: needs a cache directory .* is empty'):
        author_texts.load_key()


_COMMITS = [
    Commit('A@x.org', 'Fix it\n\nIt was wrong. See https://x.org\n\nSigned-off-by: A <a@x.org>\n'),
    Commit('b@x.org', 'Add `f(x)` here'),
    Commit('a@X.org', 'Fix it'),
    Commit('c@x.org', 'Say\n\n    code\n'),
    Commit('d@x.org', '12'),
]


@pytest.fixture(name='path')
def _path(tmp_path):
    return repositories.make(tmp_path / 'a', _COMMITS)


def _open(path, max_words=0, fraction=0.3):
    return git_log.open_clients(str(path), max_words, fraction)


def _texts(opened):
    return {
        tuple(' '.join(sentence) for sentence in clients.sentences(client))
        for clients in opened[:2]
        for client in range(clients.count)
    }


def _count_reads(monkeypatch):
    reads = []
    read = git_log.read_messages
    monkeypatch.setattr(
        git_log, 'read_messages', lambda *args: reads.append(args) or read(*args)
    )  # fmt: skip
    return reads


def test_an_author_is_a_client(path):
    opened = _open(path)
    expected = {('fix it', 'it was wrong .', 'see'), ('add here',), ('say',)}
    assert _texts(opened) == expected
    training, heldout, description, digest = opened
    assert (training.count, heldout.count) == (2, 1) and len(digest) == 64
    removed = description['removed']
    assert description == {
        'format': 'git',
        'clients': {'training': 2, 'heldout': 1},
        'repositories': [{'name': 'a', 'heads': [repositories.git(path, 'rev-parse', 'main')]}],
        'history': {'commits': 5, 'merge_commits': 0, 'not_utf8': 0, 'cut': 0, 'authors': 4},
        'removed': removed,
        'kept': {'sentences': 5, 'words': 10},
    }
    counts = dict(trailers=1, code_lines=1, links=1, inline_code=1, without_letters=1)
    assert {name: n for name, n in removed.items() if n} == {**counts, 'repeated_sentences': 1}


def test_what_is_kept_is_read_without_git_log_and_a_commit_changes_that(path, monkeypatch):
    first = _open(path)
    reads = _count_reads(monkeypatch)
    second = _open(path)
    assert not reads and second[2:] == first[2:] and _texts(second) == _texts(first)
    repositories.make(path, [Commit('b@x.org', 'Another one')])
    third = _open(path)
    assert len(reads) == 1 and third[2]['history']['commits'] == 6 and third[3] != first[3]
    assert ('add here', 'another one') in _texts(third)
    # So does another setting, or another key.
    _open(path, 3)
    assert len(reads) == 2
    _open(path, 3, 0.5)
    assert len(reads) == 2


def test_clients_are_the_same_as_long_as_the_key_is(path, tmp_path, cache):
    def order(opened):
        return [list(opened[0].sentences(client)) for client in range(opened[0].count)]

    first = order(_open(path))
    for file in cache.glob('git_log-*'):
        file.unlink()
    assert order(_open(path)) == first
    digest = _open(path)[3]
    (cache / 'authors.key').unlink()
    assert _open(path)[3] != digest


def test_kept_files_are_private_and_name_nobody(path, cache):
    _open(path)
    names = sorted(name.partition('-')[0] for name in os.listdir(cache))
    assert names == ['authors.key', 'git_log', 'git_log']
    for file in cache.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert b'x.org' not in file.read_bytes()


@pytest.mark.parametrize('damage', ['cut', 'no counts', 'bad counts', 'no text'])
def test_damaged_files_are_made_again(damage, path, cache, monkeypatch):
    first = _open(path)
    texts = _texts(first)
    (text,), (facts,) = cache.glob('git_log-*.jsonl'), cache.glob('git_log-*.json')
    if damage == 'cut':
        os.truncate(text, 10)
    elif damage == 'no counts':
        facts.unlink()
    elif damage == 'bad counts':
        facts.write_text(json.dumps({'size': text.stat().st_size, 'counts': {'links': 'x'}}))
    else:
        text.unlink()
    reads = _count_reads(monkeypatch)
    again = _open(path)
    assert len(reads) == 1 and again[2:] == first[2:] and _texts(again) == texts


def test_a_history_that_cannot_be_read_leaves_nothing(path, cache, monkeypatch):
    def fail(repositories, counts):
        yield from ()
        raise ArgumentError('data_path', 'a', 'has a history that git cannot read')

    monkeypatch.setattr(git_log, 'read_messages', fail)
    with pytest.raises(ArgumentError, match='cannot read'):
        _open(path)
    assert os.listdir(cache) == ['authors.key']


def test_too_few_authors_are_refused_by_the_name_of_the_repository(tmp_path):
    path = repositories.make(tmp_path / 'one', [Commit('a@x.org', 'One')])
    with pytest.raises(ArgumentError, match=f'^data_path={path}: must have texts of at least 2'):
        _open(path)
    path = repositories.make(tmp_path / 'none', [Commit('a@x.org', '1')])
    with pytest.raises(ArgumentError, match=f'^data_path={path}: must have texts .* has 0'):
        _open(path)
    with pytest.raises(ArgumentError, match='^heldout_fraction=1'):
        _open(repositories.make(tmp_path / 'two', _COMMITS), fraction=1)


def test_many_sentences_are_in_records_that_readers_take(tmp_path, monkeypatch):
    monkeypatch.setattr(git_log, '_RECORD', 50)
    sentences = [f'sentence number {chr(97 + i)}' for i in range(20)]
    commits = [Commit('a@x.org', '\n\n'.join(sentences)), Commit('b@x.org', 'Two')]
    opened = _open(repositories.make(tmp_path / 'b', commits))
    assert _texts(opened) == {tuple(sentences), ('two',)}


def _client(author):
    return author_texts.client_of(author_texts.load_key(), author)


def _rows(path):
    return {tuple(row.values()) for row in parquet.read_table(path).to_pylist()}


@pytest.mark.usefixtures('parquet_in_process')
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
    training, heldout, description, _ = client_texts.open_user_text(output, 'client', 'text', 0.5)
    assert training.count + heldout.count == 2 and description['records'] == 4
    sentences = {
        ' '.join(words) for words in vocabulary.public_sentences('vocabulary_text', output)
    }
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


def test_what_cannot_be_read_leaves_an_older_file(tmp_path):
    output = tmp_path / 'out.parquet'
    output.write_text('older')
    (tmp_path / 'a.jsonl').write_text('{"client": 1, "text": "> x"}\n')
    (tmp_path / 'b.jsonl').write_text('{"who": 1, "text": "x"}\n{"who": 2, "text": "y"}\n')
    (tmp_path / 'c.jsonl').write_text('x\ny\n')
    for path, message in (
        (tmp_path / 'a.jsonl', '^data_path: has no sentence'),
        (tmp_path / 'b.jsonl', '^client_column=client: must be one of the 2 columns: who, text$'),
        (
            tmp_path / 'c.jsonl',
            r'^data_path: all records are malformed \(client_column=client, text_column=text\); '
            'the first one: .*c.jsonl, line 1: not JSON$',
        ),
        (tmp_path / 'absent', r'^data_path=.*absent: cannot be read \(No such file'),
    ):
        with pytest.raises(ArgumentError, match=message):
            dataset.make('jsonl', str(path), output, max_words=0)
    assert output.read_text() == 'older'
    assert not (tmp_path / 'out.parquet.partial').exists()
