"""Vocabularies, the words that a model knows, and public text, of which they are counted.

A vocabulary is published with the model. Reading it from a file or counting it on public text costs
no privacy. A vocabulary counted on the clients' text reveals something about them, and the
guarantee of a run does not cover it. `before_training` finds one that the guarantee does cover.

Public text may have any size: it is read line by line, never as a whole. A file is plain text,
UTF-8 with or without a byte order mark, or has a column `text` in a format of `record_files`. In
place of a file there may be comma-separated directories of git repositories, whose commit messages
are the text.
"""

import collections
import dataclasses
import functools
import hashlib
import io
import os
import pathlib
import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from dpfl import _files, _validate, errors
from dpfl.tasks.text import git_log, record_files, tokenization
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS

# Tokens of ordinary text that a list of plain words lacks.
MARKS = tuple(string.punctuation)
# Most distinct words that are counted at a time.
_MOST_COUNTED = 4_000_000
# Longest part of a line of plain text that is read at a time, in characters.
_LINE = 1 << 20


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Words, the most frequent first. The word at position i has token id i + NUM_SPECIAL_TOKENS.

    Attributes:
      words: at least one word; all are different.
    """

    words: tuple[str, ...]

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        """Token ids by word."""
        return {word: i for i, word in enumerate(self.words, NUM_SPECIAL_TOKENS)}

    @property
    def num_tokens(self) -> int:
        """Number of token ids: the words and the four special tokens."""
        return len(self.words) + NUM_SPECIAL_TOKENS

    def with_marks(self) -> 'Vocabulary':
        """The words and the 32 punctuation marks of ASCII after them, unless it has any mark."""
        return self if set(MARKS) & set(self.words) else Vocabulary((*self.words, *MARKS))

    def digest(self) -> str:
        """SHA-256 of the words in order, in hexadecimal."""
        return hashlib.sha256('\n'.join(self.words).encode('utf-8', 'surrogatepass')).hexdigest()


def load(path: str | os.PathLike[str], size: int | None = None) -> Vocabulary:
    """Reads the first `size` words of a file, or all of them.

    Args:
      path: UTF-8 file with one word per line, the most frequent first. Anything after the first
        white space of a line, such as a count, is ignored; empty lines are skipped. TFF's
        `stackoverflow.word_count` has this format.
      size: number of words, or None for all.

    Raises:
      ValueError: if the file cannot be read, repeats a word, or has no word or fewer than `size`.
        The argument named is `vocabulary_file` or `vocabulary_size`.
    """
    if size is not None:
        _validate.integer('vocabulary_size', size, minimum=1)
    words: dict[str, int] = {}
    last = 0
    for number, line in _read_lines('vocabulary_file', path):
        is_rest, last = number == last, number  # Of a long line, the first part has the word.
        if is_rest or not (fields := line.split(None, 1)):
            continue
        if fields[0] in words:
            raise errors.ArgumentError(
                'vocabulary_file',
                path,
                f'line {number} repeats the word of line {words[fields[0]]}',
            )
        words[fields[0]] = number
        if len(words) == size:
            break
    if not words:
        raise errors.ArgumentError('vocabulary_file', path, 'must have one word per line')
    if size is not None and len(words) < size:
        raise errors.ArgumentError(
            'vocabulary_size', size, f'must be <= {len(words)}, the words of {path}'
        )
    return Vocabulary(tuple(words))


def count_public_text(path: str | os.PathLike[str], size: int) -> Vocabulary:
    """The most frequent words of public text.

    Args:
      path: a file as in `public_texts`; nothing about its contents is protected.
      size: number of words, or fewer if the text has fewer.

    Raises:
      ValueError: if the file cannot be read or has no word.
    """
    texts = map(tokenization.words, public_texts('vocabulary_text', path))
    none = errors.ArgumentError('vocabulary_text', path, 'must have words')
    return _most_frequent(texts, size, none)


def count_clients(texts: Iterable[Iterable[list[str]]], size: int) -> Vocabulary:
    """The words that the most clients use. NOT private: the vocabulary reveals the clients' words.

    Args:
      texts: the sentences of each client. A client counts once for each of its distinct words.
      size: number of words, or fewer if the texts have fewer.

    Raises:
      ValueError: if there is no word.
    """
    words = ({word for sentence in sentences for word in sentence} for sentences in texts)
    none = errors.ArgumentError('vocabulary_size', errors.NOT_SHOWN, 'the data have no words')
    return _most_frequent(words, size, none)


def _most_frequent(
    texts: Iterable[Iterable[str]], size: int, none: errors.ArgumentError
) -> Vocabulary:
    """The `size` words that occur most often; words that are as frequent in alphabetical order.

    Memory is bounded. When there are too many distinct words, the rarest are dropped, and counted
    from zero if they occur again. Words that belong in a vocabulary occur far more often.

    Args:
      texts: lists of words.
      size: number of words, or fewer if the texts have fewer.
      none: raised if there is no word.
    """
    _validate.integer('vocabulary_size', size, minimum=1)
    counts: collections.Counter[str] = collections.Counter()
    for words in texts:
        counts.update(words)
        least = 1
        while len(counts) > _MOST_COUNTED:
            kept = {word: count for word, count in counts.items() if count > least}
            counts = collections.Counter(kept)
            least += 1
    if not counts:
        raise none
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Vocabulary(tuple(word for word, _ in ranked[:size]))


def _read_lines(name: str, path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and lines of a file. Long lines come in parts.

    Args:
      name: the argument that errors name.
      path: a UTF-8 file.

    Raises:
      ArgumentError: if the file cannot be read, or is not UTF-8 text.
    """
    number = 0
    with (
        record_files.refusing(name, path),
        _files.open_regular(path) as raw,
        io.TextIOWrapper(cast(Any, raw), encoding='utf-8-sig') as file,
    ):
        ended = True
        try:
            while line := file.readline(_LINE):
                number += ended
                ended = line.endswith('\n')
                yield number, line
        except UnicodeDecodeError:
            raise ValueError(f'must be UTF-8 text (after line {number})') from None


def public_texts(name: str, path: str | os.PathLike[str]) -> Iterator[str]:
    """The texts of a file, its lines or those of its records; or of repositories.

    Args:
      name: the argument that errors name.
      path: of the file, or comma-separated directories of repositories.

    Raises:
      ArgumentError: if the file cannot be read, or a record has no text; or if a repository cannot
        be read.
    """
    suffix = pathlib.Path(path).suffix.lower()
    if os.path.isdir(os.fspath(path).split(',')[0]):
        with errors.renaming(data_path=name):
            yield from git_log.prose_of_commits(os.fspath(path))
    elif suffix in record_files.FORMATS:
        # The texts of records serve as clients, too.
        with record_files.refusing(name, path), _files.open_regular(path) as file:
            try:
                for record in record_files.FORMATS[suffix][1](file, 'text', 'text'):
                    if not record.reason:
                        yield record.text
                    elif record.reason != record_files.NO_CLIENT:  # The text is empty.
                        raise ValueError(f'line {record.line}: {record.reason}')
            except errors.ArgumentError:
                raise ValueError("must have a column 'text' of text") from None
    elif suffix == '.tsv':
        raise errors.ArgumentError(name, path, 'must not be TSV: its ids would be words')
    else:
        yield from (line for _, line in _read_lines(name, path))


def public_sentences(name: str, path: str | os.PathLike[str]) -> Iterator[list[str]]:
    """The sentences of a file, lists of words; as `public_texts`."""
    for text in public_texts(name, path):
        yield from tokenization.sentences(text)
