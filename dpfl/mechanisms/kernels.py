"""How to stream the noise `C^-1 z` of a mechanism, as data; in NumPy; and where to keep its past.

A kernel holds only numbers. `stream` interprets it in float64 and is the reference; tests compare
it with `dpfl.aggregators.noise.correlated`, which interprets the same kernels in TensorFlow for
real runs, and with `step`, which works in place.

Row t of a kernel's table is the step of round t. A table with one row is valid for every round.
`buffers` is the size of the kernel's state in copies of one round's noise: the memory for each
model coordinate.
"""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from dpfl import _validate

# TFF copies everything a round takes and returns, and its native runtime sends it to another
# process. Above this size, supplying one finished row per round is faster than keeping the
# buffers in the state.
_FEW_BYTES = 16_000_000
MOST_STATE_BYTES = 1_500_000_000
"""Bytes of noise that a state may hold: TFF's messages end at 2 GiB, with model and optimizer."""
BYTES = {'default': 4, 'hardened': 8}  # Of a number of past noise: float32, float64.


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

    Example:
      >>> kernel = Blt(4, decay=np.array([0.9]), scale=np.array([0.5])).kernel()
      >>> stream(kernel, np.ones([4, 1]))[:, 0].round(4)
      array([1.  , 0.5 , 0.3 , 0.22])
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

    Example:
      >>> stream(BandedSolve(np.array([[1.0, 0.5]])), np.ones([3, 1]))[:, 0]
      array([1.  , 0.5 , 0.75])
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

    Example:
      >>> stream(BandedProduct(np.array([[1.0, -0.5]])), np.ones([3, 1]))[:, 0]
      array([1. , 0.5, 0.5])
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
      kernel: of a mechanism with at least `len(noise)` rounds.
      noise: z, [rounds, ...].

    Returns:
      float64 of the shape of `noise`.

    Example:
      >>> mechanism, noise = BandedToeplitz(4, np.array([1.0, 0.5])), np.ones([4, 1])
      >>> stream(mechanism.kernel(), noise)[:, 0]
      array([1.   , 0.5  , 0.75 , 0.625])
      >>> np.linalg.solve(mechanism.strategy_matrix(), noise)[:, 0]
      array([1.   , 0.5  , 0.75 , 0.625])
    """
    noise = np.asarray(noise, dtype=np.float64)
    buffers = np.zeros((kernel.buffers,) + noise.shape[1:])
    outputs = np.empty_like(noise)
    for t, z in enumerate(noise):
        row = kernel.table[kernel.row(t)]
        if isinstance(kernel, StateSpace):
            both = np.tensordot(row, np.concatenate([z[None], buffers]), axes=1)
            outputs[t], buffers = both[0], both[1:]
            continue
        past = np.tensordot(row[1:], buffers, axes=1)
        if isinstance(kernel, BandedSolve):
            outputs[t] = kept = (z - past) / row[0]
        else:
            outputs[t], kept = row[0] * z + past, z
        buffers = np.concatenate([kept[None], buffers])[:-1]
    return outputs


class _Maps(NamedTuple):
    """One round of a `StateSpace`.

    Attributes:
      first: coefficient of z in the output, float64.
      matrix: the linear map, with 0 in place of that coefficient.
    """

    first: np.float64
    matrix: np.ndarray

    def apply(self, z: np.ndarray, buffers: np.ndarray, out: np.ndarray) -> None:
        rounded = z.astype(self.matrix.dtype)
        both = np.einsum('ij,jk->ik', self.matrix, np.concatenate([rounded[None], buffers]))
        np.multiply(z, self.first, out=out)
        out += both[0]
        buffers[:] = both[1:]


class _Ring(NamedTuple):
    """One round of a banded kernel.

    Attributes:
      first: coefficient of z in the output, float64.
      weights: coefficients of the rows of the ring, [rows in use].
      slot: row of the ring that this round writes; None if there is no ring.
      keeps_output: whether the round writes its output (`BandedSolve`) or its noise
        (`BandedProduct`).
    """

    first: np.float64
    weights: np.ndarray
    slot: int | None
    keeps_output: bool

    def apply(self, z: np.ndarray, buffers: np.ndarray, out: np.ndarray) -> None:
        # einsum adds the rows in order, in one thread. BLAS may split a sum.
        total = np.einsum('j,jk->k', self.weights, buffers[: self.weights.size])
        np.multiply(z, self.first, out=out)
        out += total
        if self.slot is not None:
            buffers[self.slot] = out if self.keeps_output else z


Step = _Maps | _Ring


def step(kernel: Kernel, round_index: int, dtype: DTypeLike) -> Step:
    """The operation of one round in place, on each block of coordinates.

    The state of a kernel can be too large to copy in each round. Here it is an array
    [buffers, coordinates] that each round changes in place. For banded kernels a round changes only
    one row, as in a ring buffer. The bits of a block do not depend on where, or in which order,
    blocks of the same size are computed.

    Precision of float32: with the 342 bands and 2,000 rounds of a production run, rows of standard
    deviation 1.1 differ from float64 by 2e-7 (root mean square), and by at most 2e-6.

    Its method `apply(z, buffers, out)` takes the noise of the round z, float64 [size]; the
    buffers, `dtype` [kernel.buffers, size], which it changes; and an array `out`, float64 [size],
    to which it writes the row of `C^-1 z`. Buffers are zero before the first round. Rounds must be
    applied in order.

    Args:
      kernel: how to stream the noise.
      round_index: index of the round, from 0.
      dtype: floating-point type of the buffers.
    """
    row = kernel.table[kernel.row(round_index)]
    if isinstance(kernel, StateSpace):
        matrix = row.astype(dtype)
        matrix[0, 0] = 0
        return _Maps(row[0, 0], matrix)
    is_solve = isinstance(kernel, BandedSolve)
    if is_solve:
        row = np.concatenate([[1.0], -row[1:]]) / row[0]
    lags, slot = kernel.ring(round_index)
    return _Ring(row[0], row[lags].astype(dtype), slot, is_solve)


@dataclasses.dataclass(frozen=True)
class NoiseStorage:
    """Where the noise of past rounds is kept, and why.

    Attributes:
      name: 'state': in the state of the TFF process. 'regenerated': nowhere, it is drawn again
        from its keys. 'memory' or 'file': outside of TFF, in a ring, see
        `dpfl.aggregators.build_noise_ring`.
      gigabytes: size of the stored noise.
      reason: why, in one clause.

    Example:
      >>> kernel = Blt(1000, decay=np.array([0.9]), scale=np.array([0.5])).kernel()
      >>> choose_noise_storage(kernel, dimension=10**6, memory_limit=1.0).name
      'state'
    """

    name: str
    gigabytes: float
    reason: str

    @property
    def is_supplied(self) -> bool:
        """Whether a ring outside of TFF supplies the noise of each round."""
        return self.name in ('memory', 'file')

    def __str__(self) -> str:
        size = f'{_size(self.gigabytes)}, ' if self.gigabytes else ''
        return f'noise of past rounds: {size}{self.reason}'


def _size(gigabytes: float) -> str:
    """A size in the unit in which it has one to three digits before the point."""
    for unit, factor in (('GB', 1.0), ('MB', 1e3)):
        if gigabytes * factor >= 1:
            return f'{gigabytes * factor:.3g} {unit}'
    return f'{gigabytes * 1e6:.3g} kB'


def choose_noise_storage(
    kernel: Kernel, dimension: int, memory_limit: float, noise: str = 'default'
) -> NoiseStorage:
    """Chooses where a training loop that can supply noise should keep it.

    The choice depends on the bytes of the kernel's buffers:

    - No buffers, or at most `_FEW_BYTES` and within the limit: in the state. Buffers that
      can be regenerated are regenerated instead.
    - Within the limit: in memory.
    - Above the limit: buffers that can be regenerated are, at the cost of drawing all of them in
      each round. Others are kept in a file.

    Hardened noise is made outside of TFF, so it is in memory or in a file.

    Args:
      kernel: how to stream the noise.
      dimension: number of model coordinates.
      memory_limit: memory for the noise of past rounds, in gigabytes.
      noise: 'default' or 'hardened', see `PrivacyPlan`.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> kernel = BandedToeplitz(1000, 0.99 ** np.arange(400)).kernel()
      >>> choose_noise_storage(kernel, dimension=10**6, memory_limit=2.0).name
      'memory'
    """
    _validate.integer('dimension', dimension, minimum=1)
    _validate.number('memory_limit', memory_limit, minimum=0)
    _validate.choice('noise', noise, tuple(BYTES))
    size = kernel.buffers * dimension * BYTES[noise]
    gigabytes = size / 1e9
    is_hardened = noise == 'hardened'
    if not is_hardened:
        if size == 0:
            return NoiseStorage('state', 0.0, 'none is needed')
        if size <= min(_FEW_BYTES, memory_limit * 1e9):
            if kernel.is_regenerable:
                return NoiseStorage('regenerated', 0.0, 'drawn again from its keys in each round')
            return NoiseStorage('state', gigabytes, 'in memory, with the model')
    if gigabytes <= memory_limit:
        reason = (
            'in memory; hardened, made outside of TFF'
            if is_hardened
            else 'in memory, outside of TFF, which gets one row in each round'
        )
        return NoiseStorage('memory', gigabytes, reason)
    if kernel.is_regenerable and not is_hardened:
        return NoiseStorage(
            'regenerated',
            0.0,
            f'{_size(gigabytes)} are more than {memory_limit:g} GB; drawn again in each round',
        )
    reason = f'in a temporary file, since memory_limit is {memory_limit:g} GB'
    if is_hardened:
        reason += '; hardened, made outside of TFF'
    return NoiseStorage('file', gigabytes, reason)
