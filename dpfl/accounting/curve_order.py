"""Which of two trade-off curves lies lower, and where they cross."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from dpfl.accounting.tradeoff import Tradeoff

# The false positive rates that are compared. Beyond, curves of samples have no digits left.
_LEAST, _MOST = 1e-9, 1 - 1e-6
# Rates of the first look, and between two of these where the curves change places.
_RATES, _FINER = 161, 17
# Curves closer than this, relative to their distance from the diagonal, are the same: those of
# samples come from a grid.
_TOLERANCE = 1e-3

# From false positive rates to a trade-off curve at these.
Curve = Callable[[Sequence[float]], Tradeoff]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """False positive rates at which the same curve is the lower one.

    Attributes:
      start, end: least and largest of these rates.
      lower: 'first' or 'second': against this one a membership test reaches less.
    """

    start: float
    end: float
    lower: str


def order(first: Curve, second: Curve) -> tuple[Stretch, ...]:
    """Where which of two curves is the lower one, from false positive rates 1e-9 to 1 - 1e-6.

    Curves are compared as normal quantiles of the true minus those of the false positive rate, for
    a Gaussian release its mu. The rates where they cross are interpolated; they have about three
    digits.

    Returns:
      One stretch if one curve is lower wherever they differ, more if they cross, none if they are
      the same.
    """
    logits = np.linspace(special.logit(_LEAST), special.logit(_MOST), _RATES)
    differences = _differences(first, second, logits)
    brackets = _changes(differences)
    if brackets:
        more = [np.linspace(logits[left], logits[right], _FINER)[1:-1] for left, right in brackets]
        logits = np.concatenate([logits, *more])
        differences = np.concatenate(
            [differences, _differences(first, second, np.concatenate(more))]
        )
        by_rate = np.argsort(logits)
        logits, differences = logits[by_rate], differences[by_rate]
    (known,) = np.nonzero(differences)
    if not known.size:
        return ()
    crossings = [
        float(special.expit(_root(logits, differences, *change)))
        for change in _changes(differences)
    ]
    limits = [_LEAST, *crossings, _MOST]
    sides = ('first', 'second') if differences[known[0]] < 0 else ('second', 'first')
    return tuple(
        Stretch(start, end, side)
        for (start, end), side in zip(
            itertools.pairwise(limits), itertools.cycle(sides), strict=False
        )
    )


def _differences(first: Curve, second: Curve, logits: np.ndarray) -> np.ndarray:
    """How far the first curve lies above the second; 0 where they are the same."""
    rates = special.expit(logits)
    one, other = (
        np.array([true for _, true in curve(rates.tolist()).points]) for curve in (first, second)
    )
    # Above it, what is left of the true positive rate is rounding.
    one, other = (np.where(each > _MOST, 1.0, each) for each in (one, other))
    with np.errstate(invalid='ignore'):
        found = special.ndtri(one) - special.ndtri(other)
        size = np.minimum(special.ndtri(one), special.ndtri(other)) - special.ndtri(rates)
    return np.where((one == other) | (np.abs(found) <= _TOLERANCE * size), 0.0, found)


def _changes(differences: np.ndarray) -> list[tuple[int, int]]:
    """Neighbouring places of differences other than 0 with opposite signs."""
    (known,) = np.nonzero(differences)
    return [
        (int(left), int(right))
        for left, right in itertools.pairwise(known)
        if (differences[left] < 0) != (differences[right] < 0)
    ]


def _root(logits: np.ndarray, differences: np.ndarray, left: int, right: int) -> float:
    """Where the line through two points is 0; between them, if one of them is infinite."""
    low, high = differences[left], differences[right]
    share = low / (low - high) if np.isfinite(low) and np.isfinite(high) else 0.5
    return logits[left] + share * (logits[right] - logits[left])
