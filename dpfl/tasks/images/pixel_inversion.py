"""The bug of [Augenstein20], section 6: some devices invert all pixels, black for white."""

import dataclasses

import numpy as np

from dpfl import _random, _validate

_DOMAIN = 'image.inversion'


@dataclasses.dataclass(frozen=True)
class PixelInversion:
    """Which devices have the bug: a pure function of (seed, client).

    A device that has the bug at some share has it at every larger share, as in a gradual roll-out.

    Attributes:
      share: expected share of devices with the bug, in [0, 1].
      seed: integer in [0, 2**64).

    Raises:
      ValueError: if a parameter is outside its range; the message names it.
    """

    share: float
    seed: int = 0

    def __post_init__(self):
        _validate.number('inverted_share', self.share, minimum=0, maximum=1)
        _random.check_seed('seed', self.seed)

    def affects(self, client: int) -> bool:
        """Whether the device of a client, an index in [0, 2**64), has the bug."""
        return bool(_random.generator(_DOMAIN, self.seed, client).random() < self.share)

    def processed(self, client: int, pixels: np.ndarray) -> np.ndarray:
        """Pixels in [0, 1] as the client's device reports them: inverted if it has the bug."""
        return 1 - pixels if self.affects(client) else pixels
