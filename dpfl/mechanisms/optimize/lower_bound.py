"""A proven lower bound on the loss of every mechanism for a participation schema.

For any linear mechanism `A = B C` let `X = C^T C`. The signed indicator u of an admitted pattern
has `||C u||^2 = u^T X u`, so the squared sensitivity is at least `tr(X M)` for each M in the convex
hull of all u u^T. For weights w of the rounds with sum 1, the largest squared error and, with equal
weights, the mean one are at least `tr(W B B^T)`. With Y = W^(1/2) A M^(1/2), for any such w and M

    loss^2 >= ||W^(1/2) B||_F^2 ||C M^(1/2)||_F^2 >= ||W^(1/2) B C M^(1/2)||_*^2 = ||Y||_*^2,

because the nuclear norm of a product is at most the product of the Frobenius norms. Nothing is
assumed of C: it may have any shape, and any entries.

The best (w, M) is tight: the bound is then the least loss there is. A search finds good ones for a
problem with few rounds, which are spread to all rounds; the bound is evaluated once, at full size.
Wherever the search ends, the bound holds.

The search raises the logarithm of the nuclear norm `tr(H^(1/2))`, `H = W^(1/2) A M A^T W^(1/2)`, of
a chain of patterns with moments M, by L-BFGS over the logits of the
probabilities. The gradient in M,

    A^T W^(1/2) H^(-1/2) W^(1/2) A / 2,

is carried back through the recursion of the moments. A problem of n rounds is solved for few rounds
first: offsets in few cells, few participations. Its chain starts the search with twice the
number of cells.

A chain draws random participation patterns with random signs. The p-th participation (p = 0, 1, ..)
of a pattern of a schema with minimum separation b is in a round `p b + s_p`, where 0 <= s_0 <= s_1
<= ...: the offsets count the rounds that are waited beyond b. A `Chain` draws the offsets one after
the other, and gives each participation a sign. With probability `step` an offset leads to the next
one, and then the sign is kept, or drawn anew. So two signs are equal in the mean by the product of
the shares of kept signs between them.

Whatever its numbers are, a chain draws admitted patterns only. The matrix M = E[u u^T] of the
signed indicators u of its patterns is therefore a convex combination of such u u^T, which is what
`loss_lower_bound` needs.

Offsets are grouped into cells. In one cell all participations have the same place; a pattern that
moves to a later cell has a fresh uniform place there.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import scipy

from dpfl import _validate
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.optimize import driver
from dpfl.participation import Participation

_TOLERANCE = 1e-9
# Of the probability to stay in a cell: the part for its later halves, when the cell is split.
_SPREAD = 0.05
# With more participations than this, the blocks of a column of M are added at once.
_DENSE_PARTICIPATIONS = 64
_EPSILON = np.finfo(np.float64).eps
# Most entries of M that are added up, over all pairs of participations.
_MOST_ADDITIONS = 4e10
# Limits of the finest problem: rounds, participations times cells, cells, and participations where
# there are many cells.
_MOST_ROUNDS = 400
_MOST_STATES = 600
_MOST_CELLS = 128
_MANY_PARTICIPATIONS = 32
_COARSENING = 0.85
_SMALLEST_CELLS = 8
# Iterations of L-BFGS: this number divided by that of rounds, within limits.
_ITERATIONS = 40_000
_FEWEST, _MOST = 100, 400
# Share of the largest eigenvalue below which eigenvalues count as that share in gradients.
_LEAST_EIGENVALUE = 1e-13
_LEAST_PROBABILITY = 1e-5
# Logits are kept within these limits, so that no step of L-BFGS leaves nothing but zeros.
_LARGEST_LOGIT = 30.0


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

    def with_cells(self, cells: int) -> 'Chain':
        """A similar chain with more cells."""
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
            if self.participations > _DENSE_PARTICIPATIONS and offsets <= separation:
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


def loss_lower_bound(
    participation: Participation, loss: str = 'max', workload: np.ndarray | None = None
) -> float:
    """A number that no linear mechanism's loss is below, whatever its matrix.

    It bounds `Mechanism.max_loss` and `Mechanism.rms_loss` for the schema: of strategies with any
    entries and any memory, banded, inverse, tree or none of these. Where a client may take part in
    every block of the separation, the best strategies that are known are mostly within 4 % of it
    (benchmarks/mechanism_table.md). Where it may not, the distance is larger; how much of that
    is the bound's own is not known.

    The result is deterministic. The search takes seconds, whatever the number of rounds n is: at
    most about a minute of one core. Its result is evaluated by the eigenvalues of a matrix [n, n],
    which takes O(n^3) operations, 7 s of one core for 4000 rounds and 100 s for 10,000, and the
    memory of two such matrices, 1.7 GB for 10,000.

    Args:
      participation: the schema.
      loss: 'max' or 'rms'.
      workload: A, see `mechanisms.workload`; None for the prefix sums.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> schema = Participation(20, min_separation=5)
      >>> 1 < optimize_blt(schema, num_buffers=2).max_loss(schema) / loss_lower_bound(schema) < 1.2
      True
    """
    _validate.choice('loss', loss, ('max', 'rms'))
    a = None if workload is None else workloads.matrix(workload, participation.rounds)
    if a is not None and not a.any():
        return 0.0
    size = _size(participation)
    chain, weights = search(size, loss, a)
    chain = chain.with_participations(size.participations)
    return _nuclear_norm(chain, interpolated(weights, size.rounds), size, a)


@dataclasses.dataclass(frozen=True)
class Size:
    """A problem: its rounds, most participations, minimum separation, and offsets of patterns."""

    rounds: int
    participations: int
    separation: int
    offsets: int


def _size_of(rounds: int, separation: int, participations: int) -> Size:
    """The problem of a schema that admits `participations` participations.

    With n rounds, separation b and k participations, the offsets of a pattern are below
    n - (k - 1) b. If this is less than b, offsets below b are allowed, and participations after
    the last round are dropped.
    """
    most = rounds - (participations - 1) * separation
    return Size(rounds, participations, separation, min(rounds, max(separation, most)))


def levels(size: Size) -> list[Size]:
    """Problems to solve one after the other, from coarse to fine."""
    cells = min(size.offsets, _MOST_CELLS if size.participations > 1 else _MOST_ROUNDS)
    while True:
        most = max(_MANY_PARTICIPATIONS, _MOST_ROUNDS // cells)
        finest = size
        if cells < size.offsets or size.participations > most:
            finest = _coarse(size, cells, most)
        states = finest.participations * cells
        if cells == 1 or (finest.rounds <= _MOST_ROUNDS and states <= _MOST_STATES):
            break
        cells = math.ceil(_COARSENING * cells) if cells > 10 else cells - 1
    sizes = [finest]
    while cells > _SMALLEST_CELLS:
        cells = -(-cells // 2)
        sizes.append(_coarse(size, cells, finest.participations))
    return sizes[::-1]


def _coarse(size: Size, cells: int, most: int) -> Size:
    """The problem scaled down to `cells` offsets and at most `most` participations."""
    scale = size.offsets / cells
    separation = max(1, round(size.separation / scale))
    participations = min(size.participations, most)
    if scale > size.separation:
        # One stands for all that are within a cell.
        together = separation * scale / size.separation
        participations = min(
            participations, max(round((size.participations - 1) / together), 1) + 1
        )
    rounds = (participations - 1) * separation + cells
    lost = (size.participations - 1) * size.separation + size.offsets - size.rounds
    rounds -= min(round(lost / scale), cells - 1)
    return Size(rounds, participations, separation, cells)


def _size(participation: Participation) -> Size:
    """The problem to solve: of fewer patterns where all are too many, or too fine for its cells."""
    n, k = participation.rounds, participation.count
    separation = int(min(participation.min_separation, n))
    size = _size_of(n, separation, k)
    if size.offsets > separation and (k * size.offsets) ** 2 / 2 > _MOST_ADDITIONS:
        size = _size_of(n, -(-n // k), k)
    cells = levels(size)[-1].offsets
    last_block = n - (size.participations - 1) * size.separation
    if last_block * cells < size.offsets:
        # Less than a cell of the last block is before the end.
        size = _size_of(n, size.separation, size.participations - 1)
    return size


def _nuclear_norm(
    chain: Chain,
    weights: np.ndarray,
    size: Size,
    workload: np.ndarray | None = None,
) -> float:
    """The bound that patterns and weights prove, less what rounding can add to it.

    It is the nuclear norm of `W^(1/2) A M^(1/2)`. Computed eigenvalues are off by at most a small
    multiple of n times the largest one and the unit of rounding, and the sums that M consists of,
    by as much in the Frobenius norm.

    Args:
      chain: the patterns, with the participations of `size`.
      weights: of the rounds, with sum 1, [rounds].
      size: the problem.
      workload: A, [rounds, rounds]; None for the prefix sums.
    """
    moments = chain.moments(size.rounds, size.separation, size.offsets)
    # Largest number of terms of an entry of M.
    terms = chain.participations * chain.cells
    roots = np.sqrt(weights)
    if workload is None:
        np.cumsum(moments, axis=0, out=moments)
        np.cumsum(moments, axis=1, out=moments)
        moments *= roots[:, None]
        moments *= roots
        trace = np.trace(moments)
    else:
        weighted = roots[:, None] * workload
        trace = ((np.abs(weighted) @ moments) * np.abs(weighted)).sum()
        moments = weighted @ moments @ weighted.T
    operations = 16 * (len(moments) + terms) * _EPSILON
    values = scipy.linalg.eigvalsh(moments, overwrite_a=True, check_finite=False)
    values -= operations * trace
    return float(np.sqrt(np.maximum(values, 0)).sum() * (1 - operations))


def search(size: Size, loss: str, workload: np.ndarray | None) -> tuple[Chain, np.ndarray]:
    """The best chain of patterns of the finest problem that is solved, and weights of its rounds.

    Args:
      size: the problem.
      loss: 'max' or 'rms'.
      workload: A, [rounds, rounds]; None for the prefix sums.
    """
    problems = levels(size)
    # A chain that mostly stays in its cell.
    cells = problems[0].offsets
    step = np.triu(np.ones((cells, cells))) + np.diag(np.full(cells, 6.0))
    step /= step.sum(axis=1, keepdims=True)
    step = np.repeat(step[None], problems[0].participations - 1, axis=0)
    chain, weights = Chain(np.full(cells, 1 / cells), step, 0.6 * step), np.ones(1)
    for level in problems:
        if workload is None:
            matrix = workloads.matrix(None, level.rounds)
        else:
            place = (np.arange(level.rounds) + 0.5) * (len(workload) / level.rounds)
            matrix = workload[np.ix_(place.astype(np.int64), place.astype(np.int64))]
        chain = chain.with_participations(level.participations).with_cells(level.offsets)
        weights = interpolated(weights, level.rounds)
        if not matrix.any():  # None of these rounds count. Any chain gives a bound.
            continue
        if level is problems[0]:
            # Weights that grow at once lead to chains of a single pattern, a poor local maximum.
            problem = Problem(level, 'rms', matrix)
            chain, weights = problem.solve(chain, weights)
        if loss == 'max' or level is not problems[0]:
            problem = Problem(level, loss, matrix)
            chain, weights = problem.solve(chain, weights)
    return chain, weights


def interpolated(weights: np.ndarray, rounds: int) -> np.ndarray:
    """Weights of another number of rounds, with sum 1: linear between logarithms."""
    place = (np.arange(rounds) + 0.5) * (weights.size / rounds) - 0.5
    result = np.exp(np.interp(place, np.arange(weights.size), np.log(weights)))
    return result / result.sum()


class Problem:
    """The value of chains with one offset in each cell, its gradient, and its maximum."""

    def __init__(self, size: Size, loss: str, workload: np.ndarray) -> None:
        self.size = size
        self.loss = loss
        self.workload = workload
        k, cells = size.participations, size.offsets
        place = np.arange(k)[:, None] * size.separation + np.arange(cells)
        self._kept = np.flatnonzero(place.ravel() < size.rounds)
        self._rounds = place.ravel()[self._kept]
        self._upper = np.triu_indices(cells)
        steps = (k - 1) * self._upper[0].size
        self._ends = np.cumsum([cells, steps, steps])

    def parameters(self, chain: Chain, weights: np.ndarray) -> np.ndarray:
        """Logits of the chain's probabilities, and of the weights for the largest loss."""
        rows, columns = self._upper
        step = np.maximum(chain.step, _LEAST_PROBABILITY)
        kept = np.clip(chain.kept / step, 1e-3, 1 - 1e-3)
        start = np.maximum(chain.start, _LEAST_PROBABILITY / chain.cells)
        parts = [
            np.log(start),
            np.log(step)[:, rows, columns].ravel(),
            np.log(kept / (1 - kept))[:, rows, columns].ravel(),
        ]
        if self.loss == 'max':
            parts.append(np.log(weights))
        return np.concatenate(parts)

    def _split(
        self, parameters: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Probabilities of starts and steps, shares of kept signs, and weights, of such logits."""
        start, step, share, weights = np.split(parameters, self._ends)
        cells = self.size.offsets
        rows, columns = self._upper
        steps = np.full((self.size.participations - 1, cells, cells), -np.inf)
        steps[:, rows, columns] = step.reshape(len(steps), rows.size)
        shares = np.zeros_like(steps)
        shares[:, rows, columns] = (1 / (1 + np.exp(-share))).reshape(len(steps), rows.size)
        if self.loss == 'max':
            weights = scipy.special.softmax(weights)
        else:
            weights = np.full(self.size.rounds, 1 / self.size.rounds)
        step = scipy.special.softmax(steps, axis=-1)
        return scipy.special.softmax(start), step, shares, weights

    def value(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Logarithm of the nuclear norm, and its gradient."""
        start, step, share, weights = self._split(parameters)
        kept = step * share
        size = self.size
        k, cells = size.participations, size.offsets
        probability = np.zeros((k, cells))
        moments = np.zeros((k, cells, k, cells))
        diagonal = np.arange(cells)
        probability[0] = start
        for p in range(k):
            if p:
                probability[p] = probability[p - 1] @ step[p - 1]
                moments[:p, :, p] = moments[:p, :, p - 1] @ kept[p - 1]
            moments[p, diagonal, p, diagonal] = probability[p]
        norm, in_rounds, in_weights = self._norm(self._gram(moments), weights)
        by_state = np.zeros((k * cells, k * cells))
        by_state[np.ix_(self._kept, self._kept)] = in_rounds[np.ix_(self._rounds, self._rounds)]
        gradient = 2 * by_state.reshape(k, cells, k, cells)
        in_probability = np.zeros((k, cells))
        in_step, in_kept = np.zeros_like(step), np.zeros_like(step)
        for p in range(k - 1, -1, -1):
            # A diagonal entry counts once; what later columns owe to it was added below.
            in_probability[p] += gradient[p, diagonal, p, diagonal] / 2
            if not p:
                break
            in_probability[p - 1] += step[p - 1] @ in_probability[p]
            in_step[p - 1] += np.outer(probability[p - 1], in_probability[p])
            column = gradient[:p, :, p].reshape(p * cells, cells)
            in_kept[p - 1] += moments[:p, :, p - 1].reshape(p * cells, cells).T @ column
            back = (column @ kept[p - 1].T).reshape(p, cells, cells)
            gradient[: p - 1, :, p - 1] += back[:-1]
            gradient[p - 1, diagonal, p - 1, diagonal] += 2 * back[-1, diagonal, diagonal]
        in_share = in_kept * kept * (1 - share)
        in_step += in_kept * share
        rows, columns = self._upper
        parts = [
            _through_softmax(start, in_probability[0]),
            _through_softmax(step, in_step)[:, rows, columns].ravel(),
            in_share[:, rows, columns].ravel(),
        ]
        if self.loss == 'max':
            parts.append(in_weights - weights * in_weights.sum())
        return math.log(norm), np.concatenate(parts) / norm

    def _gram(self, moments: np.ndarray) -> np.ndarray:
        """M by round, from the moments of states, of which only later columns are given."""
        states = self.size.participations * self.size.offsets
        square = moments.reshape(states, states)[np.ix_(self._kept, self._kept)]
        square = square + square.T
        square[np.diag_indices(len(square))] /= 2
        n = self.size.rounds
        index = self._rounds[:, None] * n + self._rounds
        return np.bincount(index.ravel(), square.ravel(), n * n).reshape(n, n)

    def _norm(
        self, moments: np.ndarray, weights: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The nuclear norm, and its gradients in M and in the logarithms of the weights."""
        weighted = np.sqrt(weights)[:, None] * self.workload
        values, vectors = np.linalg.eigh(weighted @ moments @ weighted.T)
        roots = np.sqrt(np.maximum(values, values[-1] * _LEAST_EIGENVALUE))
        projected = vectors.T @ weighted
        in_moments = 0.5 * (projected.T / roots) @ projected
        return roots.sum(), in_moments, 0.5 * (vectors**2 @ roots)

    def solve(self, chain: Chain, weights: np.ndarray) -> tuple[Chain, np.ndarray]:
        """The chain and weights of the largest value that is found."""

        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.value(parameters)
            return -value, -gradient

        start = self.parameters(chain, weights)
        iterations = min(max(_ITERATIONS // self.size.rounds, _FEWEST), _MOST)
        _, logits = driver.descend(
            objective,
            start,
            iterations=iterations,
            tolerance=1e-9,
            pairs=20,
            bounds=[(-_LARGEST_LOGIT, _LARGEST_LOGIT)] * start.size,
        )
        first, step, share, weights = self._split(logits)
        return Chain(first, step, step * share), weights


def _through_softmax(shares: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return shares * (gradient - (shares * gradient).sum(axis=-1, keepdims=True))
