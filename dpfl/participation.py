"""Which rounds a client may take part in (the schema), and which it did (the log)."""

import dataclasses
import zipfile
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl import _validate


@dataclasses.dataclass(frozen=True)
class Participation:
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
        _validate.integer('rounds', self.rounds, minimum=1)
        _validate.integer('min_separation', self.min_separation, minimum=1)
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


class ParticipationLog:
    """Which clients took part in each round: the record that a report compares with the plan.

    Clients are non-negative integers (int64). A client that is listed twice in one round is
    refused: its update would count twice.
    """

    def __init__(self, cohorts: Iterable[Sequence[int]] = ()):
        self._cohorts: list[np.ndarray] = []
        for cohort in cohorts:
            self.append(cohort)

    def append(self, cohort: Sequence[int]) -> None:
        """Adds the next round's clients.

        Raises:
          ValueError: if a client is not a non-negative integer, or listed twice.
        """
        clients = np.atleast_1d(np.asarray(cohort))
        if clients.size == 0:
            clients = clients.astype(np.int64)
        if clients.ndim != 1 or not np.issubdtype(clients.dtype, np.integer):
            raise ValueError(f'cohort has type {clients.dtype}: must be a list of integers')
        clients = np.sort(clients.astype(np.int64))
        if clients.size and clients[0] < 0:
            raise ValueError(f'cohort has client {clients[0]}: must be >= 0')
        if (np.diff(clients) == 0).any():
            raise ValueError(f'round {self.rounds}: a client is listed twice in one cohort')
        clients.setflags(write=False)
        self._cohorts.append(clients)

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

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, sorted, int64 [cohort size]."""
        return self._cohorts[round_index]

    def observed(self) -> Participation:
        """The tightest schema that every client kept: what happened, not what was planned.

        Where no client took part twice the separation is `rounds`: one round is all there was.

        Raises:
          ValueError: if no round was recorded.
        """
        if not self.rounds:
            raise ValueError('the participation log holds no round')
        clients, rounds = self._pairs()
        order = np.lexsort((rounds, clients))
        clients, rounds = clients[order], rounds[order]
        same_client = np.diff(clients) == 0
        gaps = np.diff(rounds)[same_client]
        separation = int(gaps.min()) if gaps.size else self.rounds
        counts = np.unique(clients, return_counts=True)[1]
        return Participation(
            rounds=self.rounds,
            min_separation=separation,
            max_participations=int(counts.max()) if counts.size else 1,
        )

    def save(self, file) -> None:
        """Writes the log as `.npz`: `clients` int64 [total], `offsets` int64 [rounds + 1].

        Args:
          file: path or open binary file.
        """
        clients, _ = self._pairs()
        offsets = np.concatenate([[0], np.cumsum(self.cohort_sizes)]).astype(np.int64)
        np.savez_compressed(file, clients=clients, offsets=offsets)

    @classmethod
    def load(cls, path) -> 'ParticipationLog':
        """Reads a log that `save` wrote.

        Raises:
          ValueError: if the file is not such a log.
        """
        try:
            with np.load(path, allow_pickle=False) as data:
                clients, offsets = data['clients'], data['offsets']
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f'{path}: not a participation log ({error})') from None
        return cls(np.split(clients, offsets[1:-1]) if offsets.size > 1 else ())

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All (client, round) pairs as two int64 vectors, by round."""
        if not self._cohorts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rounds = np.repeat(np.arange(self.rounds, dtype=np.int64), self.cohort_sizes)
        return np.concatenate(self._cohorts), rounds
