"""How fast rounds follow one another, as `plan_privacy` is told: times, counts or a pattern."""

import dataclasses

from dpfl import _files
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.participation import read_round_times
from dpfl.planning import DailyCounts, DailyPattern, Pace


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaceConfig(Settings):
    """What is known about the times of rounds; used with a timer."""

    round_minutes: float | None = setting(
        None,
        'Minutes that a round takes; those of the longest rounds if they differ, or the average '
        'over the day with --daily_pattern.',
    )
    daily_pattern: tuple[str, ...] | None = setting(
        None,
        'How many rounds are opened in each hour of a day (UTC), relative to one another: 24 '
        'comma-separated numbers, or a file of them. The timer then counts its slowest window.',
        needs='round_minutes',
    )
    round_times: str | None = setting(
        None,
        'File with the times at which rounds of an earlier run were opened, with the columns round '
        'and start (.csv or .parquet), in place of --round_minutes. The timer then counts the '
        'window with the fewest rounds, and limits the participations if there are at least '
        '--rounds of them.',
    )
    rounds_by_day: tuple[int, ...] | None = setting(
        None,
        'Rounds on consecutive whole days (UTC) of an earlier run, comma-separated, in place of '
        '--round_minutes, if nothing else is known. The timer then counts only whole days, one '
        'less than it has.',
    )

    @property
    def given(self) -> list[str]:
        """Names of the settings that are given."""
        return [name for name, value in self.flat().items() if value is not None]

    def shown(self, name: str) -> str:
        """The value of a setting as on the command line."""
        value = getattr(self, name)
        return ','.join(map(str, value)) if isinstance(value, tuple) else str(value)

    def check(self) -> None:
        """One kind of knowledge is given at most."""
        ways = [name for name in self.given if name != 'daily_pattern']
        if len(ways) > 1:
            raise ArgumentError(ways[1], self.shown(ways[1]), f'cannot be combined with {ways[0]}')

    def pace(self) -> Pace | None:
        """The pace that files and numbers describe; None for rounds that all take as long.

        Raises:
          ArgumentError: if a file cannot be read, or a number is not allowed.
        """
        if self.round_times is not None:
            return read_round_times(self.round_times)
        if self.rounds_by_day is not None:
            return DailyCounts(self.rounds_by_day)
        if self.daily_pattern is not None:
            assert self.round_minutes is not None  # The pattern needs it.
            return DailyPattern(self.round_minutes, _rates(self.daily_pattern))
        return None


def _rates(texts: tuple[str, ...]) -> tuple[float, ...]:
    """The numbers of a list, or of the file that its only entry names."""
    name = 'daily_pattern'
    shown = ','.join(texts)
    if len(texts) == 1:
        try:
            content = _files.read_text(texts[0])
        except (OSError, ValueError):
            raise ArgumentError(
                name, shown, 'must be 24 comma-separated numbers, or a file of them'
            ) from None
        texts = tuple(content.replace(',', ' ').split())
    try:
        rates = tuple(map(float, texts))
    except ValueError:
        rates = ()
    if len(rates) != 24:
        raise ArgumentError(name, shown, f'must be 24 numbers, has {len(texts)} entries')
    return rates
