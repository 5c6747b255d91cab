"""Measures, intervals, verdicts of claims, orders and regressions with known answers."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError
from experiments.studies.shared import grid, page, results
from tests.studies import small_study

pytestmark = pytest.mark.standard

_METRICS = """round,epsilon,seconds,loss,accuracy
1,0.5,1.0,,
2,0.6,1.0,3.0,0.10
4,0.7,1.0,2.5,0.20
6,0.8,1.0,2.0,0.40
"""


def _run(folder, mechanism, noise_multiplier=2.0, **fields):
    plan = accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(6, 3, 2),
        clip_norm=0.2,
        noise_multiplier=noise_multiplier,
        clients_per_round=10,
        **fields,
    )
    folder.mkdir(exist_ok=True)
    (folder / archive.PLAN).write_text(archive.PlanRecord(plan, (1e-6,), 'pld', True).to_json())
    mechanisms.save(plan.mechanism, folder / archive.STRATEGY)
    (folder / 'metrics.csv').write_text(_METRICS)
    report = accounting.PrivacyReport.from_plan(plan, deltas=[1e-6])
    (folder / archive.REPORT).write_text(report.to_json())
    return folder, plan


@pytest.mark.parametrize(
    ('smooth', 'accuracy', 'loss'), [(1, 0.4, 2.0), (2, 0.3, 2.25), (9, 0.7 / 3, 2.5)]
)
def test_accuracy_and_loss_are_means_of_the_last_evaluations(tmp_path, smooth, accuracy, loss):
    folder, _ = _run(tmp_path, mechanisms.BinaryTree(6))
    found = results.read(small_study.study(measures=('accuracy', 'loss'), smooth=smooth), folder)
    assert found.values == pytest.approx({'accuracy': accuracy, 'loss': loss})
    assert found.curve['round'].tolist() == [2, 4, 6]
    assert found.curve['epsilon'].tolist() == [0.6, 0.7, 0.8]


def test_accuracy_with_unknown_words_is_smoothed_where_there_is_one(tmp_path):
    folder, _ = _run(tmp_path, mechanisms.BinaryTree(6))
    study = small_study.study(measures=('accuracy_with_oov', 'accuracy'), smooth=2)
    with pytest.raises(ValueError, match='measures=accuracy_with_oov: is not measured'):
        results.read(study, folder)
    assert results.read(small_study.study(measures=('accuracy',)), folder).values
    lines = _METRICS.splitlines()
    more = ['accuracy_with_oov', '', '0.1', '0.1', '0.2']
    rows = [f'{line},{value}' for line, value in zip(lines, more, strict=True)]
    (folder / 'metrics.csv').write_text('\n'.join(rows) + '\n')
    found = results.read(study, folder)
    assert found.values == pytest.approx({'accuracy_with_oov': 0.15, 'accuracy': 0.3})
    np.testing.assert_allclose(found.curve['accuracy_with_oov'], [0.1, 0.1, 0.15])


@pytest.mark.parametrize(
    ('threshold', 'rounds', 'is_bound'), [(0.1, 2, False), (0.15, 4, False), (0.41, 7, True)]
)
def test_rounds_to_a_threshold(tmp_path, threshold, rounds, is_bound):
    folder, _ = _run(tmp_path, mechanisms.BinaryTree(6))
    study = small_study.study(measures=('rounds_to_threshold',), threshold=threshold)
    found = results.read(study, folder)
    assert found.values == {'rounds_to_threshold': rounds}
    assert ('rounds_to_threshold' in found.is_bound) == is_bound


def test_loss_of_the_mechanism_and_numbers_of_the_plan(tmp_path):
    folder, plan = _run(tmp_path, mechanisms.BinaryTree(6))
    names = ('max_loss', 'rms_loss', 'noise_multiplier', 'epsilon', 'rho')
    found = results.read(small_study.study(measures=names), folder)
    assert found.values['max_loss'] == plan.mechanism.max_loss(plan.participation)
    assert found.values['rms_loss'] == plan.mechanism.rms_loss(plan.participation)
    assert found.values['noise_multiplier'] == 2
    assert found.values['epsilon'] == plan.epsilon(1e-6) and found.values['rho'] == plan.rho
    without_noise, _ = _run(tmp_path / 'other', mechanisms.Identity(6), noise_multiplier=0.0)
    # Measures of claims and orders are read too.
    claims = (grid.Claim('', 'accuracy', 'a', 'a'),)
    study = small_study.study(measures=('loss',), orders=('max_loss',), claims=claims)
    found = results.read(study, without_noise)
    assert {*found.values} == {'loss', 'max_loss', 'accuracy'} and found.values['max_loss'] is None


def _runs(values, bounds=(), measure='accuracy'):
    return [
        small_study.run([measure] if i in bounds else (), **{measure: value})
        for i, value in enumerate(values)
    ]


def _claim(measure='accuracy', by=0.0):
    return grid.Claim('one is higher', measure, 'one', 'other', by)


def test_interval_is_that_of_students_t():
    values = [0.31, 0.35, 0.33, 0.30, 0.36]
    found = results.interval(values)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-12)
    assert found.mean == pytest.approx(0.33) and found.count == 5


def test_a_single_value_has_no_interval():
    found = results.interval([2.0])
    assert found.mean == 2 and found.half_width is None
    assert found.low == -math.inf and found.high == math.inf
    with pytest.raises(ValueError, match='values=0'):
        results.interval([])


def test_pairs_settle_what_means_do_not():
    # The seeds differ far more than the points do.
    other = [0.1, 0.2, 0.3, 0.4, 0.5]
    steps = [0.01, 0.011, 0.009, 0.01, 0.01]
    one = [value + step for value, step in zip(other, steps, strict=True)]
    assert results.interval(one).low < results.interval(other).mean
    found = results.check(_claim(), {'one': _runs(one), 'other': _runs(other)})
    assert found.verdict == 'holds'
    assert found.difference.mean == pytest.approx(0.01)
    reverse = results.check(_claim(), {'one': _runs(other), 'other': _runs(one)})
    assert reverse.verdict == 'fails'


@pytest.mark.parametrize(
    ('by', 'verdict'), [(-0.02, 'holds'), (0.0, 'not settled'), (0.02, 'fails')]
)
def test_a_claim_is_compared_with_its_margin(by, verdict):
    runs = {'one': _runs([0.30, 0.302, 0.298, 0.30]), 'other': _runs([0.30] * 4)}
    assert results.check(_claim(by=by), runs).verdict == verdict


def test_one_seed_or_a_measure_that_is_missing_settles_nothing():
    single = {'one': _runs([0.9]), 'other': _runs([0.1])}
    assert results.check(_claim(), single).verdict == 'not settled'
    missing = {'one': _runs([None, None]), 'other': _runs([0.1, 0.1])}
    found = results.check(_claim(), missing)
    assert found.difference is None and found.verdict == 'not settled'
    assert results.summary(missing['one'], 'accuracy') is None


def test_a_lower_bound_serves_where_it_is_on_the_safe_side():
    name = 'rounds_to_threshold'
    late, early = [49.0, 49.0, 49.0], [20.0, 21.0, 19.0]
    runs = {'one': _runs(late, {0, 2}, name), 'other': _runs(early, measure=name)}
    found = results.check(_claim(name), runs)
    assert found.verdict == 'holds' and found.difference.is_lower_bound
    # The other way round the difference may be larger than it seems.
    runs = {'one': _runs(late, measure=name), 'other': _runs(early, {1}, name)}
    assert results.check(_claim(name), runs).verdict == 'not settled'
    runs = {'one': _runs(early, {1}, name), 'other': _runs(late, measure=name)}
    assert results.check(_claim(name), runs).verdict == 'not settled'


def _both(accuracies, losses):
    return [
        small_study.run(accuracy=accuracy, max_loss=loss)
        for accuracy, loss in zip(accuracies, losses, strict=True)
    ]


def test_orders_agree_or_do_not():
    runs = {
        'tree': _both([0.20, 0.21, 0.20], [9.7] * 3),
        'blt': _both([0.30, 0.31, 0.30], [4.6] * 3),
        'none': _both([0.40, 0.40, 0.40], [None] * 3),
        'banded': _both([0.30, 0.32, 0.31], [4.3] * 3),
    }
    found = results.orders(['accuracy', 'max_loss'], runs)
    assert found.best_to_worst['accuracy'] == ('banded', 'blt', 'tree')
    assert found.best_to_worst['max_loss'] == ('banded', 'blt', 'tree')
    assert found.agree and found.agree_on_others
    assert found.not_told_apart == (('banded', 'blt'),)
    runs['banded'] = _both([0.1, 0.1, 0.1], [4.3] * 3)
    found = results.orders(['accuracy', 'max_loss'], runs)
    assert not found.agree and not found.agree_on_others
    assert found.best_to_worst['accuracy'] == ('blt', 'tree', 'banded')


def test_orders_that_differ_in_an_unsettled_pair_only_agree_where_it_matters():
    runs = {
        'tree': _both([0.26, 0.20, 0.25], [9.7] * 3),
        'blt': _both([0.36, 0.30, 0.35], [4.6] * 3),
        'independent': _both([0.24, 0.24, 0.24], [12.0] * 3),
    }
    found = results.orders(['accuracy', 'max_loss'], runs)
    assert found.best_to_worst['accuracy'] == ('blt', 'independent', 'tree')
    assert found.best_to_worst['max_loss'] == ('blt', 'tree', 'independent')
    assert not found.agree and found.agree_on_others
    assert ('independent', 'tree') in found.not_told_apart


_MAX = {'a': 1.0, 'b': 2.0, 'c': 4.0, 'd': 8.0}
_RMS = {'a': 2.0, 'b': 1.0, 'c': 8.0, 'd': 4.0}
_BOTH = ('max_loss', 'rms_loss')
_AXIS = grid.Axis('epsilon', {'2': {}, '8': {}})


def _with_losses(max_loss=_MAX, rms_loss=_RMS, spread=0.0):
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
    runs = _with_losses()
    runs['no noise'] = [small_study.run(accuracy=0.6, max_loss=None, rms_loss=None)] * 3
    found = results.predict('accuracy', _BOTH, runs)
    assert found.points == ('a', 'b', 'c', 'd')  # Points without a loss are left out.
    assert found.r_squared['max_loss'].mean == pytest.approx(1, abs=1e-12)
    assert found.rank_correlation['max_loss'].mean == -1
    # The logarithms are 0, 1, 2, 3 and 1, 0, 3, 2, whose correlation is 0.6.
    assert found.r_squared['rms_loss'].mean == pytest.approx(0.36)
    assert found.rank_correlation['rms_loss'].mean == pytest.approx(-0.6)
    assert found.difference.mean == pytest.approx(0.64) and found.better == 'max_loss'


def test_too_few_points_and_losses_without_logarithm_are_refused():
    few = dict(list(_with_losses().items())[:3])
    with pytest.raises(ArgumentError, match='needs 4 points'):
        results.predict('accuracy', ('max_loss',), few)
    with pytest.raises(ArgumentError, match='positive'):
        results.predict('accuracy', ('max_loss',), _with_losses(max_loss={**_MAX, 'a': 0.0}))


def test_each_value_of_the_axis_has_a_regression_and_a_panel_for_each_loss():
    study = small_study.study(
        lines={point: {} for point in _MAX},
        axis=_AXIS,
        measures=('accuracy', *_BOTH),
        predictions={'accuracy': _BOTH},
        seeds=(1, 2, 3),
    )
    runs = {
        f'{point}/{value}': each for point, each in _with_losses().items() for value in ('2', '8')
    }
    whole = results.Results(study, runs, study.seeds)
    found = whole.predictions
    assert list(found) == ['2', '8'] and found['8'][0].points == ('a/8', 'b/8', 'c/8', 'd/8')
    drawn = page.draw_predictions(whole)
    assert [panel.get_xlabel() for panel in drawn.axes] == ['max loss', 'rms loss'] * 2
    assert drawn.axes[0].get_ylabel() == 'accuracy' and drawn.axes[0].get_xscale() == 'log'
    losses = {float(line.get_xdata()[0]) for line in drawn.axes[0].lines}
    assert sorted(losses) == sorted(_MAX.values())
    assert drawn.axes[2].get_title().startswith('epsilon 8: R squared ')
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == list(_MAX)
