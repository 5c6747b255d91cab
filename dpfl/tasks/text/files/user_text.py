"""Reads any file of texts that has one column for the client and one for the text.

Only the positions of records are kept in memory. The texts of a client are read when the client is
trained on. Clients are numbered in the order of the digests of their keys (`record_index`), so the
first clients are a random sample; they are held out.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from dpfl import _files, errors
from dpfl.errors import DataError
from dpfl.tasks import held_out
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.files import record_files, record_index
from dpfl.tasks.text.word_clients import WordClients


def open_clients(
    path: str | os.PathLike[str],
    client_column: str,
    text_column: str,
    heldout_fraction: float,
    strict: bool = False,
) -> tuple[WordClients, WordClients, dict[str, Any], str]:
    """Opens and indexes a file.

    Args:
      path: path of the file. The suffix decides the format: `.jsonl`, `.ndjson` or `.json` (one
        JSON object per line), `.csv`, or `.parquet` or `.pq` (the two columns are copied to an
        unnamed temporary file for as long as the process runs).
      client_column: name of the column with the client's key.
      text_column: name of the column with the text.
      heldout_fraction: share of the clients to hold out.
      strict: raise an error at the first malformed record, instead of skipping and counting them.

    Returns:
      Training clients, held-out clients, a description of the file as JSON values, and the SHA-256
      of its bytes. The digest must never be written to disk: anyone who has it can test guesses at
      the texts.

    Raises:
      ValueError: if the file cannot be used; the argument named is `data_path` or the one at fault.
    """
    path = pathlib.Path(path)
    try:
        name, texts = _open(path, client_column, text_column)
    except OSError as error:
        raise errors.ArgumentError(
            'data_path', path, f'cannot be read ({error.strerror})'
        ) from None
    except errors.ArgumentError as error:
        if error.name != 'data_path':
            raise
        raise errors.ArgumentError('data_path', path, error.allowed) from None
    index, summary = texts.index, texts.index.summary
    if strict and summary.first_malformed is not None:
        line, reason = summary.first_malformed
        raise errors.ArgumentError('data_path', path, f'line {line} is malformed: {reason}')
    count = index.num_clients
    if count < 2:
        if not count and (missing := _missing(path, client_column, text_column)) is not None:
            raise missing
        raise errors.ArgumentError(
            'data_path',
            path,
            f'must have texts of at least 2 clients, has {count}{_left_out(summary)}',
        )
    num_heldout = held_out.count(count, heldout_fraction)
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
    """The name of the format, and the texts."""
    suffix = path.suffix.lower()
    if suffix in record_files.SUFFIXES:
        status = os.stat(path)
        summary = record_index.Summary(
            status.st_size, status.st_mtime_ns, record_index.sha256(path)
        )
        lines = record_files.to_json_lines(path, client_column, text_column)
        index = record_index.build(lines, record_files.FORM, summary)
        return 'parquet', _Texts(path, index, lines, record_files.FORM.parser(lines), None)
    format_class = record_files.FORMATS.get(suffix)
    if format_class is None:
        allowed = ', '.join([*record_files.FORMATS, *record_files.SUFFIXES])
        raise errors.ArgumentError(
            'data_path', errors.NOT_SHOWN, f'must be a file whose name ends in one of {allowed}'
        )
    form = format_class(client_column, text_column)
    index = record_index.index_file(path, form)
    file, stamp = _files.open_regular(path), (index.summary.size, index.summary.mtime_ns)
    return form.name, _Texts(path, index, file, form.parser(file), stamp)


def _missing(
    path: pathlib.Path, client_column: str, text_column: str
) -> errors.ArgumentError | None:
    """The error about a column that JSON Lines do not have; other formats are known to have it."""
    form = record_files.FORMATS.get(path.suffix.lower())
    if form is not record_files.JsonLines:
        return None
    with _files.open_regular(path) as file:
        return record_files.JsonLines(client_column, text_column).missing(file)


def _left_out(summary: record_index.Summary) -> str:
    """A phrase in brackets that says which records were left out, or nothing."""
    if summary.first_malformed is None:
        return ''
    line, reason = summary.first_malformed
    return f' ({summary.num_malformed} malformed records; the first is in line {line}: {reason})'


@dataclasses.dataclass(frozen=True)
class _Texts:
    """The texts of an indexed file that is open.

    Attributes:
      path: path of the file, for messages.
      index: index of its records.
      file: open file with the records.
      parse: maps the bytes of a record to (client, text).
      stamp: size and modification time of `file` when it was indexed; None if no other process can
        change it.
    """

    path: pathlib.Path
    index: record_index.RecordIndex
    file: BinaryIO
    parse: Callable[[bytes], tuple[str, str]]
    stamp: tuple[int, int] | None

    def sentences(self, client: int) -> Iterator[list[str]]:
        """The sentences of a client. Raises DataError if the file has changed since."""
        descriptor = self.file.fileno()
        status = os.fstat(descriptor)
        if self.stamp not in (None, (status.st_size, status.st_mtime_ns)):
            raise DataError(f'{self.path}: has changed since it was indexed')
        try:
            for record in self.index.records(descriptor, client):
                yield from tokenization.sentences(self.parse(record)[1])
        except OSError as error:
            raise DataError(f'{self.path}: {error.strerror}') from None
        except record_files.MalformedError as error:
            raise DataError(f'{self.path}: has changed since it was indexed ({error})') from None
