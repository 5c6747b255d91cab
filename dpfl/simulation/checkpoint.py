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

import dataclasses
import hashlib
import io
import json
import pathlib
from collections.abc import Sequence
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
    """A binary file for writing that also computes the digest of what is written."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._total = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._total.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        return self._total.digest()
