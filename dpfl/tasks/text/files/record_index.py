"""Indexes the records of a file of texts by client, in one pass, and caches the index on disk.

An index contains neither texts nor client keys. Keys are replaced by digests, and clients are
numbered in the order of the digests. So the numbering does not depend on the order of the records,
memory does not depend on the length of the keys, and the first clients are a random sample of all.

A cached index is readable by its owner only: it contains the size and the digest of the file and
the length of every record, which allow to test guesses at single records.
"""

import array
import collections
import dataclasses
import hashlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from dpfl import _cache, _files, _json, _npz, _progress
from dpfl.tasks.text.files import record_files

# Version of the cached files; part of the cache key.
_VERSION = 1
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Summary:
    """Facts about an indexed file.

    Attributes:
      size: size of the file in bytes.
      mtime_ns: time of the last modification, in nanoseconds.
      sha256: SHA-256 of the file, in hexadecimal.
      records: number of records with text.
      empty: number of skipped records with blank text.
      malformed: number of skipped malformed records, by reason.
      first_malformed: line number and reason of the first malformed record, or None.
    """

    size: int
    mtime_ns: int
    sha256: str
    records: int = 0
    empty: int = 0
    malformed: dict[str, int] = dataclasses.field(default_factory=dict)
    first_malformed: tuple[int, str] | None = None

    @property
    def num_malformed(self) -> int:
        """Number of skipped malformed records."""
        return sum(self.malformed.values())


@dataclasses.dataclass(frozen=True)
class RecordIndex:
    """Records by client.

    Attributes:
      starts: int64 [clients + 1]; client c has the records `starts[c]` to `starts[c + 1] - 1`.
      offsets: int64 [records], positions in the file in bytes; they increase within a client.
      lengths: int64 [records], in bytes.
      summary: facts about the file.
    """

    starts: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    summary: Summary

    @property
    def num_clients(self) -> int:
        """Number of clients with text."""
        return len(self.starts) - 1

    def records(self, descriptor: int, client: int) -> Iterator[bytes]:
        """The records of a client, from the descriptor of the open file."""
        for record in range(self.starts[client], self.starts[client + 1]):
            yield os.pread(descriptor, int(self.lengths[record]), int(self.offsets[record]))


def index_file(path: pathlib.Path, form: record_files.Format) -> RecordIndex:
    """Indexes a file, or returns the cached index if the file is unchanged.

    A file is unchanged if its size, modification time and SHA-256 are. Indices are cached in
    `_cache.directory()`. Progress is shown on standard error.

    Args:
      path: path of the file.
      form: format of the file.

    Raises:
      ValueError: if a column is missing; the argument named is the column's.
      OSError: if the file cannot be read.
    """
    status = os.stat(path)
    stamp = (status.st_size, status.st_mtime_ns, sha256(path))

    def compute() -> RecordIndex:
        with _files.open_regular(path, buffering=_BLOCK) as file:
            return build(file, form, Summary(*stamp))

    def read(kept: pathlib.Path) -> RecordIndex | None:
        arrays = _npz.load(kept)
        values = _json.loads(arrays.pop('summary').tobytes())
        first = values.pop('first_malformed')
        summary = Summary(**values, first_malformed=None if first is None else tuple(first))
        is_same = (summary.size, summary.mtime_ns, summary.sha256) == stamp
        index = RecordIndex(**arrays, summary=summary)
        return index if is_same and _is_sound(index) else None

    def write(index: RecordIndex, kept: pathlib.Path) -> None:
        arrays = {name: getattr(index, name) for name in ('starts', 'offsets', 'lengths')}
        summary = json.dumps(dataclasses.asdict(index.summary))
        with open(kept, 'wb') as file:
            np.savez(file, summary=np.frombuffer(summary.encode(), np.uint8), **arrays)

    key = json.dumps([_VERSION, str(path.resolve()), form.name, dataclasses.asdict(form)])
    return _cache.cached('records-*.npz', key, compute, read=read, write=write)


def build(file: BinaryIO, form: record_files.Format, summary: Summary) -> RecordIndex:
    """Indexes an open file in one pass. Needs at most 60 bytes of memory per record.

    Args:
      file: file open for reading, at its start.
      form: format of the file.
      summary: facts about the file; the counts of records are filled in.

    Raises:
      ValueError: if a column is missing; the argument named is the column's.
      OSError: if the file cannot be read.
    """
    digests, offsets, lengths = bytearray(), array.array('q'), array.array('q')
    empty, first = 0, None
    malformed: collections.Counter[str] = collections.Counter()
    size = os.fstat(file.fileno()).st_size
    with _shown(size, 'index') as bar:
        for number, record in enumerate(form.scan(file), 1):
            if isinstance(record, record_files.BadRecord):
                first = first or (record.line, record.reason)
                malformed[record.reason] += 1
            elif record.text.isspace() or not record.text:
                empty += 1
            else:
                digests += _key_digest(record.client)
                offsets.append(record.offset)
                lengths.append(record.length)
            if number % 10_000 == 0:
                bar.update(file.tell() - bar.n)
        bar.update(size - bar.n)
    summary = dataclasses.replace(
        summary,
        records=len(offsets),
        empty=empty,
        malformed=dict(malformed),
        first_malformed=first,
    )
    order, starts = _by_client(digests)
    del digests  # Before the copies in the new order.
    return RecordIndex(starts, np.asarray(offsets)[order], np.asarray(lengths)[order], summary)


def _by_client(digests: bytearray) -> tuple[np.ndarray, np.ndarray]:
    """Records in the order of the digests of their clients, and where each client begins.

    The digests are changed, which saves a copy of them.
    """
    words = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    if sys.byteorder == 'little':
        words.byteswap(inplace=True)
    order = np.lexsort((words[:, 1], words[:, 0]))  # Stable: a client's records keep their order.
    first = np.arange(len(words)) == 0
    for column in words.T:
        ordered = column[order]
        first[1:] |= ordered[1:] != ordered[:-1]
    return order, np.append(np.flatnonzero(first), len(words)).astype(np.int64)


def _key_digest(key: str) -> bytes:
    """128 bits, enough for distinct digests of any realistic number of clients."""
    return hashlib.blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=16).digest()


def sha256(path: pathlib.Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Progress is shown on standard error.

    Raises:
      OSError: if the file cannot be read.
    """
    digest = hashlib.sha256()
    with _files.open_regular(path) as file, _shown(os.stat(path).st_size, 'digest') as bar:
        while block := file.read(_BLOCK):
            digest.update(block)
            bar.update(len(block))
    return digest.hexdigest()


def _shown(size: int, what: str) -> _progress.Bar:
    """A progress bar over bytes; it appears after two seconds."""
    return _progress.bar(total=size, desc=what, unit='B', unit_scale=True, delay=2, leave=False)


def _is_sound(index: RecordIndex) -> bool:
    """Whether an index that was read has consistent values of the right types."""
    starts, offsets, lengths = index.starts, index.offsets, index.lengths
    summary = index.summary
    return bool(
        all(
            type(value) is int and value >= 0
            for value in (
                summary.size,
                summary.mtime_ns,
                summary.records,
                summary.empty,
            )
        )
        and isinstance(summary.malformed, dict)
        and all(type(value) is int and value > 0 for value in summary.malformed.values())
        and (summary.first_malformed is None or [*map(type, summary.first_malformed)] == [int, str])
        and all(a.dtype == np.int64 and a.ndim == 1 for a in (starts, offsets, lengths))
        and len(starts) > 0
        and starts[0] == 0
        and (np.diff(starts) > 0).all()
        and starts[-1] == len(offsets) == len(lengths) == index.summary.records
        and (offsets >= 0).all()
        and (lengths > 0).all()
        and (len(offsets) == 0 or (offsets + lengths).max() <= index.summary.size)
    )
