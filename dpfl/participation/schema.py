"""Participation schemas: the rounds in which a client may take part."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from dpfl import _json, _validate
from dpfl._validate import Limits, Rounds


@dataclasses.dataclass(frozen=True)
class Participation(_json.JsonFields):
    """Participation schema: (b, k)-min-separation over `rounds` rounds ([McMahan24], section 3.1).

    A client takes part in at most `max_participations` (k) rounds, and any two of them are at
    least `min_separation` (b) apart: `j - i >= b` for rounds i < j. b = 1 allows every round.

    `tensorflow_privacy` and the tables of [Xu23], [McMahan24] and [Xu23-accounting] count the
    rounds strictly between two participations instead (MinS = b - 1); see `from_rounds_between`.

    Attributes:
      rounds: number of rounds n, at least 1.
      min_separation: b, at least 1.
      max_participations: k, at least 1; None if only rounds and separation limit them.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> schema = Participation(rounds=2000, min_separation=342)
      >>> schema.count, schema.admits([0, 342]), schema.admits([0, 341])
      (6, True, False)
    """

    rounds: Annotated[int, Limits('rounds', minimum=1, maximum=_validate.MOST_ROUNDS)]
    min_separation: Rounds = 1
    max_participations: Rounds | None = None

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

    def least_population(self, clients_per_round: int) -> int:
        """Fewest clients that can fill cohorts of this size in all rounds and keep the schema.

        Any `min_separation` consecutive rounds have different clients, and all clients together
        have at most `count` places each. The clients in turn, in a fixed order, need no more.
        """
        apart = min(self.min_separation, self.rounds)
        return max(clients_per_round * apart, -(-clients_per_round * self.rounds // self.count))

    def admits(self, pattern: Sequence[int] | np.ndarray) -> bool:
        """Whether a client may take part in exactly these rounds (integers, in any order)."""
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
        """The schema with the same limits and another number of rounds."""
        return dataclasses.replace(self, rounds=rounds)
