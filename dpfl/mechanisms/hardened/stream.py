"""Correlated noise in integers, streamed in place, one block of coordinates at a time.

In round t the noise `w_t = z_t + round(p_t)` is an integer vector. z_t is a discrete Gaussian and
p_t is a prediction, a float64 function of `w_0 .. w_{t-1}` alone: of noise, never of clients. It
is computed so that `C w` equals z except for the rounding. With C_tt, the diagonal of C,

    p_t  ~  -sum_{s<t} C[t, s] / C_tt w_s,      z_t of standard deviation sigma / C_tt.

The buffers of each kernel follow from w, because C can be streamed with as many buffers as C^-1:

- `StateSpace`, `(y, s') = M (z, s)`: p = M_0s s, and with w in place of y,
  `s' = (M_ss - M_s0 M_0s / M_00) s + (M_s0 / M_00) w`.
- `BandedSolve`: the buffers are the last w.
- `BandedProduct`: `p_t = sum_{j>0} taps[t, j] v_{t-j}` with `v_t = (w_t - p_t) / taps[t, 0]`, which
  is row t of C w; the buffers are the last v.

Each number is computed by a fixed sequence of IEEE 754 operations, so recomputing a round gives
the same bits. `rounding` bounds the distance of p_t from the exact linear function.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dpfl.mechanisms import kernels

# Number of products in one sum. The error bound grows with it, and with the number of such sums.
CHUNK = 16


class StateMap(NamedTuple):
    """One round of a `StateSpace`, as a function of w.

    Rows of non-zero coefficients are held as pairs (buffer, coefficient).

    Attributes:
      stddev: standard deviation of z_t in units of sigma: 1 / C_tt.
      recall: coefficients of the prediction.
      updates: buffers that change: (buffer, coefficient of w, coefficients of buffers).
    """

    stddev: float
    recall: tuple[tuple[int, float], ...]
    updates: tuple[tuple[int, float, tuple[tuple[int, float], ...]], ...]

    def apply(self, z: np.ndarray, buffers: np.ndarray) -> np.ndarray:
        """w_t, int64 [size], from z_t, int64 [size]; changes the buffers, [d, size]."""
        recalled = _combined(self.recall, buffers)
        w = z if recalled is None else z + _rounded(recalled)
        known = w.astype(np.float64)
        changed: list[np.ndarray | float] = []
        for _, input_coefficient, coefficients in self.updates:
            row = _combined(coefficients, buffers)
            if input_coefficient:
                new = known if input_coefficient == 1 else known * input_coefficient
                row = new if row is None else np.add(row, new, out=row)
            changed.append(0.0 if row is None else row)
        for (buffer, _, _), value in zip(self.updates, changed, strict=True):
            buffers[buffer] = value
        return w


class Ring(NamedTuple):
    """One round of a banded kernel.

    Attributes:
      stddev: standard deviation of z_t in units of sigma: 1 / C_tt.
      weights: coefficients of the prediction for the rows of the ring, float64 [rows in use].
      slot: row of the ring that this round writes; None if there is no ring.
      keeps_noise: whether the round writes w (`BandedSolve`) or v (`BandedProduct`).
    """

    stddev: float
    weights: np.ndarray
    slot: int | None
    keeps_noise: bool

    def apply(self, z: np.ndarray, buffers: np.ndarray) -> np.ndarray:
        """w_t, int64 [size], from z_t, int64 [size]; changes the buffers, [d, size]."""
        predicted: np.ndarray | None = None
        for begin in range(0, self.weights.size, CHUNK):
            rows = slice(begin, min(begin + CHUNK, self.weights.size))
            # einsum adds the rows in one thread. BLAS may split a sum.
            part = np.einsum('j,jk->k', self.weights[rows], buffers[rows])
            predicted = part if predicted is None else np.add(predicted, part, out=predicted)
        w = z if predicted is None else z + _rounded(predicted)
        if self.slot is not None:
            kept = w.astype(np.float64)
            if not self.keeps_noise:
                if predicted is not None:
                    kept -= predicted
                kept /= self.stddev
            buffers[self.slot] = kept
        return w


Step = StateMap | Ring


def step(kernel: kernels.Kernel, round_index: int) -> Step:
    """The operation of one round on each block of coordinates.

    Rounds must be applied in order, to buffers float64 [kernel.buffers, size] that are zero
    before the first round.

    Args:
      kernel: how to stream `C^-1 z`.
      round_index: index of the round, from 0.
    """
    row = kernel.table[kernel.row(round_index)]
    if isinstance(kernel, kernels.StateSpace):
        return _state_map(row)
    is_solve = isinstance(kernel, kernels.BandedSolve)
    stddev = 1 / row[0] if is_solve else row[0]
    coefficients = -row / row[0] if is_solve else row
    lags, slot = kernel.ring(round_index)
    return Ring(float(stddev), coefficients[lags], slot, is_solve)


def closed_loop(linear_map: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Update of the buffers for a map of a `StateSpace`: coefficients of buffers and of w.

    Args:
      linear_map: one of `StateSpace.maps`, [1 + d, 1 + d].

    Returns:
      Coefficients of the buffers, [d, d], and of w, [d].
    """
    from_w = linear_map[1:, 0] / linear_map[0, 0]
    return linear_map[1:, 1:] - np.outer(from_w, linear_map[0, 1:]), from_w


def _state_map(linear_map: np.ndarray) -> StateMap:
    from_buffers, from_w = closed_loop(linear_map)
    identity = np.eye(from_w.size)
    updates = tuple(
        (i, float(from_w[i]), _nonzero(from_buffers[i]))
        for i in range(from_w.size)
        if from_w[i] or (from_buffers[i] != identity[i]).any()
    )
    return StateMap(float(linear_map[0, 0]), _nonzero(linear_map[0, 1:]), updates)


def _nonzero(row: np.ndarray) -> tuple[tuple[int, float], ...]:
    return tuple((int(j), float(row[j])) for j in np.flatnonzero(row))


def _combined(coefficients: Iterable[tuple[int, float]], buffers: np.ndarray) -> np.ndarray | None:
    """The sum of `coefficient * buffers[buffer]`, a new array; None if there is no coefficient."""
    total: np.ndarray | None = None
    for buffer, coefficient in coefficients:
        part = buffers[buffer] * coefficient
        total = part if total is None else np.add(total, part, out=total)
    return total


def _rounded(predicted: np.ndarray) -> np.ndarray:
    """Rounded to the nearest integers, ties to even, int64."""
    return np.rint(predicted).astype(np.int64)
