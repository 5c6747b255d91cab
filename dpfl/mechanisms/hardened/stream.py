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
the same bits.

The rounding of predictions adds to the sensitivity. Compare neighbouring runs with the same
release. Each coordinate of z_t differs between them by an integer that is within `1 + 2 E_t` of the
difference in the exact mechanism: one unit for two roundings to integers, and E_t for the error of
each computed prediction. docs/reference/hardened.md has the proof. `prediction_errors` computes E_t
from the operations of `step` in their order.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from dpfl.mechanisms import kernels, rounding

# Number of products in one sum. The error bound grows with it, and with the number of such sums.
_CHUNK = 16
# In standard deviations. A linear function of the noise z exceeds 40 of its own standard deviations
# with a probability of at most 2 exp(-800), and in a neighbouring run it differs by at most
# `LARGEST_MU`. A quarter more covers fractions of roundings, and products of errors.
TAIL = 40.0
LARGEST_MU = 24.0
_MAGNITUDE = 80.0
# Largest standard deviation of what is streamed, in units of sigma. Beyond it integers would not
# be exact in float64.
_LARGEST_STDDEV = 64.0
# Bound of the relative errors of the coefficients of kernels and the entries of C.
COEFFICIENTS = 2.0**-30


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
        for begin in range(0, self.weights.size, _CHUNK):
            rows = slice(begin, min(begin + _CHUNK, self.weights.size))
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
        from_buffers, from_w = _closed_loop(row)
        identity = np.eye(from_w.size)
        updates = tuple(
            (i, float(from_w[i]), _nonzero(from_buffers[i]))
            for i in range(from_w.size)
            if from_w[i] or (from_buffers[i] != identity[i]).any()
        )
        return StateMap(float(row[0, 0]), _nonzero(row[0, 1:]), updates)
    is_solve = isinstance(kernel, kernels.BandedSolve)
    stddev = 1 / row[0] if is_solve else row[0]
    coefficients = -row / row[0] if is_solve else row
    lags, slot = kernel.ring(round_index)
    return Ring(float(stddev), coefficients[lags], slot, is_solve)


def _closed_loop(linear_map: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Update of the buffers for a map of a `StateSpace`: coefficients of buffers and of w.

    Args:
      linear_map: one of `StateSpace.maps`, [1 + d, 1 + d].

    Returns:
      Coefficients of the buffers, [d, d], and of w, [d].
    """
    from_w = linear_map[1:, 0] / linear_map[0, 0]
    return linear_map[1:, 1:] - np.outer(from_w, linear_map[0, 1:]), from_w


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


def shift(kernel: kernels.Kernel, rounds: int, dimension: int, stddev: float) -> float:
    """Norm of the shift that rounding adds between neighbouring runs, in standard deviations.

    Args:
      kernel: how to stream the noise.
      rounds: number of rounds, n.
      dimension: number of coordinates, d.
      stddev: sigma, the standard deviation of the integers.

    Returns:
      `sqrt(d sum_t (1 + 2 E_t)^2 C_tt^2) / sigma`, over the rounds with a prediction; infinity if
      the noise grows beyond the integers that float64 holds.
    """
    errors = prediction_errors(kernel, rounds, stddev)
    predicted = ~np.isnan(errors)
    scaled = (1 + 2 * errors[predicted]) / stddevs(kernel, rounds)[predicted]
    return math.sqrt(dimension * float((scaled**2).sum())) / stddev * (1 + COEFFICIENTS)


def stddevs(kernel: kernels.Kernel, rounds: int) -> np.ndarray:
    """Standard deviation of z_t in units of sigma, `1 / C_tt`, float64 [rounds]."""
    is_map = isinstance(kernel, kernels.StateSpace)
    first = kernel.table[:, 0, 0] if is_map else kernel.table[:, 0]
    values = 1 / first if isinstance(kernel, kernels.BandedSolve) else first
    return np.broadcast_to(values[:rounds], rounds) if values.size == 1 else values[:rounds]


def prediction_errors(kernel: kernels.Kernel, rounds: int, stddev: float) -> np.ndarray:
    """E_t of each round, float64 [rounds]; NaN for rounds without a prediction."""
    with np.errstate(over='ignore', invalid='ignore'):
        errors, largest = _ERRORS[type(kernel)](kernel, rounds)
        errors = errors * (_MAGNITUDE * rounding.UNIT * stddev)
    if not largest <= _LARGEST_STDDEV:
        errors = np.where(np.isnan(errors), errors, np.inf)
    return errors


def _state_space_errors(kernel: kernels.StateSpace, rounds: int) -> tuple[np.ndarray, float]:
    """Errors of predictions, and the largest standard deviation, both for unit noise.

    The error of a buffer is at most the sum of the earlier errors with absolute coefficients, plus
    `terms + 2` roundings of at most the sum of absolute values; but copies are exact.
    """
    size = kernel.buffers
    covariance, error = np.zeros((size, size)), np.zeros(size)
    errors, largest = np.full(rounds, np.nan), 1.0
    maps = None
    for t in range(rounds):
        if maps is None or kernel.table.shape[0] > 1:
            full = kernel.maps[kernel.row(t)]
            maps = full, *map(np.abs, (full[0, 1:], *_closed_loop(full)))
            counts = np.count_nonzero(maps[2], axis=1)
            # Unit vectors.
            is_copy = (counts == 1) & (_closed_loop(full)[0].max(axis=1, initial=0) == 1)
            terms = np.where(is_copy & (maps[3] == 0), 0.0, counts + 3.0)
        full, recall, from_buffers, from_w = maps
        joint = full[:, :1] * full[:, 0] + full[:, 1:] @ covariance @ full[:, 1:].T
        before = np.sqrt(np.diag(covariance))
        if recall.any():
            count = np.count_nonzero(recall)
            errors[t] = recall @ error + (count + 1) * (recall @ before)
        error = from_buffers @ error + terms * (
            from_buffers @ before + from_w * math.sqrt(joint[0, 0])
        )
        covariance = joint[1:, 1:]
        largest = np.fmax(largest, math.sqrt(joint.diagonal().max()))
    return errors, largest


def _banded_solve_errors(kernel: kernels.BandedSolve, rounds: int) -> tuple[np.ndarray, float]:
    """Errors for buffers that are exact integers: the prediction is a sum of products."""
    noise = np.sqrt(_row_sums(kernel, rounds, np.square))
    errors = np.full(rounds, np.nan)
    for t in range(1, rounds if kernel.buffers else 0):
        row = kernel.table[kernel.row(t)]
        reach = min(kernel.buffers, t)
        sizes = np.abs(row[1 : reach + 1] / row[0])
        if sizes.any():
            errors[t] = _roundings(reach) * float(sizes @ noise[t - reach : t][::-1])
    return errors, noise.max()


def _banded_product_errors(kernel: kernels.BandedProduct, rounds: int) -> tuple[np.ndarray, float]:
    """Errors for buffers v that are those of the exact C w, plus C times each round's rounding."""
    taps = np.abs(np.broadcast_to(kernel.taps[:rounds], (rounds, kernel.taps.shape[1])))
    reach = np.minimum(np.arange(rounds), kernel.buffers)
    within = np.arange(1, taps.shape[1]) <= reach[:, None]
    past = np.where(within, taps[:, 1:], 0.0)
    sums = past.sum(axis=1)
    local = _roundings(reach) * sums
    gain = _row_sums(kernels.BandedSolve(kernel.taps), rounds, np.abs)
    # In units of w: the prediction, the difference and the quotient.
    error = np.maximum.accumulate(gain) * np.max(local + 3 * taps[:, 0])
    errors = np.where(sums > 0, sums * error + local, np.nan)
    largest = math.sqrt(float((past**2).sum(axis=1).max() + (taps[:, 0] ** 2).max()))
    return errors, max(largest, 1.0)


def _roundings(terms):
    """Most roundings of one product in `stream.Ring`, including that of its coefficient."""
    return _CHUNK + np.ceil(terms / _CHUNK) + 3


def _row_sums(
    kernel: kernels.Kernel, rounds: int, measure: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Sums over the rows of the matrix that a kernel streams, of a measure of entries, [rounds]."""
    if kernel.table.shape[0] == 1:
        return np.cumsum(measure(kernels.stream(kernel, np.eye(rounds, 1))[:, 0]))
    return measure(kernels.stream(kernel, np.eye(rounds))).sum(axis=1)


_ERRORS: dict[type, Callable[[Any, int], tuple[np.ndarray, float]]] = {
    kernels.StateSpace: _state_space_errors,
    kernels.BandedSolve: _banded_solve_errors,
    kernels.BandedProduct: _banded_product_errors,
}
