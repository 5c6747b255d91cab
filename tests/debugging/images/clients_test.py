"""Selection of clients and examples, by hand, and what the GANs are trained on."""

import math

import numpy as np
import pytest

from dpfl.debugging.images import clients, study
from dpfl.debugging.images.clients import Subpopulation, Thresholds, Verdicts
from dpfl.simulation.training import GanConfig

# Five clients: 3 of 4 correct, no example, 1 of 2, none of 1, all of 6.
_VERDICTS = Verdicts(
    clients=np.array([10, 11, 12, 13, 14]),
    num_examples=np.array([4, 0, 2, 1, 6]),
    correct=np.array([1, 1, 0, 1] + [1, 0] + [0] + [1] * 6, bool),
)


def test_accuracies_and_their_percentiles_by_hand():
    np.testing.assert_array_equal(_VERDICTS.accuracies, [0.75, math.nan, 0.5, 0, 1])
    masks = [mask.tolist() for mask in _VERDICTS.split()[:4]]
    assert masks == [[True, True, False, True], [], [True, False], [False]]
    # Of 0, 0.5, 0.75 and 1: linear interpolation at 3/4 and 9/4 of the gaps between them.
    limits = clients.thresholds(_VERDICTS)
    assert (limits.poor, limits.strong) == pytest.approx((0.375, 0.8125))


@pytest.mark.parametrize('at_a_time', [1, 3, 5])
def test_clients_are_classified_together(monkeypatch, at_a_time):
    """The class of an image is its first pixel; clients are cut apart where they end."""
    monkeypatch.setattr(clients, '_CLIENTS', at_a_time)
    rng, examples, calls = np.random.default_rng(0), [], []
    for right in _VERDICTS.split():
        pixels = np.zeros([len(right), 28, 28], np.float32)
        pixels[:, 0, 0] = rng.integers(62, size=len(right))
        examples.append((pixels, pixels[:, 0, 0].astype(int) + ~right))

    def classify(pixels):
        calls.append(len(pixels))
        return pixels[:, 0, 0].astype(int)

    verdicts = clients.judge(classify, range(10, 15), iter(examples))
    for name, expected in vars(_VERDICTS).items():
        np.testing.assert_array_equal(getattr(verdicts, name), expected)
    assert sum(calls) == 13 and len(calls) == -(-5 // at_a_time)


def test_verdicts_of_nobody():
    verdicts = clients.judge(lambda pixels: pixels, [], [])
    assert len(verdicts.accuracies) == 0
    for selection in ('client', 'example'):
        assert not any(map(len, clients.select(selection, verdicts, Thresholds(0.1, 0.9))))


def test_devices_that_decide_by_themselves_choose_the_same():
    """Subpopulations of all verdicts against the choice of a device that knows its own only."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 12, size=40)
    verdicts = Verdicts(np.arange(40), sizes, rng.random(sizes.sum()) < 0.6)
    limits = Thresholds(0.5, 0.875)
    assert {0.5, 0.875} < {*verdicts.accuracies.tolist()}
    parts = [
        part
        for selection in ('client', 'example')
        for part in clients.select(selection, verdicts, limits)
    ]
    of_device = {
        'high_accuracy': lambda own: own if own.size and own.mean() >= limits.strong else own[:0],
        'low_accuracy': lambda own: own if own.size and own.mean() <= limits.poor else own[:0],
        'correct': lambda own: own[own] if own.sum() >= 5 else own[:0],
        'misclassified': lambda own: own[~own] if (~own).sum() >= 5 else own[:0],
    }
    assert [part.name for part in parts] == list(of_device)
    for part in parts:
        # The examples of a client are what the classifier makes of them.
        examples = list(map(of_device[part.name], verdicts.split()))
        takes_part = [client for client, own in enumerate(examples) if own.size]
        assert 0 < len(takes_part) < 40 and takes_part == part.clients.tolist()
        for position, client in enumerate(takes_part):
            own = verdicts.split()[client]
            np.testing.assert_array_equal(part.chosen(position, own), examples[client])


class _Data:
    """A client has as many images as its number, each of one tone."""

    def examples(self, client, limit=None):
        tones = np.arange(1, client + 1, dtype=np.float32)[:limit] / 10
        return tones[:, None, None] * np.ones([28, 28], np.float32), np.zeros(len(tones), np.int32)


def _training(masks=None, ids=(7, 3)):
    return clients.Training('bug', _Data(), Subpopulation('chosen', np.array(ids), masks))


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


def test_too_few_clients_give_one_line():
    values = {'mechanism': 'gaussian', 'noise_multiplier': 1.0, 'rounds': 5, 'clients_per_round': 2}
    config = GanConfig().with_values(values)
    assert study.config_of(config, _training()).sampling.population == 2
    larger = config.with_values({'clients_per_round': 3})
    for ids in ((7, 3), ()):
        with pytest.raises(ValueError, match='^clients_per_round=3: must be at most') as caught:
            study.config_of(larger, _training(ids=ids))
        assert 'nothing can be trained' in str(caught.value) and '\n' not in str(caught.value)
