"""Streams columns of a Parquet file as CSV.

pyarrow is written in C++, and a damaged file can crash it: it runs in a child process, which writes
the rows to a pipe. So no more than a few row groups are in memory.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any

from dpfl import _files

SUFFIXES = ('.parquet', '.pq')
_ROWS = 1 << 16
_CHILD = 'from dpfl.participation import parquet_csv; parquet_csv.write_in_child()'


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
    if importlib.util.find_spec('pyarrow') is None:
        raise ValueError('Parquet needs the package pyarrow')
    with _files.open_regular(path) as source:
        child = subprocess.Popen(
            [sys.executable, '-c', _CHILD, *columns],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path))},
        )
        assert child.stdout is not None  # It is a pipe.
        try:
            yield child.stdout
            is_read = True
        except ValueError:
            # If the rows end here, they may be wrong because the child failed.
            is_read = not child.stdout.read(1)
            if not (is_read and child.wait()):
                raise
        except BaseException:
            is_read = False
            raise
        finally:
            if not is_read:
                child.kill()
            child.stdout.close()
            status = child.wait()
        if status:
            raise ValueError('is not a complete Parquet file, or has columns of other types')


def write_in_child() -> None:
    """Main function of the child process: reads Parquet on stdin, writes CSV to stdout."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The parent process reports the interrupt.
    from pyarrow import csv, parquet

    with open(0, 'rb', closefd=False) as source, open(1, 'wb', closefd=False) as rows:
        table = parquet.ParquetFile(source)
        names = [name for name in table.schema_arrow.names if name.lower() in sys.argv[1:]]
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
