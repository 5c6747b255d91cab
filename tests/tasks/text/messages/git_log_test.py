"""Clients of repositories: the kept text, when it is read again, counts, and what is refused."""

import json
import os
import stat

import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.text.messages import git_history, git_log
from tests.tasks.text.messages import repositories
from tests.tasks.text.messages.repositories import Commit

_COMMITS = [
    Commit('A@x.org', 'Fix it\n\nIt was wrong. See https://x.org\n\nSigned-off-by: A <a@x.org>\n'),
    Commit('b@x.org', 'Add `f(x)` here'),
    Commit('a@X.org', 'Fix it'),
    Commit('c@x.org', 'Say\n\n    code\n'),
    Commit('d@x.org', '12'),
]


@pytest.fixture(name='cache', autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


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
    read = git_history.messages
    monkeypatch.setattr(
        git_history, 'messages', lambda *args: reads.append(args) or read(*args)
    )  # fmt: skip
    return reads


def test_an_author_is_a_client(path):
    opened = _open(path)
    expected = {('fix it', 'it was wrong .', 'see'), ('add here',), ('say',)}
    assert _texts(opened) == expected
    training, heldout, description, digest = opened
    assert (training.count, heldout.count) == (2, 1) and len(digest) == 64
    assert description == {
        'format': 'git',
        'clients': {'training': 2, 'heldout': 1},
        'repositories': [{'name': 'a', 'heads': [repositories.git(path, 'rev-parse', 'main')]}],
        'history': {'commits': 5, 'merge_commits': 0, 'not_utf8': 0, 'cut': 0, 'authors': 4},
        'removed': {
            'trailers': 1,
            'code_lines': 1,
            'quoted_lines': 0,
            'diff_lines': 0,
            'links': 1,
            'addresses': 0,
            'hashes': 0,
            'inline_code': 1,
            'without_letters': 1,
            'repeated_sentences': 1,
            'sentences_over_cap': 0,
            'words_over_cap': 0,
        },
        'kept': {'sentences': 5, 'words': 10},
    }


def test_authors_are_joined_over_repositories(path, tmp_path):
    other = repositories.make(tmp_path / 'b', [Commit('B@x.org', 'More'), Commit('e@x.org', 'New')])
    opened = _open(f'{path},{other}')
    assert ('add here', 'more') in _texts(opened) and ('new',) in _texts(opened)
    assert [each['name'] for each in opened[2]['repositories']] == ['a', 'b']
    assert opened[2]['history']['authors'] == 5


def test_the_number_of_words_is_capped(path):
    opened = _open(path, 2)
    assert _texts(opened) == {('fix it',), ('add here',), ('say',)}
    assert opened[2]['removed']['words_over_cap'] == 5
    assert opened[2]['removed']['sentences_over_cap'] == 2


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
    assert names == ['authors.key', 'git_log', 'git_log', 'records']
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

    monkeypatch.setattr(git_history, 'messages', fail)
    with pytest.raises(ArgumentError, match='cannot read'):
        _open(path)
    assert os.listdir(cache) == ['authors.key']


def test_many_sentences_are_in_records_that_readers_take(tmp_path, monkeypatch):
    monkeypatch.setattr(git_log, '_RECORD', 50)
    sentences = [f'sentence number {chr(97 + i)}' for i in range(20)]
    commits = [Commit('a@x.org', '\n\n'.join(sentences)), Commit('b@x.org', 'Two')]
    opened = _open(repositories.make(tmp_path / 'b', commits))
    assert _texts(opened) == {tuple(sentences), ('two',)}


def test_too_few_authors_are_refused_by_the_name_of_the_repository(tmp_path):
    path = repositories.make(tmp_path / 'one', [Commit('a@x.org', 'One')])
    with pytest.raises(ArgumentError, match=f'^data_path={path}: must have texts of at least 2'):
        _open(path)
    path = repositories.make(tmp_path / 'none', [Commit('a@x.org', '1')])
    with pytest.raises(ArgumentError, match=f'^data_path={path}: must have texts .* has 0'):
        _open(path)
    with pytest.raises(ArgumentError, match='^heldout_fraction=1'):
        _open(repositories.make(tmp_path / 'two', _COMMITS), fraction=1)
