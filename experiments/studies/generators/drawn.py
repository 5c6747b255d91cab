"""Measures of the images that two generators draw: ink, class mix, sharpness of classes (NumPy).

Each image is one independent draw. Classes are those that a classifier of public images sees, so
they are no truth: a classifier that has never seen such images may be wrong about all of them.
"""

import dataclasses

import numpy as np

from dpfl import _random, _validate
from dpfl.debugging.differences import Mean, Share
from dpfl.tasks.images import image_batches


@dataclasses.dataclass(frozen=True)
class Apart:
    """Distance of two sets of images, with that of random halves.

    Attributes:
      frechet: Frechet distance of the features of as many images of each set.
      floor: mean Frechet distance of random halves of all images together.
      p_value: share of the random halves that are at least as far apart, as in a permutation test.
      splits: number of random halves.
    """

    frechet: float
    floor: float
    p_value: float
    splits: int


def measures(pixels: np.ndarray) -> dict[str, Share | Mean]:
    """Measures by name of images, float [N, 28, 28] within [0, 1]; paper is 1, ink is 0."""
    return {
        'ink, share of the area': Mean.of(1 - pixels.mean(axis=(1, 2))),
        'inverted: more ink than paper': Share.of(image_batches.inverted_by_intensity(pixels)),
        'contrast: standard deviation of the pixels': Mean.of(pixels.std(axis=(1, 2))),
    }


def class_mix(classes: np.ndarray) -> dict[str, Share]:
    """Share of each of the 62 classes, by its character, of class numbers [N]."""
    counts = np.bincount(classes, minlength=len(image_batches.CLASSES)).tolist()
    return {
        name: Share(count, len(classes))
        for name, count in zip(image_batches.CLASSES, counts, strict=True)
    }


def apart(first: np.ndarray, second: np.ndarray, *, splits: int, seed: int) -> Apart:
    """The Frechet distance of two sets of features, and what chance alone makes.

    Args:
      first, second: features of as many images each, float [N, d], N > 3.
      splits: number of random splits.
      seed: seed of the splits.

    Raises:
      ValueError: if there are fewer than four images.
    """
    number = min(len(first), len(second))
    _validate.integer('number of images', number, minimum=4)
    pooled = np.concatenate([first[:number], second[:number]]).astype(np.float64)
    rng = _random.generator('debugging.images', _random.check_seed('seed', seed))
    far = image_batches.frechet_distance(pooled[:number], pooled[number:])
    by_chance = np.empty(splits)
    for split in range(splits):
        order = rng.permutation(len(pooled))
        halves = pooled[order[:number]], pooled[order[number:]]
        by_chance[split] = image_batches.frechet_distance(*halves)
    as_far = int((by_chance >= far * (1 - 1e-9)).sum())
    return Apart(far, float(by_chance.mean()), (1 + as_far) / (1 + splits), splits)
