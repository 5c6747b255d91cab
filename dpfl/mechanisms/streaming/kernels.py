"""How to stream the noise `C^-1 z` of a mechanism, as data, and its NumPy interpreter.

A kernel holds numbers only. It is interpreted here, in float64, as the oracle, and in
`dpfl.aggregators.noise.correlated` in TensorFlow for real runs; the tests hold the two together.

Every kernel is a table of what each round does; a table with one row holds for every round.
`buffers` is the number of copies of one round's noise that its state holds: memory per model
coordinate.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np


class _Table:
    """A kernel with one table, whose first axis is the rounds."""

    def __post_init__(self):
        if self.table.ndim < 2 or not self.table.size:
            shape = self.table.shape
            raise ValueError(f'kernel table has shape {shape}: must be [rounds or 1, width ...]')

    @property
    def table(self) -> np.ndarray:
        """The only field."""
        (field,) = dataclasses.fields(self)
        return getattr(self, field.name)

    def row(self, round_index):
        """Row of the table that holds for a round."""
        return round_index if self.table.shape[0] > 1 else 0


@dataclasses.dataclass(frozen=True, eq=False)
class StateSpace(_Table):
    """One linear map per round, from noise and d buffers to row t of `C^-1 z` and the buffers.

        (y_t, s_1 .. s_d)  <-  maps[t] (z_t, s_1 .. s_d)

    with the buffers zero at first, each of the shape of one round's noise.

    Attributes:
      maps: float64 [rounds or 1, 1 + d, 1 + d].
    """

    maps: np.ndarray

    @property
    def buffers(self) -> int:
        """Number of buffers d."""
        return self.maps.shape[1] - 1


@dataclasses.dataclass(frozen=True, eq=False)
class BandedSolve(_Table):
    """Forward substitution for a `C` with b bands; the buffers are the last b - 1 outputs.

        y_t = (z_t - sum_{j=1..b-1} bands[t, j] y_{t-j}) / bands[t, 0],  bands[t, j] = C[t, t - j]

    Attributes:
      bands: float64 [rounds or 1, b]; entries left of the matrix are not used.
    """

    bands: np.ndarray

    @property
    def buffers(self) -> int:
        """Number of buffers, b - 1."""
        return self.bands.shape[1] - 1


@dataclasses.dataclass(frozen=True, eq=False)
class BandedProduct(_Table):
    """Product with a `C^-1` that has b bands; the buffers are the last b - 1 inputs.

        y_t = sum_{j=0..b-1} taps[t, j] z_{t-j},  taps[t, j] = C^-1[t, t - j]

    The buffers hold independent noise, so they can also be drawn anew from their keys.

    Attributes:
      taps: float64 [rounds or 1, b]; entries left of the matrix are not used.
    """

    taps: np.ndarray

    @property
    def buffers(self) -> int:
        """Number of buffers, b - 1."""
        return self.taps.shape[1] - 1


Kernel = StateSpace | BandedSolve | BandedProduct


def concatenate(segments: list[Kernel], lengths: Sequence[int]) -> Kernel:
    """One kernel that starts afresh at the end of each segment.

    Args:
      segments: kernels of one kind, each for at least its length.
      lengths: rounds of the segments.
    """
    kind = type(segments[0])
    width = max(segment.buffers for segment in segments) + 1
    tables = []
    for segment, length in zip(segments, lengths, strict=True):
        rows = (
            segment.table[:length]
            if segment.table.shape[0] > 1
            else np.repeat(segment.table, length, axis=0)
        )
        pad = [(0, 0)] + [(0, width - size) for size in rows.shape[1:]]
        rows = np.pad(rows, pad)
        if kind is StateSpace:
            rows[0, :, 1:] = 0.0
        else:  # Row t of a segment reaches back t rounds within it.
            rows = np.where(np.arange(width) <= np.arange(length)[:, None], rows, 0.0)
        tables.append(rows)
    return kind(np.concatenate(tables))


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
        row = kernel.table[kernel.row(t)]
        outputs[t], buffers = _STEPS[type(kernel)](row, z, buffers)
    return outputs


def _state_space_step(linear_map, z, buffers):
    both = np.tensordot(linear_map, np.concatenate([z[None], buffers]), axes=1)
    return both[0], both[1:]


def _banded_solve_step(bands, z, buffers):
    y = (z - np.tensordot(bands[1:], buffers, axes=1)) / bands[0]
    return y, np.concatenate([y[None], buffers])[:-1]


def _banded_product_step(taps, z, buffers):
    y = taps[0] * z + np.tensordot(taps[1:], buffers, axes=1)
    return y, np.concatenate([z[None], buffers])[:-1]


_STEPS = {
    StateSpace: _state_space_step,
    BandedSolve: _banded_solve_step,
    BandedProduct: _banded_product_step,
}
