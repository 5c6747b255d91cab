"""Correlated noise in integers, streamed in place, a block of coordinates at a time.

In round t the noise `w_t = z_t + round(p_t)` is an integer vector. z_t is a discrete Gaussian and
p_t a prediction, a float64 function of `w_0 .. w_{t-1}` alone: of noise, never of clients. It is
computed such that `C w` is z, but for the rounding: with C_tt the diagonal of C,

    p_t  ~  -sum_{s<t} C[t, s] / C_tt w_s,      z_t of standard deviation sigma / C_tt.

The buffers of each kernel follow from w, for C has a stream of the same size as C^-1:

- `StateSpace`, `(y, s') = M (z, s)`: p = M_0s s, and with w in place of y,
  `s' = (M_ss - M_s0 M_0s / M_00) s + (M_s0 / M_00) w`.
- `BandedSolve`: the buffers are the last w.
- `BandedProduct`: `p_t = sum_{j>0} taps[t, j] v_{t-j}` with `v_t = (w_t - p_t) / taps[t, 0]`, which
  is row t of C w; the buffers are the last v.

Each number is a fixed sequence of operations of IEEE 754, so a round that is computed again has
the same bits. `rounding` bounds how far p_t is from the exact linear function.
"""

from typing import NamedTuple

import numpy as np

from dpfl.mechanisms.streaming import kernels

# Products that are summed at a time: an error bound grows with this and the number of such sums.
CHUNK = 16


class StateMap(NamedTuple):
    """A round of a `StateSpace` from w: rows of nonzero coefficients, as (buffer, coefficient).

    Attributes:
      stddev: of z_t, in units of sigma: 1 / C_tt.
      recall: of the prediction.
      updates: buffers that change: (buffer, coefficient of w, coefficients of buffers).
    """

    stddev: float
    recall: tuple[tuple[int, float], ...]
    updates: tuple[tuple[int, float, tuple[tuple[int, float], ...]], ...]

    def apply(self, z: np.ndarray, buffers: np.ndarray) -> np.ndarray:
        """w_t, int64 [size], from z_t, int64 [size]; changes the buffers, [d, size]."""
        w = z + _rounded(_combined(self.recall, buffers)) if self.recall else z
        known = w.astype(np.float64)
        changed = []
        for _, input_coefficient, coefficients in self.updates:
            row = _combined(coefficients, buffers)
            if input_coefficient:
                new = known if input_coefficient == 1 else known * input_coefficient
                row = new if row is None else np.add(row, new, out=row)
            changed.append(0.0 if row is None else row)
        for (buffer, _, _), row in zip(self.updates, changed, strict=True):
            buffers[buffer] = row
        return w


class Ring(NamedTuple):
    """A round of a banded kernel.

    Attributes:
      stddev: of z_t, in units of sigma: 1 / C_tt.
      weights: of the prediction, float64 [rows in use], of the rows of the ring.
      slot: the row of the ring that this round writes; None without a ring.
      keeps_noise: whether that is w (a solve) or v (a product).
    """

    stddev: float
    weights: np.ndarray
    slot: int | None
    keeps_noise: bool

    def apply(self, z: np.ndarray, buffers: np.ndarray) -> np.ndarray:
        """w_t, int64 [size], from z_t, int64 [size]; changes the buffers, [d, size]."""
        predicted = None
        for begin in range(0, self.weights.size, CHUNK):
            rows = slice(begin, min(begin + CHUNK, self.weights.size))
            # einsum adds up the rows with one thread: BLAS may split a sum.
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
    """What a round does to each block.

    Rounds are applied in their order, to buffers float64 [kernel.buffers, size] that are zero
    before the first one.

    Args:
      kernel: how to stream `C^-1 z`.
      round_index: counts from 0.
    """
    row = kernel.table[kernel.row(round_index)]
    if isinstance(kernel, kernels.StateSpace):
        return _state_map(row)
    is_solve = isinstance(kernel, kernels.BandedSolve)
    stddev = 1 / row[0] if is_solve else row[0]
    coefficients = -row / row[0] if is_solve else row
    size = kernel.buffers
    slots = np.arange(min(size, round_index))
    lags = 1 + (round_index - 1 - slots) % max(size, 1)
    return Ring(float(stddev), coefficients[lags], round_index % size if size else None, is_solve)


def closed_loop(linear_map: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How buffers follow from themselves, [d, d], and from w, [d], for a map of a `StateSpace`."""
    from_w = linear_map[1:, 0] / linear_map[0, 0]
    return linear_map[1:, 1:] - np.outer(from_w, linear_map[0, 1:]), from_w


def _state_map(linear_map) -> StateMap:
    from_buffers, from_w = closed_loop(linear_map)
    identity = np.eye(from_w.size)
    updates = tuple(
        (i, float(from_w[i]), _nonzero(from_buffers[i]))
        for i in range(from_w.size)
        if from_w[i] or (from_buffers[i] != identity[i]).any()
    )
    return StateMap(float(linear_map[0, 0]), _nonzero(linear_map[0, 1:]), updates)


def _nonzero(row) -> tuple[tuple[int, float], ...]:
    return tuple((int(j), float(row[j])) for j in np.flatnonzero(row))


def _combined(coefficients, buffers) -> np.ndarray | None:
    """The sum of `coefficient * buffers[buffer]`, a new array; None of nothing."""
    total = None
    for buffer, coefficient in coefficients:
        part = buffers[buffer] * coefficient
        total = part if total is None else np.add(total, part, out=total)
    return total


def _rounded(predicted: np.ndarray) -> np.ndarray:
    """The nearest integers, ties to even, int64."""
    return np.rint(predicted).astype(np.int64)
