"""Commit messages as text of clients: one author of any number of repositories is one client.

The text is read from git once and kept in the cache directory, under a digest of the heads of the
repositories, the settings, and the key of the names of the clients. Another commit is another
digest. Only its owner can read the file.
"""

import collections
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from dpfl import _files, _json, _storage, errors
from dpfl.tasks.text.files import user_text
from dpfl.tasks.text.messages import author_texts, git_history
from dpfl.tasks.text.word_clients import WordClients

# Of the rules by which text is made of a history; part of the name of a kept file.
_VERSION = 1
# A record of the file has no more characters, or one sentence.
_RECORD = 1 << 16


def open_clients(
    paths: str, max_words: int, heldout_fraction: float
) -> tuple[WordClients, WordClients, dict[str, Any], str]:
    """Opens the histories of repositories, which are read unless their text is kept.

    Args:
      paths: comma-separated directories, each a clone with or without a work tree.
      max_words: of an author; 0 for any number.
      heldout_fraction: share of the clients to hold out.

    Returns:
      As `user_text.open_clients`; the description has the heads, and counts of what was removed.

    Raises:
      ArgumentError: if a repository cannot be read, or has fewer than two authors with text.
      StorageError: if the cache cannot be written.
    """
    repositories = git_history.find(paths)
    kept = _Kept.of(repositories, max_words)
    counts = kept.counts()
    if counts is None:
        counts = kept.make(repositories, max_words)
    try:
        training, heldout, facts, digest = user_text.open_clients(
            kept.path, 'client', 'text', heldout_fraction
        )
    except errors.ArgumentError as error:
        if error.name != 'data_path':
            raise
        raise errors.ArgumentError('data_path', paths, error.allowed) from None
    description = {
        'format': 'git',
        'clients': facts['clients'],
        'repositories': [
            {'name': repository.name, 'heads': list(repository.heads)}
            for repository in repositories
        ],
        **author_texts.described(counts, git_history.COUNTED),
    }
    return training, heldout, description, digest


@dataclasses.dataclass(frozen=True)
class _Kept:
    """A file of the cache with the text of histories, and one with the counts.

    Attributes:
      path: of the text, JSON Lines.
      key: of the names of the clients.
    """

    path: pathlib.Path
    key: bytes

    @classmethod
    def of(cls, repositories: Sequence[git_history.Repository], max_words: int) -> '_Kept':
        """The files for these heads, which may not exist."""
        key = author_texts.load_key()
        heads = [repository.heads for repository in repositories]
        names = hashlib.blake2b(key=key, person=b'key').hexdigest()
        made_of = json.dumps([_VERSION, heads, max_words, names])
        name = f'git_log-{hashlib.sha256(made_of.encode()).hexdigest()}.jsonl'
        return cls(author_texts.key_directory() / name, key)

    def counts(self) -> dict[str, int] | None:
        """The counts; None unless the text is there as it was written."""
        try:
            facts = _json.loads(_files.read_bytes(self._facts))
            with _files.open_regular(self.path) as file:
                is_whole = os.fstat(file.fileno()).st_size == facts['size']
            counts = facts['counts']
        except (OSError, ValueError, KeyError, TypeError):
            return None
        is_sound = isinstance(counts, dict) and all(type(count) is int for count in counts.values())
        return counts if is_whole and is_sound else None

    def make(
        self, repositories: Sequence[git_history.Repository], max_words: int
    ) -> dict[str, int]:
        """Reads the histories, and writes the text and then the counts."""
        counts: collections.Counter[str] = collections.Counter()
        read = git_history.messages(repositories, counts)
        texts = author_texts.by_author(read, self.key, max_words, counts)
        size = 0

        def write(file: BinaryIO) -> None:
            nonlocal size
            for line in _lines(texts):
                size += file.write(line)

        # Without its counts, a text that a killed process has left is not used.
        with _storage.naming(self._facts):
            self._facts.unlink(missing_ok=True)
        _replace(self.path, write)
        facts = json.dumps({'size': size, 'counts': counts}).encode()
        _replace(self._facts, lambda file: file.write(facts))
        return dict(counts)

    @property
    def _facts(self) -> pathlib.Path:
        return self.path.with_suffix('.json')


def _replace(path: pathlib.Path, write: Callable[[BinaryIO], Any]) -> None:
    """Writes a file that others may write at the same time: the last whole one stays."""
    partial = path.with_name(f'.unfinished-{os.getpid()}-{path.name}')
    with _storage.naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _storage.write_atomically(partial, write, _storage.PRIVATE)
    with _storage.naming(path):
        os.replace(partial, path)


def _lines(texts: Iterable[author_texts.AuthorText]) -> Iterator[bytes]:
    """JSON Lines: many sentences of one client in each, separated by line breaks."""
    client, size = '', 0
    sentences: list[str] = []
    for text in texts:
        for sentence in text.sentences:
            if sentences and (text.client != client or size + len(sentence) > _RECORD):
                yield _line(client, sentences)
                sentences, size = [], 0
            client = text.client
            sentences.append(sentence)
            size += len(sentence)
    if sentences:
        yield _line(client, sentences)


def _line(client: str, sentences: list[str]) -> bytes:
    values = {'client': client, 'text': '\n'.join(sentences)}
    return json.dumps(values, ensure_ascii=False).encode() + b'\n'
