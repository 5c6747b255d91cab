"""Traits of generated text: sentences of a word model, words of a character model.

A trait is a share or a mean over all generated text, not over its most frequent part. The draws are
independent, so its standard error follows from them. NumPy only, no TensorFlow.
"""

import re
import string
from collections.abc import Sequence

import numpy as np

from dpfl.debugging.diagnosis import Trait
from dpfl.debugging.differences import Mean, Share
from dpfl.tasks.text.tokenization import (
    BOS_ID,
    BYTE_PAD_ID,
    EOS_ID,
    NUM_SPECIAL_TOKENS,
    OOV_ID,
    PAD_ID,
    WORD_BEGIN_ID,
    WORD_END_ID,
)

# Sentences with fewer words often occur twice by chance.
LONG = 4


# docs/debug_text.md says where the spreads come from.
OF_SENTENCES = (
    Trait('first_unknown', 'sentences whose first word is not in the vocabulary', 0.2, 0.02),
    Trait(
        'later_unknown',
        'words between the first and the last that are not in the vocabulary',
        0.15,
        0.02,
    ),
    Trait(
        'last_unknown',
        'sentences of two or more words whose last is not in the vocabulary',
        0.25,
        0.02,
    ),
    Trait('length', 'words of a sentence', 0.05, 0.3, 'words'),
    Trait('short', 'sentences of one or two words', 0.25, 0.02),
    Trait('endless', 'sentences that do not end within the length of the model', 0.25, 0.02),
    Trait('punctuation', 'words that are punctuation only', 0.15, 0.02),
    Trait('ends_punctuated', 'sentences that end with punctuation', 0.25, 0.02),
    Trait('doubled', 'words of the vocabulary that are the word before them once more', 0.3, 0.01),
    Trait(
        'repeated', f'sentences of {LONG} or more words, all known, that it wrote twice', 1.5, 0.02
    ),
)
OF_WORDS = (
    Trait('inner_space', 'unknown words with white space inside', 0.5, 0.003, most=0.01),
    Trait('punctuated', 'unknown words with punctuation after them', 0.3, 0.003, most=0.01),
    Trait(
        'inner_punctuation',
        'unknown words with punctuation inside, other than hyphens and apostrophes',
        0.4,
        0.01,
    ),
    Trait(
        'mis_decoded',
        'unknown words with UTF-8 read as Latin-1, or with HTML entities',
        0.5,
        0.003,
        most=0.01,
    ),
    Trait('non_ascii', 'unknown words with characters outside ASCII', 0.25, 0.01),
    Trait('digits', 'unknown words with digits', 0.15, 0.02),
    Trait('capitals', 'unknown words with capital letters of ASCII', 0.25, 0.01),
    Trait('no_letters', 'unknown words without letters or digits of ASCII', 0.6, 0.01),
    Trait('word_length', 'bytes of an unknown word', 0.05, 0.5, 'bytes'),
    Trait('cut', 'unknown words that do not end within the length of the model', 0.35, 0.01),
    Trait('noise', 'unknown words with bytes that no text has', 0.25, 0.02),
)
ALL = {trait.name: trait for trait in (*OF_SENTENCES, *OF_WORDS)}
SENTENCE_NAMES = tuple(trait.name for trait in OF_SENTENCES)
WORD_NAMES = tuple(trait.name for trait in OF_WORDS)


def of_sentences(tokens: np.ndarray, vocabulary: Sequence[str]) -> dict[str, Share | Mean]:
    """Traits of sentences, the measures of `OF_SENTENCES` by name.

    Args:
      tokens: token ids [N, L] of independent sentences, without the begin token.
      vocabulary: words by token id, from NUM_SPECIAL_TOKENS on.
    """
    is_word = (tokens != PAD_ID) & (tokens != EOS_ID) & (tokens != BOS_ID)
    unknown = tokens == OOV_ID
    lengths = is_word.sum(axis=1)
    ended = (tokens == EOS_ID).any(axis=1)
    position = np.arange(tokens.shape[1])
    is_last = is_word & (position == lengths[:, None] - 1)
    inner = is_word & (position > 0) & ~is_last
    marks = _punctuation_only(vocabulary)[tokens]
    same = (tokens[:, 1:] == tokens[:, :-1]) & is_word[:, 1:] & ~unknown[:, 1:] & ~marks[:, 1:]
    full, several = lengths > 0, ended & (lengths > 1)
    return {
        'first_unknown': Share.of(unknown[full, 0]),
        'later_unknown': Mean.ratio((unknown & inner).sum(axis=1), inner.sum(axis=1)),
        'last_unknown': Share.of((unknown & is_last).any(axis=1)[several]),
        'length': Mean.of(lengths),
        'short': Share.of(lengths[full] <= 2),
        'endless': Share.of(~ended),
        'punctuation': Mean.ratio((marks & is_word).sum(axis=1), lengths),
        'ends_punctuated': Share.of((marks & is_last).any(axis=1)[ended & full]),
        'doubled': Mean.ratio(same.sum(axis=1), np.maximum(lengths - 1, 0)),
        'repeated': _repeated(tokens, (lengths >= LONG) & ~unknown.any(axis=1)),
    }


def of_words(tokens: np.ndarray) -> dict[str, Share | Mean]:
    """Traits of words, the measures of `OF_WORDS` by name.

    Args:
      tokens: byte ids [N, L] of independent words, without the begin token, as a character model
        writes them. Empty words do not count.
    """
    tokens = tokens[(tokens[:, :1] != WORD_END_ID).any(axis=1)]
    is_byte = (tokens != BYTE_PAD_ID) & (tokens < WORD_BEGIN_ID)
    words = [
        bytes(row[kept].tolist()).decode('latin-1')
        for row, kept in zip(tokens, is_byte, strict=True)
    ]

    def matches(pattern: str) -> np.ndarray:
        search = re.compile(pattern, re.DOTALL).search
        return np.array([search(word) is not None for word in words], bool)

    has = {name: matches(pattern) for name, pattern in _PATTERNS.items()}
    # Other faults can put punctuation after something: a space, or a byte order mark.
    whole = ~matches(_SPACE) & ~has['mis_decoded']
    has['punctuated'] &= whole
    has['inner_punctuation'] &= whole
    has['cut'] = ~(tokens == WORD_END_ID).any(axis=1)
    has['noise'] = matches(_NOISE)
    shares = {name: Share.of(mask) for name, mask in has.items()}
    return {**shares, 'word_length': Mean.of(is_byte.sum(axis=1))}


def unknown_by_position(tokens: np.ndarray) -> tuple[Share, ...]:
    """Share of words outside the vocabulary at each position of sentences, token ids [N, L]."""
    is_word = (tokens != PAD_ID) & (tokens != EOS_ID)
    counts = zip((tokens == OOV_ID).sum(axis=0), is_word.sum(axis=0), strict=True)
    return tuple(Share(int(hits), int(count)) for hits, count in counts)


def _punctuation_only(vocabulary: Sequence[str]) -> np.ndarray:
    """Whether a token is a word without letters and digits, bool [token ids]."""
    return np.array(
        [
            *[False] * NUM_SPECIAL_TOKENS,
            *(not any(map(str.isalnum, word)) for word in vocabulary),
        ]
    )


def _repeated(tokens: np.ndarray, counted: np.ndarray) -> Share:
    """Share of the counted sentences of the first half that are in the second half as well.

    The halves are independent. Given the second, the draws of the first are independent too.
    """
    half = len(tokens) // 2
    first, second = tokens[:half][counted[:half]], tokens[half:][counted[half:]]
    others = {row.tobytes() for row in second}
    return Share.of([row.tobytes() in others for row in first])


# Characters of words, and punctuation: the tokeniser keeps underscores in words.
_PLAIN, _MARKS = r'[A-Za-z0-9\x80-\xff]', re.escape(string.punctuation.replace('_', ''))
_SPACE = r'[ \t\n]'
# Control characters, and bytes that UTF-8 does not use: a model draws them by mistake.
_NOISE = r'[\x01-\x08\x0b\x0c\x0e-\x1f\x7f\xc0\xc1\xf5-\xff]'
# Of the bytes of a word, read as Latin-1.
_PATTERNS = {
    'inner_space': rf'{_PLAIN}.*{_SPACE}.*{_PLAIN}',
    'punctuated': rf'{_PLAIN}.*[{_MARKS}]\Z',
    'inner_punctuation': rf"{_PLAIN}.*(?![-'])[{_MARKS}].*{_PLAIN}",
    # UTF-8 read as Latin-1 and in lower case: the bytes of a character are a letter U+00E0 to
    # U+00FF, then characters U+0080 to U+00BF; in UTF-8 that is C3 and a byte, C2 and a byte.
    # Or an HTML entity.
    'mis_decoded': r'\xc3[\x80-\xbf]\xc2[\x80-\xbf]|&[A-Za-z0-9#].*;',
    'non_ascii': r'[\x80-\xff]',
    'digits': r'[0-9]',
    'capitals': r'[A-Z]',
    'no_letters': r'\A[^A-Za-z0-9]*\Z',
}
