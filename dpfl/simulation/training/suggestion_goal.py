"""The guarantee that a proposed run should have, its cohorts and plans; and a proposed setting."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from dpfl import Participation, accounting, mechanisms
from dpfl.errors import ArgumentError

_ROUNDS, _ROUNDS_WITHOUT_NOISE = (50, 100, 200), 150
# Rounds in which a client takes part, on average, that are tried. More of them make the cohorts
# larger: without correlated noise, that of the final model falls with the square root.
_PARTICIPATIONS = (1, 2, 5, 10, 20, 50, 100)
_LEAST_COHORT, _LARGEST_COHORT, _COHORT_WITHOUT_NOISE = 10, 1000, 50
# Updates of clients in a run that takes minutes on two cores; more of them only where every client
# takes part once.
_FEW_UPDATES = 12_000
# The noise of a trial needs no better accountant, and there are many trials.
_ACCOUNTANT = 'analytic_gaussian'


@dataclasses.dataclass(frozen=True)
class Goal:
    """The guarantee that a run should have.

    Attributes:
      population: number of clients to train on.
      epsilon: of the run; None for a run without noise.
      delta: of the run.
      before: the releases of the run before its first round.

    Raises:
      ArgumentError: if delta is not below 1 / population; a mechanism that publishes a random
        client would keep such a guarantee.
    """

    population: int
    epsilon: float | None
    delta: float
    before: tuple[accounting.ReleaseBefore, ...] = ()

    def __post_init__(self):
        if self.epsilon is not None and self.delta * self.population >= 1:
            raise ArgumentError(
                'delta',
                self.delta,
                f'must be < 1 / {self.population}, the number of clients; without it '
                f'{usual_delta(self.population):g} is taken',
            )

    def cohort(self, rounds: int, participations: int) -> int:
        """Clients per round, if each client takes part in `participations` of `rounds` rounds."""
        if self.epsilon is None:
            return min(_COHORT_WITHOUT_NOISE, self.population)
        wanted = round(self.population * participations / rounds)
        return min(max(wanted, _LEAST_COHORT), _LARGEST_COHORT, self.population)

    def options(self, rounds: int | None) -> dict[str, tuple[int, ...]]:
        """Numbers of `rounds` and of `participations` to try, each with another cohort."""
        if rounds is not None:
            all_rounds: tuple[int, ...] = (rounds,)
        else:
            all_rounds = (_ROUNDS_WITHOUT_NOISE,) if self.epsilon is None else _ROUNDS
        usual = all_rounds[len(all_rounds) // 2]
        cohorts = {
            self.cohort(usual, participations): participations
            for participations in reversed(_PARTICIPATIONS)
        }
        least = min(cohorts)
        kept = sorted(
            participations
            for size, participations in cohorts.items()
            if size == least or size * usual <= _FEW_UPDATES
        )
        return {'rounds': all_rounds, 'participations': tuple(kept)}

    def schema(self, rounds: int, participations: int) -> dict[str, int]:
        """Settings of rounds and cohorts, which all clients can keep."""
        size = self.cohort(rounds, participations)
        separation = max(min(self.population // size, rounds), 1)
        return {'rounds': rounds, 'clients_per_round': size, 'min_separation': separation}

    def plan(self, values: Mapping[str, Any]) -> accounting.PrivacyPlan:
        """The plan of a trial: noise of BandFHU, which needs no optimiser and is nearly the best.

        Args:
          values: `rounds`, `participations` and `clip_norm`.
        """
        chosen = self.schema(values['rounds'], values['participations'])
        rounds, separation = chosen['rounds'], chosen['min_separation']
        participation = Participation(rounds, separation)
        fields: dict[str, Any] = dict(
            participation=participation,
            clip_norm=values['clip_norm'],
            clients_per_round=chosen['clients_per_round'],
        )
        if self.epsilon is None:
            mechanism: mechanisms.Mechanism = mechanisms.Identity(rounds)
            return accounting.PrivacyPlan(mechanism=mechanism, noise_multiplier=0.0, **fields)
        return accounting.PrivacyPlan.calibrated(
            mechanism=mechanisms.BandedToeplitz.fichtenberger(rounds, separation),
            epsilon=self.epsilon,
            delta=self.delta,
            accountant=_ACCOUNTANT,
            before=self.before,
            **fields,
        )


def usual_delta(population: int) -> float:
    """The largest power of ten that is at most `1 / population ** 1.1`."""
    return 10.0 ** -math.ceil(1.1 * math.log10(max(population, 10)))


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A setting, its proposed value, and why.

    Attributes:
      name: name of the setting.
      value: proposed value.
      reason: why, in a clause.
      is_from_data: whether the value depends on the data of clients, without noise.
    """

    name: str
    value: Any
    reason: str
    is_from_data: bool = True
