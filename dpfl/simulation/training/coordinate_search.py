"""Coordinate search over a few values of each setting."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes:
      best: the best value of each setting, by name.
      scores: by name, the score of each value of the setting that was tried, with the values that
        the other settings had when it was last varied.
      ends: 'smallest' or 'largest' by name, for settings whose best value is at that end of the
        values that were tried, so that one beyond may be better.
    """

    best: dict[str, Any]
    scores: dict[str, dict[Any, Any]]
    ends: dict[str, str]


def climb(
    options: Mapping[str, Sequence[Any]],
    start: Mapping[str, Any],
    score: Callable[[dict[str, Any]], Any],
    order: Sequence[str],
) -> Search:
    """Varies one setting after the other, and goes on in a direction while the score increases.

    Args:
      options: values of each setting, increasing.
      start: a value of each setting.
      score: of values by name; anything that can be compared. Called once for the same values.
      order: names in the order in which they are varied; a name may occur twice.

    Example:
      >>> found = climb({'x': [1, 2, 3], 'y': [1, 2]}, {'x': 1, 'y': 1},
      ...               lambda values: values['y'] - (values['x'] - 2) ** 2, ['x', 'y'])
      >>> found.best, found.ends
      ({'x': 2, 'y': 2}, {'y': 'largest'})
    """
    known: dict[tuple, Any] = {}

    def scored(values: dict[str, Any]) -> Any:
        key = tuple(values[name] for name in options)
        if key not in known:
            known[key] = score(values)
        return known[key]

    best = dict(start)
    scores: dict[str, dict[Any, Any]] = {}
    for name in order:
        places = {value: i for i, value in enumerate(options[name])}
        first, tried = places[best[name]], {best[name]: scored(best)}
        for step in (1, -1):
            place = places[best[name]] + step
            while 0 <= place < len(places):
                other = {**best, name: options[name][place]}
                tried[other[name]] = scored(other)
                if not tried[other[name]] > tried[best[name]]:
                    break
                best, place = other, place + step
            if places[best[name]] != first:
                break
        scores[name] = {value: tried[value] for value in sorted(tried, key=places.__getitem__)}
    ends = {}
    for name in scores:
        values = options[name]
        if len(values) > 1 and best[name] in (values[0], values[-1]):
            ends[name] = 'smallest' if best[name] == values[0] else 'largest'
    return Search(best, scores, ends)
