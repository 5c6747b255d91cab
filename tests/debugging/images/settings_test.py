"""What the GANs of the image study are trained on."""

import numpy as np
import pytest

from dpfl.debugging.images import settings
from dpfl.debugging.images.subpopulations import Subpopulation, Thresholds, Verdicts
from dpfl.simulation.training import GanConfig, PrivacyConfig, SamplingConfig


class _Data:
    """A client has as many images as its number, each of one tone."""

    def examples(self, client, limit=None):
        tones = (np.arange(client) + 1) / 10
        pixels = np.broadcast_to(tones[:limit, None, None], (len(tones[:limit]), 28, 28))
        return pixels.astype(np.float32), np.zeros(len(pixels), np.int32)


def _training(masks=None, clients=(7, 3)):
    return settings.Training('bug', _Data(), Subpopulation('chosen', np.array(clients), masks))


_SOME = (np.array([0, 1, 0, 0, 1, 1, 0], bool), np.zeros(3, bool))


@pytest.mark.parametrize(
    'masks, position, limits, tones',
    [
        (None, 0, (8,), [[1, 2, 3, 4, 5, 6, 7]]),
        (None, 1, (2,), [[1, 2], [3]]),
        (None, 0, (3, 1, 1), [[1, 2, 3]]),
        (_SOME, 0, (2,), [[2, 5], [6]]),
        (_SOME, 0, (2, 1, 1), [[2, 5]]),
        (_SOME, 1, (2,), []),  # A client without a chosen example has no batch.
    ],
)
def test_clients_and_examples_are_those_of_the_subpopulation(masks, position, limits, tones):
    training = _training(masks)
    assert training.name == 'bug/chosen'
    batches = training.client_batches(position, *limits)
    found = [np.round(10 * batch['x'][:, 0, 0, 0]).astype(int).tolist() for batch in batches]
    assert found == tones


def test_selection():
    verdicts = Verdicts(np.array([0, 1]), np.array([6, 6]), np.array([1] * 6 + [1] + [0] * 5, bool))
    for selection, names in (
        ('client', ['high_accuracy', 'low_accuracy']),
        ('example', ['correct', 'misclassified']),
    ):
        parts = settings.select(selection, verdicts, Thresholds(0.5, 0.9))
        assert [part.name for part in parts] == names
        assert [part.clients.tolist() for part in parts] == [[0], [1]]


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
