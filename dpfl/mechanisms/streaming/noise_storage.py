"""Where the noise of past rounds is kept during a run: chosen by its size in bytes."""

import dataclasses

from dpfl import _validate
from dpfl.mechanisms.streaming import kernels

# TFF copies everything a round takes and returns, and its native runtime sends it to another
# process. Above this size, supplying one finished row per round is faster than keeping the
# buffers in the state.
FEW_BYTES = 16_000_000
# TFF's native runtime limits messages to 2 GiB, and the state also holds model and optimizer.
MOST_STATE_BYTES = 1_500_000_000
_BYTES = {'default': 4, 'hardened': 8}  # Of a number of past noise: float32, float64.


@dataclasses.dataclass(frozen=True)
class NoiseStorage:
    """Where the noise of past rounds is kept, and why.

    Attributes:
      name: 'state': in the state of the TFF process. 'regenerated': nowhere, it is drawn again
        from its keys. 'memory' or 'file': outside of TFF, in a `NoiseRing` or `HardenedRing` of
        `dpfl.aggregators`.
      gigabytes: size of the stored noise.
      reason: why, in one clause.
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
    kernel: kernels.Kernel, dimension: int, memory_limit: float, noise: str = 'default'
) -> NoiseStorage:
    """Chooses where a training loop that can supply noise should keep it.

    The choice depends on the bytes of the kernel's buffers:

    - No buffers, or at most `FEW_BYTES` and within the limit: in the state. Buffers that
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
    """
    _validate.integer('dimension', dimension, minimum=1)
    _validate.number('memory_limit', memory_limit, minimum=0)
    _validate.choice('noise', noise, tuple(_BYTES))
    size = kernel.buffers * dimension * _BYTES[noise]
    gigabytes = size / 1e9
    is_hardened = noise == 'hardened'
    if not is_hardened:
        if size == 0:
            return NoiseStorage('state', 0.0, 'none is needed')
        if size <= min(FEW_BYTES, memory_limit * 1e9):
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
