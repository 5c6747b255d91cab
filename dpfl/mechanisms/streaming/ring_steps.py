"""Streaming `C^-1 z` in place, a block of coordinates at a time.

The state of a kernel can be larger than what should be copied in each round. Here it is an array
[buffers, coordinates] that each round changes where it is; of the banded kernels one row of it, as
in a ring. Blocks of one size have the same bits wherever and in whichever order they are computed.

In float32, with the 342 bands and 2,000 rounds of a production run, rows of standard deviation 1.1
differ from those in float64 by 2e-7 (root mean square) and at most by 2e-6.
"""

from typing import NamedTuple

import numpy as np

from dpfl.mechanisms.streaming import kernels


class _Maps(NamedTuple):
    """A round of a `StateSpace`.

    Attributes:
      first: coefficient of z in the row, float64.
      matrix: the linear map without that coefficient.
    """

    first: np.float64
    matrix: np.ndarray

    def apply(self, z, buffers, out) -> None:
        rounded = z.astype(self.matrix.dtype)
        both = np.einsum('ij,jk->ik', self.matrix, np.concatenate([rounded[None], buffers]))
        np.multiply(z, self.first, out=out)
        out += both[0]
        buffers[:] = both[1:]


class _Ring(NamedTuple):
    """A round of a banded kernel.

    Attributes:
      first: coefficient of z, float64.
      weights: [rows in use], of the rows of the ring.
      slot: the row of the ring that this round writes; None without a ring.
      keeps_output: whether that is what the round gave (a solve) or its noise (a product).
    """

    first: np.float64
    weights: np.ndarray
    slot: int | None
    keeps_output: bool

    def apply(self, z, buffers, out) -> None:
        # einsum adds up the rows in their order, with one thread: BLAS may split a sum.
        total = np.einsum('j,jk->k', self.weights, buffers[: self.weights.size])
        np.multiply(z, self.first, out=out)
        out += total
        if self.slot is not None:
            buffers[self.slot] = out if self.keeps_output else z


Step = _Maps | _Ring


def step(kernel: kernels.Kernel, round_index: int, dtype) -> Step:
    """What a round does to each block.

    Its `apply(z, buffers, out)` takes the noise of the round, float64 [size], the buffers, `dtype`
    [kernel.buffers, size], which are zero before the first round and are changed, and an array,
    float64 [size], for the row of `C^-1 z`. Rounds are applied in their order.

    Args:
      kernel: how to stream the noise.
      round_index: counts from 0.
      dtype: floating-point type of the buffers.
    """
    row = kernel.table[kernel.row(round_index)]
    if isinstance(kernel, kernels.StateSpace):
        matrix = row.astype(dtype)
        matrix[0, 0] = 0
        return _Maps(row[0, 0], matrix)
    is_solve = isinstance(kernel, kernels.BandedSolve)
    if is_solve:
        row = np.concatenate([[1.0], -row[1:]]) / row[0]
    size = kernel.buffers
    slots = np.arange(min(size, round_index))
    lags = 1 + (round_index - 1 - slots) % max(size, 1)
    return _Ring(
        row[0],
        row[lags].astype(dtype),
        round_index % size if size else None,
        is_solve,
    )
