"""Regressions of outcomes on losses, with known answers, and their figure."""

import math

import pytest

from dpfl.errors import ArgumentError
from dpfl.studies import definition, figure, prediction, prediction_figure
from tests.studies import small_study

_MAX = {'a': 1.0, 'b': 2.0, 'c': 4.0, 'd': 8.0}
_RMS = {'a': 2.0, 'b': 1.0, 'c': 8.0, 'd': 4.0}
_BOTH = ('max_loss', 'rms_loss')
_AXIS = definition.Axis('epsilon', {'2': {}, '8': {}})


def _runs(max_loss=_MAX, rms_loss=_RMS, spread=0.0):
    """Accuracies of three seeds, which fall with the logarithm of the first loss."""
    return {
        point: [
            small_study.run(
                accuracy=0.5 - slope * math.log(_MAX[point]) + spread * (-1) ** i,
                max_loss=max_loss[point],
                rms_loss=rms_loss[point],
            )
            for slope in (0.1, 0.12, 0.11)
        ]
        for i, point in enumerate(_MAX)
    }


def test_an_outcome_that_follows_one_loss_is_explained_by_it():
    runs = _runs()
    runs['no noise'] = [small_study.run(accuracy=0.6, max_loss=None, rms_loss=None)] * 3
    found = prediction.predict('accuracy', _BOTH, runs)
    assert found.points == ('a', 'b', 'c', 'd')  # Points without a loss are left out.
    assert found.r_squared['max_loss'].mean == pytest.approx(1, abs=1e-12)
    assert found.rank_correlation['max_loss'].mean == -1
    # The logarithms are 0, 1, 2, 3 and 1, 0, 3, 2, whose correlation is 0.6.
    assert found.r_squared['rms_loss'].mean == pytest.approx(0.36)
    assert found.rank_correlation['rms_loss'].mean == pytest.approx(-0.6)
    assert found.difference.mean == pytest.approx(0.64) and found.better == 'max_loss'


def test_equal_predictors_are_not_settled():
    found = prediction.predict('accuracy', _BOTH, _runs(rms_loss=_MAX, spread=0.02))
    assert found.difference.mean == 0 and found.better is None
    assert 0 < found.r_squared['max_loss'].mean < 1


def test_too_few_points_and_losses_without_logarithm_are_refused():
    few = dict(list(_runs().items())[:3])
    with pytest.raises(ArgumentError, match='at least 4 points'):
        prediction.predict('accuracy', ('max_loss',), few)
    with pytest.raises(ArgumentError, match='positive'):
        prediction.predict('accuracy', ('max_loss',), _runs(max_loss={**_MAX, 'a': 0.0}))


def test_each_value_of_the_axis_has_a_regression_and_a_panel_for_each_loss():
    study = small_study.study(
        lines={point: {} for point in _MAX},
        axis=_AXIS,
        measures=('accuracy', *_BOTH),
        predictions={'accuracy': _BOTH},
        seeds=(1, 2, 3),
    )
    runs = {f'{point}/{value}': each for point, each in _runs().items() for value in ('2', '8')}
    found = prediction.by_value(study, runs)
    assert list(found) == ['2', '8'] and found['8'][0].points == ('a/8', 'b/8', 'c/8', 'd/8')
    drawn = prediction_figure.draw(study, runs, found)
    assert [panel.get_xlabel() for panel in drawn.axes] == ['max loss', 'rms loss'] * 2
    assert drawn.axes[0].get_ylabel() == 'accuracy' and drawn.axes[0].get_xscale() == 'log'
    losses = {float(line.get_xdata()[0]) for line in drawn.axes[0].lines}
    assert sorted(losses) == sorted(_MAX.values())
    assert drawn.axes[2].get_title().startswith('epsilon 8: R squared ')
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == list(_MAX)
    assert figure.png(drawn).startswith(b'\x89PNG')
