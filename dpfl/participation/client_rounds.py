"""A participation log by client: the rounds of each client, and their statistics."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np


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

    def statistics(self, max_per_round: int) -> 'LogStatistics':
        """Numbers of clients, participations and separations."""
        return LogStatistics(
            clients=self.clients.size,
            participations=_histogram(self.counts),
            separations=_histogram(self.separations()),
            max_per_round=max_per_round,
        )


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
