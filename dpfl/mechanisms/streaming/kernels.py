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
    def stored_buffers(self) -> int:
        """Number of buffers if no noise may be drawn again from its keys."""
        return self.buffers

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


@dataclasses.dataclass(frozen=True, eq=False)
class BandedSolve(_Table):
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
class BandedProduct(_Table):
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


@dataclasses.dataclass(frozen=True, eq=False)
class LaggedStateSpace(_Table):
    """A `StateSpace` that also takes the noise of a few past rounds.

        (y_t, s_1 .. s_d)  <-  maps[t] (z_t, z_{t-lags[1]}, .., z_{t-lags[L-1]}, s_1 .. s_d)

    Noise of rounds before the first counts as zero. That of past rounds is drawn again from its
    keys: only s is kept, at a cost of L draws in each round.

    Attributes:
      maps: float64 [rounds or 1, 1 + d, L + d].
      lags: increasing, the first 0, [L].
    """

    maps: np.ndarray
    lags: tuple[int, ...]

    @property
    def table(self) -> np.ndarray:
        return self.maps

    @property
    def stored_buffers(self) -> int:
        return self.lags[-1] + self.buffers

    @property
    def draws(self) -> int:
        return len(self.lags)

    def stored_map(self, round_index: int) -> np.ndarray:
        """The map of a round if the noise is kept: that of a `StateSpace` for `stored_buffers`.

        The first `lags[-1]` buffers hold the noise of 1, 2, .. rounds ago, the others s.

        Returns:
          float64 [1 + stored_buffers, 1 + stored_buffers].
        """
        rows = np.append(0, self.lags[-1] + 1 + np.arange(self.buffers))
        full = np.eye(1 + self.stored_buffers, k=-1)
        full[rows] = 0.0
        full[np.ix_(rows, [*self.lags, *rows[1:]])] = self.maps[self.row(round_index)]
        return full


Kernel = StateSpace | BandedSolve | BandedProduct | LaggedStateSpace


def concatenate(segments: Sequence[Kernel], lengths: Sequence[int]) -> Kernel:
    """One kernel that starts afresh at the end of each segment.

    Args:
      segments: kernels of one type, with the same lags if it has any, each for at least the
        length of its segment.
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
        if isinstance(segment, LaggedStateSpace):
            tables.append(_begun_afresh(rows, segment.lags))
            continue
        pad = [(0, 0)] + [(0, width - size) for size in rows.shape[1:]]
        rows = np.pad(rows, pad)
        if isinstance(segment, StateSpace):
            rows[0, :, 1:] = 0.0
        else:  # Row t of a segment may reach back at most t rounds.
            rows = np.where(np.arange(width) <= np.arange(length)[:, None], rows, 0.0)
        tables.append(rows)
    table = np.concatenate(tables)
    if isinstance(segments[0], LaggedStateSpace):
        return LaggedStateSpace(table, segments[0].lags)
    return type(segments[0])(table)


def _begun_afresh(maps: np.ndarray, lags: tuple[int, ...]) -> np.ndarray:
    """Maps of a segment that takes neither noise nor buffers of the rounds before it."""
    maps = maps.copy()
    is_before = np.array(lags) > np.arange(len(maps))[:, None]
    maps[:, :, : len(lags)] *= ~is_before[:, None]
    maps[0, :, len(lags) :] = 0.0
    return maps


def stream(kernel: Kernel, noise: np.ndarray) -> np.ndarray:
    """Computes the rows of `C^-1 z` one after the other, in float64.

    Args:
      kernel: of a mechanism with at least as many rounds as `noise` has rows.
      noise: z, [rounds, ...].

    Returns:
      float64 of the shape of `noise`.
    """
    noise = np.asarray(noise, dtype=np.float64)
    buffers = np.zeros((kernel.stored_buffers,) + noise.shape[1:])
    outputs = np.empty_like(noise)
    for t, z in enumerate(noise):
        if isinstance(kernel, LaggedStateSpace):
            outputs[t], buffers = _state_space_step(kernel.stored_map(t), z, buffers)
        else:
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
