"""An endless population of synthetic clients that write letters and digits; no download needed.

Every client is a pure function of (seed, client index); nothing is stored. `glyph_hands` defines
how a client writes. As in federated EMNIST, images are 28 x 28 with paper 1 and ink 0, the 62
classes have the same order, and about half of the examples are digits. Devices may have `faults`.
"""

import collections
import dataclasses
import functools

import numpy as np

from dpfl import _random, _validate
from dpfl.tasks.images import glyph_atlas, glyph_hands, image_batches
from dpfl.tasks.images.faults import Faults

# Domains of `_random.generator`. The integer before the client separates held-out clients.
_HAND, _LABELS, _SIGNS, _PIXELS = 'glyphs.hand', 'glyphs.labels', 'glyphs.signs', 'glyphs.pixels'
_TRAIN, _HELDOUT = 0, 1
_MAX_CLIENT = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class SyntheticGlyphs:
    """A population of clients that write letters and digits.

    Attributes:
      seed: integer in [0, 2**64): decides every client.
      faults: faults of the devices. Held-out clients do not have them.
      median_examples: median number of examples of a client; the distribution is log-normal.
      examples_spread: standard deviation of the logarithm of the number of examples.
      min_examples: least number of examples of a client.
      max_examples: largest number of examples of a client.
      digit_share: share of digits among the examples; all letters are equally common.

    Raises:
      ValueError: if a parameter is outside its range; the message names it.
    """

    seed: int = 0
    faults: Faults = Faults()
    median_examples: float = 64.0
    examples_spread: float = 0.5
    min_examples: int = 8
    max_examples: int = 400
    digit_share: float = 0.5

    def __post_init__(self):
        least = _validate.integer('min_examples', self.min_examples, minimum=1)
        most = _validate.integer('max_examples', self.max_examples, minimum=least)
        _validate.number('median_examples', self.median_examples, minimum=least, maximum=most)
        _validate.number('examples_spread', self.examples_spread, minimum=0, maximum=10)
        _validate.number('digit_share', self.digit_share, minimum=0, maximum=1)
        _random.check_seed('seed', self.seed)

    @functools.cached_property
    def _cumulative_shares(self) -> np.ndarray:
        """Cumulative shares of the classes, float64 [62]."""
        num_letters = len(glyph_atlas.CLASSES) - glyph_atlas.NUM_DIGITS
        shares = np.full(len(glyph_atlas.CLASSES), (1 - self.digit_share) / num_letters)
        shares[: glyph_atlas.NUM_DIGITS] = self.digit_share / glyph_atlas.NUM_DIGITS
        return np.cumsum(shares) / shares.sum()

    def examples(self, client: int, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The examples on a client's device, with its faults.

        Args:
          client: index in [0, 2**64).
          limit: return the first `limit` examples only, which takes less time.

        Returns:
          Pixels float32 [n, 28, 28] in [0, 1] and labels int32 [n].

        Raises:
          ValueError: if an argument is outside its range.
        """
        _validate.integer('client', client, minimum=0, maximum=_MAX_CLIENT)
        pixels, labels = self._examples(_TRAIN, self.faults.source(client), limit)
        return self.faults.processed(client, pixels, labels)

    def heldout_clients(self, num_clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Examples of held-out clients, without faults, as pixels and labels of each client."""
        _validate.integer('num_clients', num_clients, minimum=1)
        return [self._examples(_HELDOUT, client, None) for client in range(num_clients)]

    def heldout_examples(self, num_clients: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples of `heldout_clients` together, as pixels and labels."""
        pixels, labels = zip(*self.heldout_clients(num_clients), strict=True)
        return np.concatenate(pixels), np.concatenate(labels)

    def client_batches(
        self, client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """A client's examples as `image_batches.batches`. Their order is random already."""
        limit = image_batches.examples_needed(batch_size, max_batches)
        return image_batches.batches(*self.examples(client, limit), batch_size, epochs, max_batches)

    def _examples(
        self, domain: int, client: int, limit: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        _validate.integer('client', client, minimum=0, maximum=_MAX_CLIENT)
        if limit is not None:
            _validate.integer('limit', limit, minimum=1)

        def stream(purpose: str) -> np.random.Generator:
            return _random.generator(purpose, self.seed, domain, client)

        rng = stream(_HAND)
        hand = glyph_hands.draw_hand(rng)
        number = self.median_examples * np.exp(self.examples_spread * rng.normal())
        number = int(np.clip(round(number), self.min_examples, self.max_examples))
        number = number if limit is None else min(number, limit)
        # Each stream is read example by example, so a limit does not change the examples before it.
        drawn = np.searchsorted(self._cumulative_shares, stream(_LABELS).random(number), 'right')
        labels = np.minimum(drawn, len(glyph_atlas.CLASSES) - 1)
        signs = stream(_SIGNS).normal(size=(number, glyph_hands.DRAWS_PER_SIGN))
        pixels = glyph_hands.write(hand, labels, signs, stream(_PIXELS))
        return pixels, labels.astype(np.int32)
