"""Ids of the special tokens. Word w of a vocabulary (from 0) is token w + NUM_SPECIAL_TOKENS.

Converts words to byte ids and back, and token ids of sentences to text (NumPy only).

There are 258 byte ids: the 256 values of a byte, begin of word and end of word ([Augenstein20],
appendix B.2). A zero byte of a word is replaced, so it serves as padding, and the loss and metrics
of `text.models.metrics` apply to words of bytes as they do to sentences of words.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

PAD_ID = 0  # Padding after a sentence; never predicted.
BOS_ID = 1  # Begin of sentence.
EOS_ID = 2  # End of sentence.
OOV_ID = 3  # Any word outside the vocabulary.
NUM_SPECIAL_TOKENS = 4


# Joiners (U+200C and U+200D) are not punctuation: words of several scripts contain them.
_PUNCTUATION = (
    r'!"#$%&()*+,./:;<=>?@\[\\\]^`{|}~'
    r'\u00a1-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7'
    r'\u060c\u061b\u061f\u0964\u0965\u2011-\u2018\u201a-\u2027\u2030-\u205e'
    r'\u20a0-\u20c0\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20'
)
_JOINING = r"'\-\u2010"
_TOKEN = re.compile(
    rf'[^\s{_PUNCTUATION}{_JOINING}]+(?:[{_JOINING}][^\s{_PUNCTUATION}{_JOINING}]+)*'
    rf'|[{_PUNCTUATION}{_JOINING}]'
)
# Half of a character that was cut in two: such text cannot be printed or written to a file.
_SURROGATE = re.compile(r'[\ud800-\udfff]')
_SENTENCE_END = re.compile(r'[\r\n]+|(?<=[.!?\u2026\u061f\u0964\u3002\uff01\uff1f])\s+')


def words(text: str) -> list[str]:
    """The tokens of a text, ignoring sentence boundaries."""
    if not text.isascii():
        text = unicodedata.normalize('NFC', text).replace('\u2019', "'")
        text = _SURROGATE.sub('\ufffd', text)
    return _TOKEN.findall(text.lower())


def split(text: str) -> list[str]:
    """The sentences of a text as they are written; some may be blank."""
    return _SENTENCE_END.split(text)


def sentences(text: str) -> Iterator[list[str]]:
    """The sentences of a text as non-empty lists of tokens."""
    for sentence in split(text):
        if tokens := words(sentence):
            yield tokens


NUM_BYTE_TOKENS = 258
BYTE_PAD_ID = 0
WORD_BEGIN_ID = 256
WORD_END_ID = 257


def encode_words(words: Sequence[str], length: int) -> np.ndarray:
    """Byte ids of words.

    Args:
      words: non-empty words; a zero byte becomes U+FFFD.
      length: L, the number of positions that a model predicts; longer words are cut.

    Returns:
      int32 [words, L + 1]: begin of word, bytes, end of word (unless it was cut), padding.
    """
    tokens = np.full((len(words), length + 1), BYTE_PAD_ID, np.int32)
    for target, word in zip(tokens, words, strict=True):
        data = word.replace('\0', '\ufffd').encode(errors='replace')
        row = [WORD_BEGIN_ID, *data, WORD_END_ID][: length + 1]
        target[: len(row)] = row
    return tokens


def decode_words(tokens: np.ndarray) -> list[str]:
    """Words from their byte ids, up to the end-of-word id. Invalid UTF-8 is decoded as U+FFFD.

    Args:
      tokens: integers [words, L], without the begin-of-word id.
    """
    words = []
    for row in np.asarray(tokens):
        row = row[: (np.append(row, WORD_END_ID) == WORD_END_ID).argmax()]
        row = row[(row != BYTE_PAD_ID) & (row < WORD_BEGIN_ID)]
        words.append(bytes(row.tolist()).decode(errors='replace'))
    return words


def decode_sentences(tokens: np.ndarray, vocabulary: Sequence[str]) -> list[str]:
    """Sentences as text. Words outside the vocabulary become UNK; other special tokens vanish.

    Args:
      tokens: integers [sentences, L].
      vocabulary: words by token id, from NUM_SPECIAL_TOKENS on.
    """
    names = np.array([*[''] * (NUM_SPECIAL_TOKENS - 1), 'UNK', *vocabulary], dtype=object)
    return [' '.join(filter(None, names[row])) for row in np.asarray(tokens)]
