"""What the GANs of the image study are trained on."""

import numpy as np
import pytest

from dpfl.inspection.images import settings
from dpfl.simulation.training import GanConfig, PrivacyConfig, SamplingConfig
from dpfl.tasks.images.image_selection import Subpopulation, Thresholds, Verdicts
from dpfl.tasks.images.synthetic_glyphs import SyntheticGlyphs

_DATA = SyntheticGlyphs(seed=2, min_examples=4, median_examples=20, max_examples=40)


def _training(masks=None, clients=(7, 3)):
    return settings.Training('bug', _DATA, Subpopulation('chosen', np.array(clients), masks))


def test_clients_are_those_of_the_subpopulation():
    training = _training()
    assert training.name == 'bug/chosen'
    for position, client in enumerate((7, 3)):
        pixels, _ = _DATA.examples(client)
        batches = training.client_batches(position, 8)
        np.testing.assert_array_equal(np.concatenate([b['x'] for b in batches])[..., 0], pixels)
        limited = training.client_batches(position, 3, max_batches=1)
        assert len(limited) == 1
        np.testing.assert_array_equal(limited[0]['x'][..., 0], pixels[:3])


def test_examples_are_those_that_were_chosen():
    pixels, labels = _DATA.examples(7)
    mask = np.arange(len(labels)) % 3 == 1
    nothing = np.zeros(len(_DATA.examples(3)[1]), bool)
    training = _training((mask, nothing))
    batches = training.client_batches(0, 4)
    np.testing.assert_array_equal(np.concatenate([b['x'] for b in batches])[..., 0], pixels[mask])
    first = training.client_batches(0, 2, max_batches=1)
    np.testing.assert_array_equal(first[0]['x'][..., 0], pixels[mask][:2])
    # A client without a chosen example has no batch.
    assert training.client_batches(1, 4) == []


def test_selection():
    verdicts = Verdicts(np.array([0, 1]), np.array([6, 6]), np.array([1] * 6 + [1] + [0] * 5, bool))
    limits = Thresholds(0.5, 0.9)
    good, bad = settings.select('client', verdicts, limits)
    assert (good.clients.tolist(), bad.clients.tolist()) == ([0], [1])
    good, bad = settings.select('example', verdicts, limits)
    assert (good.name, bad.name) == ('correct', 'misclassified')
    assert (good.clients.tolist(), bad.clients.tolist()) == ([0], [1])


def test_too_few_clients_give_one_line():
    config = GanConfig(
        privacy=PrivacyConfig(mechanism='gaussian', noise_multiplier=1.0),
        sampling=SamplingConfig(rounds=5, clients_per_round=2),
    )
    assert settings.plan(_training(), config).population == 2
    larger = config.with_values({'clients_per_round': 3})
    for clients in ((7, 3), ()):
        with pytest.raises(ValueError, match='^clients_per_round=3: must be at most') as caught:
            settings.plan(_training(clients=clients), larger)
        assert 'nothing can be trained' in str(caught.value) and '\n' not in str(caught.value)
