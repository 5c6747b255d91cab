"""Records (client, text) of Parquet files, as JSON Lines that are gone with the process.

Parquet has no place for a record: what a client wrote would be decoded again with thousands of
others' texts. So a file is read once, in parts, and what is needed of it is written to a file
without a name.

The package that decodes Parquet is written in C++, and a damaged file can end its process: it works
in a process of its own.
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
from typing import BinaryIO

import tqdm

from dpfl import _files, errors
from dpfl.tasks.text import record_files

FORM = record_files.JsonLines('client', 'text')
_ROWS = 10_000
_READER = 'from dpfl.tasks.text import parquet_records; parquet_records.read_in_child()'
# Of a text that is not UTF-8: neither is this line.
_NOT_UTF8 = b'\xff\n'


def to_json_lines(path: pathlib.Path, client_column: str, text_column: str) -> BinaryIO:
    """A line for each row, in the order of the rows, as `FORM` reads them.

    Values that are neither text nor numbers make a malformed record, as they do in JSON Lines.

    Args:
      path: of the Parquet file.
      client_column, text_column: names of its columns.

    Returns:
      A file for reading at its start, in the directory for temporary files, without a name.

    Raises:
      ValueError: if pyarrow is not there, if it is no Parquet file, or lacks a column; the message
        begins with `data_path` or the flag of the column.
      OSError: if the file cannot be read, or there is no room for the lines.
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
            failure = answer.read().decode()
        if done.returncode:
            status = done.returncode
            reason = f'its reader ended with {f"signal {-status}" if status < 0 else status}'
            raise errors.ArgumentError(
                'data_path', errors.NOT_SHOWN, f'is no whole Parquet file ({reason})'
            )
        if failure.isdecimal():
            raise OSError(int(failure), os.strerror(int(failure)))
        if failure:
            raise ValueError(failure)
        on_failure.pop_all()
    lines.seek(0)
    return lines


def read_in_child() -> None:
    """The process that reads: from standard input to standard output.

    Its arguments are a descriptor, and the names of the columns. To the descriptor it writes what
    went wrong, if anything: a message, or the number of an error of the system.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The process that waits says what happened.
    descriptor, client_column, text_column = sys.argv[1:]
    with open(int(descriptor), 'wb') as answer:
        answer.write(_failure(client_column, text_column).encode('utf-8', 'backslashreplace'))


def _failure(client_column: str, text_column: str) -> str:
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
            return str(error.errno)
        return f'data_path: is no whole Parquet file ({errors.shown(error)})'
    except ValueError as error:
        return errors.shown(error)
    return ''


def _column(table, flag: str, name: str) -> str:
    names = table.schema_arrow.names
    if names.count(name) != 1:
        raise errors.ArgumentError(flag, name, f'must be one of the {len(names)} columns')
    return name


def _write(table, columns: list[str], lines: BinaryIO) -> None:
    with tqdm.tqdm(
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


def _values(column) -> list:
    """Python's values; text as bytes, since its encoding is not checked by Parquet."""
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
        # Other values need not have a form in Python: times beyond the year 9999, for instance.
        return [[] if valid else None for valid in column.is_valid().to_pylist()]
    return column.to_pylist()


def _line(client, text) -> bytes:
    try:
        client, text = (v.decode() if isinstance(v, bytes) else v for v in (client, text))
    except UnicodeDecodeError:
        return _NOT_UTF8
    # A list is no text and no number: such a record is malformed when it is read.
    record = json.dumps({'client': client, 'text': text}, default=lambda value: [])
    return f'{record}\n'.encode()
