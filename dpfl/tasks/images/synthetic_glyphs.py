"""An endless population of synthetic clients that write letters and digits; no download needed.

Every client is a pure function of (seed, client index); nothing is stored. As in federated EMNIST,
images are 28 x 28 with paper 1 and ink 0, the 62 classes have the same order, and about half of the
examples are digits. Devices may have faults.

Letters and digits are those of the fonts shipped with matplotlib, as distance fields. A distance
field gives the distance of each position to the outline of the glyph. It can be sampled at any
position and scale, and adding a constant makes strokes wider or narrower. So each glyph is rendered
only once, for all writers.

A writer's hand has letterforms, slant, weight and size, and how much they vary from sign to sign.
Many images of a writer are made at a time. The positions of the pixels in the glyph are one matrix
product: the parameters of the signs times fixed features of the pixels (1, u, v and slow waves,
which bend the strokes). The distance field at these positions gives the amount of ink.
"""

import dataclasses
import functools
import pathlib

import matplotlib
import numpy as np
from matplotlib import ft2font
from scipy import ndimage

from dpfl import _random, _validate
from dpfl.tasks.images import image_clients
from dpfl.tasks.images.image_clients import CLASSES, IMAGE_SIZE, Faults

_NUM_DIGITS = 10

# Fonts with all classes and different letterforms. Weight and slant are those of the hand.
FONTS = (
    'DejaVuSans',
    'DejaVuSansMono',
    'DejaVuSerif',
    'DejaVuSerif-Italic',
    'DejaVuSans-Oblique',
    'STIXGeneral',
    'STIXGeneralItalic',
    'cmr10',
    'cmss10',
    'cmtt10',
)

# Side of a field, in heights of a capital letter. The glyph is in its middle.
_EXTENT = 2.0
# Samples along each side of a field, and pixels of the rendered glyph per sample.
_FIELD_SIZE = 64
_OVERSAMPLING = 2
# Height of a capital letter in an average hand, in pixels.
_CAPITAL_HEIGHT = 17.5
# Spread between writers: standard deviations, in the logarithm if the name says so.
_SLANT, _MEAN_SLANT = 0.18, 0.06
_ROTATION = 0.07
_LOG_SIZE = 0.1
_LOG_ASPECT = 0.12
_WEIGHT, _MEAN_WEIGHT = 0.35, 0.25
_BEND = 0.03
_LOG_MESSINESS, _MESSIEST = 0.4, 1.7  # At most 1.7 deviations: more would be illegible.
# Share of the classes for which a writer uses another font than the usual one.
_OWN_FORMS = 0.3
_MAX_NOISE = 0.1
# Spread between the signs of a writer with messiness 1.
_JITTER = {
    'slant': 0.06,
    'rotation': 0.05,
    'size': 0.045,
    'aspect': 0.06,
    'weight': 0.13,
    'right': 0.7,
    'down': 0.7,
}
_JITTER_BEND = 0.017
# Signs that are made at a time, so few that intermediate results fit into the processor's cache.
_BLOCK = 32
# Domains of `_random.generator`. The integer before the client separates held-out clients.
_HAND, _LABELS, _SIGNS, _PIXELS = 'glyphs.hand', 'glyphs.labels', 'glyphs.signs', 'glyphs.pixels'
_TRAIN, _HELDOUT = 0, 1
_MAX_CLIENT = 2**64 - 1


@functools.cache
def distances() -> np.ndarray:
    """The distance fields of all fonts and classes.

    Returns:
      Distances to the outline in heights of a capital letter, positive inside the strokes;
      read-only float32 [fonts, 62, FIELD_SIZE, FIELD_SIZE], rows from top to bottom.
    """
    fields = np.stack([_font_distances(name) for name in FONTS])
    fields.setflags(write=False)
    return fields


def _font_distances(name: str) -> np.ndarray:
    path = pathlib.Path(matplotlib.get_data_path(), 'fonts', 'ttf', f'{name}.ttf')
    font = ft2font.FT2Font(str(path))
    height = int(_FIELD_SIZE * _OVERSAMPLING / _EXTENT)
    font.set_size(height, 72)
    font.set_size(height * height / _bitmap(font, 'H').shape[0], 72)
    return np.stack([_distance_field(_bitmap(font, glyph), height) for glyph in CLASSES])


def _bitmap(font: ft2font.FT2Font, glyph: str) -> np.ndarray:
    """The glyph as pixels without margins, bool [height, width]."""
    font.set_text(glyph, 0.0)
    font.draw_glyphs_to_bitmap(antialiased=False)
    inside = font.get_image() > 0
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    return inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _distance_field(inside: np.ndarray, unit: int) -> np.ndarray:
    size = _FIELD_SIZE * _OVERSAMPLING
    if max(inside.shape) > size:
        raise ValueError(f'glyph of shape {inside.shape}: must fit into {size} pixels')
    canvas = np.zeros([size, size], bool)
    top, left = (size - inside.shape[0]) // 2, (size - inside.shape[1]) // 2
    canvas[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    # The transform gives distances to the nearest pixel of the other kind. The outline is half a
    # pixel closer.
    to_edge = ndimage.distance_transform_edt
    signed = np.where(canvas, to_edge(canvas) - 0.5, 0.5 - to_edge(~canvas)) / unit
    fine = signed.reshape(_FIELD_SIZE, _OVERSAMPLING, _FIELD_SIZE, _OVERSAMPLING)
    return fine.mean(axis=(1, 3)).astype(np.float32)


def _features() -> np.ndarray:
    """Features of the pixels, float32 [F, 784]: 1, image coordinates u and v, and waves."""
    axis = (np.arange(IMAGE_SIZE) + 0.5) / IMAGE_SIZE * 2 - 1
    v, u = (grid.ravel() for grid in np.meshgrid(axis, axis, indexing='ij'))
    waves = [
        np.sin(np.pi * u),
        np.cos(np.pi * u),
        np.sin(np.pi * v),
        np.cos(np.pi * v),
        np.sin(np.pi * u) * np.sin(np.pi * v),
        np.cos(np.pi * u) * np.cos(np.pi * v),
    ]
    return np.stack([np.ones_like(u), u, v, *waves]).astype(np.float32)


_FEATURES = _features()
_NUM_WAVES = len(_FEATURES) - 3
# Number of standard normal draws for a sign.
DRAWS_PER_SIGN = len(_JITTER) + 2 * _NUM_WAVES


@dataclasses.dataclass(frozen=True)
class Hand:
    """How a writer writes.

    Attributes:
      fonts: index of the font for each class, int [62].
      slant: shear of the signs.
      rotation: angle of the signs, in radians.
      size: height of a capital letter, in pixels.
      aspect: factor of the width.
      weight: extra width of the strokes on each side, in pixels.
      softness: width of the transition from ink to paper, in pixels.
      messiness: factor of all variation from sign to sign.
      noise: standard deviation of the noise of a pixel.
      bend: amplitudes of the waves that bend the strokes, float [2, waves].
    """

    fonts: np.ndarray
    slant: float
    rotation: float
    size: float
    aspect: float
    weight: float
    softness: float
    messiness: float
    noise: float
    bend: np.ndarray


def _draw_hand(rng: np.random.Generator) -> Hand:
    """Draws the hand of one writer."""
    usual, *others = rng.integers(len(FONTS), size=1 + len(CLASSES))
    own = rng.random(len(CLASSES)) < _OWN_FORMS
    slant, rotation, size, aspect, weight, messiness = rng.normal(size=6)
    return Hand(
        fonts=np.where(own, others, usual),
        slant=_MEAN_SLANT + _SLANT * slant,
        rotation=_ROTATION * rotation,
        size=_CAPITAL_HEIGHT * np.exp(_LOG_SIZE * size),
        aspect=np.exp(_LOG_ASPECT * aspect),
        weight=_MEAN_WEIGHT + _WEIGHT * weight,
        softness=rng.uniform(0.8, 1.6),
        messiness=np.exp(_LOG_MESSINESS * np.clip(messiness, -_MESSIEST, _MESSIEST)),
        noise=_MAX_NOISE * rng.random() ** 2,
        bend=_BEND * rng.normal(size=(2, _NUM_WAVES)),
    )


def write(
    hand: Hand, labels: np.ndarray, draws: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Writes signs.

    Args:
      hand: the writer's hand.
      labels: classes, int [n].
      draws: standard normal draws, float [n, DRAWS_PER_SIGN]; one row per sign.
      rng: source of the noise of the pixels, in the order of the signs.

    Returns:
      Pixels float32 [n, 28, 28] in [0, 1]; as in federated EMNIST paper is 1 and ink is 0.
    """
    blocks = [
        _write_block(hand, labels[first : first + _BLOCK], draws[first : first + _BLOCK], rng)
        for first in range(0, len(labels), _BLOCK)
    ]
    return np.concatenate(blocks) if blocks else np.ones([0, IMAGE_SIZE, IMAGE_SIZE], np.float32)


def _write_block(
    hand: Hand, labels: np.ndarray, draws: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    jitter = dict(zip(_JITTER, (hand.messiness * draws[:, : len(_JITTER)]).T, strict=True))
    jitter = {name: _JITTER[name] * values for name, values in jitter.items()}
    size = hand.size * np.exp(jitter['size'])
    positions = _positions(hand, jitter, size, draws[:, len(_JITTER) :])
    distances = _sample(hand.fonts[labels], labels, positions)
    scale = (size / hand.softness).astype(np.float32)
    offset = ((hand.weight + jitter['weight']) / hand.softness + 0.5).astype(np.float32)
    ink = np.clip(distances * scale[:, None] + offset[:, None], 0, 1)
    noise = rng.standard_normal(ink.shape, np.float32)
    pixels = np.clip(1 - ink + np.float32(hand.noise) * noise, 0, 1)
    return pixels.reshape(-1, IMAGE_SIZE, IMAGE_SIZE)


def _positions(hand: Hand, jitter: dict, size: np.ndarray, bends: np.ndarray) -> np.ndarray:
    """Positions of the pixels in the glyph, in heights of a capital letter: float32 [n, 2, 784]."""
    # From glyph to image, a sign is widened, sheared (upper parts to the right; v points down),
    # rotated, scaled and shifted. The map from image to glyph undoes this in the opposite order.
    angle = hand.rotation + jitter['rotation']
    shear = hand.slant + jitter['slant']
    scale = IMAGE_SIZE / 2 / size  # u and v are in [-1, 1].
    cosine, sine = scale * np.cos(angle), scale * np.sin(angle)
    width = hand.aspect * np.exp(jitter['aspect'])
    turned = np.array([[cosine, sine], [-sine, cosine]])
    turned[0] = (turned[0] + shear * turned[1]) / width
    inverse = turned.transpose(2, 0, 1)
    shift = np.stack([jitter['right'], jitter['down']], axis=1) / (IMAGE_SIZE / 2)
    waves = hand.bend + _JITTER_BEND * hand.messiness * bends.reshape(-1, 2, _NUM_WAVES)
    origin = -(inverse @ shift[:, :, None])
    parameters = np.concatenate([origin, inverse, waves], axis=2)
    return parameters.astype(np.float32) @ _FEATURES


def _sample(fonts: np.ndarray, labels: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Distance fields of glyphs at positions [n, 2, p], by linear interpolation: float32 [n, p].

    Outside a field the value at its edge is used, where there is no ink.
    """
    fields = distances()
    size = _FIELD_SIZE
    scale = np.float32(size / _EXTENT)
    middle, last = np.float32((size - 1) / 2), np.float32(size - 1.001)
    x, y = np.clip(positions * scale + middle, 0, last).swapaxes(0, 1)
    left, top = x.astype(np.intp), y.astype(np.intp)
    x, y = x - left.astype(np.float32), y - top.astype(np.float32)
    index = (fonts * len(CLASSES) + labels)[:, None] * size**2 + top * size + left
    flat = fields.reshape(-1)
    upper, lower = flat.take(index, mode='clip'), flat.take(index + size, mode='clip')
    index += 1
    upper += x * (flat.take(index, mode='clip') - upper)
    lower += x * (flat.take(index + size, mode='clip') - lower)
    return upper + y * (lower - upper)


@dataclasses.dataclass(frozen=True)
class SyntheticGlyphs(image_clients.ImageClients):
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
      ValueError: if the seed is outside its range.
    """

    seed: int = 0
    faults: Faults = Faults()
    median_examples: float = 64.0
    examples_spread: float = 0.5
    min_examples: int = 8
    max_examples: int = 400
    digit_share: float = 0.5

    def __post_init__(self):
        _random.check_seed('seed', self.seed)

    @functools.cached_property
    def _cumulative_shares(self) -> np.ndarray:
        """Cumulative shares of the classes, float64 [62]."""
        num_letters = len(CLASSES) - _NUM_DIGITS
        shares = np.full(len(CLASSES), (1 - self.digit_share) / num_letters)
        shares[:_NUM_DIGITS] = self.digit_share / _NUM_DIGITS
        return np.cumsum(shares) / shares.sum()

    def examples(self, client: int, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """As in the base class; a client is an index in [0, 2**64). Their order is random."""
        _validate.integer('client', client, minimum=0, maximum=_MAX_CLIENT)
        pixels, labels = self._examples(_TRAIN, self.faults.source(client), limit)
        return self.faults.processed(client, pixels, labels)

    def heldout_clients(self, num_clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """As in the base class; there is no end to them."""
        _validate.integer('num_clients', num_clients, minimum=1)
        return [self._examples(_HELDOUT, client, None) for client in range(num_clients)]

    def _examples(
        self, domain: int, client: int, limit: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        _validate.integer('client', client, minimum=0, maximum=_MAX_CLIENT)
        if limit is not None:
            _validate.integer('limit', limit, minimum=1)

        def stream(purpose: str) -> np.random.Generator:
            return _random.generator(purpose, self.seed, domain, client)

        rng = stream(_HAND)
        hand = _draw_hand(rng)
        number = self.median_examples * np.exp(self.examples_spread * rng.normal())
        number = int(np.clip(round(number), self.min_examples, self.max_examples))
        number = number if limit is None else min(number, limit)
        # Each stream is read example by example, so a limit does not change the examples before it.
        drawn = np.searchsorted(self._cumulative_shares, stream(_LABELS).random(number), 'right')
        labels = np.minimum(drawn, len(CLASSES) - 1)
        signs = stream(_SIGNS).normal(size=(number, DRAWS_PER_SIGN))
        pixels = write(hand, labels, signs, stream(_PIXELS))
        return pixels, labels.astype(np.int32)
