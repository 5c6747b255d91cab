"""Streams columns of a Parquet file as CSV, which a child process writes."""

import contextlib
import os
from collections.abc import Iterator
from typing import IO, Any, BinaryIO

from dpfl import _files, _parquet

_ROWS = 1 << 16
_CHILD = (
    'from dpfl import _parquet; from dpfl.participation import parquet_csv; '
    '_parquet.in_child(parquet_csv.write)'
)


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
