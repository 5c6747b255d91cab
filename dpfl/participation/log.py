"""Participation logs: the clients that took part in each round."""

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from dpfl import _npz, _validate, errors
from dpfl.participation.schema import Participation


@dataclasses.dataclass(frozen=True, eq=False)
class ClientRounds:
    """The rounds of each client.

    If a client was listed several times in one round, that round is repeated as often.

    Attributes:
      clients: clients that were listed at least once, increasing, integers [clients].
      offsets: index in `rounds` where each client begins, int64 [clients + 1].
      rounds: rounds of all clients, one client after the other, in order, int32 [listings].

    Example:
      >>> ParticipationLog([[1, 2], [2, 5]]).by_client().rounds  # Of clients 1, 2 and 5.
      array([0, 0, 1, 1], dtype=int32)
    """

    clients: np.ndarray
    offsets: np.ndarray
    rounds: np.ndarray

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """Number of participations of each client, int64 [clients]."""
        return np.diff(self.offsets)

    def of_listing(self, place: int) -> tuple[int, int]:
        """The client of an entry of `rounds`, and its first round."""
        index = int(np.searchsorted(self.offsets, place, side='right')) - 1
        return int(self.clients[index]), int(self.rounds[self.offsets[index]])

    def separations(self) -> np.ndarray:
        """Rounds from each participation to the client's next one in another round, int32 [..]."""
        gaps = np.diff(self.rounds)
        gaps[self.offsets[1:-1] - 1] = 0  # From one client to the next.
        return gaps[gaps > 0]

    def patterns(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the clients with equally many participations, and their rounds.

        Each item is the clients [m] and their rounds, int32 [m, participations]. The fewest
        participations come first.
        """
        order = np.argsort(self.counts, kind='stable')
        counts = self.counts[order]
        for group in np.split(order, np.flatnonzero(np.diff(counts)) + 1):
            if group.size:
                places = self.offsets[group, None] + np.arange(self.counts[group[0]])
                yield self.clients[group], self.rounds[places]


@dataclasses.dataclass(frozen=True)
class LogStatistics:
    """Statistics of the clients in a participation log.

    Attributes:
      clients: number of distinct clients.
      participations: number of clients by their number of participations, fewest first.
      separations: number of pairs of consecutive participations of a client in different rounds,
        by their distance in rounds (j - i), smallest first.
      max_per_round: largest number of times that one client is listed in one round, at least 1.

    Example:
      >>> ParticipationLog([[1, 2], [3], [2]]).statistics().separations
      {2: 1}
    """

    clients: int
    participations: dict[int, int]
    separations: dict[int, int]
    max_per_round: int


def _histogram(values: np.ndarray) -> dict[int, int]:
    counts = np.bincount(values)
    present = np.flatnonzero(counts)
    return dict(zip(present.tolist(), counts[present].tolist(), strict=True))


class ParticipationLog:
    """The clients that took part in each round. A report compares them with the plan.

    Clients are non-negative integers (int64). A client that is listed twice in one round took part
    twice in it, see `max_per_round`.

    Args:
      cohorts: clients of each round.

    Example:
      >>> log = ParticipationLog([[1, 2], [3], [2]])
      >>> log.observed()
      Participation(rounds=3, min_separation=2, max_participations=2)
    """

    def __init__(self, cohorts: Iterable[Sequence[int] | np.ndarray] = ()):
        self._cohorts: list[np.ndarray] = []
        self._max_per_round = 1
        self._by_client: ClientRounds | None = None
        for cohort in cohorts:
            self.append(cohort)

    def append(self, cohort: Sequence[int] | np.ndarray) -> None:
        """Adds the clients of the next round.

        Raises:
          ArgumentError: if a client is not a non-negative integer.
        """
        clients = np.atleast_1d(np.asarray(cohort))
        if clients.size == 0:
            clients = clients.astype(np.int64)
        if clients.ndim != 1 or not np.issubdtype(clients.dtype, np.integer):
            raise errors.ArgumentError(
                'cohort', errors.NOT_SHOWN, f'has type {clients.dtype}, must be a list of integers'
            )
        clients = np.sort(clients)
        if clients.size and clients[0] < 0:
            raise errors.ArgumentError('cohort client', clients[0], 'must be >= 0')
        if clients.size and clients[-1] > np.iinfo(np.int64).max:
            raise errors.ArgumentError('cohort client', clients[-1], 'must be < 2**63')
        is_small = not clients.size or clients[-1] <= np.iinfo(np.int32).max
        self._add(clients.astype(np.int32 if is_small else np.int64))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ParticipationLog)
            and self.rounds == other.rounds
            and all(map(np.array_equal, self._cohorts, other._cohorts))
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def rounds(self) -> int:
        """Number of rounds recorded."""
        return len(self._cohorts)

    @property
    def cohort_sizes(self) -> np.ndarray:
        """Number of clients in each round, int64 [rounds]."""
        return np.array([cohort.size for cohort in self._cohorts], dtype=np.int64)

    @property
    def max_per_round(self) -> int:
        """Largest number of times that one client is listed in one round, at least 1.

        The sensitivity of a schema is valid for 1. For m it is valid for m times the clip norm.
        """
        return self._max_per_round

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, sorted, int64 [cohort size]."""
        return self._cohorts[round_index].astype(np.int64)

    def by_client(self) -> ClientRounds:
        """The rounds of each client, by one stable sort of the listings."""
        if self._by_client is None:
            clients = self._clients()
            order = np.argsort(clients, kind='stable')
            rounds = np.repeat(np.arange(self.rounds, dtype=np.int32), self.cohort_sizes)[order]
            clients = clients[order]
            firsts = np.append(0, np.flatnonzero(clients[1:] != clients[:-1]) + 1)[: clients.size]
            offsets = np.append(firsts, clients.size)
            self._by_client = ClientRounds(clients[firsts], offsets, rounds)
        return self._by_client

    def observed(self) -> Participation:
        """The tightest schema that every client satisfied: what happened, not what was planned.

        If no client took part in two rounds, the separation is `rounds`. Two listings in one round
        count as two participations, but not as a separation.

        Raises:
          ValueError: if no round was recorded.
        """
        if not self.rounds:
            raise ValueError('the participation log holds no round')
        by_client = self.by_client()
        return Participation(
            rounds=self.rounds,
            min_separation=int(by_client.separations().min(initial=self.rounds)),
            max_participations=int(by_client.counts.max(initial=1)),
        )

    def statistics(self) -> LogStatistics:
        """Numbers of clients, participations and separations."""
        by_client = self.by_client()
        return LogStatistics(
            clients=by_client.clients.size,
            participations=_histogram(by_client.counts),
            separations=_histogram(by_client.separations()),
            max_per_round=self.max_per_round,
        )

    def save(self, file: str | os.PathLike | BinaryIO) -> None:
        """Writes the log as `.npz`.

        The file holds `clients`, one round after the other and sorted within each, int32 [total]
        (int64 if one is 2^31 or more), and `offsets`, int64 [rounds + 1].

        Args:
          file: path, used as it is, or open binary file.
        """
        offsets = np.concatenate([[0], np.cumsum(self.cohort_sizes)]).astype(np.int64)
        _npz.save(file, {'clients': self._clients(), 'offsets': offsets}, compressed=True)

    @classmethod
    def load(cls, path: str | os.PathLike) -> 'ParticipationLog':
        """Reads a log that `save` wrote.

        Raises:
          ArgumentError: if the file is not a participation log; the message says what is wrong.
        """
        try:
            arrays = _npz.load(path)
            for name in ('clients', 'offsets'):
                if name not in arrays:
                    raise ValueError(f'{name} is missing')
            return cls.from_arrays(arrays['clients'], arrays['offsets'])
        except ValueError as error:
            raise errors.ArgumentError(
                'participation_log', path, f'is not a participation log ({error})'
            ) from None

    @classmethod
    def from_arrays(cls, clients: np.ndarray, offsets: np.ndarray) -> 'ParticipationLog':
        """A log from the arrays that `save` writes; they are not copied.

        Raises:
          ValueError: if they are not those of a log.
        """
        _check(clients, offsets)
        decreases = np.flatnonzero(clients[1:] < clients[:-1]) + 1
        if not np.isin(decreases, offsets).all():
            raise ValueError('clients are not sorted within each round')
        log = cls()
        for cohort in _split(clients, offsets):
            log._add(cohort)
        return log

    def _add(self, clients: np.ndarray) -> None:
        """Adds a round of sorted clients."""
        if (clients[1:] == clients[:-1]).any():
            repeats = int(np.unique(clients, return_counts=True)[1].max())
            self._max_per_round = max(self._max_per_round, repeats)
        clients.setflags(write=False)
        self._cohorts.append(clients)
        self._by_client = None

    def _clients(self) -> np.ndarray:
        """The clients of all rounds, round after round, int32 or int64 [total]."""
        return np.concatenate([np.zeros(0, np.int32), *self._cohorts])


def cohorts(clients: np.ndarray, offsets: np.ndarray, rounds: int) -> list[np.ndarray]:
    """The clients of each round, from the arrays that `ParticipationLog.save` writes.

    Args:
      clients: clients of all rounds, one round after the other, in any order within a round.
      offsets: index in `clients` where each round begins, int64 [rounds + 1].
      rounds: number of rounds that the arrays must have.

    Raises:
      ValueError: if the arrays are not a log of `rounds` rounds.

    Example:
      >>> cohorts(np.array([4, 7, 4]), np.array([0, 2, 3]), rounds=2)
      [array([4, 7]), array([4])]
    """
    _check(clients, offsets)
    if offsets.size - 1 != rounds:
        raise ValueError(f'offsets are those of {offsets.size - 1} rounds: must be {rounds}')
    return _split(clients, offsets)


def _split(clients: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    bounds = offsets.tolist()
    return [clients[start:end] for start, end in zip(bounds[:-1], bounds[1:], strict=True)]


def _check(clients: np.ndarray, offsets: np.ndarray) -> None:
    """Raises ValueError unless the arrays are a log; cohorts need not be sorted."""
    for name, array, types in (
        ('clients', clients, (np.int32, np.int64)),
        ('offsets', offsets, (np.int64,)),
    ):
        if array.ndim != 1 or array.dtype not in types:
            raise ValueError(f'{name} is {array.dtype} of shape {array.shape}')
    if not offsets.size or offsets[0] != 0:
        raise ValueError(f'offsets start with {offsets[:1].tolist()}: must start with 0')
    if offsets.size - 1 > _validate.MOST_ROUNDS:
        raise ValueError(f'{offsets.size - 1} rounds: must be <= {_validate.MOST_ROUNDS}')
    if (offsets[1:] < offsets[:-1]).any():  # Differences could overflow.
        raise ValueError('offsets decrease')
    if offsets[-1] != clients.size:
        raise ValueError(f'offsets end with {offsets[-1]}, and there are {clients.size} clients')
    if clients.size and clients.min() < 0:
        raise ValueError(f'it has client {clients.min()}: must be >= 0')
