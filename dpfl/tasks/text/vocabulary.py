"""Vocabularies: the words that a model knows, read from a file or counted on text.

A vocabulary is published with the model. Reading it from a file or counting it on public text costs
no privacy. A vocabulary counted on the clients' text reveals something about them, and the
guarantee of a run does not cover it. `private_words` finds one that the guarantee does cover.
"""

import collections
import dataclasses
import functools
import hashlib
import os
import string
from collections.abc import Iterable, Mapping

from dpfl import _validate, errors
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.files import public_text
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS

# Tokens of ordinary text that a list of plain words lacks.
MARKS = tuple(string.punctuation)
# Most distinct words that a `_Counter` holds.
_MOST_COUNTED = 4_000_000


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
    for number, line in public_text.lines('vocabulary_file', path):
        if not (fields := line.split(None, 1)):
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
      path: a file as in `public_text`; nothing about its contents is protected.
      size: number of words, or fewer if the text has fewer.

    Raises:
      ValueError: if the file cannot be read or has no word.
    """
    _validate.integer('vocabulary_size', size, minimum=1)
    counter = _Counter()
    for text in public_text.texts('vocabulary_text', path):
        counter.add(tokenization.words(text))
    if not counter.counts:
        raise errors.ArgumentError('vocabulary_text', path, 'must have words')
    return _most_frequent(counter.counts, size)


def count_clients(texts: Iterable[Iterable[list[str]]], size: int) -> Vocabulary:
    """The words that the most clients use. NOT private: the vocabulary reveals the clients' words.

    Args:
      texts: the sentences of each client. A client counts once for each of its distinct words.
      size: number of words, or fewer if the texts have fewer.

    Raises:
      ValueError: if there is no word.
    """
    _validate.integer('vocabulary_size', size, minimum=1)
    counter = _Counter()
    for sentences in texts:
        counter.add({word for sentence in sentences for word in sentence})
    if not counter.counts:
        raise errors.ArgumentError('vocabulary_size', errors.NOT_SHOWN, 'the data have no words')
    return _most_frequent(counter.counts, size)


class _Counter:
    """Counts words in bounded memory.

    When there are too many distinct words, the rarest are dropped, and counted from zero if they
    occur again. Words that belong in a vocabulary occur far more often.
    """

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    def add(self, words: Iterable[str]) -> None:
        self.counts.update(words)
        least = 1
        while len(self.counts) > _MOST_COUNTED:
            kept = {word: count for word, count in self.counts.items() if count > least}
            self.counts = collections.Counter(kept)
            least += 1


def _most_frequent(counts: Mapping[str, int], size: int) -> Vocabulary:
    """The `size` most frequent words; ties are in alphabetical order."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Vocabulary(tuple(word for word, _ in ranked[:size]))
