"""Splits text into sentences of lower-case words.

A sentence ends at a line break, or after `.`, `!`, `?` and similar characters followed by white
space. A word is a run of characters that are neither white space nor punctuation; an apostrophe or
a hyphen between two such runs belongs to the word ("don't", "well-known"). Every punctuation
character is a token of its own. So each character that is not white space is in exactly one token,
and a text that is not blank has at least one token. Text is normalised to NFC and lower case, and
the typographic apostrophe becomes the plain one. TFF's StackOverflow data, which come tokenised,
follow similar rules.
"""

import re
import unicodedata
from collections.abc import Iterator

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
_SENTENCE_END = re.compile(r'[\r\n]+|(?<=[.!?\u2026\u061f\u0964\u3002\uff01\uff1f])\s+')


def words(text: str) -> list[str]:
    """The tokens of a text, ignoring sentence boundaries."""
    if not text.isascii():
        text = unicodedata.normalize('NFC', text).replace('\u2019', "'")
    return _TOKEN.findall(text.lower())


def split(text: str) -> list[str]:
    """The sentences of a text as they are written; some may be blank."""
    return _SENTENCE_END.split(text)


def sentences(text: str) -> Iterator[list[str]]:
    """The sentences of a text as non-empty lists of tokens."""
    for sentence in split(text):
        if tokens := words(sentence):
            yield tokens
