"""Loss of a BLT with scaled columns, `C = L diag(s)`, and its gradient, in closed form.

The rounds are grouped in cells of the same length (the last one may be shorter). The scale is
constant in a cell, or in several. As in `blt_loss`, the coefficients of L and of the prefix sums of
L^-1 are sums of exponentials with positive weights, so that time and precision do not depend on
the number of rounds.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import signal

from dpfl.mechanisms.optimize import blt_loss, driver
from dpfl.mechanisms.optimize.cutting_planes import PairSum


def _powers(rates, exponents):
    """`(1 - rate)^exponent`, [exponents, rates]."""
    with np.errstate(divide='ignore'):
        return np.exp(np.multiply.outer(exponents, np.log1p(-rates)))


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
        self._length, self._mean = length, loss == 'rms'
        self._blocks = np.arange(self._ends.size) // cells_per_block
        self.sharpness = 1.0
        self.log_scale = np.zeros(self._blocks[-1] + 1)
        self.by_log_scale: np.ndarray = np.zeros_like(self.log_scale)

    def __call__(self, rates: np.ndarray, weights: np.ndarray) -> blt_loss.ValueAndSlopes:
        """Log of the squared error for `b_i = sum_j weights_j (1 - rates_j)^i` and `log_scale`.

        Sets `by_log_scale`, the gradient with respect to `log_scale`.
        """
        inverse = np.exp(-self.log_scale)[self._blocks]
        w = rates[:, None] + rates - rates[:, None] * rates
        gram, gram_slope = blt_loss.geometric_sum(self._ends[:, None, None], w)
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
            carried[1:, j] = signal.lfilter([1.0], [1.0, -step[j]], fresh[:-1, j] * inverse[:-1])
        drift = (decay - 1) * weights
        cross = (drift * carried).sum(axis=1)
        squared = np.cumsum(inverse * (inverse * own + 2 * cross))
        value, shares = self._reduce(squared)

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
            flow = signal.lfilter([1.0], [1.0, -step[j]], d_carried[:0:-1, j])[::-1]
            d_fresh[:-1, j] = flow * inverse[:-1]
            d_inverse[:-1] += flow * fresh[:-1, j]
            d_step[j] = flow[1:] @ carried[1:-1, j]
        shared = d_own[:, None] * weights
        d_after = d_fresh + shared
        d_before = -decay * d_fresh + shared * (1 - 2 * decay)
        d_decay -= before * (d_fresh + 2 * shared)
        d_weights += d_own @ (after + before - 2 * decay * before)
        d_after[:-1] += d_before[1:]
        d_weights += np.einsum('ai,aij->j', d_after, gram)
        d_w = np.einsum('ai,aij->ij', d_after, gram_slope) * weights
        d_rates = (d_w + d_w.T) @ (1 - rates)
        d_rates -= (d_decay * self._lengths[:, None] * decay).sum(axis=0) / (1 - rates)
        d_rates -= d_step * self._length * step / (1 - rates)
        self.by_log_scale = -np.bincount(self._blocks, d_inverse * inverse)
        return value, d_weights * weights, d_rates

    def _reduce(self, squared):
        """Log of the smooth maximum or mean, and its gradient with respect to the errors."""
        if self._mean:
            share = self._lengths / self._ends[-1]
            mean = share @ squared
            return math.log(mean), share / mean
        return driver.smooth_log_maximum(squared, self.sharpness)


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
        self._early, self._late, lag, self._weight = (
            np.concatenate([getattr(one, field.name) for one in sums])
            for field in dataclasses.fields(PairSum)
        )
        self._which = np.repeat(np.arange(len(sums)), [one.lag.size for one in sums])
        self._lags, self._lag = np.unique(lag, return_inverse=True)
        self.values: np.ndarray = np.zeros(len(sums))
        rows, self._row = np.unique(np.maximum(self._late * block_length, lag), return_inverse=True)
        self._terms = (rounds - rows - 1)[:, None, None]
        self.sharpness = 1.0
        self.log_scale = np.zeros(-(-rounds // block_length))
        self.by_log_scale: np.ndarray = np.zeros_like(self.log_scale)

    def __call__(self, rates: np.ndarray, weights: np.ndarray) -> blt_loss.ValueAndSlopes:
        """Log of the squared sensitivity for `c_i = sum_j weights_j theta_j^(i-1)`.

        Sets `by_log_scale` and `values`.
        """
        w = rates[:, None] + rates - rates[:, None] * rates
        gram, gram_slope = blt_loss.geometric_sum(self._terms, w)
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
        d_weights += np.einsum('ai,aij->j', d_products, gram)
        d_w = np.einsum('ai,aij->ij', d_products, gram_slope) * weights
        d_rates = (d_w + d_w.T) @ (1 - rates)
        d_rates -= (d_powers * self._lags[:, None] * powers).sum(axis=0) / (1 - rates)
        d_rates += (d_first @ powers) * weights / (1 - rates) ** 2
        return value, d_weights * weights, d_rates
