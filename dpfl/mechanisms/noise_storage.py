"""Where the noise of a run is kept between two rounds, by its size in bytes."""

import dataclasses

from dpfl import _validate
from dpfl.mechanisms import kernels

PLACES = ('state', 'regenerated', 'memory', 'file')

# All that a round takes in and gives out is copied, and sent to another process by TFF's own
# runtime: beyond this, one finished row per round is faster than all buffers.
FEW_BYTES = 16_000_000
# Messages of TFF's own runtime have at most 2 GiB, and the state also holds model and optimizer.
MOST_STATE_BYTES = 1_500_000_000
_BYTES = 4  # float32
_HARDENED_BYTES = 8  # float64


@dataclasses.dataclass(frozen=True)
class NoisePlace:
    """Where the noise of past rounds is kept, and why.

    Attributes:
      name: 'state', in the state of the TFF process; 'regenerated', nowhere: it is drawn anew from
        its keys; 'memory' or 'file', outside of TFF, in a `NoiseRing` or `HardenedRing` of
        `dpfl.aggregators`.
      gigabytes: of the kept noise.
      reason: one clause.
    """

    name: str
    gigabytes: float
    reason: str

    @property
    def is_supplied(self) -> bool:
        """Whether a ring supplies each round's row."""
        return self.name in ('memory', 'file')

    def __str__(self):
        return f'noise: {self.name}, {self.gigabytes:.3g} GB: {self.reason}'


def place_noise(kernel: kernels.Kernel, dimension: int, memory_limit: float) -> NoisePlace:
    """Where a training loop that can supply noise should keep it.

    The rule, on the bytes of the kernel's buffers: without buffers, or with no more than
    `FEW_BYTES` and the limit, they are in the state, and those of a product, which are independent
    noise, regenerated; up to the limit they are in memory; beyond it those of a product are
    regenerated, at the cost of drawing all of them in each round, and others are in a file.

    Args:
      kernel: how to stream the noise.
      dimension: number of model coordinates, in float32.
      memory_limit: gigabytes of memory for the noise of past rounds.

    Raises:
      ValueError: if an argument is out of its range.
    """
    _validate.integer('dimension', dimension, minimum=1)
    _validate.number('memory_limit', memory_limit, minimum=0)
    size = kernel.buffers * dimension * _BYTES
    gigabytes = size / 1e9
    is_product = isinstance(kernel, kernels.BandedProduct)
    if size == 0:
        return NoisePlace('state', 0.0, 'no past noise is needed')
    if size <= min(FEW_BYTES, memory_limit * 1e9):
        if is_product:
            return NoisePlace('regenerated', 0.0, 'drawn anew from its keys in each round')
        return NoisePlace('state', gigabytes, f'at most {FEW_BYTES / 1e9:g} GB, kept by TFF')
    if gigabytes <= memory_limit:
        reason = f'more than {FEW_BYTES / 1e9:g} GB, kept outside of TFF, one row for each round'
        return NoisePlace('memory', gigabytes, reason)
    if is_product:
        return NoisePlace(
            'regenerated',
            0.0,
            f'{gigabytes:.3g} GB are more than {memory_limit:g} GB; drawn anew in each round',
        )
    return NoisePlace('file', gigabytes, f'more than {memory_limit:g} GB of memory')


def place_hardened_noise(kernel: kernels.Kernel, dimension: int, memory_limit: float) -> NoisePlace:
    """Where past noise of a plan with `noise='hardened'` is kept: never in the state.

    Args:
      kernel, dimension, memory_limit: as in `place_noise`; a coordinate takes 8 bytes here.

    Raises:
      ValueError: if an argument is out of its range.
    """
    _validate.integer('dimension', dimension, minimum=1)
    _validate.number('memory_limit', memory_limit, minimum=0)
    gigabytes = kernel.buffers * dimension * _HARDENED_BYTES / 1e9
    if gigabytes <= memory_limit:
        return NoisePlace('memory', gigabytes, 'hardened, made outside of TFF')
    return NoisePlace(
        'file', gigabytes, f'hardened, made outside of TFF; more than {memory_limit:g} GB of memory'
    )
