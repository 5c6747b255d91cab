"""Which rounds a client may take part in (the schema), and which it did (the log)."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dpfl import _json, _npz, _validate


@dataclasses.dataclass(frozen=True)
class Participation(_json.JsonFields):
    """Participation schema: (b, k)-min-separation over `rounds` rounds (document 002, section 3.1).

    A client takes part in at most `max_participations` (k) rounds, and any two of them are at
    least `min_separation` (b) apart: `j - i >= b` for rounds i < j. b = 1 allows every round.

    `tensorflow_privacy` and the tables of documents 000, 002 and 003 count the rounds strictly
    between two participations instead (MinS = b - 1); see `from_rounds_between`.

    Attributes:
      rounds: number of rounds n, at least 1.
      min_separation: b, at least 1.
      max_participations: k, at least 1, or None for as many as rounds and separation allow.

    Raises:
      ValueError: if a field is out of its range.
    """

    rounds: int
    min_separation: int = 1
    max_participations: int | None = None

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        _validate.integer('min_separation', self.min_separation, minimum=1, maximum=2**31 - 1)
        if self.max_participations is not None:
            _validate.integer('max_participations', self.max_participations, minimum=1)

    @classmethod
    def from_rounds_between(
        cls, rounds: int, rounds_between: int, max_participations: int | None = None
    ) -> 'Participation':
        """Schema from MinS, the least number of rounds strictly between two participations."""
        _validate.integer('rounds_between', rounds_between, minimum=0)
        return cls(rounds, rounds_between + 1, max_participations)

    @property
    def count(self) -> int:
        """Largest number of participations that a client can reach."""
        reachable = -(-self.rounds // self.min_separation)
        if self.max_participations is None:
            return reachable
        return min(self.max_participations, reachable)

    def admits(self, pattern: Sequence[int]) -> bool:
        """Whether a client may take part in exactly these rounds (integers, any order)."""
        ordered = np.sort(np.asarray(pattern, dtype=np.int64))
        if ordered.size == 0:
            return True
        return bool(
            ordered.size <= self.count
            and ordered[0] >= 0
            and ordered[-1] < self.rounds
            and (np.diff(ordered) >= self.min_separation).all()
        )

    def within(self, rounds: int) -> 'Participation':
        """The same limits over the first `rounds` rounds."""
        return dataclasses.replace(self, rounds=rounds)


@dataclasses.dataclass(frozen=True, eq=False)
class ClientRounds:
    """A participation log turned around: the rounds of each client.

    A client that was listed several times in one round has that round as often.

    Attributes:
      clients: those that were ever listed, increasing, integers [clients].
      offsets: where the rounds of each client begin, int64 [clients + 1].
      rounds: client after client, not decreasing for each of them, int32 [listings].
    """

    clients: np.ndarray
    offsets: np.ndarray
    rounds: np.ndarray

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """Participations of each client, int64 [clients]."""
        return np.diff(self.offsets)

    def separations(self) -> np.ndarray:
        """Rounds from each participation to the client's next one in another round, int32 [..]."""
        gaps = np.diff(self.rounds)
        gaps[self.offsets[1:-1] - 1] = 0  # from one client to the next
        return gaps[gaps > 0]

    def patterns(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Clients with equally many participations, and their rounds.

        Yields:
          Clients [m] and their rounds, int32 [m, participations]; fewest participations first.
        """
        order = np.argsort(self.counts, kind='stable')
        counts = self.counts[order]
        for group in np.split(order, np.flatnonzero(np.diff(counts)) + 1):
            if group.size:
                places = self.offsets[group, None] + np.arange(self.counts[group[0]])
                yield self.clients[group], self.rounds[places]


@dataclasses.dataclass(frozen=True)
class LogStatistics:
    """What a participation log says about its clients.

    Attributes:
      clients: number of distinct clients.
      participations: number of clients by their participations, fewest first.
      separations: number of pairs of consecutive participations of a client, in different rounds,
        by the rounds from one to the other (j - i), smallest first.
      max_per_round: largest number of times that one client is listed in one round, at least 1.
    """

    clients: int
    participations: dict[int, int]
    separations: dict[int, int]
    max_per_round: int


class ParticipationLog:
    """Which clients took part in each round: the record that a report compares with the plan.

    Clients are non-negative integers (int64). A log records what happened: a client that is listed
    twice in one round took part twice in it, see `max_per_round`.
    """

    def __init__(self, cohorts: Iterable[Sequence[int]] = ()):
        self._cohorts: list[np.ndarray] = []
        self._max_per_round = 1
        self._by_client: ClientRounds | None = None
        for cohort in cohorts:
            self.append(cohort)

    def append(self, cohort: Sequence[int]) -> None:
        """Adds the next round's clients.

        Raises:
          ValueError: if a client is not a non-negative integer.
        """
        clients = np.atleast_1d(np.asarray(cohort))
        if clients.size == 0:
            clients = clients.astype(np.int64)
        if clients.ndim != 1 or not np.issubdtype(clients.dtype, np.integer):
            raise ValueError(f'cohort has type {clients.dtype}: must be a list of integers')
        clients = np.sort(clients)
        if clients.size and clients[0] < 0:
            raise ValueError(f'cohort has client {clients[0]}: must be >= 0')
        if clients.size and clients[-1] > np.iinfo(np.int64).max:
            raise ValueError(f'cohort has client {clients[-1]}: must be < 2**63')
        self._add(clients.astype(_smallest_type(clients)))

    def __eq__(self, other) -> bool:
        return (
            isinstance(other, ParticipationLog)
            and self.rounds == other.rounds
            and all(map(np.array_equal, self._cohorts, other._cohorts))
        )

    __hash__ = None

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

        Sensitivities of schemas hold for 1. With m they hold for m times the clip norm.
        """
        return self._max_per_round

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, sorted, int64 [cohort size]."""
        return self._cohorts[round_index].astype(np.int64)

    def by_client(self) -> ClientRounds:
        """The rounds of each client. Takes one stable sort of the listings."""
        if self._by_client is None:
            clients = self._clients()
            order = np.argsort(clients, kind='stable')
            rounds = np.repeat(np.arange(self.rounds, dtype=np.int32), self.cohort_sizes)[order]
            clients = clients[order]
            firsts = np.flatnonzero(np.diff(clients, prepend=-1))
            offsets = np.append(firsts, clients.size)
            self._by_client = ClientRounds(clients[firsts], offsets, rounds)
        return self._by_client

    def observed(self) -> Participation:
        """The tightest schema that every client kept: what happened, not what was planned.

        Where no client took part in two rounds the separation is `rounds`: one round is all there
        was. Two listings in one round are two participations and no separation.

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

    def save(self, file) -> None:
        """Writes the log as `.npz`.

        It holds `clients`, round after round and sorted in each of them, int32 [total], or int64
        where one is 2^31 or more, and `offsets`, int64 [rounds + 1].

        Args:
          file: path or open binary file.
        """
        offsets = np.concatenate([[0], np.cumsum(self.cohort_sizes)]).astype(np.int64)
        np.savez_compressed(file, clients=self._clients(), offsets=offsets)

    @classmethod
    def load(cls, path) -> 'ParticipationLog':
        """Reads a log that `save` wrote.

        Raises:
          ValueError: if the file is not such a log: the message says what is wrong with it.
        """
        try:
            clients, offsets = _read(path)
            _check(clients, offsets)
            decreases = np.flatnonzero(clients[1:] < clients[:-1]) + 1
            if not np.isin(decreases, offsets).all():
                raise ValueError('clients are not sorted within each round')
        except ValueError as error:
            raise ValueError(f'{path}: not a participation log ({error})') from None
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


def _smallest_type(clients: np.ndarray) -> type:
    """The smaller of int32 and int64 that holds all of the sorted clients."""
    fits = not clients.size or clients[-1] <= np.iinfo(np.int32).max
    return np.int32 if fits else np.int64


def _histogram(values: np.ndarray) -> dict[int, int]:
    counts = np.bincount(values)
    present = np.flatnonzero(counts)
    return dict(zip(present.tolist(), counts[present].tolist(), strict=True))


def _read(path) -> tuple[np.ndarray, np.ndarray]:
    arrays = _npz.load(path)
    for name in ('clients', 'offsets'):
        if name not in arrays:
            raise ValueError(f'{name} is missing')
    return arrays['clients'], arrays['offsets']


def cohorts(clients: np.ndarray, offsets: np.ndarray, rounds: int) -> list[np.ndarray]:
    """The clients of each round, sorted or not, from arrays as `ParticipationLog.save` writes them.

    Raises:
      ValueError: if they are not those of a log of so many rounds.
    """
    _check(clients, offsets)
    if offsets.size - 1 != rounds:
        raise ValueError(f'offsets are those of {offsets.size - 1} rounds: must be {rounds}')
    return _split(clients, offsets)


def _split(clients: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    bounds = offsets.tolist()
    return [clients[start:end] for start, end in zip(bounds[:-1], bounds[1:], strict=True)]


def _check(clients: np.ndarray, offsets: np.ndarray) -> None:
    """Raises ValueError unless the arrays are those of a log, whose cohorts need not be sorted."""
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
