"""How to stream the noise `C^-1 z` of a mechanism, as data, and its NumPy interpreter.

A kernel holds only numbers. The interpreter in this file works in float64 and is the reference;
`dpfl.aggregators.noise.correlated` interprets the same kernels in TensorFlow for real runs, and
tests compare the two.

Every kernel is a table of what each round does. A table with one row is valid for every round.
`buffers` is the size of the kernel's state in copies of one round's noise: the memory for each
model coordinate.
"""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np


class _Table(abc.ABC):
    """A kernel with one table, whose first axis is the rounds.

    Attributes:
      is_regenerable: whether the buffers hold independent noise, which can be drawn again from
        its keys instead of being kept.
    """

    is_regenerable: ClassVar[bool] = False

    def __post_init__(self):
        if self.table.ndim < 2 or not self.table.size:
            shape = self.table.shape
            raise ValueError(f'kernel table has shape {shape}: must be [rounds or 1, width ...]')

    @property
    @abc.abstractmethod
    def table(self) -> np.ndarray:
        """The coefficients, float64 [rounds or 1, ...]."""

    @property
    def buffers(self) -> int:
        """Number of buffers."""
        return self.table.shape[1] - 1

    @property
    def draws(self) -> int:
        """Independent noises that a round draws, if it draws again what can be."""
        return 1

    def row(self, round_index: int) -> int:
        """Index of the row of the table for a round; rounds count from 0."""
        return round_index if self.table.shape[0] > 1 else 0


@dataclasses.dataclass(frozen=True, eq=False)
class StateSpace(_Table):
    """One linear map per round, from noise and d buffers to row t of `C^-1 z` and the buffers.

        (y_t, s_1 .. s_d)  <-  maps[t] (z_t, s_1 .. s_d)

    The buffers start at zero. Each has the shape of one round's noise.

    Attributes:
      maps: float64 [rounds or 1, 1 + d, 1 + d].
    """

    maps: np.ndarray

    @property
    def table(self) -> np.ndarray:
        return self.maps

    def nonzero(self) -> np.ndarray:
        """Which buffers can be other than zero before each round, bool [rounds or fewer, buffers].

        The last row holds for all later rounds, too. The others are zero whatever the noise is.
        """
        # A kernel with one map has the same buffers in every round once no more of them fill.
        rounds = self.maps.shape[0] if self.maps.shape[0] > 1 else self.buffers + 1
        rows = np.zeros((rounds + 1, self.buffers), dtype=bool)
        for t in range(rounds):
            filled = self.maps[self.row(t), 1:] != 0
            rows[t + 1] = filled[:, 0] | (filled[:, 1:] & rows[t]).any(axis=1)
        return rows


class _Banded(_Table):
    """A kernel whose buffers are the last outputs or inputs; they can be kept as a ring."""

    def ring(self, round_index: int) -> tuple[np.ndarray, int | None]:
        """Where a ring of `buffers` rows has the past of a round, which writes one row.

        Returns:
          The lag of each row in use, the number of rounds since it was written, int64 [rows in
          use]; and the row that this round writes, None if there is no ring.
        """
        if not self.buffers:
            return np.zeros(0, np.int64), None
        slots = np.arange(min(self.buffers, round_index))
        return 1 + (round_index - 1 - slots) % self.buffers, round_index % self.buffers


@dataclasses.dataclass(frozen=True, eq=False)
class BandedSolve(_Banded):
    """Forward substitution for a `C` with b bands; the buffers are the last b - 1 outputs.

        y_t = (z_t - sum_{j=1..b-1} bands[t, j] y_{t-j}) / bands[t, 0],  bands[t, j] = C[t, t - j]

    Attributes:
      bands: float64 [rounds or 1, b]; entries left of the matrix are not used.
    """

    bands: np.ndarray

    @property
    def table(self) -> np.ndarray:
        return self.bands


@dataclasses.dataclass(frozen=True, eq=False)
class BandedProduct(_Banded):
    """Product with a `C^-1` that has b bands; the buffers are the last b - 1 inputs.

        y_t = sum_{j=0..b-1} taps[t, j] z_{t-j},  taps[t, j] = C^-1[t, t - j]

    Attributes:
      taps: float64 [rounds or 1, b]; entries left of the matrix are not used.
    """

    is_regenerable: ClassVar[bool] = True
    taps: np.ndarray

    @property
    def draws(self) -> int:
        return self.taps.shape[1]

    @property
    def table(self) -> np.ndarray:
        return self.taps


Kernel = StateSpace | BandedSolve | BandedProduct


def concatenate(segments: Sequence[Kernel], lengths: Sequence[int]) -> Kernel:
    """One kernel that starts afresh at the end of each segment.

    Args:
      segments: kernels of one type, each for at least the length of its segment.
      lengths: number of rounds of each segment.
    """
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
        if isinstance(segment, StateSpace):
            rows[0, :, 1:] = 0.0
        else:  # Row t of a segment may reach back at most t rounds.
            rows = np.where(np.arange(width) <= np.arange(length)[:, None], rows, 0.0)
        tables.append(rows)
    return type(segments[0])(np.concatenate(tables))


def stream(kernel: Kernel, noise: np.ndarray) -> np.ndarray:
    """Computes the rows of `C^-1 z` one after the other, in float64.

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
