"""Random participation patterns with random signs, as a Markov chain.

The p-th participation (p = 0, 1, ..) of a pattern of a schema with minimum separation b is in a
round `p b + s_p`, where 0 <= s_0 <= s_1 <= ...: the offsets count the rounds that are waited beyond
b. A `Chain` draws the offsets one after the other, and gives each participation a sign. With
probability `step` an offset leads to the next one, and then the sign is kept, or drawn anew. So
two signs are equal in the mean by the product of the shares of kept signs between them.

Whatever its numbers are, a chain draws admitted patterns only. The matrix M = E[u u^T] of the
signed indicators u of its patterns is therefore a convex combination of such u u^T, which is what
`loss_lower_bound` needs.

Offsets are grouped into cells. In one cell all participations have the same place; a pattern that
moves to a later cell has a fresh uniform place there.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

_TOLERANCE = 1e-9
# Of the probability to stay in a cell: the part for its later halves, when the cell is split.
_SPREAD = 0.05
# With more participations than this, the blocks of a column of M are added at once.
_MANY_PARTICIPATIONS = 64


@dataclasses.dataclass(frozen=True)
class Chain:
    """Probabilities of patterns of K participations whose offsets lie in S cells.

    Attributes:
      start: probability of the first offset, [S].
      step: probability to go from one cell to another with the next participation, upper
        triangular, [K - 1, S, S].
      kept: probability to go there and keep the sign, at most `step`, [K - 1, S, S].

    Raises:
      ValueError: if these are no probabilities, or a pattern would go back to an earlier cell.
    """

    start: np.ndarray
    step: np.ndarray
    kept: np.ndarray

    def __post_init__(self) -> None:
        cells = self.start.size
        if self.step.shape[1:] != (cells, cells) or self.kept.shape != self.step.shape:
            raise ValueError(f'shapes {self.start.shape}, {self.step.shape}, {self.kept.shape}')
        if np.tril(self.step, -1).any():
            raise ValueError('a pattern goes back to an earlier cell')
        sums = np.append(self.step.sum(axis=-1), self.start.sum())
        if not (sums <= 1 + _TOLERANCE).all() or not (self.start >= 0).all():
            raise ValueError('probabilities must not be negative, nor their sums above 1')
        if not ((self.kept >= 0) & (self.kept <= self.step)).all():
            raise ValueError('kept signs must have a probability of at least 0 and at most `step`')

    @property
    def participations(self) -> int:
        """Participations of a pattern, before those after the last round are dropped."""
        return len(self.step) + 1

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.start.size

    def columns(self) -> Iterator[np.ndarray]:
        """Yields for each participation p the moments with all up to it.

        Entry [p', z', z] is the mean product of the signs of participations p' and p where they
        are in the cells z' and z: [p + 1, S, S].
        """
        probability = self.start
        earlier = np.zeros((0, self.cells, self.cells))
        for p in range(self.participations):
            if p:
                probability = probability @ self.step[p - 1]
                earlier = earlier @ self.kept[p - 1]
            earlier = np.concatenate([earlier, np.diag(probability)[None]])
            yield earlier

    def resized(self, participations: int, cells: int) -> 'Chain':
        """A similar chain with more cells and other participations, a start for optimisers."""
        return self.with_participations(participations)._with_cells(cells)

    def with_participations(self, participations: int) -> 'Chain':
        """A similar chain with another number of participations.

        If there are more, one step of this chain becomes g steps: each leads to a later cell with
        1 / g of the probability, and keeps the sign in a cell by the g-th root. If there are
        fewer, steps are left out.
        """
        steps, wanted = len(self.step), participations - 1
        if wanted == steps:
            return self
        if not steps:
            stay = np.repeat(np.eye(self.cells)[None], wanted, axis=0)
            return Chain(self.start, stay, stay / 2)
        share = min(steps / wanted, 1.0) if wanted else 1.0
        stay = np.eye(self.cells)
        step = (1 - share) * stay + share * self.step
        kept = share * self.kept * (1 - stay) + stay * np.minimum(self.kept**share, step)
        place = np.clip((np.arange(wanted) + 0.5) * (steps / max(wanted, 1)) - 0.5, 0, steps - 1)
        low = place.astype(np.int64)
        high = np.minimum(low + 1, steps - 1)
        part = (place - low)[:, None, None]
        step = (1 - part) * step[low] + part * step[high]
        kept = (1 - part) * kept[low] + part * kept[high]
        return Chain(self.start, step, np.minimum(kept, step))

    def _with_cells(self, cells: int) -> 'Chain':
        if cells == self.cells:
            return self
        parent = np.arange(cells) * self.cells // cells
        size = np.bincount(parent, minlength=self.cells)[parent]
        start = self.start[parent] / size
        same = parent[:, None] == parent
        later = same & np.triu(np.ones((cells, cells), bool), 1)
        num_later = later.sum(axis=1)
        # Share of a step between two cells for one of the parts of either.
        share = np.where(same, 0.0, 1 / size)
        share += np.diag(np.where(num_later, 1 - _SPREAD, 1.0))
        share += later * (_SPREAD / np.maximum(num_later, 1))[:, None]
        step = self.step[:, parent][:, :, parent] * share
        kept = self.kept[:, parent][:, :, parent] * share
        return Chain(start, step, np.minimum(kept, step))

    def moments(self, rounds: int, separation: int, offsets: int) -> np.ndarray:
        """M = E[u u^T], float64 [rounds, rounds], and symmetric.

        Participations after the last round are dropped from a pattern.

        Args:
          rounds: number of rounds n.
          separation: the minimum separation b.
          offsets: number of offsets in all cells, at least the number of cells.
        """
        edges = np.arange(self.cells + 1) * offsets // self.cells
        size = np.diff(edges)
        cell = np.repeat(np.arange(self.cells), size)
        place = 1 / size[cell]
        diagonal = np.arange(offsets)
        later = np.triu(np.ones((self.cells, self.cells)), 1)

        def by_offset(column: np.ndarray) -> np.ndarray:
            """Moments of offsets, [any, offsets, offsets], from those of cells."""
            blocks = (column * later)[:, cell][:, :, cell]
            blocks *= place[:, None] * place
            blocks[:, diagonal, diagonal] = column[:, cell, cell] * place
            return blocks

        result = np.zeros((rounds, rounds))
        for p, column in enumerate(self.columns()):
            first = p * separation
            width = min(offsets, rounds - first)
            if width <= 0:
                break
            own = slice(first, first + width)
            result[own, own] += by_offset(column[p:])[0, :width, :width]
            if self.participations > _MANY_PARTICIPATIONS and offsets <= separation:
                blocks = by_offset(column[:p])[:, :, :width]
                result[:first].reshape(p, separation, rounds)[:, :offsets, own] += blocks
                rows = result[own, :first].reshape(width, p, separation)
                rows[:, :, :offsets] += blocks.transpose(2, 0, 1)
                result[own, :first] = rows.reshape(width, first)
                continue
            for q in range(p):
                block = by_offset(column[q : q + 1])[0, :, :width]
                others = slice(q * separation, min(q * separation + offsets, rounds))
                block = block[: others.stop - others.start]
                result[others, own] += block
                result[own, others] += block.T
        return result
