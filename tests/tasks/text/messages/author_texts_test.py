"""From messages to authors: joined by key, each sentence once, a number of words; and the key."""

import collections
import os
import stat

import pytest

from dpfl.errors import ArgumentError, StorageError
from dpfl.tasks.text.messages import author_key, author_texts
from dpfl.tasks.text.messages.message import Message

_KEY = bytes(range(32))


def _grouped(messages, max_words=0, key=_KEY):
    counts = collections.Counter()
    found = {}
    for part in author_texts.by_author(messages, key, max_words, counts):
        assert part.client not in list(found)[:-1], 'the parts of a client are together'
        found.setdefault(part.client, []).append((part.source, part.sentences))
    return found, counts


def _of(found, author, key=_KEY):
    return found[author_key.client(key, author)]


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


def test_an_author_without_prose_is_no_client_but_counted():
    found, counts = _grouped([Message('a@x', 0, '> quoted'), Message('b@x', 0, 'One')])
    assert len(found) == 1 and counts['authors'] == 2 and counts['quoted_lines'] == 1


def test_names_depend_on_the_key_and_show_nothing():
    name = author_key.client(_KEY, 'somebody@example.org')
    assert name == author_key.client(_KEY, 'somebody@example.org') and len(name) == 32
    assert name != author_key.client(bytes(32), 'somebody@example.org')
    assert name != author_key.client(_KEY, 'somebody@example.com')


def test_counts_are_described_with_zeros():
    described = author_texts.described({'commits': 3, 'links': 2, 'words': 5}, ('commits',))
    assert described['history'] == {'commits': 3, 'authors': 0}
    assert described['kept'] == {'sentences': 0, 'words': 5}
    assert described['removed']['links'] == 2 and described['removed']['repeated_sentences'] == 0


def test_memory_holds_positions_and_one_author(monkeypatch):
    """The text of authors is in a file until its turn: at most one author's is read at a time."""
    messages = (Message(f'a{i % 50}@x', 0, f'sentence {i} ' * 20) for i in range(500))
    read = author_texts.by_author(messages, _KEY, 0, collections.Counter())
    reads = []
    pread = os.pread
    monkeypatch.setattr(os, 'pread', lambda *args: reads.append(args) or pread(*args))
    next(read)
    assert len(reads) <= 10
    assert len(list(read)) == 499 and len(reads) == 500


@pytest.fixture(name='cache')
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


def test_the_key_is_made_once_and_only_for_its_owner(cache):
    key = author_key.load()
    assert len(key) == 32 and author_key.load() == key
    assert stat.S_IMODE((cache / 'authors.key').stat().st_mode) == 0o600
    assert os.listdir(cache) == ['authors.key']
    (cache / 'authors.key').unlink()
    assert author_key.load() != key


def test_a_key_that_another_process_has_made_meanwhile_stays(cache, monkeypatch):
    other = bytes(range(32))

    def urandom(count):
        (cache / 'authors.key').write_bytes(other)
        return bytes(count)

    monkeypatch.setattr(os, 'urandom', urandom)
    assert author_key.load() == other


def test_keys_that_cannot_be_used_are_named(cache, monkeypatch):
    cache.mkdir()
    (cache / 'authors.key').write_bytes(b'short')
    with pytest.raises(StorageError, match=r'authors\.key: must have 32 bytes; remove it'):
        author_key.load()
    monkeypatch.setenv('DPFL_CACHE_DIR', str(cache / 'authors.key'))
    with pytest.raises(StorageError, match='authors.key: '):
        author_key.load()
    monkeypatch.setenv('DPFL_CACHE_DIR', '')
    with pytest.raises(ArgumentError, match='data_path: needs a cache directory .* is empty'):
        author_key.load()
