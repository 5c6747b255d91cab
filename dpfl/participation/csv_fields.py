"""Reads columns of a large CSV file in parts, without a Python loop over its rows.

The first row names the columns. Fields are separated by commas and may be quoted as a whole; a
field with a comma, a quote or a line break inside is refused. Errors name the row, counted from 1
after the header, and the column, but never quote a field: it may be the id of a person.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import numpy as np

from dpfl.participation import date_fields

# Bytes that are read at a time. A row must be shorter.
_PART = 1 << 22
_NEWLINE, _RETURN, _COMMA, _QUOTE, _SPACE = b'\n\r," '
# Fields are read as words of 8 bytes, also the last one of a part.
_PADDING = b'\0' * 8
# Bits of the first i bytes of a word, little-endian.
_FIRST_BYTES = np.array([(1 << 8 * i) - 1 for i in range(9)], np.uint64)
_MOST_DIGITS = 18
_TIME_WORDS = 4
_TIME = (
    'must be seconds, or a date and a time in UTC such as 2023-05-31T22:15:00, as the first one is'
)


@dataclasses.dataclass(frozen=True, eq=False)
class Fields:
    """The fields of one column in consecutive rows.

    Attributes:
      column: name of the column.
      first_row: number of the first of the rows.
      text: the bytes of the part of the file, uint8, with at least 8 more at the end.
      starts, ends: where each field begins and ends in `text`, int64 [rows].
    """

    column: str
    first_row: int
    text: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def keys(self, secret: int) -> np.ndarray:
        """A key for each field, equal for equal fields, uint64 [rows].

        Different fields have different keys, except with a probability of about 2^-64 for each
        pair of them. Keys say nothing about the fields to whoever does not know the secret.

        Args:
          secret: random, within [0, 2^64).

        Raises:
          ValueError: if a field is empty, or begins or ends with a space.
        """
        lengths = self.ends - self.starts
        self._check(lengths > 0, 'must not be empty')
        edges = (self.text[self.starts] == _SPACE) | (self.text[self.ends - 1] == _SPACE)
        self._check(~edges, 'must not begin or end with a space')
        keys = _mixed(lengths.astype(np.uint64) + np.uint64(secret))
        for first in range(0, int(lengths.max(initial=0)), 8):
            rows = np.flatnonzero(lengths > first)
            keys[rows] = _mixed(keys[rows] ^ self._words(rows, first))
        return keys

    def integers(self) -> np.ndarray:
        """The fields as integers of at most 18 digits, without a sign, int64 [rows].

        Raises:
          ValueError: if a field is no such integer.
        """
        lengths = self.ends - self.starts
        self._check((lengths > 0) & (lengths <= _MOST_DIGITS), 'must be an integer >= 0')
        values = np.zeros(lengths.size, np.int64)
        for place in range(int(lengths.max(initial=0))):
            rows = np.flatnonzero(lengths > place)
            digits = self.text[self.starts[rows] + place].astype(np.int64) - ord('0')
            is_digit = np.ones(lengths.size, bool)
            is_digit[rows] = (digits >= 0) & (digits <= 9)
            self._check(is_digit, 'must be an integer >= 0')
            values[rows] = 10 * values[rows] + digits
        return values

    def times(self) -> np.ndarray:
        """The fields as microseconds, int64 [rows].

        Times are numbers of seconds, such as Unix time, or dates with times of the day in UTC such
        as 2023-05-31T22:15:00.5 (with or without Z). What is finer than a microsecond is rounded
        down.

        Raises:
          ValueError: if a field is neither, or has another time zone, or no time of the day, or is
            not of the kind of the first one.
        """
        lengths = self.ends - self.starts
        self._check((lengths > 0) & (lengths <= 8 * _TIME_WORDS), _TIME)
        words = np.zeros((lengths.size, _TIME_WORDS), np.uint64)
        for place in range(_TIME_WORDS):
            rows = np.flatnonzero(lengths > 8 * place)
            words[rows, place] = self._words(rows, 8 * place)
        letters = words.view(np.uint8).reshape(lengths.size, 8 * _TIME_WORDS)
        is_date = lengths.size > 0 and letters[0, 4] == ord('-')
        values, is_right = (date_fields.dates if is_date else date_fields.seconds)(letters, lengths)
        self._check(is_right, _TIME)
        return values

    def _words(self, rows: np.ndarray, first: int) -> np.ndarray:
        """Bytes first .. first + 7 of the fields of some rows; 0 behind the end, uint64 [rows]."""
        words: np.ndarray = np.ndarray((self.text.size - 7,), '<u8', self.text, strides=(1,))
        left = np.minimum(self.ends[rows] - self.starts[rows] - first, 8)
        return words[self.starts[rows] + first].astype(np.uint64) & _FIRST_BYTES[left]

    def _check(self, is_right: np.ndarray, allowed: str) -> None:
        if not is_right.all():
            row = self.first_row + int(np.argmin(is_right))
            raise ValueError(f'row {row}: {self.column} {allowed}')


def read(
    file: IO[bytes], columns: Mapping[str, Sequence[str]], optional: Sequence[str] = ()
) -> Iterator[dict[str, Fields]]:
    """Yields the columns of consecutive parts of a file.

    It takes about 100 MB, whatever the length of the file.

    Args:
      file: a CSV file with a header, open for reading.
      columns: the names that a column may have in the file, by the name that it has here.
      optional: columns that may be missing.

    Raises:
      ValueError: if a column is missing or there are two of it, or a row has too many or too few
        fields, a quote inside a field, or more than 4 MiB; the message names the row.
    """
    header = file.readline(_PART).removeprefix(b'\xef\xbb\xbf').rstrip(b'\r\n')
    names = [name.strip(b' "').decode('ascii', 'replace').lower() for name in header.split(b',')]
    places = {}
    for column, known in columns.items():
        having = [place for place, name in enumerate(names) if name in known]
        if len(having) > 1 or (not having and column not in optional):
            wanted = ' or '.join(known)
            raise ValueError(f'the header must have one column {wanted}, has {len(having)}')
        if having:
            places[column] = having[0]
    row, rest = 1, b''
    while True:
        part = file.read(_PART)
        text = rest + part
        if part:
            # Line breaks at the end wait for what follows: at the end of a file they are no rows.
            body = len(text[: text.rfind(b'\n') + 1].rstrip(b'\r\n'))
            end = text.find(b'\n', body) + 1 if body else 0
            text, rest = text[:end], text[end:]
            if len(rest) > _PART:
                raise ValueError(f'row {row}: is longer than {_PART} bytes')
        else:
            text = text.rstrip(b'\r\n')
            text += b'\n' if text else b''
        if text:
            texts, starts, ends = _split(
                np.frombuffer(text + _PADDING, np.uint8), len(text), len(names), row
            )
            by_column = {
                column: Fields(column, row, texts[place], starts[place], ends[place])
                for column, place in places.items()
            }
            if b'"' in text:
                by_column = {column: _unquoted(fields) for column, fields in by_column.items()}
            yield by_column
            row += starts[0].size
        if not part:
            return


def _split(
    text: np.ndarray, size: int, columns: int, first_row: int
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """The text, where fields start and where they end, each by column."""
    newlines = np.flatnonzero(text[:size] == _NEWLINE)
    separators = np.flatnonzero((text[:size] == _NEWLINE) | (text[:size] == _COMMA))
    until = np.searchsorted(separators, newlines, 'right')
    counts = np.diff(until, prepend=0)
    if (counts != columns).any():
        row = int(np.argmax(counts != columns))
        raise ValueError(
            f'row {first_row + row}: has {counts[row]} fields, must have {columns} as the header'
        )
    ends = separators.reshape(-1, columns)
    starts = np.append(0, separators[:-1] + 1).reshape(-1, columns)
    last = ends[:, -1]
    last = last - ((last > starts[:, -1]) & (text[last - 1] == _RETURN))
    return (
        [text] * columns,
        [np.ascontiguousarray(starts[:, place]) for place in range(columns)],
        [*(np.ascontiguousarray(ends[:, place]) for place in range(columns - 1)), last],
    )


def _unquoted(fields: Fields) -> Fields:
    """The fields without the quotes around them; refuses quotes inside."""
    quotes = np.cumsum(fields.text == _QUOTE, dtype=np.int32)
    starts, ends, text = fields.starts, fields.ends, fields.text
    is_quoted = (ends - starts >= 2) & (text[starts] == _QUOTE) & (text[ends - 1] == _QUOTE)
    starts, ends = starts + is_quoted, ends - is_quoted
    unquoted = dataclasses.replace(fields, starts=starts, ends=ends)
    before = np.where(starts > 0, quotes[starts - 1], 0)
    is_empty = ends == starts
    inside = np.where(is_empty, 0, quotes[ends - 1] - before)
    unquoted._check(inside == 0, 'must not have a quote inside')
    return unquoted


def _mixed(bits: np.ndarray) -> np.ndarray:
    """A one-to-one scramble of 64 bits (SplitMix64), uint64 [rows]."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))
