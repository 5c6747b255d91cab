"""From messages in any order to the sentences of one author after the other.

Messages go to an unnamed temporary file, without what is no prose, and their positions are sorted
by client. So memory holds some fifty bytes for each message, and the text of one author.
"""

import collections
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dpfl import _progress
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.files import record_files, record_index
from dpfl.tasks.text.messages import author_key, prose
from dpfl.tasks.text.messages.message import Message

# What is left out of the text of an author, besides what `prose.REMOVED` names.
_LEFT_OUT = ('repeated_sentences', 'sentences_over_cap', 'words_over_cap')
_KEPT = ('sentences', 'words')
_FORM = record_files.JsonLines('client', 'text')


class AuthorText(NamedTuple):
    """A part of the text of an author.

    Attributes:
      client: name of the client, from `author_key.client`.
      source: number of the repository or file.
      sentences: as they were written.
    """

    client: str
    source: int
    sentences: list[str]


def by_author(
    messages: Iterable[Message], key: bytes, max_words: int, counts: collections.Counter[str]
) -> Iterator[AuthorText]:
    """The sentences of all messages, those of one author together, in the order of the messages.

    A sentence whose words an author has used before, in upper or lower case, is left out, and so is
    one with which the author would have more than `max_words` words. Both depend on the text of one
    author only.

    Args:
      messages: in any order.
      key: of the names of the clients.
      max_words: of an author; 0 for any number.
      counts: gets the numbers that `described` names.
    """
    with tempfile.TemporaryFile(prefix='dpfl-') as file:
        authors = set()
        bar = _progress.bar(messages, 'messages', unit='message', delay=2, leave=False)
        for message in bar:
            client = author_key.client(key, message.author)
            authors.add(bytes.fromhex(client))
            if sentences := prose.sentences(message.text, counts):
                values = {'client': client, 'source': message.source, 'text': '\n'.join(sentences)}
                file.write(json.dumps(values, ensure_ascii=False).encode() + b'\n')
        counts['authors'] += len(authors)
        del authors
        file.seek(0)
        index = record_index.build(file, _FORM, record_index.Summary(0, 0, ''))
        clients = range(index.num_clients)
        for number in _progress.bar(clients, 'authors', unit='author', delay=2, leave=False):
            first, last = index.starts[number], index.starts[number + 1]
            lines = (
                os.pread(file.fileno(), int(index.lengths[i]), int(index.offsets[i]))
                for i in range(first, last)
            )
            yield from _of_author(map(json.loads, lines), max_words, counts)


def described(counts: Mapping[str, int], of_source: Sequence[str]) -> dict[str, dict[str, int]]:
    """Counts as they are reported: what there was, what was removed, what stays.

    Args:
      counts: by name; one that is missing is 0.
      of_source: names of what the reader of the messages has counted.
    """
    groups = {
        'history': [*of_source, 'authors'],
        'removed': [*prose.REMOVED, *_LEFT_OUT],
        'kept': _KEPT,
    }
    return {group: {name: counts.get(name, 0) for name in names} for group, names in groups.items()}


def _of_author(
    records: Iterable[dict], max_words: int, counts: collections.Counter[str]
) -> Iterator[AuthorText]:
    """The records of one author without repeated sentences, up to a number of words."""
    known = set()
    total = 0
    for record in records:
        kept = []
        for sentence in record['text'].split('\n'):
            words = tokenization.words(sentence)
            if (joined := ' '.join(words)) in known:
                counts['repeated_sentences'] += 1
                continue
            known.add(joined)
            if max_words and total + len(words) > max_words:
                counts['sentences_over_cap'] += 1
                counts['words_over_cap'] += len(words)
                continue
            total += len(words)
            kept.append(sentence)
        if kept:
            counts['sentences'] += len(kept)
            yield AuthorText(record['client'], record['source'], kept)
    counts['words'] += total
