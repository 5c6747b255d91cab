"""Optimiser of BLT mechanisms with scaled columns.

Decays, scales of the buffers and scales of the columns are optimised together, by L-BFGS with
analytic gradients, from coarse blocks of rounds to fine ones. The sensitivity in the objective is
the proven bound of `sensitivities.scaled_toeplitz`, by the search of `cutting_planes`.

The loss of `C = L diag(s)` and its gradient are in closed form. The rounds are grouped in cells of
the same length (the last one may be shorter). The scale is constant in a cell, or in several. As in
`blt_loss`, the coefficients of L and of the prefix sums of L^-1 are sums of exponentials with
positive weights, so that time and precision do not depend on the number of rounds.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy

from dpfl import _validate
from dpfl.mechanisms.block_blt import BlockBlt
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import blt_loss, cutting_planes, driver
from dpfl.mechanisms.optimize.blt import of_log_rates, optimize_blt
from dpfl.mechanisms.optimize.cutting_planes import PairSum
from dpfl.mechanisms.sensitivities import scaled_toeplitz
from dpfl.participation import Participation

_VERSION = 1
# Most scales, if they are for parts of a separation, and for whole ones.
_MOST_BLOCKS = 128
_MOST_SHORT_BLOCKS = 256
# Most participations with blocks longer than a separation.
_MOST_IN_LONG_BLOCKS = 32
# Rounds whose errors are looked at, about.
_ROWS = 1000
# Bounds of the coordinates, see `blt_loss.log_loss`, and of the logs of the scales.
_BOUNDS = (np.log(1e-6), np.log(14.0))
_SCALE_BOUNDS = (-5.0, 5.0)
# Largest rate of C^-1 at the start.
_MOST_RATE = 0.97
_MAX_ITERATIONS = 100
_MOST_SUMS = 30_000  # No limit but that of their pairs.


def _powers(rates, exponents):
    """`(1 - rate)^exponent`, [exponents, rates]."""
    with np.errstate(divide='ignore'):
        return np.exp(np.multiply.outer(exponents, np.log1p(-rates)))


def _through_gram(d_product, gram, slope, rates, weights):
    """Gradients with respect to weights and rates from those with respect to `gram @ weights`.

    Args:
      d_product: gradients, [any, d].
      gram: geometric sums of the products of decays, [any, d, d].
      slope: their derivatives, see `blt_loss.geometric_sum`, [any, d, d].
      rates: [d].
      weights: [d].
    """
    d_w = np.einsum('ai,aij->ij', d_product, slope) * weights
    return np.einsum('ai,aij->j', d_product, gram), (d_w + d_w.T) @ (1 - rates)


class PrefixErrors:
    """Squared errors of the prefix sums at the ends of cells; a smooth maximum, or the mean.

    The prefix sum after cell a has the noise `S_a = sum_{m <= a} (Y_m - Y_{m-1}) / s_m`, where
    `Y_m = sum_j v_j X_j` is the noise of the unscaled mechanism at the end of cell m, and the X_j
    are autoregressive processes of decay t_j = 1 - rate_j with a common noise.
    """

    def __init__(self, rounds: int, length: int, cells_per_block: int, loss: str):
        """Sets the cells.

        Args:
          rounds: number of rounds, n.
          length: rounds of a cell.
          cells_per_block: cells that share a scale.
          loss: 'max' or 'rms'. For rms the mean is over the ends of the cells.
        """
        self._ends = np.minimum(np.arange(length, rounds + length, length), rounds)
        self._lengths = np.diff(self._ends, prepend=0)
        self._length, self._loss = length, loss
        self._blocks = np.arange(self._ends.size) // cells_per_block
        self.sharpness = 1.0
        self.log_scale = np.zeros(self._blocks[-1] + 1)
        self.by_log_scale: np.ndarray = np.zeros_like(self.log_scale)

    def __call__(self, rates: np.ndarray, weights: np.ndarray) -> blt_loss.ValueAndSlopes:
        """Log of the squared error for `b_i = sum_j weights_j (1 - rates_j)^i` and `log_scale`.

        Sets `by_log_scale`, the gradient with respect to `log_scale`.
        """
        inverse = np.exp(-self.log_scale)[self._blocks]
        gram, gram_slope = blt_loss.geometric_sum(
            self._ends[:, None, None], blt_loss.pair_rates(rates)
        )
        # Covariances of X with Y at the end of each cell, and at its start.
        after = gram @ weights
        before = np.vstack([np.zeros_like(rates), after[:-1]])
        decay = _powers(rates, self._lengths)
        step = _powers(rates, np.array([self._length]))[0]
        # Covariance of X with the increment of Y in the cell.
        fresh = after - decay * before
        own = (after + before - 2 * decay * before) @ weights
        # Covariance of X with S at the start of each cell.
        carried = np.zeros_like(fresh)
        for j in range(rates.size):
            carried[1:, j] = scipy.signal.lfilter(
                [1.0], [1.0, -step[j]], fresh[:-1, j] * inverse[:-1]
            )
        drift = (decay - 1) * weights
        cross = (drift * carried).sum(axis=1)
        squared = np.cumsum(inverse * (inverse * own + 2 * cross))
        value, shares = driver.log_error(
            squared, self._loss, self.sharpness, self._lengths / self._ends[-1]
        )

        # Backwards.
        d_squared = np.cumsum(shares[::-1])[::-1]
        d_inverse = d_squared * 2 * (inverse * own + cross)
        d_own = d_squared * inverse**2
        d_cross = d_squared * 2 * inverse
        d_carried = d_cross[:, None] * drift
        d_decay = (d_cross[:, None] * carried) * weights
        d_weights = d_cross @ ((decay - 1) * carried)
        d_fresh, d_step = np.zeros_like(fresh), np.zeros_like(step)
        for j in range(rates.size):
            flow = scipy.signal.lfilter([1.0], [1.0, -step[j]], d_carried[:0:-1, j])[::-1]
            d_fresh[:-1, j] = flow * inverse[:-1]
            d_inverse[:-1] += flow * fresh[:-1, j]
            d_step[j] = flow[1:] @ carried[1:-1, j]
        shared = d_own[:, None] * weights
        d_after = d_fresh + shared
        d_before = -decay * d_fresh + shared * (1 - 2 * decay)
        d_decay -= before * (d_fresh + 2 * shared)
        d_weights += d_own @ (after + before - 2 * decay * before)
        d_after[:-1] += d_before[1:]
        by_weight, d_rates = _through_gram(d_after, gram, gram_slope, rates, weights)
        d_weights += by_weight
        d_rates -= (d_decay * self._lengths[:, None] * decay).sum(axis=0) / (1 - rates)
        d_rates -= d_step * self._length * step / (1 - rates)
        self.by_log_scale = -np.bincount(self._blocks, d_inverse * inverse)
        return value, d_weights * weights, d_rates


class PairSums:
    """Smooth maximum of several sums of pair bounds, see `sensitivities.scaled_toeplitz`.

    The bound of the pair of a block a and a later block m at lag d is
    `s_a s_m sum_{l < n - p} c_l c_{l+d}` with q rounds in a block and the row p = max(m q, d).

    Attributes:
      sharpness: the larger, the closer the smooth maximum is to the maximum.
      log_scale: logs of the scales of the blocks, [blocks].
      by_log_scale: gradient with respect to `log_scale` at the last call.
      values: all sums at the last call, [sums].
    """

    def __init__(self, sums: Sequence[PairSum], rounds: int, block_length: int):
        """Sets the sums.

        Args:
          sums: at least one.
          rounds: number of rounds, n.
          block_length: rounds of a block.
        """
        pairs, self._which = cutting_planes.joined(sums)
        self._early, self._late, self._weight = pairs.early, pairs.late, pairs.weight
        self._lags, self._lag = np.unique(pairs.lag, return_inverse=True)
        self.values: np.ndarray = np.zeros(len(sums))
        rows, self._row = np.unique(
            np.maximum(pairs.late * block_length, pairs.lag), return_inverse=True
        )
        self._terms = (rounds - rows - 1)[:, None, None]
        self.sharpness = 1.0
        self.log_scale = np.zeros(-(-rounds // block_length))
        self.by_log_scale: np.ndarray = np.zeros_like(self.log_scale)

    def __call__(self, rates: np.ndarray, weights: np.ndarray) -> blt_loss.ValueAndSlopes:
        """Log of the squared sensitivity for `c_i = sum_j weights_j theta_j^(i-1)`.

        Sets `by_log_scale` and `values`.
        """
        gram, gram_slope = blt_loss.geometric_sum(self._terms, blt_loss.pair_rates(rates))
        # c_0 c_d, and the other terms.
        powers = _powers(rates, self._lags)
        products = gram @ weights  # [rows, d]
        first = np.where(self._lags > 0, (powers / (1 - rates)) @ weights, 1.0)
        table = first[:, None] + (powers * weights) @ products.T  # [lags, rows]
        parts = self._weight * np.exp(self.log_scale[self._early] + self.log_scale[self._late])
        values = np.bincount(self._which, parts * table[self._lag, self._row])
        self.values = values
        value, by_value = driver.smooth_log_maximum(values, self.sharpness)

        shares = by_value[self._which] * parts
        d_logs = shares * table[self._lag, self._row]
        blocks = self.log_scale.size
        self.by_log_scale = np.bincount(self._early, d_logs, blocks)
        self.by_log_scale += np.bincount(self._late, d_logs, blocks)
        cell = self._lag * table.shape[1] + self._row
        d_table = np.bincount(cell, shares, table.size).reshape(table.shape)
        d_first = np.where(self._lags > 0, d_table.sum(axis=1), 0.0)
        d_powers = (d_table @ products) * weights + d_first[:, None] * weights / (1 - rates)
        d_weights = ((d_table @ products) * powers).sum(axis=0)
        d_weights += d_first @ (powers / (1 - rates))
        d_products = d_table.T @ (powers * weights)  # [rows, d]
        by_weight, d_rates = _through_gram(d_products, gram, gram_slope, rates, weights)
        d_weights += by_weight
        d_rates -= (d_powers * self._lags[:, None] * powers).sum(axis=0) / (1 - rates)
        d_rates += (d_first @ powers) * weights / (1 - rates) ** 2
        return value, d_weights * weights, d_rates


def optimize_scaled_blt(
    participation: Participation,
    num_buffers: int = 4,
    loss: str = 'max',
    *,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> ColumnScaled:
    """Finds the BLT with scaled columns of least loss.

    Its noise takes the memory of a BLT with `num_buffers` buffers. Its loss, with the
    proven sensitivity, is at most that of `optimize_blt`. There are at most 256 scales. The columns
    are not scaled if the separation is shorter than 1/256 of the run and a client can take part in
    more than 32 rounds. The search is deterministic, and results are cached on disk, see
    `optimize.driver`.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      num_buffers: d, the largest number of buffers.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums. For others the result is
        the better of the BLT optimised for A and the scaled one optimised for the prefix sums.
      progress: whether to show the loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> schema = Participation(40, min_separation=40)
      >>> scaled = optimize_scaled_blt(schema, num_buffers=1)
      >>> scaled.max_loss(schema) < optimize_blt(schema, num_buffers=1).max_loss(schema)
      True
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    problem = driver.Problem('optimize_scaled_blt', participation, loss, workload, progress)

    def candidates() -> Iterator[ColumnScaled]:
        plain = optimize_blt(participation, num_buffers, loss, workload=workload)
        unscaled = ColumnScaled(plain, np.ones(1), participation.rounds)
        yield problem.shown('not scaled', unscaled)
        if problem.workload is not None:
            yield optimize_scaled_blt(participation, num_buffers, loss)
            return
        for scaled in search(plain, participation, loss):
            yield problem.shown(f'{scaled.scale.size} scales', scaled)

    return problem.solve(
        ColumnScaled, candidates, version=_VERSION, make=from_entry, num_buffers=num_buffers
    )


def from_entry(base: dict[str, Any], **values: Any) -> ColumnScaled:
    """The mechanism of a cached entry's values; the argument `make` of `Problem.solve`.

    Args:
      base: values of the base, as its `to_dict` gives them.
      **values: the other values of the mechanism, by name.

    Raises:
      KeyError: if the base is neither a `Blt` nor a `BlockBlt`.
    """
    kinds: dict[str, Any] = {Blt.name: Blt, BlockBlt.name: BlockBlt}
    parameters = {name: value for name, value in base.items() if name != 'mechanism'}
    return ColumnScaled(kinds[base['mechanism']](**parameters), **values)


def search(start: Blt, participation: Participation, loss: str) -> Iterator[ColumnScaled]:
    """The result of each stage of the search.

    Args:
      start: the BLT to start from.
      participation: the schema.
      loss: 'max' or 'rms', of the prefix sums.
    """
    # The start, or a BLT nearby whose inverse has no negative decay.
    rates = np.sort(np.concatenate([1 - start.decay, 1 - start.inverse_parameters()[0]]))
    rates = rates[rates > 1e-15]
    log_rates = np.log(rates) + min(0.0, np.log(_MOST_RATE / rates[-1]))
    coordinates, log_scale = blt_loss.coordinates_of(log_rates), np.zeros(1)
    rounds = known_length = participation.rounds
    for length in _block_lengths(participation):
        starts = np.arange(0, rounds, length) // known_length
        log_scale = log_scale[np.minimum(starts, log_scale.size - 1)]
        stage = _Stage(participation, length, loss)
        coordinates, log_scale = stage.minimized((coordinates, log_scale))
        yield stage.mechanism(coordinates, log_scale)
        known_length = length


def _block_lengths(participation: Participation) -> list[int]:
    """Rounds of a block in each stage of the search, from coarse to fine.

    A block length that divides the separation is preferred, since the bound is then tighter. Blocks
    longer than the separation are few, since their bound is not tight, and there are none for many
    participations.
    """
    n = participation.rounds
    b = min(n, participation.min_separation)
    least = -(-n // _MOST_BLOCKS)
    if n > _MOST_SHORT_BLOCKS * b:
        many = participation.count > _MOST_IN_LONG_BLOCKS
        return [] if many else [-(-n // 8), -(-n // 32)]
    if b < least:
        return [b]
    fine = next((q for q in range(least, min(b, 2 * least) + 1) if b % q == 0), least)
    coarse = b if 4 * fine < b <= n // 4 else max(fine, n // 8)
    return list(dict.fromkeys((coarse, fine)))


# Coordinates, see `blt_loss.log_loss`, and the logs of the scales of the columns.
_Point = tuple[np.ndarray, np.ndarray]


class _Stage(cutting_planes.Search[_Point]):
    """The search with blocks of one length."""

    _most_additions = 20
    _most_sums = _MOST_SUMS
    _excess = 1e-4

    def __init__(self, participation: Participation, length: int, loss: str):
        super().__init__(participation, cutting_planes.regular(participation, length))
        self._length = length
        self._rounds = rounds = participation.rounds
        rows_per_block = next(
            rows
            for rows in range(1, length + 1)
            if length % rows == 0 and (rows == length or rounds * rows >= _ROWS * length)
        )
        self._errors = PrefixErrors(rounds, length // rows_per_block, rows_per_block, loss)

    def mechanism(self, coordinates: np.ndarray, log_scale: np.ndarray) -> ColumnScaled:
        """The mechanism, with a first scale of 1."""
        base = self._base(coordinates)
        return ColumnScaled(base, np.exp(log_scale - log_scale[0]), base.rounds, self._length)

    def error(self, point: _Point) -> float:
        coordinates, self._errors.log_scale = point
        self._errors.sharpness = self.sharpness
        return blt_loss.log_loss(self._errors, _no_sensitivity, coordinates)[0]

    def values(self, point: _Point) -> np.ndarray:
        coordinates, log_scale = point
        sums = self._pair_sums(log_scale)
        sums(*blt_loss.parameters(blt_loss.log_rates_of(coordinates)))
        return sums.values

    def _pair_sums(self, log_scale) -> PairSums:
        sums = PairSums(self.sums, self._rounds, self._length)
        sums.log_scale = log_scale
        return sums

    def cuts(self, point: _Point) -> cutting_planes.Cuts:
        coordinates, log_scale = point
        scale = np.exp(log_scale)[np.arange(self._rounds) // self._length]
        table = scaled_toeplitz.PairTable.of_toeplitz(
            self._base(coordinates).coefficients(),
            scale,
            self._length,
            self.participation,
        )
        return cutting_planes.Cuts(table, self.participation)

    def _base(self, coordinates) -> Blt:
        return of_log_rates(self._rounds, blt_loss.log_rates_of(coordinates))

    def descend(self, point: _Point) -> _Point:
        coordinates, log_scale = point
        size = coordinates.size
        sums = self._pair_sums(log_scale)
        sums.sharpness = self._errors.sharpness = self.sharpness

        def value_and_gradient(x):
            sums.log_scale = self._errors.log_scale = x[size:]
            value, gradient = blt_loss.log_loss(self._errors, sums, x[:size])
            return value, np.append(gradient, sums.by_log_scale + self._errors.by_log_scale)

        _, x = driver.descend(
            value_and_gradient,
            np.append(coordinates, log_scale),
            iterations=_MAX_ITERATIONS,
            tolerance=1e-9,
            bounds=[_BOUNDS] * size + [_SCALE_BOUNDS] * log_scale.size,
        )
        return x[:size], x[size:] - x[size:].mean()


def _no_sensitivity(rates, weights):
    return 0.0, np.zeros_like(weights), np.zeros_like(rates)
