"""The deployment of a planned run: clients, rounds, and the participation that they allow."""

import dataclasses
import fractions
import math
from typing import Protocol

import numpy as np

from dpfl import _validate, errors
from dpfl.participation import Participation, RoundTimes

_HOURS = 24
_MINUTES = 1440
_MOST_HOURS = 1e6
_MINUTES_PER_HOUR = 60
_MOST_CLIENTS = 10**15


class Pace(Protocol):
    """A record of the times of rounds, or an assumption about them; `RoundTimes` is one as well.

    Example:
      >>> pace: Pace = DailyCounts((90, 110, 100))
      >>> pace.fewest_rounds(48)
      90
    """

    def fewest_rounds(self, hours: float) -> int:
        """The fewest rounds in any window of `hours` hours, at least 0."""

    def describe(self) -> str:
        """Where the number comes from and what it assumes, as a clause."""


@dataclasses.dataclass(frozen=True)
class DailyPattern:
    """A pace that varies over the day, and is the same on all days.

    Attributes:
      round_minutes: minutes of a round on average over the day: 1440 over the rounds per day.
      rates: rounds opened in each hour of the day, relative to one another, 24 numbers >= 0.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> DailyPattern(10.0, (1.0,) * 24).fewest_rounds(24)
      144
    """

    round_minutes: float
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        _validate.number('round_minutes', self.round_minutes, minimum=1e-3, maximum=1e6)
        if len(self.rates) != _HOURS:
            raise errors.ArgumentError(
                'daily_pattern', errors.NOT_SHOWN, f'has {len(self.rates)} numbers, must have 24'
            )
        for rate in self.rates:
            _validate.number('daily_pattern', rate, minimum=0, maximum=1e9)
        if not any(self.rates):
            raise errors.ArgumentError('daily_pattern', errors.NOT_SHOWN, 'must not be all 0')

    def fewest_rounds(self, hours: float) -> int:
        """The fewest rounds in the slowest window of `hours` hours, in exact arithmetic.

        The number of rounds up to a time is linear within each hour, so the slowest window begins
        or ends at a full hour. A window that begins with a round has this number, rounded down.
        """
        length = fractions.Fraction(_validate.number('timer_hours', hours, above=0))
        begins = [fractions.Fraction(hour) for hour in range(_HOURS)]
        begins += [(hour - length) % _HOURS for hour in range(_HOURS)]
        return math.floor(min(self._up_to(x + length) - self._up_to(x) for x in begins))

    def describe(self) -> str:
        """Where the number of rounds in a window comes from, as a clause."""
        return (
            f'{_MINUTES / self.round_minutes:.6g} rounds a day, spread over its hours by the daily '
            'pattern, in the slowest window; every day is assumed to follow the pattern'
        )

    def _up_to(self, hours: fractions.Fraction) -> fractions.Fraction:
        """Number of rounds that are opened in the first `hours` hours after a midnight."""
        rates = [fractions.Fraction(rate) for rate in self.rates]
        days, rest = divmod(hours, _HOURS)
        full = int(rest)
        share = sum(rates[:full], fractions.Fraction(0))
        if rest > full:
            share += rates[full] * (rest - full)
        return (days + share / sum(rates)) * _MINUTES / fractions.Fraction(self.round_minutes)


@dataclasses.dataclass(frozen=True)
class DailyCounts:
    """Numbers of rounds on consecutive calendar days, where their times are not known.

    Attributes:
      counts: rounds opened on each day, at least 0; all days complete, and of 24 hours, as in UTC:
        a window of 48 hours need not contain a whole day beside one of 25.

    Raises:
      ArgumentError: if a count is out of its range, or there is none.

    Example:
      >>> DailyCounts((90, 110, 100)).fewest_rounds(48)  # Of any 48 hours.
      90
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.counts:
            raise errors.ArgumentError('rounds_by_day', errors.NOT_SHOWN, 'must hold a number')
        for count in self.counts:
            _validate.integer('rounds_by_day', count, minimum=0, maximum=_validate.MOST_ROUNDS)

    def fewest_rounds(self, hours: float) -> int:
        """The fewest rounds in a window of `hours` hours, wherever in the days the rounds are.

        A window of d days may begin just after the last round of one day, and end just before the
        first round of another one, so that d - 1 days are all it is sure to cover. No larger number
        is safe: the rounds of both days may lie outside of the window.

        Raises:
          ArgumentError: if the window covers more days than there are.
        """
        days = int(_validate.number('timer_hours', hours, above=0, maximum=_MOST_HOURS) // _HOURS)
        if days <= 1:
            return 0
        if days - 1 > len(self.counts):
            raise errors.ArgumentError(
                'timer_hours',
                hours,
                f'must be < {_HOURS * (len(self.counts) + 2)}, since '
                f'rounds_by_day has {len(self.counts)} days',
            )
        before = np.append(0, np.cumsum(self.counts))
        return int((before[days - 1 :] - before[: 1 - days]).min())

    def describe(self) -> str:
        """Where the number of rounds in a window comes from, as a clause."""
        return (
            'the rounds of the whole calendar days that a window is sure to contain, wherever in '
            'the days the rounds are: one day less than it is long. The planned days have no fewer '
            'rounds. The times of the rounds (round_times) may show more'
        )


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
        return int(self.population * fractions.Fraction(str(self.availability)))

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

    def describe_separation(self) -> str:
        """Sentences on where the separation comes from, as an assumption of a plan."""
        if self.timer_hours is None:
            if self.min_separation is not None:
                return 'The separation is enforced in rounds.'
            return (
                'The separation is the largest that the population allows. Few runs come near it: '
                'a suitable timer has to be found (Xu et al. 2023, section 2.5, strategy 4).'
            )
        if self.pace is not None:
            covered = (
                f'A timer of {self.timer_hours:g} hours covers {self.timer_separation} rounds: '
                f'{self.pace.describe()}'
            )
        else:
            covered = (
                f'Rounds take {self.round_minutes:g} minutes at most, so a timer of '
                f'{self.timer_hours:g} hours covers {self.timer_separation} of them'
            )
        return f'{covered}. If the population allows less, rounds wait for clients.'

    def describe_participations(self) -> str:
        """A sentence on where the most participations of a client come from."""
        most = self.timer_participations
        if most is None:
            why = 'the most that rounds and separation allow'
        else:
            why = (
                f'no client with the timer can be in more than {most} of {self.rounds} '
                'consecutive rounds of those times'
            )
        return (
            f'Each client takes part in at most max_participations rounds: {why}, unless a lower '
            'limit is given.'
        )
