"""The ledger of a run: which cohort met which noise, on the disk before the round is released.

Noise protects a round once. If the same noise is added to the sums of two different cohorts, or of
one cohort with different data, the difference of the two releases has no noise at all. After a
crash the rounds since the last checkpoint are run again with their noise; the ledger is what
remains of the first time, and says whether the release would be the same one.

`ledger.jsonl` has a line for each round: digests of the cohort, of the data that it trains on, of
the model it starts from, and of the noise key with its position. The noise key itself is not there:
who has it can take the noise off. Nor is the key of the digest of the data: who has it can try what
the data might be. `dpfl.accounting.records.ledger_lines` has the form of the lines.
"""

import os
import pathlib

from dpfl import _files, _storage, errors
from dpfl.accounting.records import ledger_lines
from dpfl.accounting.records.ledger_lines import Entry


class LedgerError(errors.RunError):
    """The ledger is damaged, or forbids a round. The message is one line."""


class Ledger:
    """The ledger in a file, which is made by the first entry, for its owner only.

    A last line without its end was cut off by a crash before its round was released: it is dropped.

    Args:
      path: of the file.
      plan: digest of the plan of the run, of `archive.PlanRecord.digest`.

    Raises:
      LedgerError: if any other line is not what was written, if the ledger is that of another plan,
        or if an older version of dpfl has begun it.
      StorageError: if the file cannot be read.
    """

    def __init__(self, path: pathlib.Path, plan: str):
        self._path = path
        self._plan = plan
        self._lines = read(path)
        with _storage.naming(path):
            size = path.stat().st_size if path.exists() else 0
        self._rest = size - self._lines.complete  # Bytes of a line that was cut off.
        if self._lines.plan not in (None, plan):
            raise LedgerError(f'{path}: is the ledger of another plan')

    @property
    def rounds(self) -> int:
        """Number of rounds that were released, or were about to be."""
        return len(self._lines.entries)

    def position(self, rounds: int) -> str:
        """Digest of the first `rounds` rounds: tells a ledger from any other."""
        chain = self._lines.chain
        return chain[rounds] if chain else ledger_lines.first_line(self._plan)[1]

    def cohort(self, round_index: int) -> str:
        """Digest of the cohort of a round."""
        return self._lines.entries[round_index].cohort

    def record(self, round_index: int, entry: Entry) -> None:
        """Puts a round on the disk before its release; a round that is run again must be the same.

        Args:
          round_index: at most one more than the last one; counts from 0.
          entry: of the round.

        Raises:
          LedgerError: if the round may not be released: it was, with another cohort, model, noise
            or data; or its noise belongs to another round.
          StorageError: if the file cannot be written.
        """
        if round_index < self.rounds:
            self._require_same(round_index, entry)
            return
        if round_index > self.rounds:
            raise LedgerError(f'{self._path}: ends before round {round_index}, at {self.rounds}')
        if any(entry.noise == earlier.noise for earlier in self._lines.entries):
            raise LedgerError(f'{self._path}: the noise of round {round_index} was used before')
        begin, chains = b'', list(self._lines.chain)
        if not chains:
            begin, chain = ledger_lines.first_line(self._plan)
            chains.append(chain)
        line, chain = ledger_lines.line(chains[-1], round_index, entry)
        self._drop_rest()
        _storage.append(self._path, begin + line, self._lines.complete, _storage.PRIVATE)
        self._lines.complete += len(begin + line)
        self._lines.entries.append(entry)
        self._lines.chain = [*chains, chain]

    def _require_same(self, round_index: int, entry: Entry) -> None:
        recorded = self._lines.entries[round_index].values()
        for name, value in entry.values().items():
            if value != recorded[name]:
                other = 'other' if name == 'data' else 'another'
                raise LedgerError(
                    f'{self._path}: round {round_index} was released with {other} {name}; the same '
                    'noise must not be used again'
                )

    def _drop_rest(self) -> None:
        """Drops the line that was cut off when the ledger was read; nothing that came since."""
        if self._rest:
            with _storage.naming(self._path), open(self._path, 'r+b') as file:
                if os.fstat(file.fileno()).st_size == self._lines.complete + self._rest:
                    file.truncate(self._lines.complete)
            self._rest = 0


def read(path: pathlib.Path) -> ledger_lines.Ledger:
    """What the ledger of a run says that can be continued; nothing if there is no file.

    Raises:
      LedgerError: if a line is not what was written, or an older version of dpfl has begun it.
      StorageError: if the file cannot be read.
    """
    with _storage.naming(path):
        data = _files.read_bytes(path) if path.exists() else b''
    try:
        lines = ledger_lines.parse(data)
    except ledger_lines.LineError as error:
        raise LedgerError(f'{path}: {error}') from None
    if lines.format != ledger_lines.FORMAT:
        raise LedgerError(
            f'{path}: has format {lines.format}, which says nothing of the data: the run can be '
            'verified, but only the version of dpfl that began it can continue it'
        )
    return lines
