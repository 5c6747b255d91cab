"""Search with a sensitivity bound that is the largest of many sums: a cutting-plane method.

The bounds of `sensitivities.scaled_toeplitz` and of `matrix_sensitivity.upper_bound` are each the
largest of many weighted sums of products of columns: a pattern of cells, and the partners of each
of its participations. A search knows a few of the sums, minimises the loss with their smooth
maximum, and adds those that its result violates until there are none. `Cuts` finds the large sums
of one mechanism, a pattern through each cell.
"""

import abc
import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np

from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.mechanisms.sensitivities.scaled_toeplitz import PairTable
from dpfl.participation import Participation

_P = TypeVar('_P')  # A point of a search.

# Share of each pair that its earlier participation bears.
_SHARE = 0.5
# Smoothing of the maxima over rounds and sums: at first, while sums are added, and at last.
_SHARPNESS = (300.0, 3000.0, 3e4)
# Relative excess of the bound over the known sums from which a sum is added.
_LEAST_EXCESS = 1e-5
# A sum is dropped if it is smaller than the largest by this share.
_INACTIVE = 0.03
# Limit of the pairs of all sums that are added at once.
_MOST_PAIRS = 30_000


@dataclasses.dataclass(frozen=True)
class PairSum:
    """A weighted sum of products of columns: a lower bound of what bounds the sensitivity.

    Attributes:
      early: block of the earlier column of each pair, int64 [pairs].
      late: block of the later column, likewise.
      lag: lag of the pair bound, likewise.
      weight: number of times that it counts, float64 [pairs].
    """

    early: np.ndarray
    late: np.ndarray
    lag: np.ndarray
    weight: np.ndarray


def joined(sums: Sequence[PairSum]) -> tuple[PairSum, np.ndarray]:
    """The pairs of several sums, one sum after the other, and to which each belongs, [pairs]."""
    columns = [
        np.concatenate([getattr(one, field.name) for one in sums])
        for field in dataclasses.fields(PairSum)
    ]
    return PairSum(*columns), np.repeat(np.arange(len(sums)), [one.lag.size for one in sums])


class Search(abc.ABC, Generic[_P]):
    """A search for the mechanism of least loss, by adding sums to those that it knows.

    Attributes:
      sums: the known sums of the bound of the squared sensitivity.
      sharpness: of the smooth maximum over the errors.
    """

    _most_additions: ClassVar[int]
    _most_sums: ClassVar[int]  # That are added at once.
    _excess: ClassVar[float]  # Relative excess of the bound over the known sums that is let pass.

    def __init__(self, participation: Participation, sums: list[PairSum]):
        """Args: participation: the schema; sums: that are known at first."""
        self.participation, self.sums = participation, sums
        self.sharpness = _SHARPNESS[0]

    @abc.abstractmethod
    def descend(self, point: _P) -> _P:
        """Local minimum of the smooth loss with the known sums."""

    @abc.abstractmethod
    def values(self, point: _P) -> np.ndarray:
        """The values of the known sums."""

    @abc.abstractmethod
    def cuts(self, point: _P) -> 'Cuts':
        """The bound, and its largest sums."""

    @abc.abstractmethod
    def error(self, point: _P) -> float:
        """Log of the squared error."""

    def report(self, loss: float) -> None:
        """Called after each descent with the log of the squared loss; does nothing by default."""

    def minimized(self, point: _P) -> _P:
        """The point of least loss with the bound of the sensitivity, from a start."""
        coarse, middle, fine = _SHARPNESS
        most = min(self._most_sums, max(4, _MOST_PAIRS // self.participation.count**2))
        cuts = self.cuts(point)
        self.sums += cuts.above(0.0, most)
        candidates = [(self._loss(point, cuts), point)]
        sharpness = coarse
        for _ in range(self._most_additions):
            self.sharpness = sharpness
            point = self.descend(point)
            cuts = self.cuts(point)
            candidates.append((self._loss(point, cuts), point))
            self.report(candidates[-1][0])
            values = self.values(point)
            known = values.max()
            if cuts.largest <= known * (1 + self._excess) and sharpness == middle:
                break
            kept = np.flatnonzero(values >= known * (1 - _INACTIVE))
            self.sums = [self.sums[place] for place in kept]
            self.sums += cuts.above(known * (1 + _LEAST_EXCESS), most)
            sharpness = middle
        self.sharpness = fine
        point = self.descend(min(candidates, key=operator.itemgetter(0))[1])
        candidates.append((self._loss(point, self.cuts(point)), point))
        return min(candidates, key=operator.itemgetter(0))[1]

    def _loss(self, point: _P, cuts: 'Cuts') -> float:
        """Log of the squared loss with the bound of the sensitivity, but for the smoothing."""
        self.sharpness = _SHARPNESS[-1]
        return self.error(point) + math.log(cuts.largest)


def regular(participation: Participation, length: int) -> list[PairSum]:
    """The sums of the patterns f, f + b, f + 2b, .. for the first round f of each cell below b."""
    n, b, k = participation.rounds, participation.min_separation, participation.count
    sums = []
    for first in range(0, min(b, n), length):
        cells = np.arange(first, n, b)[:k] // length
        i, j = np.triu_indices(cells.size)
        sums.append(PairSum(cells[i], cells[j], (j - i) * b, np.where(i == j, 1.0, 2.0)))
    return sums


def _through_each(weights: np.ndarray, distance: int) -> dict[tuple[int, ...], float]:
    """Heaviest pattern with a participation in each cell, and its weight.

    Args:
      weights: contribution of the p-th participation in each cell, [count, cells]; -inf if it
        cannot be there.
      distance: least distance of the cells of two participations.
    """
    count, cells = weights.shape
    # The p-th participation is in the cell: the weight up to it, and of what follows.
    until, beyond = weights.copy(), np.zeros_like(weights)
    for p in range(1, count):
        best = np.full(cells, -np.inf)
        best[distance:] = np.maximum.accumulate(until[p - 1])[: cells - distance]
        until[p] += best
    for p in range(count - 2, -1, -1):
        following = np.maximum.accumulate((weights[p + 1] + beyond[p + 1])[::-1])[::-1]
        used = following[distance:]
        beyond[p, : used.size] = np.maximum(used, 0.0)
    total, following_total = until + beyond, weights + beyond
    heaviest = {}
    for cell in range(cells):
        p = int(total[:, cell].argmax())
        if total[p, cell] > 0:
            weight, pattern = float(total[p, cell]), [cell]
            for earlier in range(p - 1, -1, -1):
                stop = pattern[0] - distance + 1
                pattern.insert(0, int(until[earlier, :stop].argmax()))
            while p + 1 < count and beyond[p, pattern[-1]] > 0:
                p += 1
                first = pattern[-1] + distance
                pattern.append(first + int(following_total[p, first:].argmax()))
            heaviest[tuple(pattern)] = weight
    return heaviest


class Cuts:
    """The largest sums through each cell for one mechanism."""

    def __init__(
        self, table: PairTable, participation: Participation, rounds: np.ndarray | None = None
    ):
        """Finds them.

        Args:
          table: pair bounds of the mechanism.
          participation: the schema of the table.
          rounds: the round that each cell of the table stands for in the sums, see `in_rounds`;
            None if cells are rounds.
        """
        self._cell_rounds = rounds
        self._table = table
        self._separation = participation.min_separation
        self._distance = participation.min_separation // table.length
        self._count = participation.count
        rows = [table.partner_weights(r) for r in range(self._count - 1)]
        self._rows = {False: rows, True: [row[::-1, ::-1].T for row in rows]}
        self._known: dict[tuple[int, int, bool], list[tuple[int, int]]] = {}
        self._patterns = _through_each(table.position_weights(_SHARE), self._distance)

    @property
    def largest(self) -> float:
        """The bound of the squared sensitivity."""
        return max(self._patterns.values())

    def above(self, limit: float, most: int) -> list[PairSum]:
        """The sums that exceed a limit, at most `most` of them, the largest first."""
        ranked = sorted(self._patterns, key=self._patterns.__getitem__, reverse=True)[:most]
        sums = [self._sum(pattern) for pattern in ranked if self._patterns[pattern] > limit]
        if self._cell_rounds is None:
            return sums
        return [in_rounds(one, self._cell_rounds) for one in sums]

    def _sum(self, pattern: tuple[int, ...]) -> PairSum:
        """The pattern with the best partners of each of its participations."""
        pairs: list[tuple[int, int, int, float]] = []
        for p, cell in enumerate(pattern):
            pairs.append((cell, cell, 0, 1.0))
            for r, other in self._partners(cell, self._count - 1 - p, mirrored=False):
                pairs.append((cell, other, self._lag(r, other - cell), 2 * _SHARE))
            for r, other in self._partners(cell, p, mirrored=True):
                pairs.append((other, cell, self._lag(r, cell - other), 2 * (1 - _SHARE)))
        early, late, lag, weight = zip(*pairs, strict=True)
        return PairSum(np.array(early), np.array(late), np.array(lag), np.array(weight))

    def _lag(self, r: int, distance: int) -> int:
        """The lag of the pair bound of a cell and partner number r + 1."""
        return max(int(self._table.lags[distance]), (r + 1) * self._separation)

    def _partners(self, cell: int, count: int, mirrored: bool) -> list[tuple[int, int]]:
        """The heaviest at most `count` later partners of a cell: numbers r and cells.

        Args:
          cell: the cell.
          count: largest number of partners.
          mirrored: whether to take earlier partners instead.
        """
        key = (cell, count, mirrored)
        if not count:
            return []
        if key not in self._known:
            last = self._rows[mirrored][0].shape[0] - 1
            place = last - cell if mirrored else cell
            weights = np.array([row[place] for row in self._rows[mirrored][:count]])
            total, pattern = matrix_sensitivity.heaviest_by_position(weights, self._distance)
            partners = list(enumerate(pattern.tolist()))[::-1] if total > 0 else []
            self._known[key] = [(r, last - other if mirrored else other) for r, other in partners]
        return self._known[key]


def in_rounds(one: PairSum, rounds: np.ndarray) -> PairSum:
    """A sum over pairs of places within some rounds, increasing, as one over pairs of rounds."""
    early, late = rounds[one.early], rounds[one.late]
    return PairSum(early, late, late - early, one.weight)
