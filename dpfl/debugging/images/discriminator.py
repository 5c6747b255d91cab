"""Tells images of one generator from those of another: how private data differ from public.

This is task T6 of [Augenstein20], table 1, with a second discriminator in place of densities.
A generator of clients' images is private, so that a classifier of its images is, too. It is trained
to tell images generated from clients from images generated from public data, and measured on
further ones. As any two generators differ, a second pair, both trained on public data, gives the
accuracy to expect where nothing differs.
"""

import dataclasses
from typing import Any

import numpy as np

from dpfl.debugging import differences
from dpfl.debugging.differences import Difference, Share
from dpfl.tasks.images import classifiers

_MODEL, _BATCH, _LEARNING_RATE = 'tiny', 64, 2e-3
_STEPS = 300
_SUREST = 24


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How well two sets of images can be told apart.

    Attributes:
      accuracy: share of the further images of both sets that are assigned rightly.
      surest: images of the first set that look least like the second, surest first, float32
        [k, 28, 28].
    """

    accuracy: Share
    surest: np.ndarray


@dataclasses.dataclass(frozen=True)
class Comparisons:
    """How well images from clients can be told from images from public data, with a control.

    Attributes:
      private: clients against public images.
      control: public images against those of another generator of public images.
    """

    private: Comparison
    control: Comparison

    @property
    def difference(self) -> Difference:
        """By how much clients' images are easier to tell from public ones than public ones are."""
        return differences.compare(
            'accuracy of the discriminator', self.private.accuracy, self.control.accuracy
        )

    def to_dict(self) -> dict[str, Any]:
        """Accuracies with intervals, as JSON values."""
        return {
            name: {
                'accuracy': comparison.accuracy.value,
                'interval': list(comparison.accuracy.interval()),
            }
            for name, comparison in (('private', self.private), ('control', self.control))
        } | {'difference': self.difference.to_dict()}


def compare(first: np.ndarray, second: np.ndarray, *, seed: int, steps: int = _STEPS) -> Comparison:
    """Trains a discriminator on half of the images, and measures it on the other half.

    Args:
      first, second: images, float32 [n, 28, 28]; the first half of each is trained on.
      seed: of weights and batches.
      steps: number of batches.

    Raises:
      ValueError: if a set has fewer than two images.
    """
    halves = [
        (pixels[: len(pixels) // 2], pixels[len(pixels) // 2 :]) for pixels in (first, second)
    ]
    trained, tested = zip(*halves, strict=True)
    model = classifiers.build_image_classifier(_MODEL, seed)
    # Two of the classes are used: 1 for the first set, 0 for the second.
    weights = classifiers.train_centrally(
        model,
        np.concatenate(trained),
        np.repeat(np.array([1, 0], np.int32), [len(part) for part in trained]),
        steps=steps,
        batch_size=_BATCH,
        learning_rate=_LEARNING_RATE,
        seed=seed,
    )
    infer = classifiers.of_weights(_MODEL, weights).infer
    scores = [infer(part)[0][:, 1] - infer(part)[0][:, 0] for part in tested]
    right = np.concatenate([scores[0] > 0, scores[1] <= 0])
    return Comparison(Share.of(right), tested[0][np.argsort(-scores[0])[:_SUREST]])
