"""The table, the page and the figure of a study, made of runs that are written down here."""

import io
import json

import numpy as np
import pytest

from dpfl.studies import definition, figure, measures, page, statistics
from tests.studies import small_study


def _study(**fields):
    values = dict(
        title='Mechanisms <1>',
        about='About.',
        mirrors='McMahan et al. 2024, table 3',
        lines={'BLT': {}, 'tree': {}},
        measures=('accuracy', 'epsilon'),
        seeds=(1, 2, 3),
        tuned_on=(9,),
        orders=('accuracy', 'epsilon'),
        claims=(definition.Claim('BLT is better', 'accuracy', 'BLT', 'tree'),),
    )
    return small_study.study(**{**values, **fields})


def _run(accuracy, epsilon=1.0, bound=()):
    rounds = np.array([2.0, 4.0])
    curve = measures.Curve(rounds, epsilon * rounds / 4, accuracy * rounds / 4, 3 - rounds)
    values = {'accuracy': accuracy, 'epsilon': epsilon if np.isfinite(epsilon) else None}
    return measures.Run(values, frozenset(bound), curve)


_RUNS = {'BLT': [_run(0.31), _run(0.33), _run(0.32)], 'tree': [_run(0.21), _run(0.22), _run(0.23)]}


def _found(study, runs):
    findings = [statistics.check(claim, runs) for claim in study.claims]
    return findings, statistics.orders_by_value(study, runs)


def test_rows_have_mean_and_half_width():
    blt, tree = page.rows(_study(), _RUNS)
    # t(0.975, 2) = 4.3027, standard deviation 0.01, three values.
    assert blt == {'point': 'BLT', 'accuracy': '0.320 ± 0.025', 'epsilon': '1'}
    assert tree['accuracy'] == '0.220 ± 0.025'
    # A guarantee is that of the weakest run, and a lower bound shows as such.
    study = _study(orders=(), claims=())
    runs = {
        'BLT': [_run(0.3, 1.0), _run(0.3, 1.2), _run(0.3, 1.1)],
        'tree': [_run(0.2, bound={'accuracy'}), _run(0.2), _run(0.2)],
    }
    blt, tree = page.rows(study, runs)
    assert blt['epsilon'] == '1.2' and tree['accuracy'].startswith('>= ')


def test_the_page_says_what_was_found_and_on_which_seeds():
    study = _study()
    findings, orders = _found(study, _RUNS)
    text = page.text(study, _RUNS, findings, orders, {}, study.seeds, 'python -m x')
    assert '| BLT is better | accuracy | BLT minus tree | 0.100 ± 0.025 | > 0 | holds |' in text
    assert '| accuracy | BLT, tree |' in text
    assert 'chosen on other seeds (9)' in text and '3 seeds (1, 2, 3)' in text
    # Every run is linked, relative to the page.
    assert '[seed 2](runs/tree/seed_2/privacy_report.html)' in text
    assert text.count('privacy_report.html') == 6
    shown = page.render(study.title, text, b'PNG')
    assert '<title>Mechanisms &lt;1&gt;</title>' in shown and 'base64,UE5H' in shown
    assert 'http' not in shown and '<script' not in shown
    values = json.loads(json.dumps(page.values(study, _RUNS, findings, orders, {}, study.seeds)))
    blt = values['points'][0]
    assert [run['accuracy'] for run in blt['runs']] == [0.31, 0.33, 0.32]
    assert blt['measures']['accuracy']['half_width'] == pytest.approx(0.024841, 1e-4)
    assert values['claims'][0]['verdict'] == 'holds'


@pytest.mark.parametrize(
    ('value', 'measure', 'text'),
    [
        (1.99999, 'epsilon', '2'),
        (2.00001, 'epsilon', '2.001'),
        (12.0, 'max_loss', '12'),
        (4.6449, 'max_loss', '4.645'),
        (0.0, 'accuracy', '0'),
        (1234.5, 'loss', '1234'),
    ],
)
def test_cells_of_a_single_value(value, measure, text):
    study = _study(measures=(measure,), orders=(), claims=())
    one = measures.Run({measure: value}, frozenset(), _RUNS['BLT'][0].curve)
    cell = page.rows(study, {'BLT': [one], 'tree': [one]})[0][measure.replace('_', ' ')]
    assert cell == text


def test_points_are_ordered_at_each_value_of_the_axis():
    axis = definition.Axis('epsilon', {'2': {}, '8': {}})
    study = _study(axis=axis, claims=())
    better = {'BLT': 0.3, 'tree': 0.2}
    runs = {  # At 8 the tree is the better line; it is also better than everything at 2.
        f'{line}/{value}': [_run(better[line] if value == '2' else 0.7 - better[line])] * 3
        for line in study.lines
        for value in axis.values
    }
    findings, orders = _found(study, runs)
    values = page.values(study, runs, findings, orders, {}, study.seeds)['orders']
    assert values['2']['best_to_worst']['accuracy'] == ['BLT/2', 'tree/2']
    assert values['8']['best_to_worst']['accuracy'] == ['tree/8', 'BLT/8']
    text = page.text(study, runs, findings, orders, {}, study.seeds, 'python -m x')
    low, high = text.index('### epsilon 2'), text.index('### epsilon 8')
    assert low < text.index('| accuracy | BLT/2, tree/2 |') < high
    assert high < text.index('| accuracy | tree/8, BLT/8 |')


def test_figure_against_an_axis_shows_means_and_intervals():
    axis = definition.Axis('clients', {'25': {}, '100': {}}, 'log')
    study = _study(axis=axis, claims=(), orders=())
    runs = {f'{line}/{value}': _RUNS[line] for line in study.lines for value in axis.values}
    (axes,) = figure.draw(study, runs).axes
    line, _, (bars,) = axes.containers[0].lines
    np.testing.assert_allclose(np.array(line.get_ydata(), float), [0.32, 0.32])
    heights = np.ptp(np.array(bars.get_segments())[:, :, 1], axis=1)
    np.testing.assert_allclose(heights, [2 * 0.024841] * 2, rtol=1e-4)
    assert axes.get_xscale() == 'log' and axes.get_xlabel() == 'clients'


@pytest.mark.parametrize(
    'measure, mean, half, below, above',
    [
        ('accuracy', 0.1, 0.5, 0.1, 0.5),
        ('accuracy_with_oov', 0.9, 0.5, 0.5, 0.1),
        ('loss', 1.0, 2.0, 1.0, 2.0),
        ('difference', 1.0, 2.0, 2.0, 2.0),
        ('accuracy', 0.1, None, 0.0, 0.0),
    ],
)
def test_bars_do_not_reach_beyond_what_is_possible(measure, mean, half, below, above):
    bars = figure._bars(measure, [statistics.Interval(mean, half, 2)])
    np.testing.assert_allclose(bars, [[below], [above]], atol=1e-12)


@pytest.mark.parametrize('curves', ['round', 'epsilon'])
def test_figure_of_curves(curves):
    study = _study(curves=curves, threshold=0.25)
    runs = {**_RUNS, 'tree': [_run(0.2, np.inf)] * 3} if curves == 'epsilon' else _RUNS
    left, right = figure.draw(study, runs).axes
    lines = {line.get_label(): line for line in left.lines}
    assert ('tree' in lines) == (curves == 'round')  # Without a guarantee there is no epsilon.
    np.testing.assert_allclose(lines['BLT'].get_ydata(), [0.16, 0.32])
    np.testing.assert_allclose(lines['BLT'].get_xdata(), [2, 4] if curves == 'round' else [0.5, 1])
    assert [label.get_text() for label in right.get_yticklabels()] == ['BLT', 'tree']
    figure.draw(study, runs).savefig(io.BytesIO(), format='png')
