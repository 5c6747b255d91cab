"""The table, the page and the figure of a study, made of runs that are written down here."""

import io
import json

import numpy as np
import pytest

from experiments.studies.shared import grid, page, results
from experiments.studies.shared.results import Interval
from tests.studies import small_study

pytestmark = pytest.mark.standard


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
        claims=(grid.Claim('BLT is better', 'accuracy', 'BLT', 'tree'),),
    )
    return small_study.study(**{**values, **fields})


def _run(accuracy, epsilon=1.0, bound=()):
    rounds = np.array([2.0, 4.0])
    curve = {
        'round': rounds,
        'epsilon': epsilon * rounds / 4,
        'accuracy': accuracy * rounds / 4,
        'loss': 3 - rounds,
    }
    values = {'accuracy': accuracy, 'epsilon': epsilon if np.isfinite(epsilon) else None}
    return results.Run(values, frozenset(bound), curve)


_RUNS = {'BLT': [_run(0.31), _run(0.33), _run(0.32)], 'tree': [_run(0.21), _run(0.22), _run(0.23)]}


def _results(study, runs):
    return results.Results(study, runs, study.seeds)


def test_rows_have_mean_and_half_width():
    blt, tree = page.rows(_results(_study(), _RUNS))
    # t(0.975, 2) = 4.3027, standard deviation 0.01, three values.
    assert blt == {'point': 'BLT', 'accuracy': '0.320 ± 0.025', 'epsilon': '1'}
    assert tree['accuracy'] == '0.220 ± 0.025'
    # A guarantee is that of the weakest run, rounded up, and a lower bound shows as such.
    runs = {
        'BLT': [_run(0.3, 1.0), _run(0.3, 1.20001), _run(0.3, 1.1)],
        'tree': [_run(0.2, 1.99999, bound={'accuracy'}), _run(0.2), _run(0.2)],
    }
    blt, tree = page.rows(_results(_study(orders=(), claims=()), runs))
    assert (blt['epsilon'], tree['epsilon']) == ('1.201', '2')
    assert tree['accuracy'].startswith('>= ')


@pytest.mark.parametrize(
    'value, measure, text',
    [
        (12.0, 'max_loss', '12'),
        (4.6449, 'max_loss', '4.645'),
        (0.0, 'accuracy', '0'),
        (1234.5, 'loss', '1234'),
    ],
)
def test_cells_of_a_single_value(value, measure, text):
    study = small_study.study(measures=(measure,))
    row = page.rows(_results(study, {'a': [small_study.run(**{measure: value})]}))[0]
    assert row[measure.replace('_', ' ')] == text


def test_the_page_says_what_was_found_and_on_which_seeds():
    study = _study()
    found = _results(study, _RUNS)
    text = page.text(found, 'python -m x')
    assert '| BLT is better | accuracy | BLT minus tree | 0.100 ± 0.025 | > 0 | holds |' in text
    assert '| accuracy | BLT, tree |' in text
    assert 'chosen on other seeds (9)' in text and '3 seeds (1, 2, 3)' in text
    # Every run is linked, relative to the page.
    assert '[seed 2](runs/tree/seed_2/privacy_report.html)' in text
    assert text.count('privacy_report.html') == 6
    files = page.files(found, text)
    shown = files['study.html'].decode()
    assert (
        '<title>Mechanisms &lt;1&gt;</title>' in shown and '<h2>Results</h2>\n<figure><svg' in shown
    )
    assert 'src=' not in shown and '<script' not in shown
    assert files['study.png'].startswith(b'\x89PNG') and 'prediction.png' not in files
    values = json.loads(files['results.json'])
    blt = values['points'][0]
    assert [run['accuracy'] for run in blt['runs']] == [0.31, 0.33, 0.32]
    assert blt['measures']['accuracy']['half_width'] == pytest.approx(0.024841, 1e-4)
    assert values['claims'][0]['verdict'] == 'holds'


def test_points_are_ordered_at_each_value_of_the_axis():
    axis = grid.Axis('epsilon', {'2': {}, '8': {}})
    study = _study(axis=axis, claims=())
    better = {'BLT': 0.3, 'tree': 0.2}
    runs = {  # At 8 the tree is the better line; it is also better than everything at 2.
        f'{line}/{value}': [_run(better[line] if value == '2' else 0.7 - better[line])] * 3
        for line in study.lines
        for value in axis.values
    }
    found = _results(study, runs)
    values = found.values()['orders']
    assert values['2']['best_to_worst']['accuracy'] == ('BLT/2', 'tree/2')
    assert values['8']['best_to_worst']['accuracy'] == ('tree/8', 'BLT/8')
    text = page.text(found, 'python -m x')
    low, high = text.index('### epsilon 2'), text.index('### epsilon 8')
    assert low < text.index('| accuracy | BLT/2, tree/2 |') < high
    assert high < text.index('| accuracy | tree/8, BLT/8 |')


def test_figure_against_an_axis_shows_means_and_intervals():
    axis = grid.Axis('clients', {'25': {}, '100': {}}, 'log')
    study = _study(axis=axis, claims=(), orders=())
    runs = {f'{line}/{value}': _RUNS[line] for line in study.lines for value in axis.values}
    (axes,) = page.draw(_results(study, runs)).axes
    line, _, (bars,) = axes.containers[0].lines
    np.testing.assert_allclose(np.array(line.get_ydata(), float), [0.32, 0.32])
    heights = np.ptp(np.array(bars.get_segments())[:, :, 1], axis=1)
    np.testing.assert_allclose(heights, [2 * 0.024841] * 2, rtol=1e-4)
    assert axes.get_xscale() == 'log' and axes.get_xlabel() == 'clients'


@pytest.mark.parametrize(
    'measure, mean, half, low, high',
    [
        ('accuracy', 0.1, 0.5, 0.0, 0.6),
        ('accuracy_with_oov', 0.9, 0.5, 0.4, 1.0),
        ('loss', 1.0, 2.0, 0.0, 3.0),
        ('difference', 1.0, 2.0, -1.0, 3.0),
        ('accuracy', 0.1, None, 0.1, 0.1),
    ],
)
def test_bars_do_not_reach_beyond_what_is_possible(measure, mean, half, low, high):
    assert page._ends(measure, Interval(mean, half, 2)) == pytest.approx((low, high))


@pytest.mark.parametrize('curves', ['round', 'epsilon'])
def test_figure_of_curves(curves):
    study = _study(curves=curves, threshold=0.25)
    runs = {**_RUNS, 'tree': [_run(0.2, np.inf)] * 3} if curves == 'epsilon' else _RUNS
    left, right = page.draw(_results(study, runs)).axes
    lines = {line.get_label(): line for line in left.lines}
    assert ('tree' in lines) == (curves == 'round')  # Without a guarantee there is no epsilon.
    np.testing.assert_allclose(lines['BLT'].get_ydata(), [0.16, 0.32])
    np.testing.assert_allclose(lines['BLT'].get_xdata(), [2, 4] if curves == 'round' else [0.5, 1])
    assert [label.get_text() for label in right.get_xticklabels()] == ['BLT', 'tree']
    page.draw(_results(study, runs)).savefig(io.BytesIO(), format='png')
