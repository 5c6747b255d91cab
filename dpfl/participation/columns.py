"""Columns of large CSV and Parquet files, read in parts without a Python loop over their rows.

The first row names the columns. Fields are separated by commas and may be quoted as a whole; a
field with a comma, a quote or a line break inside is refused. Errors name the row, counted from 1
after the header, and the column, but never quote a field: it may be the id of a person.

Numbers of seconds and dates become microseconds. NumPy 1.25 can end the process when it fails to
convert a text to a date, so nothing here does that. A child process writes the columns of a Parquet
file as CSV.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO

import numpy as np

from dpfl import _files, _parquet

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
# The year 2242: a larger number is not in seconds, most likely in milliseconds.
_MOST_SECONDS = 2**33
_FINEST = 6  # Digits of a microsecond.
# Letters of YYYY-MM-DDTHH:MM that are not digits; T may be a space.
_MARKS = {4: b'-', 7: b'-', 10: b'T ', 13: b':'}
_MINUTES_END = 16
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
_ROWS = 1 << 16
_CHILD = (
    'from dpfl import _parquet; from dpfl.participation import columns; '
    '_parquet.in_child(columns.write)'
)


def seconds(letters: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers such as 1685571300.25, at most 2^33.

    Args:
      letters: of each field, uint8 [rows, letters]; letters behind the end do not count.
      lengths: of the fields, int64 [rows].

    Returns:
      Microseconds, int64 [rows], and which fields are right, bool [rows].
    """
    rows, width = letters.shape
    inside = np.arange(width) < lengths[:, None]
    is_digit = (letters >= ord('0')) & (letters <= ord('9'))
    is_dot = (letters == ord('.')) & inside
    dots = np.where(is_dot.any(axis=1), is_dot.argmax(axis=1), lengths)
    is_right = (is_digit | is_dot | ~inside).all(axis=1) & (is_dot.sum(axis=1) <= 1)
    is_right &= (dots > 0) & (dots <= _MOST_DIGITS)
    values = np.zeros(rows, np.int64)
    digits = letters.astype(np.int64) - ord('0')
    for place in range(min(width, _MOST_DIGITS)):
        values = np.where(place < dots, 10 * values + digits[:, place], values)
    is_right &= values <= _MOST_SECONDS
    for behind in range(1, _FINEST + 1):
        places = np.minimum(dots + behind, width - 1)
        digit = np.where(dots + behind < lengths, digits[np.arange(rows), places], 0)
        values = 10 * values + digit
    return values, is_right


def dates(letters: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dates such as 2023-05-31T22:15:00.25Z, in UTC; seconds and Z may be missing.

    Arguments and result are as in `seconds`; the microseconds are those since 1970.
    """
    rows = letters.shape[0]
    lengths = lengths - (letters[np.arange(rows), lengths - 1] == ord('Z'))
    is_right = lengths >= _MINUTES_END
    for place, marks in _MARKS.items():
        is_right &= np.isin(letters[:, place], list(marks))
    digits = letters[:, :_MINUTES_END].astype(np.int64) - ord('0')
    for place in set(range(_MINUTES_END)) - set(_MARKS):
        is_right &= (digits[:, place] >= 0) & (digits[:, place] <= 9)

    def number(first: int, count: int) -> np.ndarray:
        return digits[:, first : first + count] @ 10 ** np.arange(count)[::-1]

    months = np.where(is_right, 12 * (number(0, 4) - 1970) + number(5, 2) - 1, 0)
    days = months.astype('M8[M]').astype('M8[D]') + np.where(is_right, number(8, 2) - 1, 0)
    is_right &= (number(5, 2) >= 1) & (number(5, 2) <= 12) & (number(8, 2) >= 1)
    is_right &= days.astype('M8[M]').astype(np.int64) == months
    is_right &= (number(11, 2) < 24) & (number(14, 2) < 60)
    has_seconds = lengths > _MINUTES_END
    within, is_number = seconds(
        letters[:, _MINUTES_END + 1 :], np.maximum(lengths - _MINUTES_END - 1, 0)
    )
    is_right &= ~has_seconds | (
        is_number & (letters[:, _MINUTES_END] == ord(':')) & (within < 61 * _SECOND)
    )
    values = days.astype(np.int64) * _DAY + (number(11, 2) * 60 + number(14, 2)) * 60 * _SECOND
    return values + np.where(has_seconds, within, 0), is_right


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
          ValueError: if a field is empty, or begins or ends with a space or a control character.
        """
        lengths = self.ends - self.starts
        self._check(lengths > 0, 'must not be empty')
        edges = np.minimum(self.text[self.starts], self.text[self.ends - 1])
        self._check(edges > _SPACE, 'must not begin or end with a space')
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
        values, is_right = (dates if is_date else seconds)(letters, lengths)
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


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], columns: tuple[str, ...]) -> Iterator[IO[bytes]]:
    """Context with the rows of a Parquet file as CSV with a header, to be read once to the end.

    Args:
      path: of the file.
      columns: names of the columns to read, as far as the file has them, in any case of letters.

    Raises:
      ValueError: if pyarrow is not installed, or the file is no complete Parquet file; at the end
        of the context at the latest.
      OSError: if the file cannot be opened.
    """
    with _files.open_regular(path) as source:
        try:
            with _parquet.rows(source, _CHILD, *columns) as rows:
                yield rows
        except _parquet.FailedError as error:
            raise ValueError(f'{error}, or has columns of other types') from None


def write(source: BinaryIO, rows: BinaryIO, *columns: str) -> None:
    """Writes a Parquet file as CSV, in the child process."""
    from pyarrow import csv, parquet

    table = parquet.ParquetFile(source)
    names = [name for name in table.schema_arrow.names if name.lower() in columns]
    options = csv.WriteOptions(include_header=False)
    rows.write(','.join(names).encode() + b'\n')
    for batch in table.iter_batches(batch_size=_ROWS, columns=names):
        csv.write_csv(_plain(batch), rows, options)


def _plain(batch: Any) -> Any:
    """The rows with texts and numbers only; times become dates with times of the day in UTC."""
    import pyarrow

    columns = []
    for column in batch.columns:
        if pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pyarrow.types.is_timestamp(column.type):
            # A time with a zone is stored in UTC.
            column = column.cast(pyarrow.timestamp('us'), safe=False).cast(pyarrow.string())
        elif pyarrow.types.is_binary(column.type) or pyarrow.types.is_large_binary(column.type):
            column = pyarrow.array(
                [None if value is None else value.hex() for value in column.to_pylist()]
            )
        elif pyarrow.types.is_floating(column.type):
            column = pyarrow.array(
                [None if value is None else repr(value) for value in column.to_pylist()]
            )
        columns.append(column)
    return pyarrow.RecordBatch.from_arrays(columns, batch.schema.names)
