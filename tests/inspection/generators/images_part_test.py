"""Images of two sides, compared without a trained generator."""

import numpy as np

from dpfl.inspection.generators import images_part
from dpfl.inspection.generators.config import ComparisonConfig
from dpfl.inspection.generators.verdict import Verdict


def _images(seed, level):
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(level, 0.1, (200, 28, 28)), 0, 1)


def _inference(pixels):
    """Class 1 where there is more ink than paper, and two features."""
    dark = pixels.mean(axis=(1, 2)) < 0.5
    probabilities = np.eye(62)[dark.astype(int)]
    return probabilities, np.stack([pixels.mean(axis=(1, 2)), pixels.std(axis=(1, 2))], axis=1)


def test_inverted_images_differ_in_ink_and_classes():
    config = ComparisonConfig(splits=19)
    first, second, other = _images(0, 0.8), _images(1, 0.8), 1 - _images(2, 0.8)
    same = images_part.of_samples((first, second), (first, second), _inference, config)
    assert not Verdict(same.areas(), config.alpha).differing
    found = images_part.of_samples((first, other), (first, other), _inference, config)
    verdict = Verdict(found.areas(), config.alpha)
    assert [area.name for area in verdict.differing] == ['ink', 'class mix']
    assert found.classes.apart.p_value == 1 / 20
    assert found.to_dict(3)['effective_classes'] == (1.0, 1.0)
    without = images_part.of_samples((first, other), (first, other), None, config)
    assert without.classes is None and len(without.areas()) == 1
