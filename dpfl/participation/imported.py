"""Imports participation logs and round times that a production system wrote, as CSV or Parquet."""

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dpfl import _files, _parquet, _validate, errors
from dpfl.participation.columns import Fields, opened, read
from dpfl.participation.log import ParticipationLog
from dpfl.participation.round_times import RoundTimes

# What a number without rows, between the first and the last round, means.
MISSING_ROUNDS = ('refused', 'empty', 'unused')
_LOG = {'client': ('client', 'device'), 'round': ('round',), 'time': ('time',)}
_TIMES = {'round': ('round',), 'time': ('start', 'time')}
_MOST_ROWS = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False)
class ImportedLog:
    r"""A participation log from a file.

    Attributes:
      log: the log. Its clients have random numbers, which say nothing about the ids in the file.
      rows: number of rows in the file.
      first_round, last_round: smallest and largest number of a round in the file.
      missing_rounds: how many numbers between these have no row.
      times: of the earliest row of each round; None without a column of times.

    Example:
      >>> with open('log.csv', 'w') as file:
      ...     _ = file.write('client,round\na,1\nb,1\na,3\n')
      >>> imported = read_log('log.csv', missing_rounds='empty')
      >>> imported.missing_rounds, imported.log.cohort_sizes.tolist()
      (1, [2, 0, 1])
    """

    log: ParticipationLog
    rows: int
    first_round: int
    last_round: int
    missing_rounds: int
    times: RoundTimes | None = None

    def shortest_hours(self) -> float | None:
        """Least hours between the starts of two rounds of a client; None if that is not known."""
        if self.times is None:
            return None
        by_client = self.log.by_client()
        return self.times.shortest_hours(by_client.offsets, by_client.rounds)

    def remarks(self, missing_rounds: str) -> tuple[str, ...]:
        """Sentences of a report on the file of the log; the argument is that of `read_log`."""
        remarks = [
            f'The participation log was read from {self.rows} rows of rounds {self.first_round} to '
            f'{self.last_round}; the first of these is taken for the first round of the run. A '
            'client is what has an id of its own there.'
        ]
        if self.missing_rounds:
            meaning = 'released without clients' if missing_rounds == 'empty' else 'not released'
            remarks.append(
                f'{self.missing_rounds} of these numbers have no row: counted as {meaning}, as '
                'given.'
            )
        hours = self.shortest_hours()
        if hours is not None:
            remarks.append(
                'By the earliest time in each round, two rounds of one client began at least '
                f'{hours:.6g} hours apart.'
            )
        return tuple(remarks)


def read_log(path: str | os.PathLike[str], missing_rounds: str = 'refused') -> ImportedLog:
    r"""Reads a log with a row for each participation.

    The columns are `client` (or `device`), `round`, and optionally `time`, in any order; others are
    not read. A client is any text, such as a hashed id; ids are equal if their bytes are. The
    smallest number of a round is the first round of the run.

    Ids become random 64-bit keys. Two ids have the same key with a probability of about
    clients^2 / 2^65; their participations would then count as those of one client, which makes the
    limits that a log shows wider, never narrower. Memory: see docs/production.md.

    Args:
      path: a file of CSV (UTF-8), or of Parquet if its name ends in .parquet or .pq.
      missing_rounds: meaning of a number without a row. 'refused': the log is refused. 'empty': the
        round was released, and no client took part in it. 'unused': nothing was released under
        that number, so that the rounds before and after it follow one another.

    Raises:
      ArgumentError: `participation_log`, if the file cannot be read, a row is malformed, a client
        is in one round twice, or a round begins before an earlier one; the message has the number
        of the row, from 1 after the header. `missing_rounds`, if it is unknown.

    Example:
      >>> with open('log.csv', 'w') as file:
      ...     _ = file.write('client,round\na,1\nb,1\na,2\n')
      >>> read_log('log.csv').log.observed()
      Participation(rounds=2, min_separation=1, max_participations=2)
    """
    _validate.choice('missing_rounds', missing_rounds, MISSING_ROUNDS)
    with _refusing('participation_log', path):
        keys, numbers, times = _log_columns(path)
        first, last = int(numbers.min()), int(numbers.max())
        if last - first >= _validate.MOST_ROUNDS:
            raise ValueError(
                f'rounds have numbers from {first} to {last}: must be <= {_validate.MOST_ROUNDS}'
            )
        rounds = (numbers - first).astype(np.int32)
        del numbers
        is_present = np.bincount(rounds, minlength=last - first + 1) > 0
        missing = int((~is_present).sum())
        if missing and missing_rounds == 'refused':
            gap = first + int(np.argmin(is_present))
            raise ValueError(
                f'has no row of round {gap} ({missing} such rounds): missing_rounds must say '
                'whether they were released (empty) or not (unused)'
            )
        if missing_rounds == 'unused':
            rounds = (np.cumsum(is_present, dtype=np.int32) - 1)[rounds]
        clients = _numbered(keys)
        del keys
        log = _log(clients, rounds)
        round_times = None
        if times is not None:
            round_times = _starts(rounds, times, log.rounds) if log.rounds > 1 else None
    return ImportedLog(log, rounds.size, first, last, missing, round_times)


def read_round_times(path: str | os.PathLike[str]) -> RoundTimes:
    r"""Reads the times at which rounds were opened.

    The columns are `round` and `start` (or `time`), in any order; others are not read. Rows may be
    in any order. The numbers of rounds only order the rows: a number without a row is no round.

    Raises:
      ArgumentError: `round_times`, if the file cannot be read, a row is malformed, a round is
        there twice, there are fewer than two, or a round starts before the previous one.

    Example:
      >>> with open('times.csv', 'w') as file:
      ...     _ = file.write('round,start\n1,2026-01-01T00:00Z\n2,2026-01-01T01:00Z\n')
      >>> read_round_times('times.csv').hours
      1.0
    """
    with _refusing('round_times', path):
        parts = [(part['round'].integers(), part['time'].times()) for part in _parts(path, _TIMES)]
        if not parts:
            raise ValueError('has no rows')
        numbers, times = (np.concatenate(column) for column in zip(*parts, strict=True))
        if numbers.size > _validate.MOST_ROUNDS:
            raise ValueError(f'has {numbers.size} rows: must be <= {_validate.MOST_ROUNDS}')
        order = np.argsort(numbers, kind='stable')
        numbers, times = numbers[order], times[order]
        again = np.flatnonzero(numbers[1:] == numbers[:-1])
        if again.size:
            row = int(order[again + 1].min()) + 1
            raise ValueError(f'row {row}: its round is in an earlier row')
        earlier = np.flatnonzero(times[1:] < times[:-1])
        if earlier.size:
            row = int(order[earlier[0] + 1]) + 1
            raise ValueError(f'row {row}: its round starts before the previous round')
        return RoundTimes(times)


@contextlib.contextmanager
def _refusing(name: str, path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.ArgumentError(name, path, f'cannot be read ({error.strerror})') from None
    except ValueError as error:  # Also an `ArgumentError` about a column.
        raise errors.ArgumentError(name, path, str(error)) from None


def _parts(
    path: str | os.PathLike[str], columns: Mapping[str, Sequence[str]], optional: Sequence[str] = ()
) -> Iterator[dict[str, Fields]]:
    if str(path).endswith(_parquet.SUFFIXES):
        names = tuple(name for known in columns.values() for name in known)
        with opened(path, names) as file:
            yield from read(file, columns, optional)
    else:
        with _files.open_regular(path) as file:
            yield from read(file, columns, optional)


def _log_columns(
    path: str | os.PathLike[str],
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Keys of the clients, numbers of the rounds, and times, each [rows]."""
    secret = secrets.randbits(63)
    keys, numbers, times = [], [], []
    for part in _parts(path, _LOG, optional=['time']):
        keys.append(part['client'].keys(secret))
        numbers.append(part['round'].integers())
        if 'time' in part:
            times.append(part['time'].times())
    if not keys:
        raise ValueError('has no rows')
    return np.concatenate(keys), np.concatenate(numbers), np.concatenate(times) if times else None


def _numbered(keys: np.ndarray) -> np.ndarray:
    """Numbers 0 .. clients - 1 in place of keys, equal for equal ones, int32 [rows]."""
    if keys.size > _MOST_ROWS:
        raise ValueError(f'has {keys.size} rows: must be <= {_MOST_ROWS}')
    order = np.argsort(keys)
    ordered = keys[order]
    is_new = np.append(False, ordered[1:] != ordered[:-1])
    del ordered
    clients = np.empty(keys.size, np.int32)
    clients[order] = np.cumsum(is_new, dtype=np.int32)
    return clients


def _log(clients: np.ndarray, rounds: np.ndarray) -> ParticipationLog:
    """The log of all rows; refuses a client that is in a round twice."""
    pairs = rounds.astype(np.int64) << 32
    pairs |= clients
    pairs.sort()
    again = pairs[1:][pairs[1:] == pairs[:-1]]
    if again.size:
        rows = np.flatnonzero(((rounds.astype(np.int64) << 32) | clients) == again[0]) + 1
        raise ValueError(
            f'row {rows[1]}: its client is in the same round in row {rows[0]} already; a client '
            'takes part in a round once'
        )
    offsets = np.append(0, np.cumsum(np.bincount(rounds)))
    return ParticipationLog.from_arrays((pairs & 0xFFFFFFFF).astype(np.int32), offsets)


def _starts(rounds: np.ndarray, times: np.ndarray, count: int) -> RoundTimes | None:
    """The earliest time of each round; None if a round has no row."""
    starts = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(starts, rounds, times)
    if (np.bincount(rounds, minlength=count) == 0).any():
        return None
    earlier = np.flatnonzero(starts[1:] < starts[:-1])
    if earlier.size:
        row = int(np.flatnonzero((rounds == earlier[0] + 1) & (times == starts[earlier[0] + 1]))[0])
        raise ValueError(
            f'row {row + 1}: its round begins before the previous round; rounds must be numbered '
            'in the order of their releases'
        )
    return RoundTimes(starts)
