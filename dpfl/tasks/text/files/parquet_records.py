"""Converts the records (client, text) of a Parquet file to JSON Lines, in an unnamed file.

A single record of a Parquet file cannot be read without decoding thousands of others. So the file
is read once, in parts, and the two columns are written to a temporary file that disappears with the
process.

pyarrow is written in C++, and a damaged file can crash it: it runs in a child process.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Any, BinaryIO, NoReturn

from dpfl import _files, _progress, errors
from dpfl.tasks.text.files import record_files

# Ends of the names of Parquet files.
SUFFIXES = ('.parquet', '.pq')
FORM = record_files.JsonLines('client', 'text')
_ROWS = 10_000
_READER = 'from dpfl.tasks.text.files import parquet_records; parquet_records.read_in_child()'
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
        if done.returncode:
            status = done.returncode
            reason = f'the reader ended with {f"signal {-status}" if status < 0 else status}'
            raise errors.ArgumentError(
                'data_path', errors.NOT_SHOWN, f'is not a complete Parquet file ({reason})'
            )
        if failure:
            _raise(json.loads(failure))
        on_failure.pop_all()
    lines.seek(0)
    return lines


def read_in_child() -> None:
    """Main function of the child process: reads Parquet on stdin, writes JSON Lines to stdout.

    Command-line arguments are a file descriptor and the names of the two columns. If anything fails
    it writes the reason to the descriptor as JSON, for `_raise`.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The parent process reports the interrupt.
    descriptor, client_column, text_column = sys.argv[1:]
    with open(int(descriptor), 'wb') as answer:
        if failure := _failure(client_column, text_column):
            answer.write(json.dumps(failure).encode())


def _raise(failure: dict[str, Any]) -> NoReturn:
    """Raises the error that the child process has described."""
    if 'errno' in failure:
        raise OSError(failure['errno'], os.strerror(failure['errno']))
    value = failure.get('value', errors.NOT_SHOWN)
    raise errors.ArgumentError(failure['name'], value, failure['allowed'])


def _failure(client_column: str, text_column: str) -> dict[str, Any] | None:
    """Converts the file. Returns a description of the error if this fails."""
    import pyarrow
    from pyarrow import parquet

    try:
        with open(0, 'rb', closefd=False) as source, open(1, 'wb', closefd=False) as lines:
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
        raise errors.ArgumentError(argument, name, record_files.one_of(names))
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
