"""Checkpoints: the tensors with which a run continues after some of its rounds.

All randomness of a run is either a function of the number of rounds (cohorts) or part of the state
(noise), so no other position in a random stream has to be saved. Settings, metrics and cohorts are
in the journal and in `cohorts.bin`, so that a checkpoint costs the same after any number of rounds.

The format is dpfl's own. TFF's program state manager writes SavedModel directories, which have no
checksums, are not synced to disk, and contain graphs that loading would execute. A checkpoint has:

- a line `dpfl checkpoint 2`, with the version of the format;
- a line of JSON: the rounds, the digest of the journal's line at which it stands, and how many
  arrays follow;
- the arrays, each as in a `.npy` file, without pickle;
- the SHA-256 digest of everything before it, 32 bytes.

A checkpoint contains the noise key. Whoever has it can remove the noise from everything that the
run released, so checkpoints are readable by their owner only and must not be shared.
"""

import concurrent.futures
import dataclasses
import hashlib
import io
import json
import os
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, BinaryIO

import numpy as np

from dpfl import _files, _json, _npz, _storage, _validate, errors

_VERSION = 2
_MAGIC = b'dpfl checkpoint '
# A header is a short line.
_MOST_HEADER = 1 << 20
_DIGEST_BYTES = hashlib.sha256().digest_size


class CheckpointError(errors.RunError):
    """A checkpoint cannot be used. The message is one line that names it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run after some of its rounds.

    Attributes:
      rounds: number of completed rounds.
      head: digest at the end of the line of the journal at which it stands.
      state: the leaves of the process's state, arrays or bytes, in the order of `tree.flatten`.
    """

    rounds: int
    head: str
    state: Sequence[np.ndarray | bytes]

    def write(self, file: BinaryIO) -> None:
        """Writes the checkpoint to a binary file."""
        header = {
            'rounds': self.rounds,
            'head': self.head,
            'bytes': [i for i, leaf in enumerate(self.state) if isinstance(leaf, bytes)],
            'leaves': len(self.state),
        }
        out = _Hashing(file)
        out.write(_MAGIC + b'%d\n' % _VERSION)
        out.write(json.dumps(header).encode() + b'\n')
        for leaf in self.state:
            array = np.frombuffer(leaf, np.uint8) if isinstance(leaf, bytes) else np.asarray(leaf)
            np.lib.format.write_array(out, array, allow_pickle=False)
        file.write(out.digest())

    @classmethod
    def read(cls, path: pathlib.Path) -> 'Checkpoint':
        """Reads a checkpoint.

        Raises:
          CheckpointError: if the file is damaged, not a checkpoint, or of another version.
          StorageError: if it cannot be read.
        """
        with _storage.naming(path):
            with _files.open_regular(path) as file:
                data = file.read(len(_MAGIC))
                if data == _MAGIC:  # A file of another kind may be huge, and is not read.
                    data += file.read()
        first = _first_line(path, data)
        content = memoryview(data)[:-_DIGEST_BYTES]
        if hashlib.sha256(content).digest() != data[-_DIGEST_BYTES:]:
            raise CheckpointError(f'{path}: is damaged or incomplete')
        whole = io.BytesIO(data)
        whole.seek(len(first))
        try:
            return cls._parse(whole)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            reason = errors.shown(error)
            raise CheckpointError(f'{path}: cannot be read ({reason})') from None

    @classmethod
    def _parse(cls, file: io.BytesIO) -> 'Checkpoint':
        rounds, head, header = _header(file.readline())
        end = file.getbuffer().nbytes - _DIGEST_BYTES
        count = _validate.integer('leaves', header['leaves'], minimum=0, maximum=end)
        state: list[np.ndarray | bytes] = [
            _npz.read_array(file, end - file.tell()) for _ in range(count)
        ]
        if file.tell() != end:
            raise ValueError('has more than its arrays')
        for i in header['bytes']:
            at = _validate.integer('bytes', i, minimum=0, maximum=count - 1)
            state[at] = np.asarray(state[at]).tobytes()
        return cls(rounds=rounds, head=head, state=state)


def read_head(path: pathlib.Path) -> str | None:
    """The head of a checkpoint, from its first bytes; None if they are damaged.

    Raises:
      StorageError: if it cannot be read.
    """
    with _storage.naming(path), _files.open_regular(path) as file:
        data = file.read(_MOST_HEADER)
    try:
        first = _first_line(path, data)
        return _header(data[len(first) :].partition(b'\n')[0])[1]
    except (CheckpointError, ValueError, LookupError, TypeError):
        return None


def _first_line(path: pathlib.Path, data: bytes) -> bytes:
    first = data[: data.find(b'\n') + 1]
    if not first.startswith(_MAGIC):
        raise CheckpointError(f'{path}: is not a checkpoint')
    version = first.removeprefix(_MAGIC).strip().decode(errors='replace')
    if version != str(_VERSION):
        shown = errors.shown(version)
        raise CheckpointError(f'{path}: has format {shown}, this version reads {_VERSION}')
    return first


def _header(line: bytes) -> tuple[int, str, dict[str, Any]]:
    header = _json.checked_object('header', _json.loads(line))
    most = _validate.MOST_ROUNDS
    rounds = _validate.integer('rounds', header['rounds'], minimum=0, maximum=most)
    if not isinstance(header['head'], str):
        raise errors.ArgumentError('head', header['head'], 'must be a text')
    return rounds, header['head'], header


class _Hashing:
    """A binary file for writing that also computes the digest of its content."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._total = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._total.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        return self._total.digest()


_SUFFIX = '.checkpoint'
# The checkpoint before the first round.
FIRST = f'{0:08d}{_SUFFIX}'


def heads(folder: str | os.PathLike[str]) -> dict[str, str]:
    """The heads of the undamaged checkpoints in a folder, by file name.

    Raises:
      StorageError: if one cannot be read.
    """
    paths = _paths(pathlib.Path(folder))
    return {path.name: head for path in paths if (head := read_head(path)) is not None}


def latest(
    folder: str | os.PathLike[str],
    refused: Callable[[str], None],
    allowed: Collection[str] | None = None,
) -> Checkpoint | None:
    """The newest usable checkpoint in a folder; None if the folder has no checkpoints.

    Does not change the folder.

    Args:
      folder: folder of the checkpoints; need not exist.
      refused: called with a line of text for each newer checkpoint that cannot be used.
      allowed: heads that a usable checkpoint may have; None for any.

    Raises:
      CheckpointError: if there are checkpoints, but none can be used.
    """
    paths = _paths(pathlib.Path(folder))
    is_one_left = False
    for path in reversed(paths):
        try:
            checkpoint = Checkpoint.read(path)
        except errors.RunError as error:
            refused(str(error))
            is_one_left = True
            continue
        if allowed is None or checkpoint.head in allowed:
            return checkpoint
    if is_one_left:
        raise CheckpointError(f'{folder}: holds no checkpoint that can be used')
    return None


class Writer:
    """Saves checkpoints in the background, and deletes all but the first and the latest ones.

    The first one, of round 0, is kept: a model of one's own, or of an earlier run, is no function
    of the settings.

    A context manager. Leaving it waits for the save in progress. If a save fails, the next call
    raises the error.

    Args:
      folder: folder of the checkpoints; created if it does not exist.
      keep: number of checkpoints to keep, at least 1.
      start: number of rounds of the checkpoint that the run continues from; 0 for a new run. Later
        checkpoints, which were refused, are set aside by adding `.refused` to their names.

    Raises:
      ValueError: if `keep` is below 1.
      StorageError: if the folder cannot be created or changed.
    """

    def __init__(self, folder: pathlib.Path, keep: int, start: int = 0):
        _validate.integer('keep_checkpoints', keep, minimum=1)
        self._folder = folder
        self._keep = keep
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._saving: concurrent.futures.Future | None = None
        with _storage.naming(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            for path in folder.glob(f'*{_SUFFIX}.partial'):  # The process was killed during a save.
                path.unlink()
            for path in _paths(folder):
                if _rounds(path) > start:
                    os.replace(path, path.with_name(path.name + '.refused'))

    def __enter__(self) -> 'Writer':
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._thread.shutdown(wait=True)
        if error is None:
            self.wait()

    def save(self, checkpoint: Checkpoint) -> None:
        """Starts saving a checkpoint, once the previous save has ended.

        The arrays of the checkpoint must not change. Those that TFF returns are read-only.

        Raises:
          StorageError: if the previous save failed.
        """
        self.wait()
        self._saving = self._thread.submit(self._save, checkpoint)

    def check(self) -> None:
        """Raises StorageError if the last save has failed; does not wait for it."""
        if self._saving is not None and self._saving.done():
            self._saving.result()

    def wait(self) -> None:
        """Waits until the last checkpoint is on disk; raises StorageError if its save failed."""
        if self._saving is not None:
            self._saving.result()

    def _save(self, checkpoint: Checkpoint) -> None:
        path = self._folder / f'{checkpoint.rounds:08d}{_SUFFIX}'
        _storage.write_atomically(path, checkpoint.write, mode=0o600)
        for old in _paths(self._folder)[1 : -self._keep]:
            with _storage.naming(old):
                old.unlink(missing_ok=True)


def _paths(folder: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoints in a folder, oldest first."""
    paths = [path for path in folder.glob(f'*{_SUFFIX}') if path.stem.isdecimal()]
    return sorted(paths, key=_rounds)


def _rounds(path: pathlib.Path) -> int:
    return int(path.stem)
