"""How much of real images a generator has learned, and the effects of faults on real images.

A generator that has learned nothing draws the same with a fault in the data and without one, so no
verdict follows from its images. Its trivial references are images that have only the average of
each pixel, and images whose pixels are drawn one by one, each with its own distribution.
"""

import dataclasses

import numpy as np

from dpfl import _random
from dpfl.debugging.diagnosis import Effects
from dpfl.debugging.images import diagnosis, traits
from dpfl.tasks.images import image_clients


@dataclasses.dataclass(frozen=True)
class Learned:
    """How much of its data a generator has learned.

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
        """The reason for the share, in words."""
        return (
            f'its Frechet distance of {self.frechet:.3g} from real images is no less than '
            f'{self.trivial:.3g}, that of images without any shape'
        )


def measure(pixels: np.ndarray, real: np.ndarray, infer: traits.Infer) -> Learned:
    """Compares a generator with real images and with the trivial references.

    Args:
      pixels: images that it drew, float32 [n, 28, 28].
      real: real images, float32 [m, 28, 28].
      infer: the primary model.
    """
    real = traits.upright(real)
    rng = _random.generator('debug.trivial', 0)
    one_by_one = rng.permuted(real, axis=0)
    average = np.broadcast_to(real.mean(axis=0), real.shape)
    features = infer(real)[1]

    def distance(images: np.ndarray) -> float:
        return traits.frechet_distance(infer(images)[1], features)

    trivial = min(distance(np.ascontiguousarray(images)) for images in (one_by_one, average))
    return Learned(distance(traits.upright(pixels)), trivial)


def effects(public: np.ndarray, one_client: np.ndarray, infer: traits.Infer) -> Effects:
    """By fault of images and its trait, by how much it raises the trait if all images have it.

    Args:
      public: images without a fault, float32 [n, 28, 28].
      one_client: images of one client, float32 [m, 28, 28]: all that is left of them if all devices
        hold the data of one.
      infer: the primary model.
    """
    clean = traits.measure(public, infer)
    rises = {}
    for signature in diagnosis.SIGNATURES:
        (sign,) = signature.signs
        if signature.fault == 'duplicated_client':
            # Two draws of such a generator are the same image of m with probability 1 / m.
            distance = traits.mean_distance(infer(one_client)[1])
            value = distance * (1 - 1 / len(one_client))
        else:
            damaged = image_clients.OF_PIXELS[signature.fault](public)
            value = traits.measure(damaged, infer)[sign.trait].value
        rises[signature.fault] = {sign.trait: value - clean[sign.trait].value}
    return rises
