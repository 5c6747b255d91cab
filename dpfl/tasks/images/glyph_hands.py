"""A writer's hand: letterforms, slant, weight, size, and how much they vary from sign to sign.

Many images of a writer are made at a time. The positions of the pixels in the glyph are one matrix
product: the parameters of the signs times fixed features of the pixels (1, u, v and slow waves,
which bend the strokes). The distance field at these positions gives the amount of ink.
"""

import dataclasses

import numpy as np

from dpfl.tasks.images import glyph_atlas

IMAGE_SIZE = 28

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
# Signs that are made at a time, so few that intermediate results fit into the processor's cache.
_BLOCK = 32
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


def draw_hand(rng: np.random.Generator) -> Hand:
    """Draws the hand of one writer."""
    usual, *others = rng.integers(len(glyph_atlas.FONTS), size=1 + len(glyph_atlas.CLASSES))
    own = rng.random(len(glyph_atlas.CLASSES)) < _OWN_FORMS
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
    fields = glyph_atlas.distances()
    size = glyph_atlas.FIELD_SIZE
    scale = np.float32(size / glyph_atlas.EXTENT)
    middle, last = np.float32((size - 1) / 2), np.float32(size - 1.001)
    x, y = np.clip(positions * scale + middle, 0, last).swapaxes(0, 1)
    left, top = x.astype(np.intp), y.astype(np.intp)
    x, y = x - left.astype(np.float32), y - top.astype(np.float32)
    index = (fonts * len(glyph_atlas.CLASSES) + labels)[:, None] * size**2 + top * size + left
    flat = fields.reshape(-1)
    upper, lower = flat.take(index, mode='clip'), flat.take(index + size, mode='clip')
    index += 1
    upper += x * (flat.take(index, mode='clip') - upper)
    lower += x * (flat.take(index + size, mode='clip') - lower)
    return upper + y * (lower - upper)
