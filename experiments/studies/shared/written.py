"""Differences of what two generators write: settings, areas, the verdict, and tables of a page.

Two trainings on equal data differ by noise, cohorts and initial weights, and an `Allowance` says by
how much. Between trainings of the small models of commit messages (docs/debug_text.md), the
logarithm of the odds of shares above 5 % had a standard deviation of about 0.15, and rarer events
varied more, about with the cube root of how rare they are. That is the form here; its scale is a
setting.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from dpfl import _validate
from dpfl._settings import Settings, setting
from dpfl.debugging import differences
from dpfl.debugging.differences import Difference, Mean, Share
from dpfl.reporting import html_parts
from dpfl.reporting.html_parts import Cell

# Shares up to this one vary more, the rarer they are.
_COMMON = 0.05
# Means of lengths vary less than shares: a third of their deviation in the logarithm.
_OF_MEANS = 1 / 3
# Properties that the estimate of a training deviation needs at least, and their least share.
_FEWEST, _RAREST = 10, 0.002


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig(Settings):
    """What the generators write."""

    samples: int = setting(
        20_000,
        'Number of sentences, and of words of character models, that each side writes (100000 in '
        '[Augenstein20]).',
        minimum=100,
    )
    images: int = setting(1_000, 'Number of images that each side draws.', minimum=100)
    sentence_length: int | None = setting(
        None, 'Words of a sentence; longer ones are cut. By default as in training.', minimum=1
    )
    word_length: int = setting(
        24,
        'Bytes of a word of a character model, including its end; longer ones are cut.',
        minimum=2,
    )
    seed: int = setting(0, 'Seed of all draws.', minimum=0, maximum=2**32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(Settings):
    """The classifier of public images that says which classes generated images show."""

    classifier_clients: int = setting(
        300,
        'Number of held-out clients whose images it is trained on; these are public.',
        minimum=1,
    )
    classifier_steps: int = setting(
        600, 'Number of batches of 64 that it is trained on; 0 for no class mix.', minimum=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonConfig(Settings):
    """How what they write is compared."""

    alpha: float = setting(
        0.05,
        'Chance that two sides that do not differ are called different, over everything that is '
        'compared.',
        above=0,
        below=1,
    )
    training_deviation: float = setting(
        0.15,
        'How much a model changes if it is trained again on equal data: standard deviation of the '
        'logarithm of the odds of a share above 5 %. Rarer events are allowed more, means a third. '
        '0 compares these very models, not what they learned from. '
        'docs/debug_text.md has '
        'measured values.',
        minimum=0,
    )
    orders: int = setting(
        3, 'Compare n-grams of 1 to this many words or bytes.', minimum=1, maximum=4
    )
    least_count: int = setting(
        20,
        'Compare n-grams that so many sentences (or words) of both sides together have.',
        minimum=1,
    )
    splits: int = setting(
        99, 'Random splits that show how far two samples are apart by chance.', minimum=19
    )
    top: int = setting(20, 'Number of words in a ranking, and of n-grams in a table.', minimum=1)
    drawn: SamplesConfig = SamplesConfig()
    classifier: ClassifierConfig = ClassifierConfig()


@dataclasses.dataclass(frozen=True)
class Allowance:
    """Standard deviation of the difference of two trainings on equal data.

    Attributes:
      deviation: that of the logarithm of the odds of a share above 5 %; 0 allows nothing.
    """

    deviation: float

    def __post_init__(self):
        _validate.number('deviation', self.deviation, minimum=0)

    def of_shares(self, shares: np.ndarray | float) -> np.ndarray:
        """Standard deviation of the difference, for pooled shares; elementwise."""
        shares = np.asarray(shares, np.float64)
        rare = np.cbrt(_COMMON / np.clip(shares, 1e-12, _COMMON))
        return self.deviation * rare * shares * (1 - shares)

    def of(self, first: Share | Mean, second: Share | Mean) -> float:
        """Standard deviation of the difference of two shares or two positive means."""
        if isinstance(first, Share) and isinstance(second, Share):
            count = first.count + second.count
            return float(self.of_shares((first.hits + second.hits) / count if count else 0.0))
        mean = (first.value + second.value) / 2
        return self.deviation * _OF_MEANS * abs(mean) if np.isfinite(mean) else 0.0

    def of_ratios(self, first: Share | Mean, second: Share | Mean) -> float:
        """Standard deviation of the difference of two ratios that are shares of words."""
        pooled = (first.value + second.value) / 2
        return float(self.of_shares(pooled)) if 0 <= pooled <= 1 else 0.0

    def compare(
        self,
        pair: Iterable[Mapping[str, Any]],
        ratios: Sequence[str] = (),
    ) -> tuple[Difference, ...]:
        """Differences of the measures of two sides, with Holm's correction over all of them.

        Args:
          pair: shares or means of each side by name.
          ratios: names of ratios that are shares of words.
        """
        first, second = pair
        between = {
            name: (self.of_ratios if name in ratios else self.of)(measure, second[name])
            for name, measure in first.items()
        }
        return differences.compare_all(first, second, between=between)


def implied(
    hits: np.ndarray, other_hits: np.ndarray, counts: tuple[int, int], least: float = _RAREST
) -> float | None:
    """The deviation that would explain all differences of many shares, if the data were equal.

    It is the scale of an `Allowance` by the method of moments: the mean square of the differences
    that the draws do not explain, in units of an allowance of 1.

    Args:
      hits, other_hits: numbers of draws with each of many properties, integers [G].
      counts: numbers of draws of the two samples.
      least: smallest pooled share that is used.

    Returns:
      The deviation, at least 0; None with fewer than ten properties that are frequent enough.
    """
    pooled = (hits + other_hits) / sum(counts)
    used = (pooled >= least) & (pooled < 1)
    if used.sum() < _FEWEST:
        return None
    pooled = pooled[used]
    squares = ((hits / counts[0] - other_hits / counts[1])[used]) ** 2
    by_chance = pooled * (1 - pooled) * (1 / counts[0] + 1 / counts[1])
    unit = Allowance(1.0).of_shares(pooled) ** 2
    return float(np.sqrt(max(np.mean((squares - by_chance) / unit), 0.0)))


@dataclasses.dataclass(frozen=True)
class Area:
    """Measures that are corrected together.

    Attributes:
      name: subject of the measures.
      differences: their differences, with Holm's correction over the area.
      is_share: whether the values are shares, to be shown in percent.
    """

    name: str
    differences: tuple[Difference, ...]
    is_share: bool = True

    def clear(self, alpha: float) -> tuple[Difference, ...]:
        """The differences that are clear at a level, the surest first."""
        clear = [difference for difference in self.differences if difference.is_clear(alpha)]
        return tuple(sorted(clear, key=lambda each: (each.adjusted, -abs(each.value))))

    def smallest(self, alpha: float) -> float | None:
        """The smallest difference that is clear with probability 1/2, of a typical measure.

        The level is that of the first step of Holm's correction. None if nothing was compared, or
        no measure has an interval.
        """
        reaches = np.array([(each.high - each.low) / 2 for each in self.differences])
        reaches = reaches[np.isfinite(reaches) & (reaches > 0)]
        if not reaches.size:
            return None
        level, interval = special.ndtri([1 - alpha / (2 * len(self.differences)), 0.975])
        return float(np.median(reaches) * level / interval)

    def example(self, alpha: float) -> str:
        """The surest difference in words."""
        clear = self.clear(alpha)
        scale, unit, points = (100, ' %', ' points') if self.is_share else (1, '', '')
        digits = '.3g' if self.is_share else '.4g'
        first, second = (
            f'{scale * value:{digits}}{unit}' for value in (clear[0].first, clear[0].second)
        )
        low, high = (f'{scale * end:+.3g}' for end in (clear[0].low, clear[0].high))
        return (
            f'{self.name}: {clear[0].name}, {first} in a and {second} in b, difference {low} to '
            f'{high}{points} ({len(clear):,} of {len(self.differences):,} clear)'
        )


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether two sides differ.

    Attributes:
      areas: everything that was compared.
      alpha: chance of any false difference, divided equally among the areas.
      unlearned: models that have learned nothing, with the reason: what they write is no evidence
        that the data do not differ.
    """

    areas: tuple[Area, ...]
    alpha: float
    unlearned: tuple[str, ...] = ()

    @property
    def of_area(self) -> float:
        """Level of each area."""
        return self.alpha / max(len(self.areas), 1)

    @property
    def differing(self) -> tuple[Area, ...]:
        """Areas with a clear difference."""
        return tuple(area for area in self.areas if area.clear(self.of_area))

    @property
    def is_told(self) -> bool:
        """Whether something was compared, of models that have learned something."""
        seen = any(area.smallest(self.of_area) is not None for area in self.areas)
        return seen and not self.unlearned

    @property
    def text(self) -> str:
        """The verdict in one line."""
        if not self.differing:
            return ' '.join(self._without_difference())
        return f'Differs clearly in {_listed([area.name for area in self.differing])}.'

    def _without_difference(self) -> Iterator[str]:
        """Areas without a clear difference, with the smallest difference that would be seen."""
        if self.unlearned:
            yield f'Cannot tell: {"; ".join(self.unlearned)}.'
        seen, empty = [], []
        for area in self.areas:
            smallest = area.smallest(self.of_area)
            if smallest is None:
                empty.append(area.name)
            else:
                size = f'{100 * smallest:.2g} points' if area.is_share else f'{smallest:.2g}'
                seen.append(f'{area.name} (seen with probability 1/2: {size})')
        if seen and not self.unlearned:
            yield f'No clear difference in {_listed(seen)}.'
        if empty:
            yield f'Nothing could be compared in {_listed(empty)}.'

    def examples(self) -> tuple[str, ...]:
        """For each area that differs, its surest difference in words."""
        return tuple(area.example(self.of_area) for area in self.differing)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            'text': self.text,
            'differs': bool(self.differing),
            'is_told': self.is_told,
            'alpha': self.alpha,
            'alpha_of_area': self.of_area,
            'areas': [
                {
                    'name': area.name,
                    'compared': len(area.differences),
                    'smallest_seen': area.smallest(self.of_area),
                    'clear': [each.to_dict() for each in area.clear(self.of_area)],
                }
                for area in self.areas
            ],
        }


def _listed(names: Sequence[str]) -> str:
    return ', '.join(names[:-1]) + f' and {names[-1]}' if len(names) > 1 else ''.join(names)


@dataclasses.dataclass(frozen=True)
class Part:
    """Two generators of one kind, compared.

    Attributes:
      areas: areas of the verdict.
      values: the comparison as JSON values.
      render: sections of the page as HTML, given the level at which differences of an area are
        clear.
    """

    areas: tuple[Area, ...]
    values: Mapping[str, Any]
    render: Callable[[float], str]


def table(
    name: str,
    compared: Sequence[Difference],
    level: float,
    *,
    is_share: bool = True,
    ratio: bool = False,
) -> str:
    """A table of differences as HTML, the clear ones marked.

    Args:
      name: name of the first column.
      compared: the differences.
      level: level at which a difference is clear.
      is_share: whether the values are shares, shown in percent, differences in percentage points.
      ratio: whether to show the quotient of a and b.
    """
    scale, digits = (100, '.3g') if is_share else (1, '.4g')
    values, points = (' (%)', ' (points)') if is_share else ('', '')
    quotients = ['a : b'] if ratio else []
    columns = [f'a{values}', f'b{values}', *quotients, f'a minus b{points}']
    rows = []
    for each in compared:
        difference, low, high = (f'{scale * one:+.3g}' for one in (each.value, each.low, each.high))
        ratios = [quotient(each.first, each.second)] if ratio else []
        shown = [f'{scale * one:{digits}}' for one in (each.first, each.second)]
        shown = ['–' if one == 'nan' else one for one in shown]
        ends = f'{low} to {high}'
        rows.append(
            [Cell(each.name, 'text'), *shown, *ratios, difference, ends, p_value(each.adjusted)]
        )
    names = [Cell(name, 'text'), *columns, f'95 % interval{points}', 'adjusted p']
    return html_parts.table(names, rows, clear=[each.is_clear(level) for each in compared])


def quotient(first: float, second: float) -> str:
    """The quotient of two shares in words."""
    if not second:
        return 'only a'
    return f'{first / second:.3g}' if first else 'only b'


def p_value(value: float) -> str:
    """A p-value with two digits."""
    return '< 1e-12' if value < 1e-12 else f'{value:.2g}'


def percent(share: float) -> str:
    """A share in percent, with three digits and without the unit."""
    return '–' if math.isnan(share) else f'{100 * share:.3g}'
