"""Knowledge of the participation in a run: its log, a timer, and the pace of its rounds."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from dpfl import ParticipationLog, _files, _setting_texts, accounting
from dpfl._settings import Settings, setting
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.participation import Participation, RoundTimes, imported, read_round_times
from dpfl.planning import DailyCounts, DailyPattern, Pace, UniformCohorts
from dpfl.simulation.training.round_config import ParticipationConfig

# The limits that uniform cohorts would break with this probability are stated.
_FAILURE = 1e-6
_OWN = '.npz'
# Kinds of knowledge about the times of rounds.
_WAYS = ('round_minutes', 'round_times', 'rounds_by_day')
NOT_COVERED = (
    'Rounds and participations that the file of the participation log lacks: it is taken for the '
    'log of all that the run released.',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaceConfig(Settings):
    """What is known about the times of rounds; used with a timer."""

    round_minutes: float | None = setting(
        None,
        'Minutes that a round takes; those of the longest rounds if they differ, or the average '
        'over the day with --daily_pattern.',
        needs='timer_hours',
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
        needs='timer_hours',
    )
    rounds_by_day: tuple[int, ...] | None = setting(
        None,
        'Rounds on consecutive whole days (UTC) of an earlier run, comma-separated, in place of '
        '--round_minutes, if nothing else is known. The timer then counts only whole days, one '
        'less than it has.',
        needs='timer_hours',
    )
    timer_hours: float | None = setting(
        None,
        'Hours until a client may take part again; needs --round_minutes, --round_times or '
        '--rounds_by_day. Without a timer and --min_separation, the separation is the largest that '
        'the population allows.',
        needs=dict.fromkeys(_WAYS, ()),
    )

    def check(self) -> None:
        """One kind of knowledge is given at most."""
        ways = [name for name in _WAYS if getattr(self, name) is not None]
        if len(ways) > 1:
            shown = _setting_texts.text(getattr(self, ways[1]))
            raise ArgumentError(ways[1], shown, f'cannot be combined with {ways[0]}')

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogConfig(Settings):
    """The file of a log, a timer and the times of rounds, or the number of clients."""

    participation_log: str | None = setting(
        None,
        'File with the clients of each round, which the plan is compared with: .npz as '
        'simulate_population and train write it, or .csv or .parquet with the columns client '
        '(or device), round, and optionally time. If the log breaks the plan, its limits count.',
    )
    missing_rounds: str = setting(
        'refused',
        'What a number without a row means, in a --participation_log of rows. refused: the log is '
        'incomplete; empty: the round was released without clients; unused: nothing was released, '
        'and the rounds before and after it follow one another.',
        choices=imported.MISSING_ROUNDS,
        needs='participation_log',
    )
    round_times: str | None = setting(
        None,
        'File with the times at which the rounds of the run were opened, with the columns round '
        'and start (.csv or .parquet). With --timer_hours, rounds, separation and participations '
        'follow from it, in place of --min_separation.',
        needs='timer_hours',
    )
    timer_hours: float | None = setting(
        None,
        'Hours until a client could take part again after it had reported; needs --round_times.',
        above=0,
        maximum=1e6,
        needs='round_times',
    )
    estimated_population: int | None = setting(
        None,
        'Estimated number of clients, where no log is known: the report then also states how '
        'likely uniformly random cohorts of --clients_per_round keep the limits. The guarantee '
        'does not depend on it.',
        minimum=1,
    )

    def check(self) -> None:
        """A setting that would have no effect is refused."""
        if self.missing_rounds == 'refused' or self.participation_log is None:
            return
        if pathlib.Path(self.participation_log).suffix == _OWN:
            raise ArgumentError(
                'missing_rounds', self.missing_rounds, 'needs a log of rows; .npz has every round'
            )

    def by_timer(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The schema of the plan, and a remark on where it is from.

        Args:
          values: rounds, min_separation, max_participations and sampling as they are given.

        Returns:
          The given values, with those that follow from a timer and the times of rounds if they are
          known, and remarks of the report.

        Raises:
          ArgumentError: if the file cannot be read, or a value contradicts it.
        """
        if self.round_times is None or self.timer_hours is None:
            return dict(values), ()
        times = read_round_times(self.round_times)
        schema = times.participation(self.timer_hours)
        _check_by_timer(values, schema)
        limits = {
            'rounds': schema.rounds,
            'min_separation': schema.min_separation,
            'max_participations': schema.count,
        }
        if values['max_participations'] is not None:
            limits['max_participations'] = values['max_participations']
        return {**values, **limits}, (_timer_remark(times, self.timer_hours, schema),)

    def found(self, plan: accounting.PrivacyPlan, has_cohort: bool) -> dict[str, Any]:
        """Arguments of a plan's report: log, its limits, and remarks on it and on uniform cohorts.

        Args:
          plan: The plan.
          has_cohort: Whether its cohort size was given.

        Raises:
          ValueError: If the file is no log (the message names the row), the population is too
            small, the cohort size is missing, or the plan has a population already.
        """
        uniform = self._uniform(plan, has_cohort)
        log, remarks = self._read()
        return {
            'log': log,
            'also_not_covered': () if log is None else NOT_COVERED,
            'remarks': (*remarks, *uniform),
        }

    def _read(self) -> tuple[ParticipationLog | None, tuple[str, ...]]:
        path = self.participation_log
        if path is None:
            return None, ()
        if pathlib.Path(path).suffix == _OWN:
            log = ParticipationLog.load(path)
            if not log.rounds:
                raise ArgumentError('participation_log', path, 'must hold at least one round')
            return log, ()
        imported_log = imported.read_log(path, self.missing_rounds)
        return imported_log.log, imported_log.remarks(self.missing_rounds)

    def _uniform(self, plan: accounting.PrivacyPlan, has_cohort: bool) -> list[str]:
        if self.estimated_population is None:
            return []
        if plan.sampling is not None:
            raise ArgumentError(
                'estimated_population',
                self.estimated_population,
                'needs a plan without sampling; others rely on the population itself',
            )
        if not has_cohort:
            raise ArgumentError('clients_per_round', NOT_SHOWN, 'must be given')
        schema = plan.participation
        with renaming(population='estimated_population'):
            cohorts = UniformCohorts(
                population=self.estimated_population,
                clients_per_round=plan.clients_per_round,
                rounds=schema.rounds,
            )
        return cohorts.sentences(schema.min_separation, schema.count, _FAILURE)


def _check_by_timer(values: Mapping[str, Any], schema: Participation) -> None:
    if values['sampling'] != 'none':
        raise ArgumentError(
            'round_times', NOT_SHOWN, f'cannot be combined with sampling={values["sampling"]}'
        )
    if values['min_separation'] != ParticipationConfig.min_separation:
        raise ArgumentError(
            'min_separation', values['min_separation'], 'cannot be combined with timer_hours'
        )
    if values['rounds'] not in (None, schema.rounds):
        raise ArgumentError(
            'rounds', values['rounds'], f'must be {schema.rounds}, the rounds of round_times'
        )
    most = values['max_participations']
    if most is not None and most > schema.count:
        raise ArgumentError(
            'max_participations',
            most,
            f'must be <= {schema.count}, what timer_hours and round_times allow',
        )


def _timer_remark(times: RoundTimes, hours: float, schema: Participation) -> str:
    return (
        f'Separation {schema.min_separation} and at most {schema.count} participations follow from '
        f'a timer of {hours:g} hours and the starts of {schema.rounds} rounds over '
        f'{times.hours:.6g} hours. Rounds did not overlap, the last one took no longer than the '
        'longest time between two starts, and the timer of a client restarted when it reported.'
    )
