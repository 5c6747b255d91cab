"""How the sentences of a client become the rows that a model trains on (NumPy only).

`sentences`: a row is one sentence; what does not fit is cut off, the rest of the row is padding.

`windows`: the sentences are joined, each followed by the end-of-sentence token, and cut into
windows of equally many tokens, as in [McMahan18], section 3: 1600 tokens are 160 windows of 10,
which are 20 batches of 8 windows. Nothing is cut off, and only a client's last window has padding.
The first input of a window is the token before it: the last one of the window before, or begin of
sentence for the first window of a client. A model begins every window without a state.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl import _validate
from dpfl.tasks.config import PACKINGS
from dpfl.tasks.text.token_ids import BOS_ID, EOS_ID, OOV_ID, PAD_ID


@dataclasses.dataclass(frozen=True)
class Packing:
    """The form of a client's rows, and how much text a client must have and may use.

    A client's tokens are the words that its rows have: with 'windows' all of them and the
    end-of-sentence tokens, with 'sentences' those within the rows.

    Attributes:
      kind: one of `PACKINGS`.
      length: L, the number of positions of a row that a model predicts.
      max_tokens: only the first `max_tokens` tokens of a client are used; None for all.
      min_tokens: a client with fewer tokens has no rows ([McMahan18] removes users with less than
        1600).
      min_sentences: a client with fewer sentences has no rows ([Augenstein20], appendix B.1,
        removes users with less than 100).

    Raises:
      ValueError: if a field is out of its range.
    """

    kind: str
    length: int
    max_tokens: int | None = None
    min_tokens: int = 0
    min_sentences: int = 0

    def __post_init__(self):
        _validate.choice('packing', self.kind, PACKINGS)
        _validate.integer('sentence_length', self.length, minimum=1)
        if self.max_tokens is not None:
            _validate.integer('client_max_tokens', self.max_tokens, minimum=1)
        _validate.integer('client_min_tokens', self.min_tokens, minimum=0)
        _validate.integer('client_min_sentences', self.min_sentences, minimum=0)

    @property
    def without_filters(self) -> 'Packing':
        """The same, for every client however little text it has."""
        return dataclasses.replace(self, min_tokens=0, min_sentences=0)

    def of_long_enough(self, sentences: Iterable[Sequence[str]]) -> Iterable[Sequence[str]]:
        """The sentences of a client, or none if the client has too little text.

        Args:
          sentences: lists of words; empty ones do not count. Read only as far as needed.
        """
        if not self.min_tokens and not self.min_sentences:
            return sentences
        rest = iter(sentences)
        read: list[Sequence[str]] = []
        tokens = 0
        for words in rest:
            if words:
                read.append(words)
                tokens += self._tokens(len(words))
            if tokens >= self.min_tokens and len(read) >= self.min_sentences:
                return itertools.chain(read, rest)
        return ()

    def _tokens(self, num_words: int) -> int:
        return num_words + 1 if self.kind == 'windows' else min(num_words, self.length)

    def of_rows(self, sentences: np.ndarray) -> np.ndarray:
        """The rows of a client whose sentences are token ids.

        Args:
          sentences: int32 [sentences, N + 1]: begin of sentence, words, end of sentence or not,
            padding. With 'sentences' N is `length`.

        Returns:
          int32 [rows, L + 1].
        """
        num_words = (sentences[:, 1:] >= OOV_ID).sum(axis=1)
        is_joined = self.kind == 'windows'
        tokens = int(num_words.sum()) + (len(sentences) if is_joined else 0)
        if tokens < self.min_tokens or len(sentences) < self.min_sentences:
            sentences, num_words = sentences[:0], num_words[:0]
        if is_joined:
            return windows(_joined(sentences, num_words)[: self.max_tokens], self.length)
        if self.max_tokens is None or tokens <= self.max_tokens:
            return sentences
        return _first_words(sentences, num_words, self.max_tokens)


def windows(tokens: np.ndarray, length: int) -> np.ndarray:
    """Cuts joined sentences into windows.

    Args:
      tokens: int32 [tokens]: words, and end of sentence after each sentence.
      length: L, the number of tokens of a window.

    Returns:
      int32 [windows, L + 1]: the token before the window, or begin of sentence; its tokens, and
      padding in the last window.
    """
    count = -(-len(tokens) // length)
    padded = np.full(count * length + 1, PAD_ID, np.int32)
    padded[0] = BOS_ID
    padded[1 : len(tokens) + 1] = tokens
    starts = np.arange(count)[:, None] * length
    return padded[starts + np.arange(length + 1)]


def _joined(sentences: np.ndarray, num_words: np.ndarray) -> np.ndarray:
    """The words of all sentences in one array, with end of sentence after each, int32 [tokens]."""
    # A column for the end of a sentence that fills its row.
    tokens = np.pad(sentences[:, 1:], ((0, 0), (0, 1)), constant_values=PAD_ID)
    tokens[np.arange(len(tokens)), num_words] = EOS_ID
    return tokens[np.arange(tokens.shape[1]) <= num_words[:, None]]


def _first_words(sentences: np.ndarray, num_words: np.ndarray, count: int) -> np.ndarray:
    """The sentences with the first `count` words; the one in which they end has no end token."""
    before = np.cumsum(num_words) - num_words
    kept = np.flatnonzero(before < count)
    left = count - before[kept]
    is_beyond = np.arange(sentences.shape[1]) > left[:, None]
    is_cut = (left < num_words[kept])[:, None]
    return np.where(is_beyond & is_cut, PAD_ID, sentences[kept]).astype(np.int32)
