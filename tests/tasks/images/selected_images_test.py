"""Images that devices select for themselves, by hand."""

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.config import ImageTaskConfig
from dpfl.tasks.images import image_selection
from dpfl.tasks.selection_config import ImageSelectionConfig

# Ink 0.25, 0.5, 0.75 and 1.
_PIXELS = np.stack([np.full([28, 28], value, np.float32) for value in (0.75, 0.5, 0.25, 0.0)])
_LABELS = np.array([0, 1, 1, 61], np.int32)


def _classify(pixels):
    """Class 1 with a confidence of 0.6, and class 0 with the rest."""
    found = np.zeros([len(pixels), 62], np.float32)
    found[:, 0], found[:, 1] = 0.4, 0.6
    return found


def _config(**values):
    texts = ','.join((*values.get('select_examples', ()), *values.get('select_clients', ())))
    needs = any(name in texts for name in ImageSelectionConfig.of_model)
    return ImageSelectionConfig(**values, selection_model='m' if needs else None)


def test_measures_by_hand():
    found = image_selection.measures(_PIXELS, _LABELS, _classify)
    assert found['label'].tolist() == [0, 1, 1, 61]
    assert found['ink'].tolist() == [0.25, 0.5, 0.75, 1]
    assert found['predicted'].tolist() == [1, 1, 1, 1]
    assert found['accuracy'].tolist() == [0, 1, 1, 0]
    np.testing.assert_allclose(found['confidence'], 0.6, rtol=1e-6)
    np.testing.assert_allclose(found['loss'][:3], -np.log([0.4, 0.6, 0.6]), rtol=1e-6)
    assert np.isfinite(found['loss']).all() and found['loss'][3] > 80
    assert set(found) == set(ImageSelectionConfig.measures)
    assert set(image_selection.measures(_PIXELS, _LABELS, None)) == {'label', 'ink'}


@pytest.mark.parametrize(
    'values, expected',
    [
        (dict(select_examples=('label>=1', 'label<=1')), [1, 2]),
        (dict(select_examples=('accuracy<1', 'predicted>=1')), [0, 3]),
        (dict(select_examples=('ink>0.5',)), [2, 3]),
        (dict(select_examples=('ink>0.5',), select_min_examples=3), []),
        (dict(select_clients=('accuracy>=0.5', 'examples>=4')), [0, 1, 2, 3]),
        (dict(select_clients=('accuracy>0.5',)), []),
        (dict(select_clients=('ink<0.7',), select_examples=('confidence<0.7', 'label<1')), [0]),
        (dict(select_clients=('examples>4',)), []),
    ],
)
def test_selected_images(values, expected):
    mask = image_selection.chosen(_config(**values), _PIXELS, _LABELS, _classify)
    assert np.flatnonzero(mask).tolist() == expected


def test_batches_hold_what_is_selected():
    config = _config(select_examples=('ink>=0.5',))
    batches = image_selection.client_batches(config, lambda client: (_PIXELS, _LABELS))
    parts = batches(5, 2)
    assert [part['y'].tolist() for part in parts] == [[1, 1], [61]]
    np.testing.assert_array_equal(
        np.concatenate([part['x'] for part in parts])[..., 0], _PIXELS[1:]
    )
    assert len(batches(5, 2, 2, 3)) == 3
    nobody = image_selection.client_batches(config, lambda client: (_PIXELS[:0], _LABELS[:0]))
    assert nobody(5, 2) == []


@pytest.mark.parametrize(
    'make, message',
    [
        (dict(select_examples=('length>1',)), 'length must be one of label, predicted, accuracy'),
        (dict(select_clients=('label>1',)), 'label must be one of accuracy, confidence, loss, ink'),
        (
            dict(select_examples=('ink>q0.5',), selection_epsilon=1.0),
            'must have numbers: quantiles of images are not',
        ),
        (
            dict(selection_model='m', select_examples=('ink>0',)),
            'needs a criterion of predicted or accuracy or',
        ),
        (dict(select_examples=('predicted<10',)), 'predicted needs selection_model'),
    ],
)
def test_what_cannot_be_selected_is_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        ImageTaskConfig(selection=ImageSelectionConfig(**make))


def test_a_criterion_of_a_model_needs_one_and_the_report_names_images():
    with pytest.raises(ArgumentError, match='criteria need it'):
        config = _config(select_examples=('loss>1',))
        image_selection.chosen(config, _PIXELS, _LABELS, None)
    (said,) = _config(select_examples=('ink>0',), select_min_examples=2).remarks()
    assert 'images with ink>0, of clients with at least 2 selected images only' in said
