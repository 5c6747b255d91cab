"""Error and sensitivity of a BLT whose parameters change in given rounds, with scaled columns.

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
from typing import NamedTuple

import numpy as np

from dpfl.mechanisms.optimize import blt_loss, driver


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
        self._layout, self._mean = layout, loss == 'rms'
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
        value, shares = self._reduce(squared)

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

    def _reduce(self, squared):
        """Log of the smooth maximum or mean, and its gradient with respect to the errors."""
        if self._mean:
            return np.log(squared.mean()), np.full(squared.size, 1 / squared.sum())
        return driver.smooth_log_maximum(squared, self.sharpness)


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
        self._rates = rate[:, :, None] + rate[:, None] - rate[:, :, None] * rate[:, None]
        self._outer = (gain**2)[:, None, None] * scale[:, :, None] * scale[:, None]
        self._last = np.zeros_like(self._outer)  # O behind each segment.
        for g in range(len(gain) - 2, -1, -1):
            self._last[g] = self._behind(np.array([g + 1]), self._lengths[g + 1 : g + 2]).total[0]
        power = (gain**2)[segment, None]
        self._sums = self._behind(segment, self._left).total.sum(axis=2)
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
        slopes.add(is_of, self._behind(segment, self._left), by_sum[:, :, None])
        for g in every[1:]:
            one = self._behind(np.array([g]), self._lengths[g : g + 1])
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

    def _behind(self, segments: np.ndarray, left: np.ndarray) -> '_Behind':
        """O(t), if `left` rounds of a segment are left from t on, with its derivatives."""
        left = left[:, None, None]
        sums, slopes = blt_loss.geometric_sum(left, self._rates[segments])
        both = self._log_decay[:, :, None] + self._log_decay[:, None]
        powers = np.exp(left * both[segments])
        outer, last = self._outer[segments], self._last[segments]
        return _Behind(
            outer * sums + powers * last, sums, outer * slopes, powers, powers * last * left
        )


class _Behind(NamedTuple):
    """O, and its derivatives with respect to its inputs, each [any, d, d]."""

    total: np.ndarray
    outer: np.ndarray
    rates: np.ndarray
    last: np.ndarray
    exponent: np.ndarray


class _Slopes(NamedTuple):
    """Gradients with respect to the inputs of O, [segments, d, d]."""

    outer: np.ndarray
    rates: np.ndarray
    last: np.ndarray
    exponent: np.ndarray

    def add(self, is_of: np.ndarray, behind: _Behind, by_total: np.ndarray) -> None:
        """Adds the contributions of some O, by the chain rule.

        Args:
          is_of: 1 where an O belongs to a segment, else 0, [segments, any].
          behind: the O.
          by_total: their gradients.
        """
        for slope, derivative in zip(self, behind[1:], strict=True):
            slope += np.einsum('ga,aij->gij', is_of, by_total * derivative)
