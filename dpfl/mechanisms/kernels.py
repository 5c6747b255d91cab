"""How to stream the noise `C^-1 z` of a mechanism, as data, and its NumPy interpreter.

A kernel holds numbers only. It is interpreted here, in float64, as the oracle, and in
`dpfl.aggregators.noise` in TensorFlow for real runs; the tests hold the two together.

Every kernel is a record of tables, float64 [rounds or 1, width]; a table with one row holds for
every round. `buffers` is the number of copies of one round's noise that its state holds: memory
per model coordinate.
"""

import dataclasses

import numpy as np


class _Tables:
    """Checks of the tables, and their rows."""

    def __post_init__(self):
        rows = {table.shape[0] for table in self.tables()}
        if len(rows) != 1 or any(table.ndim != 2 for table in self.tables()):
            shapes = [table.shape for table in self.tables()]
            raise ValueError(f'kernel tables have shapes {shapes}: must be [rounds or 1, width]')

    def tables(self) -> tuple[np.ndarray, ...]:
        """The tables in the order of the fields."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def row(self, round_index: int) -> int:
        """Row of the tables that holds for a round."""
        return round_index if self.tables()[0].shape[0] > 1 else 0


@dataclasses.dataclass(frozen=True, eq=False)
class StateSpace(_Tables):
    """Linear recurrence with `d` buffers, each of the shape of one round's noise.

    In round t, for independent noise z_t and buffers s_1 .. s_d (zero at first):

        y_t  =  z_t - sum_j read[t, j] s_j
        s_j <-  decay[t, j] s_j + feed_noise[t, j] z_t + feed_output[t, j] y_t

    and y_t is row t of `C^-1 z`.

    Attributes:
      read, decay, feed_noise, feed_output: float64 [rounds or 1, d].
    """

    read: np.ndarray
    decay: np.ndarray
    feed_noise: np.ndarray
    feed_output: np.ndarray

    @property
    def buffers(self) -> int:
        """d."""
        return self.read.shape[1]


@dataclasses.dataclass(frozen=True, eq=False)
class BandedSolve(_Tables):
    """Forward substitution for a `C` with b bands; the buffers are the last b - 1 outputs.

        y_t = (z_t - sum_{j=1..b-1} bands[t, j] y_{t-j}) / bands[t, 0],  bands[t, j] = C[t, t - j]

    Attributes:
      bands: float64 [rounds or 1, b]; entries left of the matrix are not used.
    """

    bands: np.ndarray

    @property
    def buffers(self) -> int:
        """b - 1."""
        return self.bands.shape[1] - 1


@dataclasses.dataclass(frozen=True, eq=False)
class BandedProduct(_Tables):
    """Product with a `C^-1` that has b bands; the buffers are the last b - 1 inputs.

        y_t = sum_{j=0..b-1} taps[t, j] z_{t-j},  taps[t, j] = C^-1[t, t - j]

    The buffers hold independent noise, so they can also be drawn anew from their keys.

    Attributes:
      taps: float64 [rounds or 1, b]; entries left of the matrix are not used.
    """

    taps: np.ndarray

    @property
    def buffers(self) -> int:
        """b - 1."""
        return self.taps.shape[1] - 1


Kernel = StateSpace | BandedSolve | BandedProduct


def stream(kernel: Kernel, noise: np.ndarray) -> np.ndarray:
    """Rows of `C^-1 z`, one after the other, in float64.

    Args:
      kernel: of a mechanism with at least as many rounds as `noise` has rows.
      noise: z, [rounds, ...].

    Returns:
      float64 of the shape of `noise`.
    """
    noise = np.asarray(noise, dtype=np.float64)
    buffers = np.zeros((kernel.buffers,) + noise.shape[1:])
    outputs = np.empty_like(noise)
    for t, z in enumerate(noise):
        rows = [table[kernel.row(t)] for table in kernel.tables()]
        outputs[t], buffers = _STEPS[type(kernel)](rows, z, buffers)
    return outputs


def _state_space_step(rows, z, buffers):
    read, decay, feed_noise, feed_output = (
        row.reshape((-1,) + (1,) * z.ndim) for row in rows
    )
    y = z - (read * buffers).sum(axis=0)
    return y, decay * buffers + feed_noise * z + feed_output * y


def _banded_solve_step(rows, z, buffers):
    (bands,) = rows
    y = (z - np.tensordot(bands[1:], buffers, axes=1)) / bands[0]
    return y, np.concatenate([y[None], buffers])[:-1]


def _banded_product_step(rows, z, buffers):
    (taps,) = rows
    y = taps[0] * z + np.tensordot(taps[1:], buffers, axes=1)
    return y, np.concatenate([z[None], buffers])[:-1]


_STEPS = {
    StateSpace: _state_space_step,
    BandedSolve: _banded_solve_step,
    BandedProduct: _banded_product_step,
}
