"""How much of real images a generator has learned, and what faults would do to them.

A generator that has learned nothing draws the same with a fault in the data and without one, so no
verdict follows from its images. Its trivial references are images that have only the average of
each pixel, and images whose pixels are drawn one by one, each with its own distribution.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from dpfl import _random
from dpfl.debugging.images import diagnosis, image_measures, traits
from dpfl.tasks.images import faults

Infer = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Learned:
    """What a generator has learned.

    Attributes:
      frechet: Frechet distance of its images from real ones, in the features of a classifier.
        Inverted images are turned back before.
      trivial: the smaller one of the distances of the two trivial references.
    """

    frechet: float
    trivial: float

    @property
    def share(self) -> float:
        """Share of the distance of the trivial reference that it has covered, within [0, 1]."""
        return max(1 - self.frechet / self.trivial, 0.0) if self.trivial > 0 else 0.0

    @property
    def reason(self) -> str:
        """What the share follows from, in words."""
        return (
            f'its Frechet distance of {self.frechet:.3g} from real images is no less than '
            f'{self.trivial:.3g}, that of images without any shape'
        )


def measure(pixels: np.ndarray, real: np.ndarray, infer: Infer) -> Learned:
    """Compares a generator with real images and with the trivial references.

    Args:
      pixels: images that it drew, float32 [n, 28, 28].
      real: real images, float32 [m, 28, 28].
      infer: as for `traits.measure`.
    """
    real = traits.upright(real)
    rng = _random.generator('debug.trivial', 0)
    one_by_one = rng.permuted(real, axis=0)
    average = np.broadcast_to(real.mean(axis=0), real.shape)
    features = infer(real)[1]

    def distance(images: np.ndarray) -> float:
        return image_measures.frechet_distance(infer(images)[1], features)

    trivial = min(distance(np.ascontiguousarray(each)) for each in (one_by_one, average))
    return Learned(distance(traits.upright(pixels)), trivial)


def effects(public: np.ndarray, one_client: np.ndarray, infer: Infer) -> Mapping[str, float]:
    """By fault of images, by how much it raises its trait if all images have it.

    Args:
      public: images without a fault, float32 [n, 28, 28].
      one_client: images of one client, float32 [m, 28, 28]: all that is left of them if all devices
        hold the data of one.
      infer: as for `traits.measure`.
    """
    clean = traits.measure(public, infer)
    found = {}
    for fault, damaged in faults.OF_PIXELS.items():
        trait = diagnosis.SIGNATURES[fault].trait
        found[fault] = traits.measure(damaged(public), infer)[trait].value - clean[trait].value
    # Two draws of such a generator are the same image of m with probability 1 / m.
    distance = image_measures.mean_distance(infer(one_client)[1]) * (1 - 1 / len(one_client))
    found['duplicated_client'] = distance - clean['variety'].value
    return found


def evidence(
    learned: Mapping[str, tuple[Learned, Learned]], effects: Mapping[str, float]
) -> diagnosis.Evidence:
    """What the power of a diagnosis follows from.

    Args:
      learned: by contrast, what its two generators have learned.
      effects: by fault, by how much it raises its trait.
    """
    shares = {name: min(each.share for each in pair) for name, pair in learned.items()}
    reasons = {each.reason: None for pair in learned.values() for each in pair if not each.share}
    reason = f'a generator has learned nothing: {"; ".join(reasons)}'
    comparable = {name for name, (_, second) in learned.items() if second.share}
    return diagnosis.Evidence(shares, effects, comparable, reason)
