"""What was compared, by area, and the verdict over all areas. No TensorFlow."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import special

from dpfl.debugging.differences import Difference


@dataclasses.dataclass(frozen=True)
class Area:
    """Measures that are corrected together.

    Attributes:
      name: What the measures are about.
      differences: Their differences, with Holm's correction over the area.
      is_share: Whether the values are shares, to be shown in percent.
    """

    name: str
    differences: tuple[Difference, ...]
    is_share: bool = True

    def clear(self, alpha: float) -> tuple[Difference, ...]:
        """The differences that are clear at a level, the surest first."""
        found = [each for each in self.differences if each.is_clear(alpha)]
        return tuple(sorted(found, key=lambda each: (each.adjusted, -abs(each.value))))

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

    def shown(self, value: float) -> str:
        """A value with its unit."""
        return f'{100 * value:.3g} %' if self.is_share else f'{value:.4g}'

    def reach(self, each: Difference) -> str:
        """The interval of a difference with its unit."""
        low, high = (f'{100 * end if self.is_share else end:+.3g}' for end in (each.low, each.high))
        return f'{low} to {high}{" points" if self.is_share else ""}'


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether two sides differ.

    Attributes:
      areas: Everything that was compared.
      alpha: Chance of any false difference, divided equally among the areas.
      unlearned: Models that have learned nothing, with the reason: what they write is no evidence
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
        """What was compared without a clear difference, and from which difference on it is seen."""
        if self.unlearned:
            yield f'Cannot tell: {"; ".join(self.unlearned)}.'
        seen = []
        for area in self.areas:
            smallest = area.smallest(self.of_area)
            if smallest is not None:
                unit = ' points' if area.is_share else ''
                size = f'{100 * smallest if area.is_share else smallest:.2g}{unit}'
                seen.append(f'{area.name} (seen with probability 1/2: {size})')
        if seen and not self.unlearned:
            yield f'No clear difference in {_listed(seen)}.'
        empty = [area.name for area in self.areas if area.smallest(self.of_area) is None]
        if empty:
            yield f'Nothing could be compared in {_listed(empty)}.'

    def examples(self) -> tuple[str, ...]:
        """For each area that differs, its surest difference in words."""
        return tuple(self._example(area) for area in self.differing)

    def _example(self, area: Area) -> str:
        clear = area.clear(self.of_area)
        first = clear[0]
        number = f'{len(clear):,} of {len(area.differences):,} clear'
        return (
            f'{area.name}: {first.name}, {area.shown(first.first)} in a and '
            f'{area.shown(first.second)} in b, difference {area.reach(first)} ({number})'
        )

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
