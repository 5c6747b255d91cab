"""The ledger of a run: which cohort met which noise, on the disk before the round is released.

Noise protects a round once. If the same noise is added to the sums of two different cohorts, the
difference of the two releases has no noise at all. After a crash the rounds since the last
checkpoint are run again with their noise; the ledger is what remains of the first time, and says
whether the release would be the same one.

`ledger.jsonl` has a line for each round: digests of the cohort, of the model it starts from, and of
the noise key with its position. The key itself is not there: who has it can take the noise off.
Every line ends with a digest of all lines so far, so that none can change or go unnoticed.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl import _files, _json
from dpfl.simulation import files

# Also the version of the format: what the chain of digests starts from.
_START = hashlib.sha256(b'dpfl ledger 1').hexdigest()


class LedgerError(files.RunError):
    """The ledger is damaged, or forbids a round. The message is one line."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the release of one round depends on, as SHA-256 digests in hexadecimal.

    Attributes:
      cohort: of the clients; see `cohort_digest`.
      model: of the weights that the clients start from; see `digest`.
      noise: of the noise keys and their positions; see `digest`.
    """

    cohort: str
    model: str
    noise: str


def cohort_digest(cohort: Sequence[int]) -> str:
    """Digest of a set of clients: their order does not matter."""
    return digest([np.sort(np.asarray(cohort, dtype=np.int64))])


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Digest of arrays with their types and shapes."""
    total = hashlib.sha256()
    for array in map(np.asarray, arrays):
        total.update(f'{array.dtype.str} {array.shape}\n'.encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


class Ledger:
    """The ledger in a file, which is made by the first entry.

    A last line without its end was cut off by a crash before its round was released: it is dropped.

    Args:
      path: of the file.

    Raises:
      LedgerError: if any other line is not what was written.
      StorageError: if the file cannot be read.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._entries: list[Entry] = []
        self._chain = [_START]
        self._complete = 0  # Bytes of the file without a line that was cut off.
        self._read()

    @property
    def rounds(self) -> int:
        """Number of rounds that were released, or were about to be."""
        return len(self._entries)

    def position(self, rounds: int) -> str:
        """Digest of the first `rounds` lines: tells a ledger from any other."""
        return self._chain[rounds]

    def cohort(self, round_index: int) -> str:
        """Digest of the cohort of a round."""
        return self._entries[round_index].cohort

    def record(self, round_index: int, entry: Entry) -> None:
        """Puts a round on the disk before its release; a round that is run again must be the same.

        Args:
          round_index: at most one more than the last one; counts from 0.
          entry: of the round.

        Raises:
          LedgerError: if the round may not be released: it was, with another cohort, model or
            noise; or its noise belongs to another round.
          StorageError: if the file cannot be written.
        """
        if round_index < self.rounds:
            self._require_same(round_index, entry)
            return
        if round_index > self.rounds:
            raise LedgerError(f'{self._path}: ends before round {round_index}, at {self.rounds}')
        if any(entry.noise == earlier.noise for earlier in self._entries):
            raise LedgerError(f'{self._path}: the noise of round {round_index} was used before')
        line, chain = self._line(round_index, entry)
        self._drop_rest()
        files.append(self._path, line)
        self._complete += len(line)
        self._entries.append(entry)
        self._chain.append(chain)

    def _require_same(self, round_index: int, entry: Entry) -> None:
        recorded = dataclasses.asdict(self._entries[round_index])
        for name, value in dataclasses.asdict(entry).items():
            if value != recorded[name]:
                raise LedgerError(
                    f'{self._path}: round {round_index} was released with another {name}; the same '
                    'noise must not be used again'
                )

    def _line(self, round_index: int, entry: Entry) -> tuple[bytes, str]:
        values = {'round': round_index, **dataclasses.asdict(entry)}
        chain = hashlib.sha256((self._chain[-1] + json.dumps(values)).encode()).hexdigest()
        return (json.dumps({**values, 'chain': chain}) + '\n').encode(), chain

    def _read(self) -> None:
        with files.naming(self._path):
            data = _files.read_bytes(self._path) if self._path.exists() else b''
        *lines, rest = data.split(b'\n')
        for written in lines:
            entry = _parse(written)
            line, chain = self._line(self.rounds, entry) if entry else (b'', '')
            if line != written + b'\n':
                raise self._damaged()
            self._chain.append(chain)
            self._entries.append(entry)
            self._complete += len(line)
        # As long as a line, but without its end: no crash leaves that. (Zeros come from a power
        # failure.)
        whole = self._line(self.rounds, Entry(_START, _START, _START))[0]
        if len(rest.rstrip(b'\0')) >= len(whole):
            raise self._damaged()

    def _damaged(self) -> LedgerError:
        return LedgerError(f'{self._path}: line {self.rounds + 1} is damaged')

    def _drop_rest(self) -> None:
        if self._path.exists() and self._path.stat().st_size > self._complete:
            with files.naming(self._path), open(self._path, 'r+b') as file:
                file.truncate(self._complete)


def _parse(line: bytes) -> Entry | None:
    try:
        values = _json.loads(line)
        entry = Entry(values['cohort'], values['model'], values['noise'])
        is_text = all(isinstance(value, str) for value in dataclasses.astuple(entry))
        return entry if is_text else None
    except (ValueError, KeyError, TypeError):
        return None
