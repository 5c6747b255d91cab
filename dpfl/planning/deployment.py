"""The deployment of a planned run: clients, rounds, and the participation that they allow."""

import dataclasses
import math

from dpfl import _validate, errors
from dpfl.participation import Participation, RoundTimes
from dpfl.planning.paces import Pace

_MINUTES_PER_HOUR = 60
_MOST_CLIENTS = 10**15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment:
    """Clients and rounds of a planned run, and the separation and participations that they allow.

    With separation b, any b consecutive rounds have different clients. So b is at most the number
    of clients that ever report divided by the cohort size ([Xu23], section 2.2). Below that, a
    timer on the clients or a limit in rounds determines b. Without either, b is the limit of the
    population, as in [Xu23], figures 4a and 4b.

    Attributes:
      population: number of clients, an estimate, at least 1.
      clients_per_round: m, the cohort size, at least 1.
      rounds: n, at least 1.
      availability: share of the population that ever reports, within (0, 1].
      timer_hours: time until a client may take part again, above 0, or None.
      round_minutes: duration of a round, above 0; given with `timer_hours` only. If rounds differ,
        it is that of the longest ones: the fewer rounds a timer covers, the less it separates.
      pace: a record of the times of rounds, or an assumption about them, in place of
        `round_minutes`; or None. The timer then covers the fewest rounds in any window of its
        length. `RoundTimes` that cover all rounds also limit the participations.
      min_separation: enforced separation b in rounds, within 1 .. rounds, or None; not with a
        timer.
      max_participations: most rounds of a client, or None for no limit.

    Raises:
      ValueError: if a field is out of its range, fields contradict each other, or the population
        cannot provide the cohorts with these limits.

    Example:
      >>> deployment = Deployment(
      ...     population=4_210_000, clients_per_round=6500, rounds=1900, timer_hours=24,
      ...     round_minutes=4.6)
      >>> deployment.participation.min_separation, deployment.separation_limit
      (313, 'timer')
    """

    population: int
    clients_per_round: int
    rounds: int
    availability: float = 1.0
    timer_hours: float | None = None
    round_minutes: float | None = None
    pace: Pace | None = None
    min_separation: int | None = None
    max_participations: int | None = None

    def __post_init__(self) -> None:
        _validate.integer('population', self.population, minimum=1, maximum=_MOST_CLIENTS)
        _validate.integer('clients_per_round', self.clients_per_round, minimum=1)
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        _validate.number('availability', self.availability, above=0, maximum=1)
        if self.clients_per_round > self.reporting_clients:
            raise errors.ArgumentError(
                'clients_per_round',
                self.clients_per_round,
                f'must be <= {self.reporting_clients}, '
                f'the clients that report (population={self.population} times availability='
                f'{self.availability:g})',
            )
        self._check_timer()
        self._check_separation()
        self._check_participations()

    def _check_timer(self) -> None:
        known = (self.round_minutes is not None) + (self.pace is not None)
        if (self.timer_hours is None and known) or (self.timer_hours is not None and known != 1):
            raise ValueError(
                'timer_hours, round_minutes: must be given together, or timer_hours and pace'
            )
        if self.timer_hours is None:
            return
        _validate.number('timer_hours', self.timer_hours, above=0, maximum=1e6)
        if self.pace is None:
            _validate.number('round_minutes', self.round_minutes, minimum=1e-3)
        else:
            self.pace.fewest_rounds(self.timer_hours)  # May refuse the timer.

    def _check_separation(self) -> None:
        if self.min_separation is None:
            return
        if self.timer_hours is not None:
            raise errors.ArgumentError(
                'min_separation', self.min_separation, 'cannot be combined with timer_hours'
            )
        _validate.integer('min_separation', self.min_separation, minimum=1, maximum=self.rounds)
        if self.min_separation > self.population_separation:
            raise errors.ArgumentError(
                'min_separation',
                self.min_separation,
                f'must be <= {self.population_separation}, '
                f'what {self.reporting_clients} reporting clients allow with clients_per_round='
                f'{self.clients_per_round}',
            )

    def _check_participations(self) -> None:
        if self.max_participations is None:
            return
        _validate.integer('max_participations', self.max_participations, minimum=1)
        least = -(-self.rounds * self.clients_per_round // self.reporting_clients)
        if self.max_participations < least:
            raise errors.ArgumentError(
                'max_participations',
                self.max_participations,
                f'must be >= {least}, for {self.reporting_clients} reporting clients to fill the '
                f'cohorts of {self.rounds} rounds with clients_per_round={self.clients_per_round}',
            )

    @property
    def reporting_clients(self) -> int:
        """Clients that ever report: `population * availability`, rounded down."""
        return int(self.population * self.availability)

    @property
    def population_separation(self) -> int:
        """Largest b that the population allows, whatever the timer."""
        return self.reporting_clients // self.clients_per_round

    @property
    def timer_separation(self) -> int | None:
        """Rounds that the timer covers, rounded down and at least 1; None without a timer."""
        if self.timer_hours is None:
            return None
        if self.pace is not None:
            return max(1, self.pace.fewest_rounds(self.timer_hours))
        assert self.round_minutes is not None  # See `_check_timer`.
        return max(1, math.floor(self.timer_hours * _MINUTES_PER_HOUR / self.round_minutes))

    @property
    def timer_participations(self) -> int | None:
        """Most rounds of a client with the timer; None if this is not known.

        It is known if `pace` has the times of all planned rounds, and the population always has a
        cohort whose timers are over. Otherwise rounds wait for clients, and the times do not hold.
        """
        if not isinstance(self.pace, RoundTimes) or self.pace.starts.size < self.rounds:
            return None
        assert self.timer_hours is not None  # A pace needs it.
        if self.population_separation <= self.pace.most_away(self.timer_hours):
            return None
        return self.pace.most_participations(self.timer_hours, self.rounds)

    @property
    def participation(self) -> Participation:
        """The schema that can be reached, with b at most the number of rounds."""
        enforced = self.min_separation or self.timer_separation or self.population_separation
        separation = min(enforced, self.population_separation, self.rounds)
        schema = Participation(self.rounds, separation, self.max_participations)
        by_timer = self.timer_participations
        if by_timer is None or by_timer >= schema.count:
            return schema
        return dataclasses.replace(schema, max_participations=by_timer)

    @property
    def separation_limit(self) -> str:
        """What limits b: 'rounds', 'population', 'timer' or 'min_separation'."""
        separation = self.participation.min_separation
        if separation == self.rounds:
            return 'rounds'
        if separation == self.population_separation:
            return 'population'
        return 'timer' if self.timer_hours is not None else 'min_separation'
