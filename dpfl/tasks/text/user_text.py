"""Anyone's texts: a file with a column for the client and one for the text.

Only positions of records are in memory, never the texts: those of a client are read when it is its
turn. Clients are numbered in the order of the digests of their keys (`record_index`); the first of
them, a random share, are held out.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from dpfl import _files, errors
from dpfl.errors import DataError
from dpfl.tasks.text import parquet_records, record_files, record_index, tokenization
from dpfl.tasks.text.word_clients import WordClients, share_of_heldout

_PARQUET = ('.parquet', '.pq')


def open_clients(
    path, client_column: str, text_column: str, heldout_fraction: float, strict: bool = False
) -> tuple[WordClients, WordClients, dict, str]:
    """Training clients, held-out clients, what the file has, and the SHA-256 of its bytes.

    The digest has no key, and must not be written anywhere: it is a test of guesses at the texts.

    Args:
      path: of the file; its name says the format: `.jsonl`, `.ndjson`, `.json` (all of them one
        JSON object in a line), `.csv`, or `.parquet`, `.pq` (whose two columns are copied to the
        directory for temporary files while the process lasts).
      client_column: name of the client's key.
      text_column: name of the text.
      heldout_fraction: share of the clients that are held out.
      strict: whether one malformed record is an error; otherwise they are left out, and counted.

    Raises:
      ValueError: if the file cannot be used; the message begins with `data_path` or the name of
        another argument.
    """
    path = pathlib.Path(path)
    try:
        name, texts = _open(path, client_column, text_column)
    except OSError as error:
        raise errors.ArgumentError(
            'data_path', path, f'cannot be read ({error.strerror})'
        ) from None
    except ValueError as error:
        if str(error).startswith('data_path: '):
            raise errors.ArgumentError('data_path', path, f'{str(error)[11:]}') from None
        raise
    index, summary = texts.index, texts.index.summary
    if strict and summary.first_malformed is not None:
        line, reason = summary.first_malformed
        raise errors.ArgumentError('data_path', path, f'line {line} is malformed: {reason}')
    count = index.num_clients
    if count < 2:
        raise errors.ArgumentError(
            'data_path',
            path,
            f'must have texts of at least 2 clients, has those of {count}{_left_out(summary)}',
        )
    num_heldout = share_of_heldout(count, heldout_fraction)
    clients = WordClients(count, texts.sentences)
    description = {
        'format': name,
        'clients': {'training': count - num_heldout, 'heldout': num_heldout},
        'records': summary.records,
        'left_out': {'empty': summary.empty, **summary.malformed},
    }
    if summary.first_malformed is not None:
        line, reason = summary.first_malformed
        description['first_malformed'] = f'line {line}: {reason}'
    return (
        clients.slice(num_heldout, count),
        clients.slice(0, num_heldout),
        description,
        summary.sha256,
    )


def _open(path: pathlib.Path, client_column: str, text_column: str) -> tuple[str, '_Texts']:
    """Name of the format, and the texts."""
    suffix = path.suffix.lower()
    if suffix in _PARQUET:
        status = os.stat(path)
        summary = record_index.Summary(
            status.st_size, status.st_mtime_ns, record_index.sha256(path)
        )
        lines = parquet_records.to_json_lines(path, client_column, text_column)
        index = record_index.build(lines, parquet_records.FORM, summary)
        return 'parquet', _Texts(path, index, lines, parquet_records.FORM.parser(lines), None)
    if suffix not in record_files.FORMATS:
        allowed = ', '.join([*record_files.FORMATS, *_PARQUET])
        raise errors.ArgumentError(
            'data_path', errors.NOT_SHOWN, f'must be a file whose name ends in one of {allowed}'
        )
    form = record_files.FORMATS[suffix](client_column, text_column)
    index = record_index.index_file(path, form)
    file, stamp = _files.open_regular(path), (index.summary.size, index.summary.mtime_ns)
    return form.name, _Texts(path, index, file, form.parser(file), stamp)


def _left_out(summary: record_index.Summary) -> str:
    """What was left out, in words that follow a sentence."""
    if summary.first_malformed is None:
        return ''
    line, reason = summary.first_malformed
    return f' ({summary.num_malformed} malformed records; the first is in line {line}: {reason})'


@dataclasses.dataclass(frozen=True)
class _Texts:
    """The texts of an indexed file that is open.

    Attributes:
      path: by which it is known.
      index: of its records.
      file: that has the records.
      parse: from a record to client and text.
      stamp: size and time of modification that `file` had; None if nobody else can change it.
    """

    path: pathlib.Path
    index: record_index.RecordIndex
    file: BinaryIO
    parse: Callable[[bytes], tuple[str, str]]
    stamp: tuple[int, int] | None

    def sentences(self, client: int) -> Iterator[list[str]]:
        descriptor = self.file.fileno()
        status = os.fstat(descriptor)
        if self.stamp not in (None, (status.st_size, status.st_mtime_ns)):
            raise DataError(f'{self.path}: has changed since it was indexed')
        first, last = self.index.starts[client], self.index.starts[client + 1]
        for record in range(first, last):
            try:
                data = os.pread(
                    descriptor, int(self.index.lengths[record]), int(self.index.offsets[record])
                )
                _, text = self.parse(data)
            except OSError as error:
                raise DataError(f'{self.path}: {error.strerror}') from None
            except record_files.MalformedError as error:
                raise DataError(
                    f'{self.path}: has changed since it was indexed ({error})'
                ) from None
            yield from tokenization.sentences(text)
