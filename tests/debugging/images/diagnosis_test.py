"""Verdicts on faults, what a generator has learned, and what faults do to public images."""

import json

import numpy as np
import pytest

from dpfl.debugging.differences import Mean, Share, json_values
from dpfl.debugging.images import diagnosis
from dpfl.tasks.config import IMAGE_FAULTS
from tests.debugging import contrasts

_SURE = (Mean(0.88, 0.002, 3_000), Mean(0.9, 0.002, 3_000))


def _traits(count=500, **changes):
    shares = {'inverted': 0.0, 'blank_half': 0.0, 'lying': 0.05, 'combed': 0.0}
    found = {
        name: Share(round(count * changes.get(name, value)), count)
        for name, value in shares.items()
    }
    for name, value in (('confidence', 0.7), ('variety', 30.0)):
        found[name] = Mean(changes.get(name, value), value / count**0.5, count)
    return found


_EFFECTS = {
    'inverted': {'inverted': 0.9},
    'truncated': {'blank_half': 0.9},
    'transposed': {'lying': 0.7},
    'encoding': {'combed': 0.9},
    'duplicated_client': {'variety': -25.0},
}


def _diagnose(badly=None, everyone=None, accuracies=_SURE, count=500, learned=1.0):
    compared = {
        name: contrasts.of(_traits(count, **(changes or {})), _traits(count), learned)
        for name, changes in ((diagnosis.BADLY, badly), (diagnosis.CLIENTS, everyone))
    }
    return diagnosis.diagnose(compared, accuracies, _EFFECTS)


_FALLEN = (Mean(0.4, 0.01, 3_000), Mean(0.9, 0.005, 3_000))
_LABELS = ('swapped_labels',)


@pytest.mark.parametrize(
    'given, verdict, faults',
    [
        *(
            ({contrast: changes}, 'found', (fault,))
            for contrast in ('badly', 'everyone')
            for fault, changes in {
                'inverted': dict(inverted=0.9),
                'truncated': dict(blank_half=0.4),
                'transposed': dict(lying=0.5),
                'encoding': dict(combed=0.4),
                'duplicated_client': dict(variety=3.0),
            }.items()
        ),
        # More variety is no fault.
        (dict(badly=dict(variety=90.0)), 'not seen', IMAGE_FAULTS),
        # Two allowed standard deviations, with any number of images: what one training may do.
        (dict(everyone=dict(inverted=0.09), count=10_000), 'found', ()),
        (dict(everyone=dict(lying=0.16), count=10_000), 'found', ()),
        (dict(everyone=dict(variety=18.0), count=10_000), 'found', ()),
        # From half of the least difference on, and below it; and few images do not say much.
        (dict(badly=dict(inverted=0.11)), 'suspected', ('inverted',)),
        (dict(badly=dict(inverted=0.19)), 'suspected', ('inverted',)),
        (dict(badly=dict(inverted=0.3), count=10), 'found', ()),
        # A classifier that guesses has no accuracy that could fall.
        (dict(accuracies=2 * (Mean(0.1, 0.002, 3_000),)), 'cannot tell', _LABELS),
        (dict(accuracies=_FALLEN), 'found', _LABELS),
        # The model is unsure, too; or a fault of images explains the fall.
        (dict(everyone=dict(confidence=0.4), accuracies=_FALLEN), 'found', ()),
        (dict(everyone=dict(confidence=0.4), accuracies=_FALLEN), 'cannot tell', _LABELS),
        (dict(everyone=dict(confidence=0.5), accuracies=_FALLEN), 'suspected', _LABELS),
        (dict(badly=dict(inverted=0.9), accuracies=_FALLEN), 'found', ('inverted',)),
        (dict(badly=dict(inverted=0.9), accuracies=_FALLEN), 'cannot tell', _LABELS),
    ],
)
def test_the_faults_of_a_verdict(given, verdict, faults):
    found = _diagnose(**given)
    assert {*found.of(verdict)} == {*faults}
    if faults and verdict in ('found', 'suspected'):
        assert {*found.of('found'), *found.of('suspected')} == {*faults}
        assert f'{verdict.capitalize()}: {diagnosis.in_words(faults[0])}.' in found.text


def test_without_a_difference_nothing_is_seen():
    found = _diagnose()
    assert set(found.of('not seen')) == set(IMAGE_FAULTS)
    assert found.text.startswith('No fault is seen. Would have been found: inverted in 2')
    assert 'Cannot tell' not in found.text
    assert all(each.power >= 0.5 for each in found.verdicts)
    # Without accuracies nothing is said of labels.
    alone = diagnosis.diagnose({diagnosis.BADLY: contrasts.of(_traits(), _traits(), 0)})
    assert {each.fault for each in alone.verdicts} == {each.fault for each in diagnosis.SIGNATURES}


def test_without_power_nothing_can_be_told():
    untrained = _diagnose(badly=dict(inverted=0.9), everyone=dict(lying=0.5), learned=0.0)
    nothing = diagnosis.diagnose({diagnosis.CLIENTS: contrasts.of(_traits(), _traits(), 0)}, _SURE)
    for found in (untrained, nothing):
        assert set(found.of('cannot tell')) == set(IMAGE_FAULTS)
        assert found.text.startswith('Cannot tell: inverted')
        assert all(each.power < 0.5 for each in found.verdicts)
    assert 'untrained' in untrained.verdicts[0].reason
    # A fifth of what real images would show is too little for some faults.
    few = _diagnose(learned=0.25).of('cannot tell')
    assert 'transposed' in few and 'inverted' not in few


def test_all_comparisons_are_corrected_together():
    found = _diagnose(badly=dict(inverted=0.2, lying=0.2))
    values = [each for part in found.contrasts.values() for each in part]
    assert len(values) == 2 * 6 + 1
    smallest = min(values, key=lambda each: each.p_value)
    assert smallest.adjusted == pytest.approx(len(values) * smallest.p_value)
    text = json.dumps(json_values(found), allow_nan=False)
    assert set(json.loads(text)['verdicts']) == set(IMAGE_FAULTS)
    assert np.isfinite(smallest.low)


def _strokes(seed, count=200):
    """An upright stroke of black at a random place on white paper."""
    rng = np.random.default_rng(seed)
    pixels = np.ones((count, 28, 28), np.float32)
    for image in pixels:
        left = rng.integers(6, 20)
        image[4:24, left : left + 3] = 0
    return pixels


def _infer(pixels):
    """Sure of everything; the features are the ink of rows and columns."""
    ink = 1 - pixels
    return np.ones((len(pixels), 1)), np.concatenate([ink.sum(axis=1), ink.sum(axis=2)], axis=1)


@pytest.mark.parametrize(
    'untrained',
    [
        np.ones((200, 28, 28), np.float32),
        np.full((200, 28, 28), 0.7, np.float32),
        np.random.default_rng(1).random((200, 28, 28)).astype(np.float32),
        np.broadcast_to(_strokes(0).mean(axis=0), (200, 28, 28)),
    ],
)
def test_images_without_shape_have_learned_nothing(untrained):
    found = diagnosis.measure_learned(np.ascontiguousarray(untrained), _strokes(0), _infer)
    assert found.share == 0 and 'without any shape' in found.reason
    # Images like real ones have learned them, also if they are inverted.
    for pixels in (_strokes(1), 1 - _strokes(1)):
        assert diagnosis.measure_learned(pixels, _strokes(0), _infer).share > 0.9


def test_effects_are_those_of_the_faults():
    found = diagnosis.effects(_strokes(0), _strokes(0)[:4], _infer)
    assert set(found) == {each.fault for each in diagnosis.SIGNATURES}
    assert found['inverted'] == {'inverted': 1} and found['transposed']['lying'] > 0.5
    assert found['truncated'] == {'blank_half': 1} and found['duplicated_client']['variety'] < 0
