"""Reads the records (client, text) of JSON Lines, CSV and Parquet files.

A client's key is a string or a number. The number 7 and the string "7" are the same client, so that
nobody is counted as two. Records that cannot be read are malformed; the reason quotes nothing of
them. JSON Lines and CSV files are UTF-8, with or without a byte order mark; lines end with LF or
CRLF. The rows of a Parquet file come from a child process as JSON Lines.
"""

import codecs
import contextlib
import csv
import errno
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, BinaryIO, NamedTuple

from dpfl import _parquet, errors

# Longest record in bytes. Longer ones are malformed, which bounds the memory that readers need.
MAX_BYTES = 1 << 22

# How many columns a message names, and how many letters of each.
_MOST_NAMES, _MOST_LETTERS = 12, 40

# Rows of a Parquet file that are converted at a time, and the program that does it.
_ROWS = 10_000
_READER = (
    'from dpfl import _parquet; from dpfl.tasks.text import record_files; '
    '_parquet.in_child(record_files.write_json)'
)
# Why a record without a client's key is malformed.
NO_CLIENT = 'no client id'
# Line for a text that is not valid UTF-8; the line is not valid either.
_NOT_UTF8 = b'\xff\n'


class MalformedError(ValueError):
    """A record cannot be read. The message is the reason, and quotes nothing of the record."""


class Record(NamedTuple):
    """One record of a file.

    Attributes:
      line: number of its first line, from 1; in a Parquet file of its row.
      client: key of the client.
      text: text that the client wrote.
      reason: why the record is malformed, and has neither client nor text; empty if it is not.
    """

    line: int
    client: str = ''
    text: str = ''
    reason: str = ''


@contextlib.contextmanager
def refusing(name: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Context in which the errors of a file that cannot be read are `ArgumentError`s.

    Args:
      name: argument that the errors name.
      path: its value.
    """
    try:
        yield
    except errors.ArgumentError:
        raise
    except OSError as error:
        is_full = error.errno == errno.ENOSPC
        done = 'copied to the directory for temporary files, TMPDIR' if is_full else 'read'
        raise errors.ArgumentError(name, path, f'cannot be {done} ({error.strerror})') from None
    except ValueError as error:
        raise errors.ArgumentError(name, path, str(error)) from None


def json_lines(file: IO[bytes], client_column: str, text_column: str) -> Iterator[Record]:
    """The records of JSON Lines: one object per line; blank lines are skipped.

    Args:
      file: open for reading, at its start.
      client_column: key of the client in the objects.
      text_column: key of the text.

    Raises:
      ArgumentError: at the end, if there is no record because a column is missing; it names the
        column's argument, and shows the keys that all of several objects have. Those of one object
        may be ids of clients.
    """
    keys: list[str] | None = None
    objects, has_records = 0, False
    for number, line in enumerate(_lines(file), 1):
        if line.isspace():
            continue
        try:
            value = _object(line)
            keys = [key for key in (value if keys is None else keys) if key in value]
            objects += 1
            text = value.get(text_column)
            if not isinstance(text, str):
                raise MalformedError('no text' if text is None else 'text is not a string')
            record = Record(number, _client_key(value.get(client_column)), text)
        except MalformedError as error:
            yield Record(number, reason=str(error))
        else:
            has_records = True
            yield record
    if objects and not has_records:
        hidden = '' if objects > 1 else 'of the only object (not shown: they may be ids)'
        _check_columns(keys or [], client_column, text_column, hidden)


def csv_rows(file: IO[bytes], client_column: str, text_column: str) -> Iterator[Record]:
    """The records of comma-separated values with a header. Quoted fields may contain line breaks.

    Args:
      file, client_column, text_column: as in `json_lines`.

    Raises:
      ArgumentError: if there is not one of each column; it names the column's argument.
      ValueError: if there is no header, or a record that is no CSV is more than one line, or may
        be. A quote that is never closed takes the texts of other clients: nothing after it is used.
    """
    csv.field_size_limit(MAX_BYTES)
    number = size = 0  # Lines that were read, and the bytes of those of the current record.
    may_be_open = False  # Whether a quote may be open at the end of the last line.

    def checked(line: bytes) -> str:
        nonlocal number, size, may_be_open
        number, size = number + 1, size + len(line)
        may_be_open = size > MAX_BYTES or line.count(b'"') % 2 == 1
        if size > MAX_BYTES:
            raise MalformedError('record is too long')
        return _decoded(line)

    lines = map(checked, _lines(file))  # Goes on after an error, as no generator does.
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
    except (csv.Error, MalformedError):
        raise ValueError('must begin with a header of column names') from None
    hidden = 'that the first row names (not shown: it may be a row of a client)'
    _check_columns(header, client_column, text_column, hidden)
    client, text = header.index(client_column), header.index(text_column)
    while True:
        first, size = number + 1, 0
        try:
            row = next(reader, None)
            if row and len(row) != len(header):
                raise MalformedError('number of fields differs from the header')
        except (csv.Error, MalformedError) as error:
            reason = str(error) if isinstance(error, MalformedError) else 'not CSV'
            if number > first or may_be_open:
                message = f'line {first} cannot be read: {reason}; is a quote open?'
                raise ValueError(message) from None
            yield Record(first, reason=reason)
            reader = csv.reader(lines, strict=True)
            continue
        if row is None:
            return
        if not row:
            continue
        try:
            yield Record(first, _client_key(row[client]), row[text])
        except MalformedError as error:
            yield Record(first, reason=str(error))


def parquet_rows(file: BinaryIO, client_column: str, text_column: str) -> Iterator[Record]:
    """The records of a Parquet file.

    A value that is neither text nor a number makes its record malformed, as in JSON Lines.

    Args:
      file, client_column, text_column: as in `json_lines`.

    Raises:
      ArgumentError: if the file lacks a column; it names the column's argument.
      ValueError: if pyarrow is not installed, or the file is not a complete Parquet file.
    """
    try:
        with _parquet.rows(file, _READER, client_column, text_column) as lines:
            yield from json_lines(lines, 'client', 'text')
    except _parquet.FailedError as error:
        try:
            name, value, allowed = json.loads(error.said.splitlines()[-1])
        except (ValueError, IndexError, TypeError):
            by = f'signal {-error.status}' if error.status < 0 else error.status
            raise ValueError(f'{error} (the reader ended with {by})') from None
        if name:
            raise errors.ArgumentError(name, value, allowed) from None
        raise ValueError(allowed) from None


FORMATS: dict[str, tuple[str, Callable[..., Iterator[Record]]]] = {
    **dict.fromkeys(('.jsonl', '.ndjson', '.json'), ('jsonl', json_lines)),
    '.csv': ('csv', csv_rows),
    **dict.fromkeys(_parquet.SUFFIXES, ('parquet', parquet_rows)),
}


def _check_columns(
    names: Sequence[str], client_column: str, text_column: str, hidden: str = ''
) -> None:
    """Checks that there is one column of each name, and shows the names unless they are hidden.

    Without a header, the first row of CSV has the id and the text of a client.

    Args:
      names: of the columns.
      client_column, text_column: names that there must be.
      hidden: what to say of the names instead of them.
    """
    for flag, name in (('client_column', client_column), ('text_column', text_column)):
        if names.count(name) != 1:
            allowed = f'must be one of the {len(names)} columns'
            if names and not hidden:
                some = [errors.shown(column, _MOST_LETTERS) for column in names[:_MOST_NAMES]]
                more = ['...'] if len(names) > _MOST_NAMES else []
                allowed += f': {", ".join([*some, *more])}'
            elif names:
                allowed += f' {hidden}'
            raise errors.ArgumentError(flag, name, allowed)


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_BYTES:
        raise MalformedError('record is too long')
    try:
        value = json.loads(_decoded(line), object_pairs_hook=_with_each_key_once)
    except MalformedError:
        raise
    except (ValueError, RecursionError):
        raise MalformedError('not JSON') from None
    if not isinstance(value, dict):
        raise MalformedError('not a JSON object')
    return value


def _with_each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Readers differ in which of two values of one key counts."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise MalformedError('a key occurs twice')
    return value


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
        raise MalformedError(NO_CLIENT)
    raise MalformedError('client id is neither a string nor a number')


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file with their line ends; of a line that is too long the beginning."""
    mark = codecs.BOM_UTF8
    while line := file.readline(MAX_BYTES + len(mark) + 1).removeprefix(mark):
        mark = b''
        if len(line) > MAX_BYTES:
            rest = line
            while rest and not rest.endswith(b'\n'):
                rest = file.readline(MAX_BYTES)
        yield line


def write_json(source: BinaryIO, lines: BinaryIO, client_column: str, text_column: str) -> None:
    """Writes the rows of a Parquet file as lines, in the child process.

    If that fails, it ends the process. Its last line on standard error is for `parquet_rows`: the
    argument at fault, its value, and what is allowed.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(source)
        schema = table.schema_arrow
        _check_columns(schema.names, client_column, text_column)
        if not _is_text(kind := schema.field(text_column).type):
            allowed = f'must be a column of text, not of {kind}'
            raise errors.ArgumentError('text_column', text_column, allowed)
        columns = [client_column, text_column]
        for batch in table.iter_batches(batch_size=_ROWS, columns=columns):
            lines.writelines(map(_line, *(_values(batch.column(name)) for name in columns)))
        return
    except errors.ArgumentError as error:
        failure = error.name, error.value, error.allowed
    except (pyarrow.ArrowException, OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            failure = '', '', f'cannot be read ({os.strerror(error.errno)})'
        else:
            failure = '', '', f'is not a complete Parquet file ({errors.shown(error)})'
    except ValueError as error:
        failure = '', '', errors.shown(error)
    sys.exit(json.dumps(failure))


def _is_text(kind: Any) -> bool:
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    is_of = pyarrow.types
    tests = (is_of.is_string, is_of.is_large_string, is_of.is_string_view, is_of.is_null)
    return any(test(kind) for test in tests)


def _values(column: Any) -> list:
    """The values of a column; text as bytes, since Parquet does not check its encoding."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        column = column.cast(pyarrow.large_binary())
    elif not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)):
        # Other values may have no Python equivalent, such as times after the year 9999.
        return [[] if valid else None for valid in column.is_valid().to_pylist()]
    return column.to_pylist()


def _line(client: Any, text: Any) -> bytes:
    values = {'client': client, 'text': text}
    try:
        return f'{json.dumps(values, ensure_ascii=False, default=_plain)}\n'.encode()
    except UnicodeDecodeError:
        return _NOT_UTF8


def _plain(value: Any) -> Any:
    # A list is neither text nor number, so the reader counts the record as malformed.
    return value.decode() if isinstance(value, bytes) else []
