"""Checkpoints: everything that a run needs to continue with exactly the same results.

A checkpoint is a file that holds the run after some number of rounds. All randomness of a run is
either a function of that number (cohorts) or part of the state (noise), so no other position in a
random stream has to be saved.

The format is dpfl's own. TFF's program state manager writes SavedModel directories, which have no
checksums, are not synced to disk, and contain graphs that loading would execute. A checkpoint has:

- a line `dpfl checkpoint 1`, with the version of the format;
- a line of JSON: the rounds, the configuration, the position in the ledger, the rows of metrics,
  and how many arrays follow;
- the arrays, each as in a `.npy` file, without pickle: clients and offsets of the participation
  log, as in its own file, then the state;
- the SHA-256 digest of everything before it, 32 bytes.

A checkpoint contains the noise key. Whoever has it can remove the noise from everything that the
run released, so checkpoints are readable by their owner only and must not be shared.
"""

import dataclasses
import hashlib
import io
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from dpfl import _files, _json, _npz, _storage, _validate, accounting, errors, participation

_VERSION = 1
_MAGIC = b'dpfl checkpoint '
_DIGEST_BYTES = hashlib.sha256().digest_size


class CheckpointError(errors.RunError):
    """A checkpoint cannot be used. The message is one line that names it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run after some of its rounds.

    Attributes:
      rounds: number of completed rounds.
      configuration: the settings that the run was made from, as JSON values.
      plan_digest: digest of the privacy plan, from `PrivacyPlan.digest`.
      ledger: position in the ledger, from `Ledger.position`.
      rows: metrics of the rounds.
      cohorts: clients of each round, int64.
      state: the leaves of the process's state, arrays or bytes, in the order of `tree.flatten`.
    """

    rounds: int
    configuration: Mapping[str, Any]
    plan_digest: str
    ledger: str
    rows: Sequence[Mapping[str, float]]
    cohorts: Sequence[np.ndarray]
    state: Sequence[np.ndarray | bytes]

    def require_run(self, configuration: Mapping[str, Any], plan: accounting.PrivacyPlan) -> None:
        """Checks that the checkpoint belongs to a run.

        Raises:
          ValueError: if a value of the configuration or the plan differs. The message begins with
            the name of the value.
        """
        self.require_configuration(configuration)
        if plan.digest() != self.plan_digest:
            raise errors.ArgumentError(
                'plan_digest',
                plan.digest(),
                f'must be {self.plan_digest}, as when the run began',
            )

    def require_configuration(
        self, configuration: Mapping[str, Any], free: Collection[str] = ()
    ) -> None:
        """Checks that a configuration is that of the run, except for the values in `free`.

        Raises:
          ArgumentError: if another value differs. The message begins with its name.
        """
        before, now = self.configuration, json.loads(json.dumps(dict(configuration)))
        for name in sorted({*before, *now} - {*free}):
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
          CheckpointError: if the file is damaged, not a checkpoint, or of another version.
          StorageError: if it cannot be read.
        """
        with _storage.naming(path):
            with _files.open_regular(path) as file:
                data = file.read(len(_MAGIC))
                if data == _MAGIC:  # A file of another kind may be huge, and is not read.
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


def _object(name: str, value: Any) -> dict:
    if not isinstance(value, dict):
        raise errors.ArgumentError(name, value, 'must be an object')
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise errors.ArgumentError(name, value, 'must be a text')
    return value


def _rows(values: Any, rounds: int) -> list[dict]:
    """Checks metrics of at most `rounds` rounds: objects of numbers."""
    if not isinstance(values, list) or len(values) > rounds:
        raise errors.ArgumentError(
            'rows', errors.NOT_SHOWN, f'must be a list of at most {rounds} objects'
        )
    for row in values:
        if not all(isinstance(value, (int, float)) for value in _object('rows', row).values()):
            raise errors.ArgumentError('rows', errors.NOT_SHOWN, 'must hold numbers')
    return values


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
