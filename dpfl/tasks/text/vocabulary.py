"""Vocabularies: which words a model knows, and where that knowledge comes from.

A vocabulary is a release like any other. A file or public text costs no privacy; one that is
counted on the clients' own text does, and no guarantee of a run covers it.
"""

import collections
import dataclasses
import functools
import hashlib
import io
from collections.abc import Iterable, Mapping

from dpfl import _files, _validate, errors
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS

# Longer lines of a vocabulary file or of public text are read in parts.
_LINE = 1 << 20
# How many rare words are kept while public text is counted; see `_Counter`.
_MOST_COUNTED = 4_000_000


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Words, the most frequent first. The word at position i is token i + NUM_SPECIAL_TOKENS.

    Attributes:
      words: at least one, all different.
    """

    words: tuple[str, ...]

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        """Token ids by word."""
        return {word: i for i, word in enumerate(self.words, NUM_SPECIAL_TOKENS)}

    @property
    def num_tokens(self) -> int:
        """Number of token ids: the words and the four special tokens of `text_process`."""
        return len(self.words) + NUM_SPECIAL_TOKENS

    def digest(self) -> str:
        """SHA-256 of the words in their order."""
        return hashlib.sha256('\n'.join(self.words).encode('utf-8', 'surrogatepass')).hexdigest()


def load(path, size: int | None = None) -> Vocabulary:
    """The first `size` words of a file, or all.

    Args:
      path: of UTF-8 text with a word in each line, the most frequent first; what follows white
        space in a line, such as a count, is ignored. TFF's `stackoverflow.word_count` is such a
        file. Empty lines are skipped.
      size: number of words.

    Raises:
      ValueError: if the file cannot be read, has a word twice, no word, or fewer than `size`; the
        message begins with `vocabulary_file` or `vocabulary_size`.
    """
    if size is not None:
        _validate.integer('vocabulary_size', size, minimum=1)
    words: dict[str, int] = {}
    for number, line in _lines('vocabulary_file', path):
        if not (fields := line.split(None, 1)):
            continue
        if fields[0] in words:
            raise errors.ArgumentError(
                'vocabulary_file', path, f'line {number} has the word of line {words[fields[0]]}'
            )
        words[fields[0]] = number
        if len(words) == size:
            break
    if not words:
        raise errors.ArgumentError('vocabulary_file', path, 'must have a word in each line')
    if size is not None and len(words) < size:
        raise errors.ArgumentError(
            'vocabulary_size', size, f'must be <= {len(words)}, the words of {path}'
        )
    return Vocabulary(tuple(words))


def count_public_text(path, size: int) -> Vocabulary:
    """The words that occur most often in a UTF-8 text file.

    Args:
      path: of text that is public: nothing about it is protected.
      size: most words; there are fewer if the text has fewer.

    Raises:
      ValueError: if the file cannot be read or has no word.
    """
    _validate.integer('vocabulary_size', size, minimum=1)
    counter = _Counter()
    for _, line in _lines('vocabulary_text', path):
        counter.add(tokenization.words(line))
    if not counter.counts:
        raise errors.ArgumentError('vocabulary_text', path, 'must have words')
    return _most_frequent(counter.counts, size)


def count_clients(texts: Iterable[Iterable[list[str]]], size: int) -> Vocabulary:
    """The words that most clients use: NOT private, whoever sees the vocabulary learns from it.

    Args:
      texts: the sentences of each client. A client counts once for each of its words.
      size: most words; there are fewer if the texts have fewer.

    Raises:
      ValueError: if there is no word.
    """
    _validate.integer('vocabulary_size', size, minimum=1)
    counter = _Counter()
    for sentences in texts:
        counter.add({word for sentence in sentences for word in sentence})
    if not counter.counts:
        raise errors.ArgumentError(
            'vocabulary_size', errors.NOT_SHOWN, 'there is no word in the data'
        )
    return _most_frequent(counter.counts, size)


class _Counter:
    """Counts of words in bounded memory.

    When there are too many words, those that occurred once since they were last forgotten are
    forgotten: words that belong to a vocabulary occur far more often.
    """

    def __init__(self):
        self.counts: collections.Counter[str] = collections.Counter()

    def add(self, words: Iterable[str]) -> None:
        self.counts.update(words)
        least = 1
        while len(self.counts) > _MOST_COUNTED:
            kept = {word: count for word, count in self.counts.items() if count > least}
            self.counts = collections.Counter(kept)
            least += 1


def _most_frequent(counts: Mapping[str, int], size: int) -> Vocabulary:
    """Ties are broken by the words themselves, so the result does not depend on their order."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Vocabulary(tuple(word for word, _ in ranked[:size]))


def _lines(name: str, path):
    """Line numbers and lines of a file, without a byte order mark; long lines come in parts."""
    number = 0
    try:
        with io.TextIOWrapper(_files.open_regular(path), encoding='utf-8-sig') as file:
            ended = True
            while line := file.readline(_LINE):
                number += ended
                ended = line.endswith('\n')
                yield number, line
    except UnicodeDecodeError:
        raise errors.ArgumentError(
            name, path, f'must be UTF-8 text (after line {number})'
        ) from None
    except OSError as error:
        raise errors.ArgumentError(name, path, f'cannot be read ({error.strerror})') from None
