"""Records (client, text) of JSON Lines and CSV files: where they are, and what they say.

A client's id is a string or a number; the number 7 and the string "7" are the same client, so that
nobody is counted as two. Records that cannot be read are malformed, for a reason that quotes
nothing of them. Files are UTF-8, with or without a byte order mark; lines end with LF or CRLF.
"""

import codecs
import csv
import dataclasses
import json
import math
from collections.abc import Callable, Iterator

from dpfl import errors

# Longer records are malformed: no reader has to hold more than that in memory.
MAX_BYTES = 1 << 22


class MalformedError(ValueError):
    """A record cannot be read; the message is the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One record of a file.

    Attributes:
      offset: of its first byte.
      length: in bytes.
      line: number of its first line, from 1.
      client: key of the client.
      text: what the client wrote.
    """

    offset: int
    length: int
    line: int
    client: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class BadRecord:
    """A malformed record: the number of its first line, and the reason."""

    line: int
    reason: str


@dataclasses.dataclass(frozen=True)
class JsonLines:
    """A JSON object in each line; blank lines are skipped.

    Attributes:
      client_column, text_column: keys in the object.
    """

    client_column: str
    text_column: str

    name = 'jsonl'

    def scan(self, file) -> Iterator[Record | BadRecord]:
        """All records of a binary file from its start to its end."""
        lines = _Lines(file)
        while (line := lines.read()) is not None:
            try:
                if not line.strip():
                    continue
                client, text = self._parse(line)
            except MalformedError as error:
                yield BadRecord(lines.number, str(error))
            else:
                yield Record(lines.offset, len(line), lines.number, client, text)

    def parser(self, file) -> Callable[[bytes], tuple[str, str]]:
        """The function from a record to client and text, which may raise MalformedError."""
        del file
        return self._parse

    def _parse(self, data: bytes) -> tuple[str, str]:
        if len(data) > MAX_BYTES:
            raise MalformedError('record is too long')
        try:
            value = json.loads(_decoded(data))
        except MalformedError:
            raise
        except (ValueError, RecursionError):
            raise MalformedError('not JSON') from None
        if not isinstance(value, dict):
            raise MalformedError('not a JSON object')
        text = value.get(self.text_column)
        if not isinstance(text, str):
            raise MalformedError('no text' if text is None else 'text is not a string')
        return _client_key(value.get(self.client_column)), text


@dataclasses.dataclass(frozen=True)
class Csv:
    """Comma-separated values with a header; quoted fields may contain line breaks.

    After a malformed record reading goes on in the next line, so that a quote that nobody closes
    does not swallow the records that follow.

    Attributes:
      client_column, text_column: names in the header.
    """

    client_column: str
    text_column: str

    name = 'csv'

    def scan(self, file) -> Iterator[Record | BadRecord]:
        """All records of a binary file after its header.

        Raises:
          ValueError: if the header lacks a column; the message begins with the flag of the column.
        """
        csv.field_size_limit(MAX_BYTES)
        lines = _Lines(file)
        columns = self._columns(lines)
        reader = csv.reader(lines, strict=True)
        while True:
            lines.begin_record()
            try:
                row = next(reader, None)
                if row is None:
                    return
                if not row:
                    continue
                client, text = self._fields(row, columns)
                length = lines.end - lines.start
                if length > MAX_BYTES:
                    raise MalformedError('record is too long')
            except (csv.Error, MalformedError) as error:
                reason = str(error) if isinstance(error, MalformedError) else 'not CSV'
                yield BadRecord(lines.start_number, reason)
                lines.go_on_after_first_line()
                reader = csv.reader(lines, strict=True)
            else:
                yield Record(lines.start, length, lines.start_number, client, text)

    def parser(self, file) -> Callable[[bytes], tuple[str, str]]:
        """As of `JsonLines`; reads the header. Raises ValueError as `scan`."""
        csv.field_size_limit(MAX_BYTES)
        columns = self._columns(_Lines(file))

        def parse(data: bytes) -> tuple[str, str]:
            try:
                lines = _decoded(data).splitlines(keepends=True)
                return self._fields(next(csv.reader(lines, strict=True), []), columns)
            except csv.Error:
                raise MalformedError('not CSV') from None

        return parse

    def _columns(self, lines: '_Lines') -> tuple[int, int, int]:
        """Positions of client and text in a row, and its length."""
        try:
            lines.begin_record()
            header = next(csv.reader(lines, strict=True), [])
        except (csv.Error, MalformedError):
            raise errors.ArgumentError(
                'data_path', errors.NOT_SHOWN, 'must begin with a header of column names'
            ) from None
        positions = []
        for flag in ('client_column', 'text_column'):
            name = getattr(self, flag)
            if header.count(name) != 1:
                raise errors.ArgumentError(flag, name, f'must be one of the {len(header)} columns')
            positions.append(header.index(name))
        return positions[0], positions[1], len(header)

    def _fields(self, row: list[str], columns: tuple[int, int, int]) -> tuple[str, str]:
        client, text, count = columns
        if len(row) != count:
            raise MalformedError('another number of fields than the header')
        return _client_key(row[client]), row[text]


FORMATS = {'.jsonl': JsonLines, '.ndjson': JsonLines, '.json': JsonLines, '.csv': Csv}


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedError('not UTF-8') from None


def _client_key(value) -> str:
    if isinstance(value, str):
        if value:
            return value
    elif isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    elif isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    if value is None or value == '':
        raise MalformedError('no client id')
    raise MalformedError('client id is neither a string nor a number')


class _Lines:
    """Lines of a binary file with their positions; for `csv.reader` an iterator of text.

    Attributes:
      offset, end: of the first byte of the last line, and after its last one.
      number: of that line, from 1.
      start, start_number: of the record that began last.
    """

    def __init__(self, file):
        self._file = file
        self.offset = self.end = len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0
        file.seek(self.end)
        self.number = 0
        self.begin_record()

    def read(self) -> bytes | None:
        """The next line with its end, or None; of a line that is too long only the beginning."""
        line = self._file.readline(MAX_BYTES + 1)
        if not line:
            return None
        self.offset = self.end
        self.number += 1
        self.end += len(line)
        if len(line) > MAX_BYTES:
            rest = line
            while rest and not rest.endswith(b'\n'):
                rest = self._file.readline(MAX_BYTES)
                self.end += len(rest)
        if self._first_end is None:
            self._first_end = self.end
        return line

    def begin_record(self) -> None:
        self.start, self.start_number, self._first_end = self.end, self.number + 1, None

    def go_on_after_first_line(self) -> None:
        """Goes back to the second line of the record, if it had begun."""
        if self._first_end is not None:
            self.end, self.number = self._first_end, self.start_number
            self._file.seek(self.end)

    def __iter__(self):
        return self

    def __next__(self) -> str:
        line = self.read()
        if line is None:
            raise StopIteration
        if len(line) > MAX_BYTES:
            raise MalformedError('record is too long')
        return _decoded(line)
