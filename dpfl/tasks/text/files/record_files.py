"""Reads records (client, text) from JSON Lines and CSV files, with their positions.

A client's key is a string or a number. The number 7 and the string "7" are the same client, so that
nobody is counted as two. Records that cannot be read are malformed; the reason quotes nothing of
them. Files are UTF-8, with or without a byte order mark; lines end with LF or CRLF.

Converts the records (client, text) of a Parquet file to JSON Lines, in an unnamed file.

A single record of a Parquet file cannot be read without decoding thousands of others. So the file
is read once, in parts, and the two columns are written to a temporary file that disappears with the
process.

pyarrow is written in C++, and a damaged file can crash it: it runs in a child process.
"""

import abc
import codecs
import contextlib
import csv
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, ClassVar, NoReturn

from dpfl import _files, _progress, errors

# Longest record in bytes. Longer ones are malformed, which bounds the memory that readers need.
MAX_BYTES = 1 << 22

# How many columns a message names, and how many letters of each.
_MOST_NAMES, _MOST_LETTERS = 12, 40


class MalformedError(ValueError):
    """A record cannot be read. The message is the reason, and quotes nothing of the record."""


def one_of(names: Sequence[str]) -> str:
    """Which columns there are, as what is allowed for the name of one."""
    named = ', '.join(errors.shown(name, _MOST_LETTERS) for name in names[:_MOST_NAMES])
    more = ', ...' if len(names) > _MOST_NAMES else ''
    return f'must be one of the {len(names)} columns: {named}{more}'.removesuffix(': ')


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One record of a file.

    Attributes:
      offset: position of its first byte in the file.
      length: length in bytes.
      line: number of its first line, from 1.
      client: key of the client.
      text: text that the client wrote.
    """

    offset: int
    length: int
    line: int
    client: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class BadRecord:
    """A malformed record: the number of its first line (from 1) and the reason."""

    line: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Format(abc.ABC):
    """A format of files, and the names of the two columns.

    Attributes:
      client_column: name of the column (or key) with the client's key.
      text_column: name of the column (or key) with the text.
    """

    client_column: str
    text_column: str

    name: ClassVar[str]

    @abc.abstractmethod
    def scan(self, file: BinaryIO) -> Iterator[Record | BadRecord]:
        """All records of a binary file, in order.

        Raises:
          ValueError: if a column is missing; the argument named is the column's.
        """

    @abc.abstractmethod
    def parser(self, file: BinaryIO) -> Callable[[bytes], tuple[str, str]]:
        """A function that maps the bytes of a record of this file to (client, text).

        The function raises MalformedError if the record cannot be read.

        Raises:
          ValueError: if a column is missing; the argument named is the column's.
        """


@dataclasses.dataclass(frozen=True)
class JsonLines(Format):
    """One JSON object per line; blank lines are skipped."""

    name: ClassVar[str] = 'jsonl'

    def scan(self, file: BinaryIO) -> Iterator[Record | BadRecord]:
        lines = _Lines(file)
        while (line := lines.read()) is not None:
            try:
                if line.isspace():
                    continue
                client, text = self._parse(line)
            except MalformedError as error:
                yield BadRecord(lines.number, str(error))
            else:
                yield Record(lines.offset, len(line), lines.number, client, text)

    def parser(self, file: BinaryIO) -> Callable[[bytes], tuple[str, str]]:
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

    def missing(self, file: BinaryIO) -> errors.ArgumentError | None:
        """The error that says which column the first record lacks; None if it has both.

        The keys are shown as the header of other formats would be, the values are not.
        """
        try:
            value = json.loads(_decoded(_Lines(file).read() or b''))
        except (ValueError, RecursionError):
            return None
        keys = list(value) if isinstance(value, dict) else []
        for flag in ('client_column', 'text_column'):
            name = getattr(self, flag)
            if keys and name not in keys:
                return errors.ArgumentError(flag, name, one_of(keys))
        return None


@dataclasses.dataclass(frozen=True)
class Csv(Format):
    """Comma-separated values with a header. Quoted fields may contain line breaks.

    After a malformed record, reading continues in the second line of that record. So a quote that
    is never closed does not swallow the records after it.
    """

    name: ClassVar[str] = 'csv'

    def scan(self, file: BinaryIO) -> Iterator[Record | BadRecord]:
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

    def parser(self, file: BinaryIO) -> Callable[[bytes], tuple[str, str]]:
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
        """Reads the header: positions of client and text in a row, and the number of columns."""
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
                raise errors.ArgumentError(flag, name, one_of(header))
            positions.append(header.index(name))
        return positions[0], positions[1], len(header)

    def _fields(self, row: list[str], columns: tuple[int, int, int]) -> tuple[str, str]:
        client, text, count = columns
        if len(row) != count:
            raise MalformedError('number of fields differs from the header')
        return _client_key(row[client]), row[text]


FORMATS: dict[str, type[Format]] = {
    '.jsonl': JsonLines,
    '.ndjson': JsonLines,
    '.json': JsonLines,
    '.csv': Csv,
}


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedError('not UTF-8') from None


def _client_key(value: Any) -> str:
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
    """Lines of a binary file with their positions; also the iterator that `csv.reader` needs.

    Attributes:
      offset: position of the line that was read last.
      end: position after that line.
      number: number of that line, from 1.
      start: position of the current record.
      start_number: number of its first line.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self.offset = self.end = len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0
        file.seek(self.end)
        self.number = 0
        self._first_end: int | None = None
        self.begin_record()

    def read(self) -> bytes | None:
        """The next line with its line end, or None; of a line that is too long the beginning."""
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
        """Marks the next line as the first one of a record."""
        self.start, self.start_number, self._first_end = self.end, self.number + 1, None

    def go_on_after_first_line(self) -> None:
        """Moves to the second line of the current record, if any of it was read."""
        if self._first_end is not None:
            self.end, self.number = self._first_end, self.start_number
            self._file.seek(self.end)

    def __iter__(self) -> '_Lines':
        return self

    def __next__(self) -> str:
        line = self.read()
        if line is None:
            raise StopIteration
        if len(line) > MAX_BYTES:
            raise MalformedError('record is too long')
        return _decoded(line)


# Ends of the names of Parquet files.
SUFFIXES = ('.parquet', '.pq')
FORM = JsonLines('client', 'text')
_ROWS = 10_000
_READER = 'from dpfl.tasks.text.files import record_files; record_files.read_in_child()'
# Line for a text that is not valid UTF-8; the line is not valid either.
_NOT_UTF8 = b'\xff\n'


def to_json_lines(path: pathlib.Path, client_column: str, text_column: str) -> BinaryIO:
    """Writes one line per row, in order, in the format `FORM`.

    A value that is neither text nor a number makes its record malformed, as in JSON Lines.

    Args:
      path: path of the Parquet file.
      client_column: name of the column with the client's key.
      text_column: name of the column with the text.

    Returns:
      An unnamed file in the directory for temporary files, open for reading at its start.

    Raises:
      ValueError: if pyarrow is not installed (argument `data_path`), if the file is not a complete
        Parquet file (`data_path`), or lacks a column (the column's argument).
      OSError: if the file cannot be read, or the disk is full.
    """
    if importlib.util.find_spec('pyarrow') is None:
        raise errors.ArgumentError(
            'data_path', errors.NOT_SHOWN, 'Parquet needs the package pyarrow'
        )
    with _files.open_regular(path) as source, contextlib.ExitStack() as on_failure:
        lines = on_failure.enter_context(tempfile.TemporaryFile(prefix='dpfl-'))
        if failure := _convert_in_child(source, lines, client_column, text_column):
            _raise(failure)
        on_failure.pop_all()
    lines.seek(0)
    return lines


def _convert_in_child(
    source: BinaryIO, lines: BinaryIO, client_column: str, text_column: str
) -> dict[str, Any] | None:
    """As `_convert`, in a child process, which a damaged file may end."""
    with tempfile.TemporaryFile(prefix='dpfl-') as answer:
        done = subprocess.run(
            [sys.executable, '-c', _READER, str(answer.fileno()), client_column, text_column],
            stdin=source,
            stdout=lines,
            pass_fds=[answer.fileno()],
            check=False,
            env=os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))},
        )
        answer.seek(0)
        failure = answer.read()
    if status := done.returncode:
        reason = f'the reader ended with {f"signal {-status}" if status < 0 else status}'
        return {'name': 'data_path', 'allowed': f'is not a complete Parquet file ({reason})'}
    return json.loads(failure) if failure else None


def read_in_child() -> None:
    """Main function of the child process: reads Parquet on stdin, writes JSON Lines to stdout.

    Command-line arguments are a file descriptor and the names of the two columns. If anything fails
    it writes the reason to the descriptor as JSON, for `_raise`.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The parent process reports the interrupt.
    descriptor, client_column, text_column = sys.argv[1:]
    with (
        open(int(descriptor), 'wb') as answer,
        open(0, 'rb', closefd=False) as source,
        open(1, 'wb', closefd=False) as lines,
    ):
        if failure := _convert(source, lines, client_column, text_column):
            answer.write(json.dumps(failure).encode())


def _raise(failure: dict[str, Any]) -> NoReturn:
    """Raises the error that the child process has described."""
    if 'errno' in failure:
        raise OSError(failure['errno'], os.strerror(failure['errno']))
    value = failure.get('value', errors.NOT_SHOWN)
    raise errors.ArgumentError(failure['name'], value, failure['allowed'])


def _convert(
    source: BinaryIO, lines: BinaryIO, client_column: str, text_column: str
) -> dict[str, Any] | None:
    """Writes the rows of a Parquet file as lines. Returns a description of the error, or None."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(source)
        columns = [
            _column(table, 'client_column', client_column),
            _column(table, 'text_column', text_column),
        ]
        _write(table, columns, lines)
    except (pyarrow.ArrowException, OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            return {'errno': error.errno}
        reason = f'is not a complete Parquet file ({errors.shown(error)})'
        return {'name': 'data_path', 'allowed': reason}
    except errors.ArgumentError as error:
        return {'name': error.name, 'value': error.value, 'allowed': error.allowed}
    except ValueError as error:
        return {'name': 'data_path', 'allowed': errors.shown(error)}
    return None


def _column(table: Any, argument: str, name: str) -> str:
    """Returns the name of a column after checking that there is exactly one."""
    names = table.schema_arrow.names
    if names.count(name) != 1:
        raise errors.ArgumentError(argument, name, one_of(names))
    kind = table.schema_arrow.field(name).type
    if argument == 'text_column' and not _is_text(kind):
        raise errors.ArgumentError(argument, name, f'must be a column of text, not of {kind}')
    return name


def _is_text(kind: Any) -> bool:
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_null)
    return any(test(kind) for test in tests)


def _write(table: Any, columns: list[str], lines: BinaryIO) -> None:
    with _progress.bar(
        total=table.metadata.num_rows,
        desc='parquet',
        unit='row',
        unit_scale=True,
        delay=2,
        leave=False,
    ) as bar:
        for batch in table.iter_batches(batch_size=_ROWS, columns=columns):
            values = [_values(batch.column(name)) for name in columns]
            for client, text in zip(*values, strict=True):
                lines.write(_line(client, text))
            bar.update(batch.num_rows)
    lines.flush()


def _values(column: Any) -> list:
    """The values of a column; text as bytes, since Parquet does not check its encoding."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_string(column.type):
        column = column.cast(pyarrow.binary())
    elif pyarrow.types.is_large_string(column.type):
        column = column.cast(pyarrow.large_binary())
    elif not (
        pyarrow.types.is_integer(column.type)
        or pyarrow.types.is_floating(column.type)
        or pyarrow.types.is_null(column.type)
    ):
        # Other values may have no Python equivalent, such as times after the year 9999.
        return [[] if valid else None for valid in column.is_valid().to_pylist()]
    return column.to_pylist()


def _line(client: Any, text: Any) -> bytes:
    try:
        client, text = (v.decode() if isinstance(v, bytes) else v for v in (client, text))
    except UnicodeDecodeError:
        return _NOT_UTF8
    # A list is neither text nor number, so the reader counts the record as malformed.
    record = json.dumps({'client': client, 'text': text}, default=lambda value: [])
    return f'{record}\n'.encode()
