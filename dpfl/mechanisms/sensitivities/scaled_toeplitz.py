"""Sensitivity of a Toeplitz matrix with scaled columns, `C = L diag(s)`.

Let c be the coefficients of L, non-negative and non-increasing, n the rounds, b the separation, k
the participations that a client can reach, and

    g(p, d) = sum_{l < n - p} c_l c_{l + d},

which increases neither with the row p nor with the lag d. Columns i < j of C have the inner product
`s_i s_j g(j, j - i)`.

Rounds are grouped in cells of q rounds; s_a is the largest scale of cell a. Take any admitted
pattern p_0 < p_1 < .. and let a_i be the cell of p_i. For i < j:

- `p_j >= a_j q`, `p_j - p_i >= (j - i) b` and `p_j - p_i >= (a_j - a_i - 1) q + 1`, so the inner
  product of the columns is at most `s_{a_i} s_{a_j} g(a_j q, d)` with the larger of the two lags.
- `a_j - a_i >= floor((j - i) b / q)`.

So the largest sum of these pair bounds over all sequences of cells with such distances is a bound
of the squared sensitivity. It is bounded in turn by dynamic programming over cells, with the
partners of each participation chosen on their own (see `matrix_sensitivity.upper_bound`, which
this file follows). With q = 1 the pair bounds are the entries of the Gram matrix themselves.
docs/research/mechanisms.md has the proof, and cases in which the result is exact.
"""

import math

import numpy as np

from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation

# Limits of (number of cells)^2 times participations, and of cells: about a second.
_MOST_STEPS = 4e7
_MOST_CELLS = 1024
_ROUNDING = 1e-12
# Shares of a pair that its earlier participation bears.
_SHARES = (1.0, 0.5, 0.0)


def sensitivity(
    coefficients: np.ndarray,
    scale: np.ndarray,
    block_length: int,
    participation: Participation,
) -> Sensitivity:
    """Proven bound of the squared sensitivity of `L diag(scale)`; see this file.

    Args:
      coefficients: first column of L, non-negative and non-increasing, but for rounding,
        [at least participation.rounds].
      scale: one positive number for each round, [at least participation.rounds].
      block_length: rounds that share a scale.
      participation: the schema.

    Returns:
      The bound; exact if an admitted pattern attains it.
    """
    n, b, k = participation.rounds, participation.min_separation, participation.count
    coefficients, scale = coefficients[:n], scale[:n]
    if k == 1:
        squared_norms = scale**2 * np.cumsum(coefficients**2)[::-1]
        return Sensitivity(float(squared_norms.max()), is_exact=True)
    regular = matrix_sensitivity.evenly_spaced(participation)
    attained = squared_norm(coefficients, scale, regular)
    if b == 1 and k == n or (np.diff(scale) <= 0).all():
        return Sensitivity(attained, is_exact=True)
    # The smallest non-increasing scale that is nowhere below the given one bounds every entry of C.
    majorant = np.maximum.accumulate(scale[::-1])[::-1]
    squared = squared_norm(coefficients, majorant, regular)
    for length in _cell_lengths(math.gcd(block_length, b), n, k):
        if attained >= squared * (1 - _ROUNDING):
            break
        table = PairTable.of_toeplitz(coefficients, scale, length, participation)
        patterns = [
            table.rounds(np.arange(first, n, b)[:k] // length) for first in range(0, b, length)
        ]
        for share in _SHARES:
            weights = table.position_weights(share)
            total, cells = matrix_sensitivity.heaviest_by_position(weights, b // length)
            squared = min(squared, total)
            patterns.append(table.rounds(cells))
        attained = max(attained, *(squared_norm(coefficients, scale, one) for one in patterns))
    exact = attained >= squared * (1 - _ROUNDING)
    return Sensitivity(max(squared, attained), is_exact=bool(exact))


def squared_norm(coefficients: np.ndarray, scale: np.ndarray, pattern: np.ndarray) -> float:
    """Squared norm of `C u` for equal updates in the rounds of a pattern, [k]."""
    released = np.zeros(coefficients.size)
    for place in pattern:
        released[place:] += scale[place] * coefficients[: coefficients.size - place]
    return float(released @ released)


def _cell_lengths(largest: int, rounds: int, count: int) -> list[int]:
    """Lengths of cells to try, from coarse to fine, as far as the steps allow."""
    cells = min(_MOST_CELLS, math.sqrt(_MOST_STEPS / count))
    least = max(1, math.ceil(rounds / cells))
    if largest < least:
        return [least]
    lengths = [largest]
    while lengths[-1] > 1:
        finer = next(d for d in range(lengths[-1] // 2, 0, -1) if lengths[-1] % d == 0)
        if finer < least:
            break
        lengths.append(finer)
    return lengths


class PairTable:
    """Bounds of the pairs of all cells, and their largest sums over sequences of cells.

    Attributes:
      length: rounds of a cell, q.
      lags: lag of the pair bound for each distance of two cells, int64 [cells].
      firsts: least distance of the r-th partner of a participation, for r = 1 .. k - 1.
    """

    def __init__(
        self,
        participation: Participation,
        length: int,
        squared_norms: np.ndarray,
        pairs: np.ndarray,
        nearest: list[list[tuple[int, np.ndarray]]] | None = None,
    ):
        """Sets the pair bounds.

        Args:
          participation: the schema.
          length: rounds of a cell.
          squared_norms: largest squared norm of a column of each cell, [cells].
          pairs: bounds of the pairs of cells, of which those above the diagonal count.
          nearest: for the r-th partner, distances of cells at which smaller bounds hold, and these.
        """
        self.length = length
        self._rounds = participation.rounds
        self._separation, self._count = participation.min_separation, participation.count
        self.lags = np.maximum((np.arange(squared_norms.size) - 1) * length + 1, 0)
        self.firsts = np.arange(1, self._count) * self._separation // length
        self._squared_norms, self._pairs = squared_norms, pairs
        self._nearest = nearest or [[] for _ in self.firsts]
        self._both_partners: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of_toeplitz(
        cls,
        coefficients: np.ndarray,
        scale: np.ndarray,
        length: int,
        participation: Participation,
    ) -> 'PairTable':
        """The table of a Toeplitz matrix with scaled columns.

        Args:
          coefficients: c, [participation.rounds].
          scale: of each round, [participation.rounds].
          length: rounds of a cell.
          participation: the schema.
        """
        starts = np.arange(0, participation.rounds, length)
        cells = starts.size
        scale = np.maximum.reduceat(scale, starts)
        lags = np.maximum((np.arange(cells) - 1) * length + 1, 0)
        orders = np.arange(1, participation.count) * participation.min_separation
        table = _correlations(coefficients, starts, np.append(lags, orders))
        cell = np.arange(cells)
        distance = np.abs(np.subtract.outer(cell, cell))
        products = np.outer(scale, scale)
        # For the r-th partner at its least distances, r b is the larger of the two lags.
        nearest = []
        for r, order in enumerate(orders.tolist()):
            first, last = order // length, -(-order // length)
            nearest.append(
                [(m, np.diag(products, m) * table[cells + r, m:]) for m in (first, last)]
            )
        # The row of a pair bound is that of the later cell.
        pairs = products * table[distance, cell[None]]
        return cls(participation, length, scale**2 * table[0], pairs, nearest)

    def position_weights(self, share: float) -> np.ndarray:
        """Largest contribution of each participation, float64 [count, cells]; -inf if impossible.

        Args:
          share: share of each pair that its earlier participation bears.
        """
        if self._both_partners is None:
            self._both_partners = self._partners(mirrored=True), self._partners(mirrored=False)
        before, after = self._both_partners
        weights = self._squared_norms + 2 * share * after[::-1] + 2 * (1 - share) * before
        earliest = np.arange(self._count) * self._separation // self.length
        weights[np.arange(weights.shape[1]) < earliest[:, None]] = -np.inf
        return weights

    def rounds(self, cells: np.ndarray) -> np.ndarray:
        """The earliest admitted pattern in or after the cells, without rounds beyond the last."""
        pattern: list[int] = []
        for cell in cells.tolist():
            first = pattern[-1] + self._separation if pattern else 0
            pattern.append(max(cell * self.length, first))
        return np.array([place for place in pattern if place < self._rounds])

    def _partners(self, mirrored: bool) -> np.ndarray:
        """Largest sums of at most c later partners of each cell, [count, cells], c = 0, 1, ..

        Args:
          mirrored: whether to sum over earlier partners instead.
        """
        cells = self._squared_norms.size
        totals = np.zeros((self._count, cells))
        ending = np.zeros((cells, cells))
        separation = self._separation // self.length
        for r in range(self._count - 1):
            weights = self.partner_weights(r)
            if mirrored:
                weights = weights[::-1, ::-1].T
            if r:
                best = np.maximum.accumulate(ending, axis=1)
                weights[:, separation:] += best[:, : cells - separation]
                weights[:, :separation] = -np.inf
            ending = weights
            totals[r + 1] = np.maximum(totals[r], ending.max(axis=1))
        return totals[:, ::-1] if mirrored else totals

    def partner_weights(self, r: int) -> np.ndarray:
        """Pair bounds of each cell with its partner number r + 1, [cells, cells].

        A new array; -inf where there is no such partner.
        """
        cell = np.arange(self._squared_norms.size)
        is_partner = cell - cell[:, None] >= self.firsts[r]
        weights = np.where(is_partner, self._pairs, -np.inf)
        for distance, values in self._nearest[r]:
            if values.size:
                weights[cell[: values.size], cell[: values.size] + distance] = values
        return weights


def _correlations(coefficients, starts, lags) -> np.ndarray:
    """g(start, lag), float64 [lags, starts]."""
    n = coefficients.size
    table = np.zeros((lags.size, starts.size))
    known: dict[int, np.ndarray] = {}
    for row, lag in enumerate(lags.tolist()):
        if lag < n:
            if lag not in known:
                sums = np.cumsum(coefficients[: n - lag] * coefficients[lag:])
                known[lag] = sums[n - 1 - np.maximum(starts, lag)]
            table[row] = known[lag]
    return table
