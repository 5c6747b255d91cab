"""Which sums of products of columns the proven bound of the sensitivity maximises.

The bound of `sensitivities.scaled_toeplitz` is the largest of many weighted sums of pair bounds: a
pattern of cells, and the partners of each of its participations. An optimiser needs those of the
sums that are large. Here they are found for one mechanism, a pattern through each cell.
"""

from typing import Protocol

import numpy as np

from dpfl.mechanisms.optimize.scaled_loss import PairSum
from dpfl.participation import Participation

# Share of each pair that its earlier participation bears.
_SHARE = 0.5


def regular(participation: Participation, length: int) -> list[PairSum]:
    """The sums of the patterns f, f + b, f + 2b, .. for the first round f of each cell below b."""
    n, b, k = participation.rounds, participation.min_separation, participation.count
    sums = []
    for first in range(0, min(b, n), length):
        cells = np.arange(first, n, b)[:k] // length
        i, j = np.triu_indices(cells.size)
        sums.append(PairSum(cells[i], cells[j], (j - i) * b, np.where(i == j, 1.0, 2.0)))
    return sums


def through_each(weights: np.ndarray, distance: int) -> dict[tuple[int, ...], float]:
    """Heaviest pattern with a participation in each cell, and its weight.

    Args:
      weights: what the p-th participation adds in each cell, [count, cells]; -inf if it cannot be
        there.
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
    found = {}
    for cell in range(cells):
        p = int(total[:, cell].argmax())
        if total[p, cell] > 0:
            earlier = _back(until, distance, p, cell)
            later = _forward(following_total, beyond, distance, p, cell)
            found[(*earlier, cell, *later)] = float(total[p, cell])
    return found


def _back(until, distance, p, cell):
    pattern: list[int] = []
    for earlier in range(p - 1, -1, -1):
        cell = int(until[earlier, : cell - distance + 1].argmax())
        pattern.insert(0, cell)
    return pattern


def _forward(total, beyond, distance, p, cell):
    pattern: list[int] = []
    while p + 1 < total.shape[0] and beyond[p, cell] > 0:
        p += 1
        first = cell + distance
        cell = first + int(total[p, first:].argmax())
        pattern.append(cell)
    return pattern


class SumTable(Protocol):
    """What is needed of a table of pair bounds, see `scaled_toeplitz.PairTable`."""

    length: int
    lags: np.ndarray

    def position_weights(self, share: float) -> np.ndarray: ...

    def partner_weights(self, r: int) -> np.ndarray: ...


class Cuts:
    """The largest sums through each cell for one mechanism."""

    def __init__(self, table: SumTable, participation: Participation):
        """Finds them.

        Args:
          table: pair bounds of the mechanism.
          participation: the schema of the table.
        """
        self._table = table
        self._separation = participation.min_separation
        self._distance = participation.min_separation // table.length
        self._count = participation.count
        rows = [table.partner_weights(r) for r in range(self._count - 1)]
        self._rows = {False: rows, True: [row[::-1, ::-1].T for row in rows]}
        self._known: dict[tuple[int, int, bool], list[tuple[int, int]]] = {}
        self._patterns = through_each(table.position_weights(_SHARE), self._distance)

    @property
    def largest(self) -> float:
        """The bound of the squared sensitivity."""
        return max(self._patterns.values())

    def above(self, limit: float, most: int) -> list[PairSum]:
        """The sums that exceed a limit, at most so many, the largest first."""
        ranked = sorted(self._patterns, key=self._patterns.__getitem__, reverse=True)[:most]
        return [self._sum(pattern) for pattern in ranked if self._patterns[pattern] > limit]

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
            found = self._heaviest([row[place] for row in self._rows[mirrored][:count]])
            self._known[key] = [(r, last - other if mirrored else other) for r, other in found]
        return self._known[key]

    def _heaviest(self, rows: list[np.ndarray]) -> list[tuple[int, int]]:
        """Heaviest sequence of at most as many cells as there are rows of weights."""
        cells = rows[0].size
        ending = [rows[0]]
        for row in rows[1:]:
            longer = np.full(cells, -np.inf)
            best = np.maximum.accumulate(ending[-1])[: cells - self._distance]
            longer[self._distance :] = row[self._distance :] + best
            ending.append(longer)
        largest = [values.max() for values in ending]
        last = int(np.argmax(largest))
        if largest[last] <= 0:
            return []
        found, stop = [], cells
        for r in range(last, -1, -1):
            found.append((r, int(ending[r][:stop].argmax())))
            stop = found[-1][1] - self._distance + 1
        return found
