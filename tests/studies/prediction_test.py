"""Regressions of outcomes on losses, with known answers."""

import math

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.studies import definition, measures, prediction

_CURVE = measures.Curve(*(np.array([1.0]) for _ in range(4)))
_MAX = {'a': 1.0, 'b': 2.0, 'c': 4.0, 'd': 8.0}
_RMS = {'a': 2.0, 'b': 1.0, 'c': 8.0, 'd': 4.0}


def _runs(accuracies, max_loss=None, rms_loss=None):
    """Runs of points with accuracies by seed."""
    max_loss, rms_loss = max_loss or _MAX, rms_loss or _RMS
    return {
        point: [
            measures.Run(
                {'accuracy': value, 'max_loss': max_loss[point], 'rms_loss': rms_loss[point]},
                frozenset(),
                _CURVE,
            )
            for value in values
        ]
        for point, values in accuracies.items()
    }


def _lines(slopes=(0.1, 0.12, 0.11), spread=0.0):
    return {
        point: [0.5 - slope * math.log(loss) + spread * (-1) ** i for slope in slopes]
        for i, (point, loss) in enumerate(_MAX.items())
    }


def test_an_outcome_that_follows_one_loss_is_explained_by_it():
    found = prediction.predict('accuracy', ('max_loss', 'rms_loss'), _runs(_lines()))
    assert found.points == ('a', 'b', 'c', 'd')
    assert found.r_squared['max_loss'].mean == pytest.approx(1, abs=1e-12)
    assert found.rank_correlation['max_loss'].mean == -1
    # The logarithms are 0, 1, 2, 3 and 1, 0, 3, 2, whose correlation is 0.6.
    assert found.r_squared['rms_loss'].mean == pytest.approx(0.36)
    assert found.rank_correlation['rms_loss'].mean == pytest.approx(-0.6)
    assert found.difference.mean == pytest.approx(0.64) and found.better == 'max_loss'


def test_equal_predictors_are_not_settled():
    found = prediction.predict(
        'accuracy', ('max_loss', 'rms_loss'), _runs(_lines(spread=0.02), rms_loss=_MAX)
    )
    assert found.difference.mean == 0 and found.better is None
    assert 0 < found.r_squared['max_loss'].mean < 1


def test_points_without_a_loss_are_left_out():
    runs = _runs(_lines())
    runs['no noise'] = [
        measures.Run({'accuracy': 0.6, 'max_loss': None, 'rms_loss': None}, frozenset(), _CURVE)
    ] * 3
    found = prediction.predict('accuracy', ('max_loss',), runs)
    assert 'no noise' not in found.points and found.difference is None


def test_too_few_points_and_losses_without_logarithm_are_refused():
    few = dict(list(_runs(_lines()).items())[:3])
    with pytest.raises(ArgumentError, match='at least 4 points'):
        prediction.predict('accuracy', ('max_loss',), few)
    with pytest.raises(ArgumentError, match='positive'):
        prediction.predict('accuracy', ('max_loss',), _runs(_lines(), max_loss={**_MAX, 'a': 0.0}))


def test_points_are_regressed_at_each_value_of_the_axis():
    study = definition.Study(
        name='s',
        title='t',
        about='a',
        mirrors='m',
        flags={},
        lines={point: {} for point in _MAX},
        axis=definition.Axis('epsilon', {'2': {}, '8': {}}),
        measures=('accuracy', 'max_loss', 'rms_loss'),
        predictions={'accuracy': ('max_loss', 'rms_loss')},
        seeds=(1, 2, 3),
    )
    at = _runs(_lines())
    runs = {f'{point}/{value}': each for point, each in at.items() for value in ('2', '8')}
    found = prediction.by_value(study, runs)
    assert list(found) == ['2', '8'] and found['8'][0].points == ('a/8', 'b/8', 'c/8', 'd/8')
