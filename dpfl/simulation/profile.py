"""Profile of a run: how much time each stage takes."""

import contextlib
import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

# The stages in the order of a round, with the descriptions that are shown.
_STAGES = {
    'data': 'waiting for the shards of the cohort',
    'ledger': 'recording the release before it is made',
    'noise': 'reading and writing past noise that is kept in a file or beside the state',
    'moving in': 'converting the arguments of computations: state and data',
    'clients': 'training shards on this host',
    'ray': 'waiting for --ray: sending data and model, training, returning updates',
    'server': 'summing updates, adding noise, optimizer step',
    'TFF': 'the rest of a computation, compiling it in the first round',
    'evaluation': 'evaluating on held-out clients',
    'accounting': 'computing epsilon so far',
    'metrics': 'writing and showing metrics',
    'checkpoint': 'copying the state, and waiting for the previous checkpoint',
    'audit': 'scoring the canaries of an audit',
    'other': '',
}


@dataclasses.dataclass(frozen=True)
class Period:
    """A part of a run.

    Attributes:
      name: `start`, the number of a round, or `end`.
      seconds: its duration.
      stages: the seconds of each stage, which add up to `seconds`.
    """

    name: str
    seconds: float
    stages: dict[str, float]


class Profile:
    """The periods of a run, one after the other without gaps; the first is `start`.

    Args:
      clock: a function that returns the time in seconds.

    Attributes:
      periods: the periods that have ended.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.periods: list[Period] = []
        self._clock = clock
        self._open('start', clock())

    def _open(self, name: str, now: float) -> None:
        self._name, self._started = name, now
        self._stages: dict[str, float] = {}
        # Seconds of the innermost open span (or of the period) that some stage has already counted.
        self._counted = 0.0

    def begin(self, name: str) -> None:
        """Ends the current period and begins another. No span may be open."""
        now = self._clock()
        seconds = now - self._started
        self._count('other', seconds - self._counted)
        self.periods.append(Period(self._name, seconds, self._stages))
        self._open(name, now)

    @contextlib.contextmanager
    def span(self, stage: str) -> Iterator[None]:
        """A context whose time counts for a stage, except the time of spans inside it."""
        outer, self._counted = self._counted, 0.0
        started = self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - started
            self._count(stage, seconds - self._counted)
            self._counted = outer + seconds

    def observe(self, stage: str, seconds: float) -> None:
        """Counts seconds for a stage, and not for the open span that they are a part of.

        May be called from another thread that works while that span is open.
        """
        self._count(stage, seconds)
        self._counted += seconds

    def _count(self, stage: str, seconds: float) -> None:
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds

    def to_json(self) -> str:
        """The periods in seconds as JSON; `stages` describes the stages."""
        periods = [dataclasses.asdict(period) for period in self.periods]
        return json.dumps({'stages': _STAGES, 'periods': periods}) + '\n'

    def render(self) -> str:
        """A table with a line per stage: medians over all rounds except the first."""
        rounds = [period for period in self.periods if period.name.isdigit()]
        if not rounds:
            return 'no rounds\n'
        usual = rounds[1:] or rounds
        names = [stage for stage in _STAGES if any(stage in period.stages for period in rounds)]
        total = sum(period.seconds for period in usual)
        rows = [
            (
                name,
                *_figures([period.stages.get(name, 0.0) for period in usual], total),
                _STAGES[name],
            )
            for name in names
        ]
        rows.append(('a round', *_figures([period.seconds for period in usual], total), ''))
        lines = [f'{"":<11}{"median ms":>10}{"share":>8}']
        lines += [
            f'{name:<11}{1e3 * median:>10.2f}{share:>8.1%}  {about}'.rstrip()
            for name, median, share, about in rows
        ]
        lines.append(
            ', '.join(
                f'{label} {period.seconds:.2f} s'
                for label, period in [
                    ('start', self.periods[0]),
                    ('first round', rounds[0]),
                    ('end', self.periods[-1]),
                ]
            )
        )
        return '\n'.join(lines) + '\n'


class Nothing:
    """Stands in for a `Profile` and measures nothing."""

    observe = None
    _span = contextlib.nullcontext()

    def begin(self, name: str) -> None:
        """Does nothing."""

    def span(self, stage: str) -> contextlib.AbstractContextManager[None]:
        """A context that does nothing."""
        return self._span


def _figures(seconds: Sequence[float], total: float) -> tuple[float, float]:
    """Median of the seconds of each period, and the share of their sum in `total`."""
    return statistics.median(seconds), sum(seconds) / total if total else 0.0
