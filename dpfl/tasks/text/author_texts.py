"""Messages of authors, such as those of commits: their prose, by author, under pseudonyms.

A client is an author. Its name is a keyed digest: without the key nobody finds the address that a
name stands for. The key is 32 bytes from the operating system. It is kept in the cache directory,
so that a run that is resumed, and another data set, have the same names for the same authors.

The sentences of a message: its prose. Removed are, line by line:

- trailers: a line such as `Signed-off-by: name` anywhere, a line that is only a reference, such as
  `Closes #12`, `(cherry picked from ...)` and `This reverts commit ...`, and a last paragraph, not
  the first one, in which every line is `Word: value`, as git defines trailers;
- code: the text between two lines that begin with three backticks or tildes, and lines that are
  indented by a tab or four spaces, unless they continue an item of a list;
- quotes: lines that begin with `>`;
- diffs: from a line such as `diff --git`, `@@ -1,2`, or `--- a/name` to the next blank line;

and within lines links, addresses, hashes (7 to 64 hexadecimal digits with at least one letter and
one decimal digit, and Change-Ids), and code in backticks, unless it is a single word, which stays
without the backticks. Brackets around them go too if nothing else is in them.

A sentence may go on in the next line of a paragraph. A line of less than 40 characters ends it, and
so does an item of a list. A text without a letter is no sentence.

Messages come in any order. Their prose goes to an unnamed temporary file, and their positions are
sorted by client. So memory holds some fifty bytes for each message, and the text of one author.
"""

import collections
import contextlib
import hashlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dpfl import _cache, _files, _progress, _storage, errors
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.client_texts import ClientTexts

# Longest message in bytes that is read; the rest of a longer one is left out.
MAX_BYTES = 1 << 18
# File with the key of the names, and its size.
_NAME = 'authors.key'
_BYTES = 32
# Names of the counts of removed text: lines, parts of lines, sentences.
REMOVED = (
    'trailers',
    'code_lines',
    'quoted_lines',
    'diff_lines',
    'links',
    'addresses',
    'hashes',
    'inline_code',
    'without_letters',
)
# A shorter line was not wrapped.
_WRAPPED = 40
_INDENTED = 4

_BULLET = r'(?:[-*+\u2022]|\(?\d{1,3}[.)])'
_ITEM = re.compile(rf'\s*{_BULLET}\s+(?=\S)')
_FENCE = re.compile(r'\s*(```|~~~)')
_TRAILER = re.compile(
    r'\s*(?:(?:[a-z]+[- ]){1,3}by|[a-z-]+-(?:id|to|from|with)|cc)\s*:|\(cherry[- ]picked from |'
    r'This reverts commit [0-9a-f]{7}',
    re.IGNORECASE,
)
_NUMBER = r'(?:https?://[^\s,]+|[\w./-]*#\d+)'
_REFERENCE = re.compile(
    r'\s*(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?|ref(?:erence)?s?|see(?: also)?|bug|issue|link|'
    rf'url)(?:\s*:)?\s+{_NUMBER}(?:(?:\s*,\s*|\s+)(?:and\s+)?{_NUMBER})*\.?',
    re.IGNORECASE,
)
_PAIR = re.compile(r'[A-Za-z][A-Za-z0-9-]*: ?\S|\s+\S')
_DIFF = re.compile(
    r'diff --git |diff -|index [0-9a-f]{7,}\.\.|@@ -\d|--- (?:a/|/dev/null)|\+\+\+ (?:b/|/dev/null)'
)
# Beginnings of lines that belong to no paragraph.
_SPECIAL = re.compile(r'[\s>`~]|diff |index |@@ -|--- |\+\+\+ ')

_LINK = re.compile(
    r'(?:\b(?:https?|ftp|git|ssh|svn|file)://|\bwww\.)[^\s<>"\'\])}]*[^\s<>"\'\])}.,;:!?]'
)
_ADDRESS = re.compile(r'(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+')
_HASH = re.compile(r'(?<![\w-])(?:[0-9a-f]{7,64}|I[0-9a-f]{40})(?![\w-])')
_CODE = re.compile(r'(?<!`)(`{1,2})([^`]+)\1')
_WORD = re.compile(r'\w[\w.-]*')
_EMPTY_BRACKETS = re.compile(r'(?<!\S)(?:\(\s*\)|\[\s*\]|<\s*>)')
_LETTER = re.compile(r'[^\W\d_]')

# Names of the counts of prose that is left out of the text of an author.
_LEFT_OUT = ('repeated_sentences', 'sentences_over_cap', 'words_over_cap')


class Message(NamedTuple):
    """A text that one author wrote at one time.

    Attributes:
      author: who wrote it, such as an address in lower case; no digest yet.
      source: number of the repository or file, from 0.
      text: the message as it was written.
    """

    author: str
    source: int
    text: str


def decoded(data: bytes) -> tuple[str, bool]:
    """Text of bytes that should be UTF-8, and whether they are not: bad ones become U+FFFD."""
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode(errors='replace'), True


def load_key() -> bytes:
    """The kept key; makes it if there is none.

    Raises:
      ArgumentError: if there is no cache directory; it names `data_path`.
      StorageError: if the key cannot be read or written.
    """
    directory = _cache.directory()
    if directory is None:
        raise errors.ArgumentError(
            'data_path',
            errors.NOT_SHOWN,
            'needs a cache directory for the key of the names of authors; DPFL_CACHE_DIR is empty',
        )
    path = directory / _NAME
    with _storage.naming(path):
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix='.unfinished-')  # Mode 0600.
        try:
            with os.fdopen(handle, 'wb') as file:
                file.write(os.urandom(_BYTES))
                file.flush()
                os.fsync(file.fileno())
            # If another process has made a key meanwhile, that one stays.
            with contextlib.suppress(FileExistsError):
                os.link(partial, path)
        finally:
            os.unlink(partial)
        return _read(path)


def client_of(key: bytes, author: str) -> str:
    """The name of an author as a client: 128 bits of a keyed BLAKE2b (RFC 7693)."""
    data = author.encode('utf-8', 'surrogatepass')
    return hashlib.blake2b(data, key=key, digest_size=16, person=b'author').hexdigest()


def _read(path: pathlib.Path) -> bytes:
    with _files.open_regular(path) as file:
        key = file.read(_BYTES + 1)
    if len(key) != _BYTES:
        raise errors.StorageError(f'{path}: must have {_BYTES} bytes; remove it for a new key')
    return key


def prose(text: str, removed: collections.Counter[str]) -> list[str]:
    """The sentences of a message, as they are written, with single spaces.

    Args:
      text: the message.
      removed: gets the counts of removed text, by the names in `REMOVED`.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    del lines[_end_of_prose(lines, removed) :]
    sentences = []
    for unit in _units(lines, removed):
        for sentence in tokenization.split(_without_parts(unit, removed)):
            words = sentence.split()
            if not words:
                continue
            sentence = ' '.join(words)
            if _LETTER.search(sentence):
                sentences.append(sentence)
            else:
                removed['without_letters'] += 1
    return sentences


def _end_of_prose(lines: list[str], removed: collections.Counter[str]) -> int:
    """The number of lines before the paragraphs of trailers at the end."""
    end = len(lines)
    while True:
        last = end
        while last and not lines[last - 1]:
            last -= 1
        first = last
        while first and lines[first - 1]:
            first -= 1
        paragraph = lines[first:last]
        if not first or paragraph[0][0].isspace() or not all(map(_PAIR.match, paragraph)):
            return end
        removed['trailers'] += last - first
        end = first


def _units(lines: list[str], removed: collections.Counter[str]) -> list[str]:
    """Paragraphs and items of lists, each in one line."""
    units: list[str] = []
    open_length = 0  # Of the line that the next one may continue; 0 if none may.
    hanging = -1  # The column in which the text of an item of a list begins.
    fence, in_diff = '', False
    for line in lines:
        if fence:
            removed['code_lines'] += 1
            if line.lstrip().startswith(fence):
                fence = ''
            continue
        if not line:
            open_length, in_diff = 0, False
            continue
        if in_diff:
            removed['diff_lines'] += 1
            continue
        if _SPECIAL.match(line):
            if opened := _FENCE.match(line):
                fence, open_length = opened[1], 0
                removed['code_lines'] += 1
                continue
            if line.lstrip()[0] == '>':
                open_length = 0
                removed['quoted_lines'] += 1
                continue
            if _DIFF.match(line):
                in_diff, open_length = True, 0
                removed['diff_lines'] += 1
                continue
            blank = line[: len(line) - len(line.lstrip())]
            indent = len(blank.expandtabs())  # A tab counts as far more than four.
            # It may continue the item of a list, or be an item within it.
            is_of_list = hanging >= 0 and (
                indent == hanging or (indent <= hanging + 1 and _ITEM.match(line) is not None)
            )
            if indent >= _INDENTED and not is_of_list:
                open_length = 0
                removed['code_lines'] += 1
                continue
        if _TRAILER.match(line) or _REFERENCE.fullmatch(line):
            open_length = 0
            removed['trailers'] += 1
            continue
        item = _ITEM.match(line)
        if item:
            hanging = len(line[: item.end()].expandtabs())
            units.append(line[item.end() :])
        elif open_length >= _WRAPPED:
            units[-1] = f'{units[-1]} {line}'
        else:
            units.append(line)
            if not line[0].isspace():
                hanging = -1
        open_length = len(line)
    return units


def _without_parts(text: str, removed: collections.Counter[str]) -> str:
    """A paragraph without links, addresses, hashes and code."""

    def of_code(match: re.Match[str]) -> str:
        if _WORD.fullmatch(match[2]):
            return match[2]
        removed['inline_code'] += 1
        return ''

    def of_hash(match: re.Match[str]) -> str:
        if match[0].isdecimal() or match[0].isalpha():  # A number, or a word such as 'defaced'.
            return match[0]
        removed['hashes'] += 1
        return ''

    before = text
    if '`' in text:
        text = _CODE.sub(of_code, text)
    if '://' in text or 'www.' in text:
        text, count = _LINK.subn('', text)
        removed['links'] += count
    if '@' in text:
        text, count = _ADDRESS.subn('', text)
        removed['addresses'] += count
    text = _HASH.sub(of_hash, text)
    return text if text == before else _EMPTY_BRACKETS.sub('', text)


def by_author(
    messages: Iterable[Message], key: bytes, max_words: int, counts: collections.Counter[str]
) -> Iterator[tuple[str, int, str]]:
    """The sentences of all messages, those of one author together, in the order of the messages.

    Yields the name of the client, the number of the repository or file, and the sentence as it was
    written.

    A sentence whose words an author has used before, in upper or lower case, is left out, and so is
    one with which the author would have more than `max_words` words. Both depend on the text of one
    author only.

    Args:
      messages: in any order.
      key: of the names of the clients.
      max_words: of an author; 0 for any number.
      counts: gets the numbers that `described` names.
    """
    authors = set()

    def prose_of_clients() -> Iterator[tuple[str, str]]:
        for message in _progress.bar(messages, 'messages', unit='message', delay=2, leave=False):
            client = client_of(key, message.author)
            authors.add(bytes.fromhex(client))
            if sentences := prose(message.text, counts):
                yield client, json.dumps([client, message.source, sentences], ensure_ascii=False)

    texts = ClientTexts(prose_of_clients())
    counts['authors'] += len(authors)
    clients = range(texts.num_clients)
    for number in _progress.bar(clients, 'authors', unit='author', delay=2, leave=False):
        known, total = set(), 0
        for client, source, sentences in map(json.loads, texts.of_client(number)):
            for sentence in sentences:
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
                counts['sentences'] += 1
                yield client, source, sentence
        counts['words'] += total


def described(counts: Mapping[str, int], of_source: Sequence[str]) -> dict[str, dict[str, int]]:
    """Counts as they are reported, in groups: of the source, removed, kept.

    Args:
      counts: by name; one that is missing is 0.
      of_source: names of the counts of the reader of the messages.
    """
    groups = {
        'history': [*of_source, 'authors'],
        'removed': [*REMOVED, *_LEFT_OUT],
        'kept': ['sentences', 'words'],
    }
    return {group: {name: counts.get(name, 0) for name in names} for group, names in groups.items()}
