"""Reads any file of texts that has one column for the client and one for the text.

The file is read once. Its texts are copied to an unnamed temporary file, from which those of a
client are read when the client is trained on. Clients are numbered in the order of the digests of
their keys (`client_texts`), so the first clients are a random sample; they are held out.
"""

import collections
import dataclasses
import errno
import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from dpfl import _files, _progress, errors
from dpfl.errors import DataError
from dpfl.tasks import federated_task
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.files import record_files
from dpfl.tasks.text.files.client_texts import ClientTexts
from dpfl.tasks.text.word_clients import WordClients

# Bytes of a file that are digested at a time.
_BLOCK = 1 << 20


def open_clients(
    path: str | os.PathLike[str],
    client_column: str,
    text_column: str,
    heldout_fraction: float,
    strict: bool = False,
) -> tuple[WordClients, WordClients, dict[str, Any], str]:
    """Opens and reads a file.

    Args:
      path: path of the file. The suffix decides the format: `.jsonl`, `.ndjson` or `.json` (one
        JSON object per line), `.csv`, or `.parquet` or `.pq`.
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
    suffix, left_out = path.suffix.lower(), _LeftOut()
    try:
        if suffix not in record_files.FORMATS:
            raise ValueError(
                f'must be a file whose name ends in one of {", ".join(record_files.FORMATS)}'
            )
        name, scan = record_files.FORMATS[suffix]
        with _files.open_regular(path) as file:
            before = os.fstat(file.fileno())
            digest = _sha256(file)
            file.seek(0)
            records = scan(file, client_column, text_column)
            bar = _progress.bar(records, 'texts', unit='record', delay=2, leave=False)
            texts = ClientTexts(left_out.others(bar, strict))
            after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ValueError('has changed while it was read')
        count = texts.num_clients
        if count < 2:
            raise ValueError(f'must have texts of at least 2 clients, has {count}{left_out.noted}')
    except OSError as error:
        is_full = error.errno == errno.ENOSPC
        done = 'copied to the directory for temporary files, TMPDIR' if is_full else 'read'
        allowed = f'cannot be {done} ({error.strerror})'
        raise errors.ArgumentError('data_path', path, allowed) from None
    except errors.ArgumentError:
        raise
    except ValueError as error:
        raise errors.ArgumentError('data_path', path, str(error)) from None

    def sentences(client: int) -> Iterator[list[str]]:
        try:
            for text in texts.of_client(client):
                yield from tokenization.sentences(text)
        except OSError as error:
            raise DataError(f'{path}: its copy cannot be read ({error.strerror})') from None

    num_heldout = federated_task.num_held_out(count, heldout_fraction)
    clients = WordClients(count, sentences)
    description = {
        'format': name,
        'clients': {'training': count - num_heldout, 'heldout': num_heldout},
        'records': texts.num_texts,
        'left_out': dict(left_out.counts),
    }
    if left_out.first_malformed:
        description['first_malformed'] = left_out.first_malformed
    training, heldout = clients.slice(num_heldout, count), clients.slice(0, num_heldout)
    return training, heldout, description, digest


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


@dataclasses.dataclass
class _LeftOut:
    """Records that are left out.

    Attributes:
      counts: how many have blank text (`empty`), and how many are malformed, by reason.
      first_malformed: line and reason of the first malformed record; empty if there is none.
    """

    counts: collections.Counter[str] = dataclasses.field(
        default_factory=lambda: collections.Counter(empty=0)
    )
    first_malformed: str = ''

    def others(
        self, records: Iterable[record_files.Record | record_files.BadRecord], strict: bool
    ) -> Iterator[tuple[str, str]]:
        """Client and text of the other records; counts those that are left out.

        Raises:
          ValueError: at the first malformed record if `strict`.
        """
        for record in records:
            if isinstance(record, record_files.BadRecord):
                if strict:
                    raise ValueError(f'line {record.line} is malformed: {record.reason}')
                self.counts[record.reason] += 1
                self.first_malformed = (
                    self.first_malformed or f'line {record.line}: {record.reason}'
                )
            elif not record.text or record.text.isspace():
                self.counts['empty'] += 1
            else:
                yield record.client, record.text

    @property
    def noted(self) -> str:
        """A phrase in brackets about malformed records, or nothing."""
        if not self.first_malformed:
            return ''
        malformed = self.counts.total() - self.counts['empty']
        return f' ({malformed} malformed records; the first is in {self.first_malformed})'
