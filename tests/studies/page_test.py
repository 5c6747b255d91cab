"""The table, the page and the figure of a study, made of runs that are written down here."""

import io
import json

import numpy as np
import pytest

from experiments.studies.shared import grid, page, results
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
    return results.Measured(values, frozenset(bound), curve)


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
    values = {'max_loss': 4.6449, 'rms_loss': 12.0, 'accuracy': 0.0, 'loss': 1234.5}
    study = small_study.study(measures=tuple(values))
    assert page.rows(_results(study, {'a': [small_study.run(**values)]})) == [
        {'point': 'a', 'max loss': '4.645', 'rms loss': '12', 'accuracy': '0', 'loss': '1234'}
    ]


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
    accuracies = {'BLT': (1.0, 0.9, 0.7), 'tree': (0.0, 0.1, 0.3)}
    runs = {
        f'{line}/{value}': [*map(_run, each)]
        for line, each in accuracies.items()
        for value in axis.values
    }
    (axes,) = page.draw(_results(study, runs)).axes
    # Half-widths are t(0.975, 2) / sqrt(3) = 2.4841 standard deviations of 0.15275, but no accuracy
    # is below 0 or above 1.
    ends = ([0.86667 - 0.37946, 1], [0, 0.13333 + 0.37946])
    for container, mean, expected in zip(axes.containers, (0.86667, 0.13333), ends, strict=True):
        line, _, (bars,) = container.lines
        np.testing.assert_allclose(np.array(line.get_ydata(), float), [mean] * 2, rtol=1e-4)
        shown = np.array(bars.get_segments())[:, :, 1]
        np.testing.assert_allclose(shown, [expected] * 2, rtol=1e-4, atol=1e-9)
    assert axes.get_xscale() == 'log' and axes.get_xlabel() == 'clients'


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
