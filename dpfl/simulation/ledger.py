"""The ledger of a run: which cohort got which noise, written to disk before the round's release.

The plan counts one release of each round. After a crash, the rounds after the last checkpoint are
run again. With another cohort or other data that is a second release, whose noise is independent
(docs/reference/threat_model.md), but which no report of the run counts. The ledger is the record of
the first time, and shows whether the release would be the same one.

`ledger.jsonl` has a line for each round, with digests of the cohort, of the data that it trains on,
of the model that it starts from, and of the noise key and its position. It does not hold the noise
key itself, with which anyone could remove the noise. Nor does it hold the key of the data digests,
with which anyone could check guesses about the data. The format of the lines is documented in
`dpfl.accounting.records.ledger_lines`.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from dpfl import _files, _storage, errors
from dpfl.accounting.records import ledger_lines
from dpfl.accounting.records.ledger_lines import Entry
from dpfl.accounting.reports import history


class LedgerError(errors.RunError):
    """The ledger is damaged, or forbids a round. The message is one line."""


class Ledger:
    """The ledger in a file. The first entry creates the file, readable by its owner only.

    If the last line is incomplete, a crash cut it off before its round was released. It is dropped.

    Args:
      path: the file.
      plan: digest of the run's plan, from `archive.PlanRecord.digest`; the last one, if the run was
        extended.

    Raises:
      LedgerError: if any other line is damaged, if the ledger belongs to another plan, or if it
        has a format that this version does not read.
      StorageError: if the file cannot be read.
    """

    def __init__(self, path: pathlib.Path, plan: str):
        self._path = path
        self._plan = plan
        self._lines = read(path)
        with _storage.naming(path):
            size = path.stat().st_size if path.exists() else 0
        self._rest = size - self._lines.complete  # Bytes of an incomplete last line.
        if self._lines.plan not in (None, plan):
            found = self._lines.extensions
            other = f', that of {found[-1].rounds} rounds' if found else ''
            raise LedgerError(f'{path}: is the ledger of another plan{other}')

    def extend(self, extension: ledger_lines.Extension) -> None:
        """Records that the run goes on beyond the rounds it was planned for.

        Raises:
          StorageError: if the file cannot be written.
        """
        begin, end = b'', self._lines.end
        if not self._lines.chain:
            begin, end = ledger_lines.first_line(self._plan)
            self._lines.chain = [end]
        line, chain = ledger_lines.extension_line(end, extension)
        self._drop_rest()
        _storage.append(self._path, begin + line, self._lines.complete, _storage.PRIVATE)
        self._lines.complete += len(begin + line)
        self._lines.extensions.append(extension)
        self._lines.plan = self._plan = extension.plan
        self._lines.end = chain

    @property
    def extensions(self) -> tuple[ledger_lines.Extension, ...]:
        """How the run was extended, in order."""
        return tuple(self._lines.extensions)

    @property
    def history(self) -> tuple[history.Extension, ...]:
        """The same as in `archive.PlanRecord`."""
        return self._lines.history

    @property
    def noise_key_digest(self) -> str | None:
        """As in `ledger_lines.Ledger`."""
        return self._lines.noise_key_digest

    @property
    def rounds(self) -> int:
        """Number of rounds that were released, or were about to be."""
        return len(self._lines.entries)

    def position(self, rounds: int) -> str:
        """Digest of the first `rounds` rounds; ledgers that differ there have different ones."""
        chain = self._lines.chain
        return chain[rounds] if chain else ledger_lines.first_line(self._plan)[1]

    def cohort(self, round_index: int) -> str:
        """Digest of the cohort of a round."""
        return self._lines.entries[round_index].cohort

    def changes(self, round_index: int, entry: Entry) -> tuple[str, ...]:
        """Names of the digests in which a round differs from the same one in the ledger."""
        if round_index >= self.rounds:
            return ()
        recorded = self._lines.entries[round_index].values()
        return tuple(name for name, value in entry.values().items() if value != recorded[name])

    def record(self, round_index: int, entry: Entry) -> None:
        """Writes a round to disk before its release; a round that is run again must be the same.

        Args:
          round_index: the round, counted from 0: the next one, or one that is in the ledger.
          entry: digests of the round.

        Raises:
          LedgerError: if the round must not be released, because it was released before with
            another cohort, model, noise or data, or its noise was used in another round.
          StorageError: if the file cannot be written.
        """
        if round_index < self.rounds:
            self._require_same(round_index, entry)
            return
        if round_index > self.rounds:
            raise LedgerError(f'{self._path}: ends before round {round_index}, at {self.rounds}')
        if any(entry.noise == earlier.noise for earlier in self._lines.entries):
            raise LedgerError(f'{self._path}: the noise of round {round_index} was used before')
        begin, chains, end = b'', list(self._lines.chain), self._lines.end
        if not chains:
            begin, end = ledger_lines.first_line(self._plan)
            chains.append(end)
        line, chain = ledger_lines.line(end, round_index, entry)
        self._drop_rest()
        _storage.append(self._path, begin + line, self._lines.complete, _storage.PRIVATE)
        self._lines.complete += len(begin + line)
        self._lines.entries.append(entry)
        self._lines.chain = [*chains, chain]
        self._lines.end = chain

    def _require_same(self, round_index: int, entry: Entry) -> None:
        for name in self.changes(round_index, entry):
            other = 'other' if name == 'data' else 'another'
            raise LedgerError(
                f'{self._path}: round {round_index} was released with {other} {name}; the plan '
                'counts one release of a round'
            )

    def _drop_rest(self) -> None:
        """Removes the incomplete last line, unless the file has changed since it was read."""
        if self._rest:
            with _storage.naming(self._path), open(self._path, 'r+b') as file:
                if os.fstat(file.fileno()).st_size == self._lines.complete + self._rest:
                    file.truncate(self._lines.complete)
            self._rest = 0


def read(path: pathlib.Path) -> ledger_lines.Ledger:
    """The ledger of a run that can be continued; empty if there is no file.

    Raises:
      LedgerError: if a line is damaged, or the ledger has a format that this version does not
        read.
      StorageError: if the file cannot be read.
    """
    with _storage.naming(path):
        data = _files.read_bytes(path) if path.exists() else b''
    try:
        return ledger_lines.parse(data)
    except ledger_lines.LineError as error:
        raise LedgerError(f'{path}: {error}') from None


def require_cohorts(path: pathlib.Path, entries: Sequence[Entry], sampler: Any) -> None:
    """Checks that a run that continues would have drawn the cohorts that were released."""
    for t, entry in enumerate(entries):
        if ledger_lines.cohort_digest(sampler.cohort(t)) != entry.cohort:
            raise LedgerError(f'{path}: with this plan, round {t} would have had another cohort')
