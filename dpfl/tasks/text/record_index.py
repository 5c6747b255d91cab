"""Where in a file of texts each client's records are: made in one pass, and kept for later runs.

A kept index is for its owner only: it has the size of the file, its digest, and how long each
record is, from which guesses at single records can be tested.

Neither texts nor client keys are in an index: keys are replaced by digests, and clients are
numbered in the order of these. So the numbers of clients are the same however the records of the
file are ordered, memory does not grow with the length of keys, and the first clients are a random
sample of all.
"""

import array
import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile
from typing import BinaryIO

import numpy as np
import tqdm

from dpfl import _files, _json, _npz
from dpfl.mechanisms.optimize import cache
from dpfl.tasks.text import record_files

# Of the kept files; part of what they are compared by.
_VERSION = 1
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Summary:
    """What an index says about its file.

    Attributes:
      size: of the file in bytes.
      mtime_ns: when it was last modified.
      sha256: of its bytes.
      records: number of records with text.
      empty: number of records that were left out as their text is blank.
      malformed: numbers of records that were left out, by reason.
      first_malformed: number of the first such line and the reason, or None.
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
        """Number of records that were left out as malformed."""
        return sum(self.malformed.values())


@dataclasses.dataclass(frozen=True)
class RecordIndex:
    """Records by client.

    Attributes:
      starts: int64 [clients + 1]: the records of client c are those from `starts[c]` up to
        `starts[c + 1] - 1`.
      offsets: int64 [records], positions in the file; within a client they increase.
      lengths: int64 [records], in bytes.
      summary: of the file.
    """

    starts: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    summary: Summary

    @property
    def num_clients(self) -> int:
        """Number of clients that have text."""
        return len(self.starts) - 1


def index_file(path: pathlib.Path, form) -> RecordIndex:
    """The index of a file, kept from an earlier call if the file is still the same.

    The file is the same if its size, its time of modification and its SHA-256 are. Indices are kept
    in `cache.cache_directory()`. Progress goes to standard error.

    Args:
      path: of the file.
      form: a `text_records.JsonLines` or `text_records.Csv`.

    Raises:
      ValueError: if a column is not there; the message begins with its flag.
      OSError: if the file cannot be read.
    """
    status = os.stat(path)
    kept = _kept_path(path, form)
    found = None if kept is None else _read(kept)
    unchanged = found is not None and (
        (found.summary.size, found.summary.mtime_ns) == (status.st_size, status.st_mtime_ns)
    )
    digest = sha256(path)
    if unchanged and found.summary.sha256 == digest:
        return found
    with _files.open_regular(path, buffering=_BLOCK) as file:
        index = build(file, form, Summary(status.st_size, status.st_mtime_ns, digest))
    if kept is not None:
        # A full disk or a directory of someone else: the index is worth more than keeping it.
        with contextlib.suppress(OSError):
            _write(kept, index)
    return index


def build(file: BinaryIO, form, summary: Summary) -> RecordIndex:
    """Reads a file once; needs about 50 bytes of memory for each record.

    Args:
      file: open for reading, at its start.
      form: as for `index_file`.
      summary: of the file, as far as it is known without reading records.

    Raises:
      As `index_file`.
    """
    digests, offsets, lengths = bytearray(), array.array('q'), array.array('q')
    empty, malformed, first = 0, collections.Counter(), None
    size = os.fstat(file.fileno()).st_size
    with _progress(size, 'index') as bar:
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
    return _grouped(digests, np.array(offsets), np.array(lengths), summary)


def _grouped(
    digests: bytearray, offsets: np.ndarray, lengths: np.ndarray, summary: Summary
) -> RecordIndex:
    words = np.frombuffer(digests, '>u8').reshape(-1, 2).astype(np.uint64)
    order = np.lexsort((words[:, 1], words[:, 0]))  # Stable: records keep the order of the file.
    words = words[order]
    first = np.ones(len(words), bool)
    first[1:] = (words[1:] != words[:-1]).any(axis=1)
    starts = np.append(np.flatnonzero(first), len(words)).astype(np.int64)
    return RecordIndex(starts, offsets[order], lengths[order], summary)


def _key_digest(key: str) -> bytes:
    """128 bits: two of any realistic number of clients have different ones."""
    return hashlib.blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=16).digest()


def sha256(path: pathlib.Path) -> str:
    """The SHA-256 of a file's bytes. Progress goes to standard error.

    Raises:
      OSError: if it cannot be read.
    """
    digest = hashlib.sha256()
    with _files.open_regular(path) as file, _progress(os.stat(path).st_size, 'digest') as bar:
        while block := file.read(_BLOCK):
            digest.update(block)
            bar.update(len(block))
    return digest.hexdigest()


def _progress(size: int, what: str) -> tqdm.tqdm:
    """A bar over bytes that shows up where it takes a while."""
    return tqdm.tqdm(total=size, desc=what, unit='B', unit_scale=True, delay=2, leave=False)


def _kept_path(path: pathlib.Path, form) -> pathlib.Path | None:
    directory = cache.cache_directory()
    if directory is None:
        return None
    key = json.dumps([_VERSION, str(path.resolve()), form.name, dataclasses.asdict(form)])
    return directory / f'records-{hashlib.sha256(key.encode()).hexdigest()}.npz'


def _write(path: pathlib.Path, index: RecordIndex) -> None:
    """Writes an index under another name first: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(index, name) for name in ('starts', 'offsets', 'lengths')}
    summary = json.dumps(dataclasses.asdict(index.summary))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix='.unfinished-', suffix='.npz')
    try:
        with os.fdopen(handle, 'wb') as file:
            np.savez(file, summary=np.frombuffer(summary.encode(), np.uint8), **arrays)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _read(path: pathlib.Path) -> RecordIndex | None:
    """The kept index, or None if there is none that can be read."""
    try:
        arrays = _npz.load(path)
        values = _json.loads(arrays.pop('summary').tobytes())
        first = values.pop('first_malformed')
        summary = Summary(**values, first_malformed=None if first is None else tuple(first))
        index = RecordIndex(**arrays, summary=summary)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return index if _is_sound(index) else None


def _is_sound(index: RecordIndex) -> bool:
    starts, offsets, lengths = index.starts, index.offsets, index.lengths
    summary = index.summary
    return (
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
