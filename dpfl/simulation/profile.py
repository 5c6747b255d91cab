"""Where the time of a run goes."""

import contextlib
import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

# In the order of a round.
STAGES = {
    'data': 'waiting for the shards of the cohort',
    'ledger': 'recording the release before it is made',
    'moving in': 'arguments of computations made ready: state and data',
    'clients': 'shards at work here',
    'workers': 'waiting for --workers: data and model there, training, updates back',
    'server': 'updates summed, noise, the step of the optimizer',
    'TFF': 'the rest of a computation: compiled the first time',
    'evaluation': 'on held-out clients',
    'accounting': 'epsilon so far',
    'metrics': 'written and shown',
    'checkpoint': 'copied, and waiting for the one before',
    'other': '',
}


@dataclasses.dataclass(frozen=True)
class Period:
    """A part of a run.

    Attributes:
      name: `start`, the number of a round, or `end`.
      seconds: that it took.
      stages: seconds of each stage in it, adding up to `seconds`.
    """

    name: str
    seconds: float
    stages: dict[str, float]


class Profile:
    """Periods of a run, one after the other without gaps; the first is `start`.

    Args:
      clock: seconds since some moment.

    Attributes:
      periods: those that have ended.
      observe: counts seconds for a stage, within those of a span in progress; for the thread of a
        runner that works for the span.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.periods: list[Period] = []
        self._clock = clock
        self._open('start', clock())

    def _open(self, name: str, now: float) -> None:
        self._name, self._started = name, now
        self._stages: dict[str, float] = {}
        # Seconds of the innermost span in progress (or of the period) that count for a stage.
        self._counted = 0.0

    def begin(self, name: str) -> None:
        """Ends the period in progress, outside of all spans, and begins another."""
        now = self._clock()
        seconds = now - self._started
        self._count('other', seconds - self._counted)
        self.periods.append(Period(self._name, seconds, self._stages))
        self._open(name, now)

    @contextlib.contextmanager
    def span(self, stage: str) -> Iterator[None]:
        """Context whose time counts for a stage, but for that of the spans within."""
        outer, self._counted = self._counted, 0.0
        started = self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - started
            self._count(stage, seconds - self._counted)
            self._counted = outer + seconds

    def observe(self, stage: str, seconds: float) -> None:
        self._count(stage, seconds)
        self._counted += seconds

    def _count(self, stage: str, seconds: float) -> None:
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds

    def to_json(self) -> str:
        """The periods, in seconds; `stages` says what the stages are."""
        periods = [dataclasses.asdict(period) for period in self.periods]
        return json.dumps({'stages': STAGES, 'periods': periods}) + '\n'

    def render(self) -> str:
        """A table of the rounds: a line per stage, medians of all rounds but the first."""
        rounds = [period for period in self.periods if period.name.isdigit()]
        if not rounds:
            return 'no rounds\n'
        usual = rounds[1:] or rounds
        names = [stage for stage in STAGES if any(stage in period.stages for period in rounds)]
        total = sum(period.seconds for period in usual)
        rows = [
            (
                name,
                *_figures([period.stages.get(name, 0.0) for period in usual], total),
                STAGES[name],
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
    """Takes the place of a `Profile`, and measures nothing."""

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
