"""The pace of rounds, and with it the fewest rounds that a timer covers."""

import dataclasses
import fractions
import math
from typing import Protocol

import numpy as np

from dpfl import _validate, errors

_HOURS = 24
_MINUTES = 1440
_MOST_HOURS = 1e6


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
