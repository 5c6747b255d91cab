"""The journal of a run in its directory, for the process that runs it. No TensorFlow.

Each event is on the disk before anything that follows from it, whatever happens to the process or
the machine. docs/reference/threat_model.md has the order of writes, and the state that a crash
between any two of them leaves. A round that is computed again after a crash appends nothing: it
must be the round that the journal has, or the run ends.
"""

import functools
import logging
import math
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from dpfl import _files, _storage, errors
from dpfl.accounting.records import archive, cohorts, journal
from dpfl.accounting.records.journal import Began, Event, Released
from dpfl.participation import ParticipationLog

_log = logging.getLogger(__name__)
# Metrics of a round that is computed again may differ in their last digits.
_SAME = 1e-9
# Tables of a run that begins, and the event from which each follows.
_FOLLOWS: dict[str, type[Event]] = {
    archive.PLAN: journal.Built,
    archive.DATA: journal.Built,
    archive.BEFORE: journal.Drew,
}
_CUT = 'the journal was cut, or files of two runs are mixed; the run cannot continue'


@functools.cache
def stack() -> str:
    """Versions of the packages that decide the last digits of a sum, as `archive.stacks` reads."""
    for name in ('tensorflow', 'tensorflow-cpu'):
        try:
            return (
                f'TensorFlow {_release(metadata.version(name))}, NumPy {_release(np.__version__)}'
            )
        except metadata.PackageNotFoundError:
            pass
    return f'NumPy {_release(np.__version__)}'


def _release(version: str) -> str:
    match = re.match(archive.RELEASE, version)
    return '0' if match is None else match[0]


class RunJournal:
    """The journal and the cohorts of a run, to append to.

    Lines and records that a crash cut off are removed. The directory must be locked.

    Args:
      directory: of the run, which exists.

    Attributes:
      state: the state of the run after all events.
      heads, kinds: digest at the end of the line, and class, of each event.
      rows: metrics of the rounds that were computed, `round` first, counted from 1.
      log: the cohorts that are written.

    Raises:
      RunError: if the journal or the cohorts are damaged, or the cohorts show rounds that the
        journal does not have.
      StorageError: if a file cannot be read or written.
    """

    def __init__(self, directory: pathlib.Path):
        self._path = directory / archive.LEDGER
        self._cohorts = directory / cohorts.NAME
        try:
            recorded = archive.read_journal(directory) or journal.Journal()
            stacks = [*archive.stacks(recorded).values()]
        except ValueError as error:
            raise errors.RunError(str(error)) from None
        self._size = _cut(self._path, recorded.complete)
        self.state = recorded.state
        self._head = recorded.head()
        self.heads = list(recorded.chain)
        self.kinds = list(map(type, recorded.events))
        self._began = {event.round: event for event in recorded.of_kind(Began)}
        self._noises = {event.noise for event in self._began.values()}
        self._released = {event.round: event for event in recorded.of_kind(Released)}
        self.rows: list[Mapping[str, float]] = list(recorded.rows())
        # The digest in a checkpoint, by the number of rounds before it.
        self._heads_after: dict[int, str] = {}
        for at, event in enumerate(recorded.events):
            self._keep_head(event, recorded.chain[at])
        self._stack = stacks[-1] if stacks else None
        self._read_cohorts()

    def _read_cohorts(self) -> None:
        with _storage.naming(self._cohorts):
            of_rounds, complete, _ = cohorts.load(self._cohorts)
        self._cohorts_size = _cut(self._cohorts, complete)
        self.log = ParticipationLog(of_rounds)
        if self.log.rounds > self.state.begun:
            raise errors.RunError(
                f'{self._cohorts}: has {self.log.rounds} rounds, {archive.LEDGER} '
                f'{self.state.begun}: {_CUT}'
            )
        for t, cohort in enumerate(of_rounds):
            if journal.cohort_digest(cohort) != self._began[t].cohort:
                raise errors.RunError(
                    f'{self._cohorts}: has another cohort than {archive.LEDGER} in round {t + 1}'
                )

    def _keep_head(self, event: Event, head: str) -> None:
        if isinstance(event, journal.Built):
            self._heads_after = {0: head}
        elif isinstance(event, journal.Extended):
            # A checkpoint that is saved from here on is one of the longer run.
            self._heads_after = {rounds: head for rounds in range(event.released + 1)}
        elif isinstance(event, Released):
            self._heads_after[event.round + 1] = head

    def require_whole(self, heads: Mapping[str, str]) -> None:
        """Checks that neither a checkpoint nor a table knows more than the journal.

        Args:
          heads: the digests of checkpoints, by the names of their files.

        Raises:
          RunError: if the journal does not have the line with which a checkpoint was saved, has
            fewer rounds than the table of metrics, or no event from which a table follows.
          StorageError: if the table of metrics cannot be read.
        """
        directory = self._path.parent
        for name, kind in _FOLLOWS.items():
            if kind not in self.kinds and (directory / name).exists():
                raise errors.RunError(
                    f'{directory / name}: {archive.LEDGER} has no event "{kind.name}", from which '
                    f'it follows: {_CUT}'
                )
        table = directory / archive.METRICS
        with _storage.naming(table):
            rows = (_files.read_bytes_or_none(table) or b'\n').count(b'\n') - 1
        if rows > self.state.begun:
            raise errors.RunError(
                f'{table}: has {rows} rounds, {archive.LEDGER} {self.state.begun}: {_CUT}'
            )
        known = set(self.heads)
        for name, head in heads.items():
            if head not in known:
                path = directory / archive.CHECKPOINTS / name
                raise errors.RunError(f'{path}: shows more than {archive.LEDGER}: {_CUT}')

    def append(self, event: Event, *, sync: bool = True) -> None:
        """Appends an event; with `sync`, it is on the disk afterwards.

        Raises:
          RunError: if it cannot follow the events before it.
          StorageError: if it cannot be written; the journal is then as before.
        """
        try:
            state = journal.step(self.state, event)
        except journal.JournalError as error:
            raise errors.RunError(f'{self._path}: {error}') from None
        line, head = journal.line(self._head, event)
        self._write(line, sync)
        self.state, self._head = state, head
        self.heads.append(head)
        self.kinds.append(type(event))
        self._keep_head(event, head)

    def note(self, **values: Any) -> None:
        """Appends a line outside of the chain."""
        self._write(journal.note(values), sync=False)

    def _write(self, line: bytes, sync: bool) -> None:
        _storage.append(self._path, line, self._size, _storage.PRIVATE, sync=sync)
        self._size += len(line)

    def sync(self) -> None:
        """Returns when all events are on the disk; before anything else there speaks of the last.

        Raises:
          StorageError: if they cannot be written.
        """
        _storage.sync(self._path)

    def is_current(self) -> bool:
        """Whether nobody else has written to the files since."""
        try:
            sizes = self._path.stat().st_size, self._size
        except FileNotFoundError:
            return self._size == 0
        return sizes[0] == sizes[1]

    def head_after(self, rounds: int) -> str:
        """The digest in a checkpoint after `rounds` rounds."""
        return self._heads_after[rounds]

    def require_state(self, rounds: int, head: str, state: str) -> None:
        """Checks that a checkpoint has the state that its last round released.

        Not checked are checkpoints that follow no round: the first, and those of an extension.

        Args:
          rounds: number of rounds of the checkpoint.
          head: the digest that it carries.
          state: the digest of its state.

        Raises:
          RunError: if not.
        """
        at = self.heads.index(head)
        if self.kinds[at] is not Released:
            return
        last = self._released.get(rounds - 1)
        is_of_round = sum(kind is Released for kind in self.kinds[: at + 1]) == rounds
        if last is None or not is_of_round or last.state != state:
            raise errors.RunError(
                f'{self._path}: the checkpoint of round {rounds} has another state than the round '
                'gave: it was changed, and the run cannot continue from it'
            )

    def begin(self, event: Began, cohort: Sequence[int] | np.ndarray | None) -> None:
        """Records a round before it is computed, or compares it with the record.

        Args:
          event: the round.
          cohort: its clients; None if their ids are not known.

        Raises:
          RunError: if the round began before with anything else.
          StorageError: if it cannot be written.
        """
        self._note_stack(event.round)
        if event.round < self.state.begun:
            for name in self.changes(event):
                other = 'other' if name == 'data' else 'another'
                raise errors.RunError(
                    f'{self._path}: round {event.round + 1} was released with {other} {name}; the '
                    'plan counts one release of a round'
                )
        else:
            if event.noise in self._noises:
                raise errors.RunError(
                    f'{self._path}: the noise of round {event.round + 1} was used before'
                )
            self.append(event)
            self._began[event.round] = event
            self._noises.add(event.noise)
        if cohort is not None and event.round == self.log.rounds:
            record = cohorts.record(event.round, cohort)
            _storage.append(self._cohorts, record, self._cohorts_size, _storage.PRIVATE)
            self._cohorts_size += len(record)
            self.log.append(np.asarray(cohort, np.int64))

    def _note_stack(self, t: int) -> None:
        """Notes the packages that compute round `t`, unless they are those of the round before."""
        if self._stack == stack():
            return
        if self._stack is not None:
            _log.warning(
                '%s: the run goes on with %s, and was computed with %s: its rounds have other '
                'last digits, and so other noise, than they would have had',
                self._path,
                stack(),
                self._stack,
            )
        self.note(stack=stack(), first=t)
        self._stack = stack()

    def changes(self, event: Began) -> tuple[str, ...]:
        """Names of the digests in which a round differs from the same one in the journal."""
        recorded = self._began.get(event.round)
        if recorded is None:
            return ()
        names = ('cohort', 'model', 'noise', 'data')
        return tuple(name for name in names if getattr(event, name) != getattr(recorded, name))

    def began(self, rounds: int) -> Began:
        """The event with which a round began, which counts from 0."""
        return self._began[rounds]

    def release(self, event: Released, seconds: float | None = None) -> Mapping[str, float]:
        """Records the release of a round, or compares it with the record.

        Args:
          event: the round.
          seconds: its duration; outside of the chain.

        Returns:
          Its metrics as they are recorded, `round` first, counted from 1.

        Raises:
          RunError: if the round gave another result before.
          StorageError: if it cannot be written.
        """
        known = self._released.get(event.round)
        if known is None:
            self.append(event, sync=False)
            self._released[event.round] = known = event
        elif not self._is_same(known, event):
            raise errors.RunError(
                f'{self._path}: round {event.round + 1} gave another result than before, with the '
                'same noise and data: its computation is not repeatable (dropout without a seed, '
                'another machine, another TensorFlow); it is not released'
            )
        row: dict[str, float] = {'round': event.round + 1, **known.metrics}
        if seconds is not None:
            self.note(round=event.round, seconds=seconds)
            row['seconds'] = seconds
        self.rows[event.round : event.round + 1] = [row]
        return row

    def _is_same(self, known: Released, again: Released) -> bool:
        """Whether a round gave the same release as the first time.

        If the run was extended since, the state has room for more rounds, the recorded epsilon is
        that of the earlier plan, and the round may have been evaluated as its last one: then only
        the model and the other metrics that both have are compared.
        """
        extended = self.state.extended
        if extended and known.round < extended[-1].released:
            both = (known.metrics.keys() & again.metrics.keys()) - {'epsilon'}
            metrics = {name: known.metrics[name] for name in both}
            others = {name: again.metrics[name] for name in both}
            return known.model == again.model and _are_same(metrics, others)
        return known.state == again.state and _are_same(known.metrics, again.metrics)

    def require_cohorts(self, first: int, cohort: Callable[[int], Any]) -> None:
        """Checks that rounds which are computed again would have the clients that they had.

        Args:
          first: the first of them.
          cohort: gives the clients of a round, which counts from 0.

        Raises:
          RunError: if not.
        """
        for t in range(first, self.state.begun):
            if journal.cohort_digest(cohort(t)) != self._began[t].cohort:
                raise errors.RunError(f'{self._path}: round {t + 1} had another cohort')

    def complete_cohorts(self, cohort: Callable[[int], Any]) -> ParticipationLog:
        """The log of all rounds that began; a signal can arrive before the last cohort is written.

        Args:
          cohort: gives the clients of a round, which counts from 0.

        Raises:
          RunError: if it gives other clients than those of a round that began.
          StorageError: if they cannot be written.
        """
        self._read_cohorts()
        self.require_cohorts(self.log.rounds, cohort)
        for t in range(self.log.rounds, self.state.begun):
            self.begin(self._began[t], cohort(t))
        return self.log


def _are_same(known: Mapping[str, float], again: Mapping[str, float]) -> bool:
    return known.keys() == again.keys() and all(
        known[name] == again[name]
        or math.isclose(known[name], again[name], rel_tol=_SAME, abs_tol=_SAME)
        or (math.isnan(known[name]) and math.isnan(again[name]))
        for name in known
    )


def _cut(path: pathlib.Path, size: int) -> int:
    """Removes the rest of a file after `size` bytes, which a crash left; returns the size."""
    with _storage.naming(path):
        if path.exists() and path.stat().st_size > size:
            os.truncate(path, size)
    return size
