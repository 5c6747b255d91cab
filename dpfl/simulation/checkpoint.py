"""Checkpoints: everything that a run needs to continue with the same bits.

A checkpoint is one file of the run after some number of rounds. Whatever is random in a run is a
function of that number (cohorts) or within the state (noise), so nothing else has a position.

The format is dpfl's own, for what the program state manager of TFF does not do: its directories of
SavedModel have no checksums, are not synced, and hold graphs that would be executed. This is:

- a line `dpfl checkpoint 1`, with the version of the format;
- a line of JSON: the rounds, the configuration, the position in the ledger, the rows of metrics,
  and how many arrays follow;
- the arrays, each as in a `.npy` file, without pickle: first clients and offsets of the
  participation log, as in its own file, then the state;
- the SHA-256 digest of all this, 32 bytes.

Who has a checkpoint has the noise key, and can take the noise off all that the run released: the
files are readable by their owner only, and are not for sharing.
"""

import concurrent.futures
import dataclasses
import hashlib
import io
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from dpfl import _files, _json, _npz, _storage, _validate, accounting, errors, participation

_VERSION = 1
_MAGIC = b'dpfl checkpoint '
_SUFFIX = '.checkpoint'
_DIGEST_BYTES = hashlib.sha256().digest_size


class CheckpointError(errors.RunError):
    """A checkpoint cannot be used. The message is one line that names it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A run after some of its rounds.

    Attributes:
      rounds: number of rounds done.
      configuration: what the run was made from; values that JSON has.
      plan_digest: of its privacy plan; see `PrivacyPlan.digest`.
      ledger: position in the ledger, of `Ledger.position`.
      rows: metrics of the rounds.
      cohorts: clients of each round, int64.
      state: the leaves of the state of the process, arrays or bytes, in the order of `tree`.
    """

    rounds: int
    configuration: Mapping[str, Any]
    plan_digest: str
    ledger: str
    rows: Sequence[Mapping[str, float]]
    cohorts: Sequence[np.ndarray]
    state: Sequence[np.ndarray | bytes]

    def require_run(self, configuration: Mapping[str, Any], plan: accounting.PrivacyPlan) -> None:
        """Checks that a run is the one that the checkpoint is of.

        Raises:
          ValueError: if a value of the configuration differs, or the plan; the message begins with
            its name.
        """
        before = {**self.configuration, 'plan_digest': self.plan_digest}
        now = json.loads(json.dumps({**configuration, 'plan_digest': plan.digest()}))
        for name in sorted({*before, *now}, key=lambda name: (name == 'plan_digest', name)):
            if before.get(name) != now.get(name):
                raise errors.ArgumentError(
                    name, now.get(name), f'must be {before.get(name)}, as when the run began'
                )

    def write(self, file: BinaryIO) -> None:
        """Writes the checkpoint to a binary file."""
        header = {
            'rounds': self.rounds,
            'configuration': dict(self.configuration),
            'plan_digest': self.plan_digest,
            'ledger': self.ledger,
            'rows': [dict(row) for row in self.rows],
            'bytes': [i for i, leaf in enumerate(self.state) if isinstance(leaf, bytes)],
            'leaves': len(self.state),
        }
        out = _Hashing(file)
        out.write(_MAGIC + b'%d\n' % _VERSION)
        out.write(json.dumps(header).encode() + b'\n')
        clients = np.concatenate([np.zeros(0, np.int64), *self.cohorts])
        offsets = np.cumsum([0, *map(len, self.cohorts)])
        for leaf in (clients, offsets, *self.state):
            array = np.frombuffer(leaf, np.uint8) if isinstance(leaf, bytes) else np.asarray(leaf)
            np.lib.format.write_array(out, array, allow_pickle=False)
        file.write(out.digest())

    @classmethod
    def read(cls, path: pathlib.Path) -> 'Checkpoint':
        """Reads a checkpoint.

        Raises:
          CheckpointError: if it is damaged, no checkpoint, or of another version.
          StorageError: if it cannot be read.
        """
        with _storage.naming(path):
            with _files.open_regular(path) as file:
                data = file.read(len(_MAGIC))
                if data == _MAGIC:  # Otherwise there is no need to know how long it is.
                    data += file.read()
        first = data[: data.find(b'\n') + 1]
        if not first.startswith(_MAGIC):
            raise CheckpointError(f'{path}: is not a checkpoint')
        version = first.removeprefix(_MAGIC).strip().decode(errors='replace')
        if version != str(_VERSION):
            shown = errors.shown(version)
            raise CheckpointError(f'{path}: has format {shown}, this version reads {_VERSION}')
        content = memoryview(data)[:-_DIGEST_BYTES]
        if hashlib.sha256(content).digest() != data[-_DIGEST_BYTES:]:
            raise CheckpointError(f'{path}: is damaged or incomplete')
        file = io.BytesIO(data)
        file.seek(len(first))
        try:
            return cls._parse(file)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            reason = errors.shown(error)
            raise CheckpointError(f'{path}: cannot be read ({reason})') from None

    @classmethod
    def _parse(cls, file: io.BytesIO) -> 'Checkpoint':
        header = _json.loads(file.readline(), allow_nan=True)  # A loss may be NaN.
        rounds = _validate.integer(
            'rounds', header['rounds'], minimum=0, maximum=_validate.MOST_ROUNDS
        )
        end = file.getbuffer().nbytes - _DIGEST_BYTES
        count = _validate.integer('leaves', header['leaves'], minimum=0, maximum=end)
        clients, offsets, *state = (
            _npz.read_array(file, end - file.tell()) for _ in range(2 + count)
        )
        if file.tell() != end:
            raise ValueError('has more than its arrays')
        for i in header['bytes']:
            state[_validate.integer('bytes', i, minimum=0, maximum=count - 1)] = state[i].tobytes()
        return cls(
            rounds=rounds,
            configuration=_object('configuration', header['configuration']),
            plan_digest=_text('plan_digest', header['plan_digest']),
            ledger=_text('ledger', header['ledger']),
            rows=_rows(header['rows'], rounds),
            cohorts=participation.cohorts(clients, offsets, rounds),
            state=state,
        )


def _object(name: str, value) -> dict:
    if not isinstance(value, dict):
        raise errors.ArgumentError(name, value, 'must be an object')
    return value


def _text(name: str, value) -> str:
    if not isinstance(value, str):
        raise errors.ArgumentError(name, value, 'must be a text')
    return value


def _rows(values, rounds: int) -> list[dict]:
    """Metrics of at most so many rounds, checked: objects of numbers."""
    if not isinstance(values, list) or len(values) > rounds:
        raise errors.ArgumentError(
            'rows', errors.NOT_SHOWN, f'must be a list of at most {rounds} objects'
        )
    for row in values:
        if not all(isinstance(value, (int, float)) for value in _object('rows', row).values()):
            raise errors.ArgumentError('rows', errors.NOT_SHOWN, 'must hold numbers')
    return values


class _Hashing:
    """A binary file for writing that knows the digest of what was written."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._total = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._total.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        return self._total.digest()


def latest(folder: str | os.PathLike[str], refused: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint in a folder that can be used; None if there is none at all.

    Nothing in the folder is changed.

    Args:
      folder: of the checkpoints; need not exist.
      refused: is called with a line for each newer one that cannot be used.

    Raises:
      CheckpointError: if there are checkpoints, and none can be used.
    """
    paths = _paths(pathlib.Path(folder))
    for path in reversed(paths):
        try:
            return Checkpoint.read(path)
        except errors.RunError as error:
            refused(str(error))
    if paths:
        raise CheckpointError(f'{folder}: holds no checkpoint that can be used')
    return None


def exist(folder: str | os.PathLike[str]) -> bool:
    """Whether there are checkpoints in a folder, which need not exist."""
    return bool(_paths(pathlib.Path(folder)))


class Writer:
    """Saves checkpoints in the background, and keeps the last ones.

    A context manager; leaving it waits for the save in progress. A save that failed is an
    exception of the next call.

    Args:
      folder: is made if need be.
      keep: how many checkpoints to keep, at least 1.
      start: rounds of the checkpoint that the run continues from; None for a new run. Later
        checkpoints, which were refused, are set aside: `.refused` is added to their names.

    Raises:
      ValueError: if `keep` is below 1.
      StorageError: if the folder cannot be made or changed.
    """

    def __init__(self, folder: pathlib.Path, keep: int, start: int | None = None):
        _validate.integer('keep_checkpoints', keep, minimum=1)
        self._folder = folder
        self._keep = keep
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._saving: concurrent.futures.Future | None = None
        with _storage.naming(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            for path in folder.glob(f'*{_SUFFIX}.partial'):  # A save was killed.
                path.unlink()
            for path in _paths(folder):
                if start is None or _rounds(path) > start:
                    os.replace(path, path.with_name(path.name + '.refused'))

    def __enter__(self) -> 'Writer':
        return self

    def __exit__(self, kind, error, trace):
        self._thread.shutdown(wait=True)
        if error is None:
            self.wait()

    def save(self, checkpoint: Checkpoint) -> None:
        """Begins to save a checkpoint, after the one before is saved.

        Its arrays must not change: those that TFF returns are read-only.

        Raises:
          StorageError: if the save before has failed.
        """
        self.wait()
        self._saving = self._thread.submit(self._save, checkpoint)

    def check(self) -> None:
        """Raises StorageError if a save has failed; does not wait."""
        if self._saving is not None and self._saving.done():
            self._saving.result()

    def wait(self) -> None:
        """Returns when the last checkpoint is on the disk; raises StorageError if it is not."""
        if self._saving is not None:
            self._saving.result()

    def _save(self, checkpoint: Checkpoint) -> None:
        path = self._folder / f'{checkpoint.rounds:08d}{_SUFFIX}'
        _storage.write_atomically(path, checkpoint.write, mode=0o600)
        for old in _paths(self._folder)[: -self._keep]:
            with _storage.naming(old):
                old.unlink(missing_ok=True)


def _paths(folder: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoints in a folder, the oldest first."""
    found = [path for path in folder.glob(f'*{_SUFFIX}') if path.stem.isdecimal()]
    return sorted(found, key=_rounds)


def _rounds(path: pathlib.Path) -> int:
    return int(path.stem)
