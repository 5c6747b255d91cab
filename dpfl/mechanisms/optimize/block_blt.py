"""Optimiser of BLTs whose decays and scales change from block to block, with scaled columns.

All parameters are found together, by L-BFGS with analytic gradients. The sensitivity in the
objective is the bound of `matrix_sensitivity.upper_bound` for participations in some of the rounds,
by the search of `cutting_planes`. Candidates are compared by their proven loss, for participations
in all rounds.

`C = L diag(s)` is a `BlockBlt` L, whose buffers are carried on, times a diagonal matrix. Here
the scales s are those of cells of rounds. With the product `F(t, u)` of the decays of each buffer
in the rounds u .. t - 1, units in the buffers before round t have

    O(t) = sum_{v >= t} gain_v^2 (scale_v * F(v, t)) (scale_v * F(v, t))^T

in common in the output, a matrix [d, d]; within a segment it is a geometric sum. The columns of
rounds i < j have the inner products

    G_ij = s_i s_j q_j . F(j, i + 1),    q_j = gain_j^2 scale_j + decay_j * (O(j + 1) 1),
    G_jj = s_j^2 (gain_j^2 + 1^T O(j + 1) 1).

All is positive, so no digits cancel.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy

from dpfl import _validate
from dpfl.mechanisms.block_blt import BlockBlt
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import blt_loss, cutting_planes, driver
from dpfl.mechanisms.optimize.cutting_planes import PairSum
from dpfl.mechanisms.optimize.scaled_blt import from_entry, optimize_scaled_blt
from dpfl.mechanisms.sensitivities.scaled_toeplitz import PairTable
from dpfl.participation import Participation

_VERSION = 2
# Most rounds, and most rounds^2 times participations: the sensitivity takes all pairs of rounds.
_MOST_ROUNDS = 4096
_MOST_STEPS = 1e9
# Most cells with a scale of their own, unless there are more separations, and the most of those.
_MOST_CELLS = 128
_MOST_SEPARATIONS = 256
# Number of blocks of rounds with the same decays and scales, about.
_BLOCKS = 12
# Bounds of the logs of rates, scales of buffers over rates, gains and scales of columns.
_BOUNDS = ((math.log(1e-6), math.log(0.99)), (-14.0, 5.0), (-3.0, 3.0), (-5.0, 5.0))
# A buffer counts if its scale over its rate is at least this much.
_LEAST_EFFECT = 0.01
_MAX_ITERATIONS = 60


class Blocks(NamedTuple):
    """Parameters, or the gradient with respect to their logs.

    Attributes:
      rate: 1 - decay, [segments, d].
      scale: of the buffers, [segments, d].
      gain: [segments].
      column_scale: of each cell, [cells].
    """

    rate: np.ndarray
    scale: np.ndarray
    gain: np.ndarray
    column_scale: np.ndarray


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which rounds share parameters.

    Attributes:
      rounds: number of rounds, n.
      segments: first round of each segment, the first 0, int64 [segments].
      cells: first round of each cell, the first 0, int64 [cells]; each segment begins with a cell.
    """

    rounds: int
    segments: np.ndarray
    cells: np.ndarray

    def of_rounds(self, firsts: np.ndarray) -> np.ndarray:
        """Number of the segment or cell of every round, int64 [n]."""
        return np.searchsorted(firsts, np.arange(self.rounds), side='right') - 1


class PrefixErrors:
    """Squared errors of the prefix sums of all rounds; a smooth maximum, or the mean.

    The prefix sum S and the buffers x are one linear system with a map for each round, and the
    error is the variance of S. The gradient comes from the adjoint of its covariance.
    """

    def __init__(self, layout: Layout, loss: str):
        self._layout, self._loss = layout, loss
        self._segment = layout.of_rounds(layout.segments)
        self._cell = layout.of_rounds(layout.cells)
        self.sharpness = 1.0

    def __call__(self, blocks: Blocks) -> tuple[float, Blocks]:
        """Log of the squared error, and its gradient."""
        d = blocks.rate.shape[1]
        less = 1 / blocks.column_scale[self._cell]
        gain = 1 / blocks.gain[self._segment]
        maps = np.zeros((self._layout.rounds, 1 + d, 1 + d))
        scale = blocks.scale[self._segment]
        maps[:, 0, 0] = 1.0
        maps[:, 0, 1:] = -scale * less[:, None]
        maps[:, 1:, 1:] = -scale[:, None, :]
        maps[:, range(1, 1 + d), range(1, 1 + d)] += 1 - blocks.rate[self._segment]
        noise = np.repeat(gain[:, None], 1 + d, axis=1)
        noise[:, 0] *= less
        fresh = noise[:, :, None] * noise[:, None, :]
        before = np.empty_like(maps)
        covariance = np.zeros((1 + d, 1 + d))
        squared = np.empty(self._layout.rounds)
        for t, one in enumerate(maps):
            before[t] = covariance
            covariance = one @ covariance @ one.T + fresh[t]
            squared[t] = covariance[0, 0]
        value, shares = driver.log_error(squared, self._loss, self.sharpness)

        adjoints = np.empty_like(maps)
        adjoint = np.zeros((1 + d, 1 + d))
        for t in range(self._layout.rounds - 1, -1, -1):
            adjoint[0, 0] += shares[t]
            adjoints[t] = adjoint
            adjoint = maps[t].T @ adjoint @ maps[t]
        by_map = 2 * adjoints @ maps @ before
        by_noise = 2 * (adjoints @ noise[:, :, None])[:, :, 0]
        by_output = by_map[:, 0, 1:] * less[:, None]
        by_scale = -(by_output + by_map[:, 1:, 1:].sum(axis=1))
        by_decay = np.einsum('tii->ti', by_map[:, 1:, 1:])
        by_less = -(by_map[:, 0, 1:] * scale).sum(axis=1) + by_noise[:, 0] * gain
        by_gain = (by_noise * noise).sum(axis=1)
        return value, Blocks(
            -self._over_segments(by_decay) * blocks.rate,
            self._over_segments(by_scale) * blocks.scale,
            -self._over_segments(by_gain),
            -np.add.reduceat(by_less * less, self._layout.cells),
        )

    def _over_segments(self, values):
        return np.add.reduceat(values, self._layout.segments)


class Columns:
    """Inner products of the columns of some rounds, and their gradients.

    Attributes:
      products: G between the rounds, its upper triangle, float64 [m, m].
    """

    def __init__(self, layout: Layout, rounds: np.ndarray, blocks: Blocks):
        """Computes them.

        Args:
          layout: of the blocks.
          rounds: increasing, int64 [m].
          blocks: the parameters; each rate is below 1.
        """
        self._blocks = blocks
        ends = np.append(layout.segments[1:], layout.rounds)
        self._segment = segment = np.searchsorted(layout.segments, rounds, side='right') - 1
        self._cell = np.searchsorted(layout.cells, rounds, side='right') - 1
        self._lengths = ends - layout.segments
        self._left = ends[segment] - rounds - 1
        # Rounds of each segment before each of the rounds, and with it.
        before = rounds[:, None] - layout.segments
        self._before = np.clip(before, 0, self._lengths)
        self._until = np.clip(before + 1, 0, self._lengths)
        rate, scale, gain, column_scale = blocks
        self._log_decay = np.log1p(-rate)
        self._rates = blt_loss.pair_rates(rate)
        self._outer = (gain**2)[:, None, None] * scale[:, :, None] * scale[:, None]
        self._last = np.zeros_like(self._outer)  # O behind each segment.
        for g in range(len(gain) - 2, -1, -1):
            self._last[g] = self._behind(np.array([g + 1]), self._lengths[g + 1 : g + 2])[0][0]
        power = (gain**2)[segment, None]
        self._sums = self._behind(segment, self._left)[0].sum(axis=2)
        self._shared = power * scale[segment] + (1 - rate[segment]) * self._sums
        exponents = (self._before @ self._log_decay)[None] - (self._until @ self._log_decay)[
            :, None
        ]
        is_later = np.triu(np.ones((rounds.size, rounds.size), bool), 1)
        self._reach = np.exp(np.where(is_later[..., None], exponents, -np.inf))
        self.products = np.einsum('ijm,jm->ij', self._reach, self._shared)
        self.products += np.diag(power[:, 0] + self._sums.sum(axis=1))
        self._scales = np.outer(column_scale[self._cell], column_scale[self._cell])
        self.products *= self._scales

    def gradient(self, weights: np.ndarray) -> Blocks:
        """Gradient of `(weights * products).sum()`.

        Args:
          weights: [m, m]; those below the diagonal do not count.
        """
        rate, scale, gain, column_scale = self._blocks
        segment = self._segment
        parts = weights * self.products
        weights = weights * self._scales
        by_norm = np.diag(weights)
        through = weights[..., None] * self._reach
        by_shared = through.sum(axis=0)
        through *= self._shared
        by_log_decay = self._before.T @ through.sum(axis=0)
        by_log_decay -= self._until.T @ through.sum(axis=1)
        decay, power = 1 - rate[segment], (gain**2)[segment]
        by_output = power[:, None] * scale[segment] * by_shared
        by_sum = by_shared * decay + by_norm[:, None]
        every = np.arange(len(gain))
        is_of = (segment == every[:, None]).astype(np.float64)  # [segments, m]
        slopes = _Slopes(*(np.zeros_like(self._outer) for _ in _Slopes._fields))
        slopes.add(is_of, self._behind(segment, self._left)[1], by_sum[:, :, None])
        for g in every[1:]:
            _, one = self._behind(np.array([g]), self._lengths[g : g + 1])
            slopes.add((every == g)[:, None], one, slopes.last[g - 1 : g])
        outer = slopes.outer + slopes.outer.swapaxes(1, 2)
        rates = slopes.rates + slopes.rates.swapaxes(1, 2)
        by_log_decay += (slopes.exponent + slopes.exponent.swapaxes(1, 2)).sum(axis=2)
        by_rate = (rates @ (1 - rate)[:, :, None])[:, :, 0]
        by_rate -= is_of @ (by_shared * self._sums) + by_log_decay / (1 - rate)
        return Blocks(
            by_rate * rate,
            is_of @ by_output + (outer * self._outer).sum(axis=2),
            2 * is_of @ (by_output.sum(axis=1) + power * by_norm)
            + (outer * self._outer).sum(axis=(1, 2)),
            np.bincount(self._cell, parts.sum(axis=0) + parts.sum(axis=1), column_scale.size),
        )

    def _behind(self, segments: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, '_Slopes']:
        """O(t), if `left` rounds of a segment are left from t on, and its derivatives."""
        left = left[:, None, None]
        sums, by_rates = blt_loss.geometric_sum(left, self._rates[segments])
        both = self._log_decay[:, :, None] + self._log_decay[:, None]
        powers = np.exp(left * both[segments])
        outer, last = self._outer[segments], self._last[segments]
        slopes = _Slopes(sums, outer * by_rates, powers, powers * last * left)
        return outer * sums + powers * last, slopes


class _Slopes(NamedTuple):
    """Derivatives with respect to the inputs of O, [any, d, d] or [segments, d, d]."""

    outer: np.ndarray
    rates: np.ndarray
    last: np.ndarray
    exponent: np.ndarray

    def add(self, is_of: np.ndarray, of_each: '_Slopes', by_total: np.ndarray) -> None:
        """Adds the contributions of some O, by the chain rule.

        Args:
          is_of: 1 where an O belongs to a segment, else 0, [segments, any].
          of_each: derivatives of each O.
          by_total: gradients with respect to each O.
        """
        for slope, derivative in zip(self, of_each, strict=True):
            slope += np.einsum('ga,aij->gij', is_of, by_total * derivative)


def optimize_block_blt(
    participation: Participation,
    num_buffers: int = 4,
    loss: str = 'max',
    *,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> ColumnScaled:
    """Finds the BLT of least loss whose decays and scales change from block to block.

    The result is a `BlockBlt` with about 12 blocks of rounds and scaled columns, and takes the
    memory of a BLT with `num_buffers` buffers. Its loss, with the proven sensitivity, is at most
    that of `optimize_scaled_blt`, which is also the result beyond 4096 rounds, for more than 256
    separations, and where rounds^2 times participations exceed 1e9. The search takes about half a
    minute for 2000 rounds. It is deterministic, and results are cached on disk, see
    `optimize.driver`.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      num_buffers: d, the largest number of buffers.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums. For others the result is
        the better of the mechanism for the prefix sums and the scaled BLT for A.
      progress: whether to show the loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> schema = Participation(20, min_separation=10)
      >>> blocks = optimize_block_blt(schema, num_buffers=1)
      >>> blocks.max_loss(schema) < Identity(20).max_loss(schema)
      True
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    problem = driver.Problem('optimize_block_blt', participation, loss, workload, progress)
    n = participation.rounds

    def candidates() -> Iterator[ColumnScaled]:
        scaled = optimize_scaled_blt(participation, num_buffers, loss, workload=workload)
        yield problem.shown('one block', scaled)
        if problem.workload is not None:
            yield optimize_block_blt(participation, num_buffers, loss)
        elif (
            1 < n <= _MOST_ROUNDS
            and -(-n // participation.min_separation) <= _MOST_SEPARATIONS
            and n**2 * participation.count <= _MOST_STEPS
        ):
            search = _Search(participation, num_buffers, loss, problem.report)
            yield problem.shown('blocks', search.from_scaled(scaled))

    return problem.solve(
        ColumnScaled, candidates, version=_VERSION, make=from_entry, num_buffers=num_buffers
    )


def _layout_of(participation: Participation) -> tuple[Layout, np.ndarray, Participation]:
    """Which rounds share parameters, and the rounds whose participations are looked at.

    Those are the first rounds of all cells, and the last rounds before other decays. Every
    separation is divided in the same way, so it holds the same number of the rounds that are looked
    at: two of these are at least a separation apart if and only if their numbers differ by at least
    that.

    Returns:
      The layout, the rounds, increasing, [m], and the schema by their numbers.
    """
    n = participation.rounds
    b = min(participation.min_separation, n)
    separations = -(-n // b)
    most = max(1, min(b, _MOST_CELLS // separations))
    # A division into equal cells, if there is one nearly as fine.
    parts = next((p for p in range(most, most // 2, -1) if b % p == 0), most)
    offsets = np.arange(parts) * b // parts
    if separations > _BLOCKS:
        firsts = np.arange(_BLOCKS) * separations // _BLOCKS * b
    else:
        inside = min(parts, _BLOCKS // separations)
        chosen = offsets[np.arange(inside) * parts // inside]
        firsts = np.add.outer(np.arange(separations) * b, chosen).ravel()
    looked_at = np.union1d(offsets, (np.unique(firsts % b) - 1) % b)
    cells, rounds = (
        np.add.outer(np.arange(separations) * b, places).ravel() for places in (offsets, looked_at)
    )
    layout = Layout(n, firsts[firsts < n], cells[cells < n])
    rounds = rounds[rounds < n]
    return layout, rounds, Participation(rounds.size, looked_at.size, participation.count)


class _Search(cutting_planes.Search[np.ndarray]):
    """The search for one schema and loss."""

    _most_additions = 12
    _most_sums = 100
    _excess = 2e-4

    def __init__(
        self,
        participation: Participation,
        num_buffers: int,
        loss: str,
        report: Callable[[str, float], None],
    ):
        self._buffers, self._report = num_buffers, report
        self._layout, self._rounds, self._schema = _layout_of(participation)
        self._errors = PrefixErrors(self._layout, loss)
        regular = cutting_planes.regular(self._schema, 1)
        super().__init__(
            participation, [cutting_planes.in_rounds(one, self._rounds) for one in regular]
        )

    def from_scaled(self, start: ColumnScaled) -> ColumnScaled:
        """The mechanism of least loss found from a scaled BLT; its first column has scale 1."""
        assert isinstance(start.base, Blt)
        rate = np.clip(1 - start.base.decay, 1e-6, 0.98)
        effect = start.base.scale * np.minimum(1 / rate, start.rounds)
        kept = effect >= _LEAST_EFFECT
        rate, scale = rate[kept], start.base.scale[kept]
        # Further buffers, with little effect and decays between the others.
        more = self._buffers - rate.size
        added = np.geomspace(rate.min(initial=0.1), 0.9, more + 2)[1:-1]
        rate, scale = np.append(rate, added), np.append(scale, 2 * _LEAST_EFFECT * added)
        count = self._layout.segments.size
        cells = start.column_scales()[self._layout.cells]
        x = self._vector(
            Blocks(np.tile(rate, (count, 1)), np.tile(scale, (count, 1)), np.ones(count), cells)
        )
        blocks = self._blocks(self.minimized(x))
        n = self._layout.rounds
        starts = tuple(self._layout.segments[1:].tolist())
        base = BlockBlt(n, starts, 1 - blocks.rate, blocks.scale, blocks.gain)
        column_scale = blocks.column_scale / blocks.column_scale[0]
        lengths = np.diff(self._layout.cells)
        if lengths.size and (lengths == lengths[0]).all():
            return ColumnScaled(base, column_scale, n, int(lengths[0]))
        return ColumnScaled(base, column_scale[self._layout.of_rounds(self._layout.cells)], n)

    def report(self, loss: float) -> None:
        self._report(f'{len(self.sums)} sums', loss)

    def error(self, point: np.ndarray) -> float:
        self._errors.sharpness = self.sharpness
        return self._errors(self._blocks(point))[0]

    def values(self, point: np.ndarray) -> np.ndarray:
        rounds, weights = _weights(self.sums)
        return weights @ Columns(self._layout, rounds, self._blocks(point)).products.ravel()

    def cuts(self, point: np.ndarray) -> cutting_planes.Cuts:
        products = Columns(self._layout, self._rounds, self._blocks(point)).products
        symmetric = products + np.triu(products, 1).T
        table = PairTable(self._schema, 1, np.diag(products), symmetric)
        return cutting_planes.Cuts(table, self._schema, self._rounds)

    def descend(self, point: np.ndarray) -> np.ndarray:
        self._errors.sharpness = self.sharpness
        rounds, weights = _weights(self.sums)

        def value_and_gradient(x):
            blocks = self._blocks(x)
            with np.errstate(over='ignore', invalid='ignore'):
                error, by_error = self._errors(blocks)
            if not np.isfinite(error):
                return np.inf, np.zeros_like(x)
            columns = Columns(self._layout, rounds, blocks)
            values = weights @ columns.products.ravel()
            bound, by_value = driver.smooth_log_maximum(values, self.sharpness)
            shares = weights.T @ by_value
            by_sums = columns.gradient(shares.reshape(columns.products.shape))
            both = Blocks(*(one + other for one, other in zip(by_error, by_sums, strict=True)))
            gradient = both._replace(rate=both.rate + both.scale)
            return error + bound, np.concatenate([part.ravel() for part in gradient])

        sizes = [part.size for part in self._blocks(point)]
        _, x = driver.descend(
            value_and_gradient,
            point,
            iterations=_MAX_ITERATIONS,
            tolerance=1e-9,
            bounds=np.repeat(_BOUNDS, sizes, axis=0),
        )
        return x

    def _vector(self, blocks: Blocks) -> np.ndarray:
        """Logs of all parameters; those of the scales of buffers are relative to the rates."""
        relative = blocks._replace(scale=blocks.scale / blocks.rate)
        return np.log(np.concatenate([part.ravel() for part in relative]))

    def _blocks(self, x: np.ndarray) -> Blocks:
        """Inverse of `_vector`."""
        count = self._layout.segments.size
        table = np.exp(x[: 2 * count * self._buffers]).reshape(2, count, self._buffers)
        rest = np.exp(x[table.size :])
        return Blocks(table[0], table[0] * table[1], rest[:count], rest[count:])


def _weights(sums: list[PairSum]) -> 'tuple[np.ndarray, scipy.sparse.csr_matrix]':
    """The rounds in the sums, [m], and the weights of their pairs, [sums, m^2]."""
    pairs, which = cutting_planes.joined(sums)
    rounds = np.unique(np.append(pairs.early, pairs.late))
    early, late = (np.searchsorted(rounds, ends) for ends in (pairs.early, pairs.late))
    entries = pairs.weight, (which, early * rounds.size + late)
    return rounds, scipy.sparse.csr_matrix(entries, (len(sums), rounds.size**2))
