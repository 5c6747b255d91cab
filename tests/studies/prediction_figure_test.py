"""The figure of predictions: what it shows of runs with known losses."""

import numpy as np
import pytest

from dpfl.studies import definition, figure, measures, prediction, prediction_figure

_CURVE = measures.Curve(*(np.array([1.0]) for _ in range(4)))
_LOSSES = {'a': 1.0, 'b': 2.0, 'c': 4.0, 'd': 8.0}


def _runs(study):
    return {
        point.name: [
            measures.Run(
                {
                    'accuracy': 0.5 - 0.1 * number + 0.01 * seed,
                    'max_loss': _LOSSES[point.line],
                    'rms_loss': 1 + number / 2,
                },
                frozenset(),
                _CURVE,
            )
            for seed in range(3)
        ]
        for number, point in enumerate(study.points)
    }


def _study(axis):
    return definition.Study(
        name='s',
        title='Losses',
        about='About.',
        mirrors='McMahan et al. 2024, section 2.5',
        flags={},
        lines={name: {} for name in _LOSSES},
        measures=('accuracy',),
        seeds=(1, 2, 3),
        tuned_on=(9,),
        predictions={'accuracy': ('max_loss', 'rms_loss')},
        axis=axis,
    )


@pytest.mark.parametrize('axis', [None, definition.Axis('epsilon', {'2': {}, '8': {}})])
def test_each_value_has_a_panel_for_each_loss_with_all_points(axis):
    study = _study(axis)
    runs = _runs(study)
    drawn = prediction_figure.draw(study, runs, prediction.by_value(study, runs))
    panels = drawn.axes
    assert len(panels) == (2 if axis is None else 4)
    assert [panel.get_xlabel() for panel in panels[:2]] == ['max loss', 'rms loss']
    assert panels[0].get_ylabel() == 'accuracy' and panels[0].get_xscale() == 'log'
    assert sorted({float(line.get_xdata()[0]) for line in panels[0].lines}) == [1.0, 2.0, 4.0, 8.0]
    heights = {float(line.get_ydata()[0]) for line in panels[0].lines if len(line.get_xdata()) == 1}
    assert any(abs(height - 0.51) < 1e-9 for height in heights)  # The mean of the first point.
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == list(_LOSSES)
    if axis is not None:
        assert panels[2].get_title().startswith('epsilon 8: R squared ')
    assert figure.png(drawn).startswith(b'\x89PNG')
