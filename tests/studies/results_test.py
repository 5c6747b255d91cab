"""Measures, intervals, verdicts of claims, orders and regressions with known answers."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfl import mechanisms
from dpfl.errors import ArgumentError
from experiments.studies.shared import grid, page, results
from tests.accounting import plans
from tests.studies import small_study

pytestmark = pytest.mark.standard

_METRICS = """round,epsilon,seconds,loss,accuracy
1,0.5,1.0,,
2,0.6,1.0,3.0,0.10
4,0.7,1.0,2.5,0.20
6,0.8,1.0,2.0,0.40
"""


def _run(folder, **changes):
    plan = plans.plan(**{'mechanism': mechanisms.BinaryTree(6), **changes})
    small_study.write_records(folder, plan)
    (folder / 'metrics.csv').write_text(_METRICS)
    return plan


_ROUNDS = 'rounds_to_threshold'


@pytest.mark.parametrize(
    'fields, values, bounds',
    [
        # Means of the last evaluations.
        (dict(smooth=1), {'accuracy': 0.4, 'loss': 2.0}, set()),
        (dict(smooth=2), {'accuracy': 0.3, 'loss': 2.25}, set()),
        (dict(smooth=9), {'accuracy': 0.7 / 3, 'loss': 2.5}, set()),
        (dict(threshold=0.1), {_ROUNDS: 2}, set()),
        (dict(threshold=0.15), {_ROUNDS: 4}, set()),
        (dict(threshold=0.41), {_ROUNDS: 7}, {_ROUNDS}),
    ],
)
def test_measures_of_the_evaluations(tmp_path, fields, values, bounds):
    _run(tmp_path)
    found = results.read(small_study.study(measures=tuple(values), **fields), tmp_path)
    assert found.values == pytest.approx(values) and found.is_bound == bounds
    assert found.curve['round'].tolist() == [2, 4, 6]
    assert found.curve['epsilon'].tolist() == [0.6, 0.7, 0.8]


def test_accuracy_with_unknown_words_is_smoothed_where_there_is_one(tmp_path):
    _run(tmp_path)
    study = small_study.study(measures=('accuracy_with_oov', 'accuracy'), smooth=2)
    with pytest.raises(ValueError, match='measures=accuracy_with_oov: is not measured'):
        results.read(study, tmp_path)
    more = ['accuracy_with_oov', '', '0.1', '0.1', '0.2']
    rows = [f'{line},{value}' for line, value in zip(_METRICS.splitlines(), more, strict=True)]
    (tmp_path / 'metrics.csv').write_text('\n'.join(rows) + '\n')
    found = results.read(study, tmp_path)
    assert found.values == pytest.approx({'accuracy_with_oov': 0.15, 'accuracy': 0.3})
    np.testing.assert_allclose(found.curve['accuracy_with_oov'], [0.1, 0.1, 0.15])


def test_loss_of_the_mechanism_and_numbers_of_the_plan(tmp_path):
    plan = _run(tmp_path)
    names = ('max_loss', 'rms_loss', 'noise_multiplier', 'epsilon', 'rho')
    assert results.read(small_study.study(measures=names), tmp_path).values == {
        'max_loss': plan.mechanism.max_loss(plan.participation),
        'rms_loss': plan.mechanism.rms_loss(plan.participation),
        'noise_multiplier': plan.noise_multiplier,
        'epsilon': plan.epsilon(1e-6, 'analytic_gaussian'),
        'rho': plan.rho,
    }
    _run(tmp_path, mechanism=mechanisms.Identity(6), noise_multiplier=0.0)
    # Measures of claims and orders are read too.
    claims = (grid.Claim('', 'accuracy', 'a', 'a'),)
    study = small_study.study(measures=('loss',), orders=('max_loss',), claims=claims)
    found = results.read(study, tmp_path)
    assert {*found.values} == {'loss', 'max_loss', 'accuracy'} and found.values['max_loss'] is None


def test_interval_is_that_of_students_t():
    values = [0.31, 0.35, 0.33, 0.30, 0.36]
    found = results.interval(values)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-12)
    assert found.mean == pytest.approx(0.33) and found.count == 5
    single = results.interval([2.0])
    assert (single.mean, single.half_width) == (2, None)
    assert (single.low, single.high) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match='values=0'):
        results.interval([])


# The seeds differ far more than the points do.
_SEEDS = [0.1, 0.2, 0.3, 0.4, 0.5]
_MORE = [0.11, 0.211, 0.309, 0.41, 0.51]
_LATE, _EARLY = [49.0, 49.0, 49.0], [20.0, 21.0, 19.0]


@pytest.mark.parametrize(
    'one, other, by, bounds, verdict, difference',
    [
        # Pairs settle what means do not.
        (_MORE, _SEEDS, 0.0, ((), ()), 'holds', 0.01),
        (_SEEDS, _MORE, 0.0, ((), ()), 'fails', -0.01),
        ([0.30, 0.302, 0.298, 0.30], [0.30] * 4, -0.02, ((), ()), 'holds', 0),
        ([0.30, 0.302, 0.298, 0.30], [0.30] * 4, 0.0, ((), ()), 'not settled', 0),
        ([0.30, 0.302, 0.298, 0.30], [0.30] * 4, 0.02, ((), ()), 'fails', 0),
        ([0.9], [0.1], 0.0, ((), ()), 'not settled', 0.8),
        ([None, None], [0.1, 0.1], 0.0, ((), ()), 'not settled', None),
        # A lower bound serves where it is on the safe side.
        (_LATE, _EARLY, 0.0, ((0, 2), ()), 'holds', 29),
        (_EARLY, _LATE, 0.0, ((), (0,)), 'fails', -29),
        # The other way round the difference may be larger than it seems.
        (_LATE, _EARLY, 0.0, ((), (1,)), 'not settled', 29),
        (_EARLY, _LATE, 0.0, ((1,), ()), 'not settled', -29),
    ],
)
def test_verdicts_of_claims(one, other, by, bounds, verdict, difference):
    assert results.interval(_MORE).low < results.interval(_SEEDS).mean
    runs = {
        name: [
            small_study.run([_ROUNDS] if i in of_bounds else (), **{_ROUNDS: value})
            for i, value in enumerate(values)
        ]
        for name, values, of_bounds in zip(('one', 'other'), (one, other), bounds, strict=True)
    }
    found = results.check(grid.Claim('one is higher', _ROUNDS, 'one', 'other', by), runs)
    assert found.verdict == verdict
    if difference is None:
        assert found.difference is None and results.summary(runs['one'], _ROUNDS) is None
    else:
        assert found.difference.mean == pytest.approx(difference, abs=1e-12)
    if verdict == 'holds' and any(bounds):
        assert found.difference.is_lower_bound


_LOSSES = {'tree': 9.7, 'blt': 4.6, 'banded': 4.3, 'independent': 12.0, 'none': None}
_ACCURACIES = {
    'tree': (0.20, 0.21, 0.20),
    'blt': (0.30, 0.31, 0.30),
    'none': (0.40, 0.40, 0.40),
    'banded': (0.30, 0.32, 0.31),
}
_UNSETTLED = {
    'tree': (0.26, 0.20, 0.25),
    'blt': (0.36, 0.30, 0.35),
    'independent': (0.24, 0.24, 0.24),
}


@pytest.mark.parametrize(
    'accuracies, by_accuracy, by_loss, agree, agree_on_others, unsettled',
    [
        (_ACCURACIES, 'banded blt tree', 'banded blt tree', True, True, ('banded', 'blt')),
        (
            {**_ACCURACIES, 'banded': (0.1, 0.1, 0.1)},
            *('blt tree banded', 'banded blt tree', False, False, ()),
        ),
        # Orders that differ in an unsettled pair only agree where it matters.
        (
            _UNSETTLED,
            *('blt independent tree', 'blt tree independent', False, True, ('independent', 'tree')),
        ),
    ],
)
def test_orders_agree_or_do_not(
    accuracies, by_accuracy, by_loss, agree, agree_on_others, unsettled
):
    runs = {
        point: [small_study.run(accuracy=each, max_loss=_LOSSES[point]) for each in values]
        for point, values in accuracies.items()
    }
    found = results.orders(['accuracy', 'max_loss'], runs)
    assert found.best_to_worst['accuracy'] == tuple(by_accuracy.split())
    assert found.best_to_worst['max_loss'] == tuple(by_loss.split())
    assert (found.agree, found.agree_on_others) == (agree, agree_on_others)
    assert found.not_told_apart == ((unsettled,) if unsettled else ())


_MAX = {'a': 1.0, 'b': 2.0, 'c': 4.0, 'd': 8.0}
_RMS = {'a': 2.0, 'b': 1.0, 'c': 8.0, 'd': 4.0}
_BOTH = ('max_loss', 'rms_loss')


def _with_losses(max_loss=_MAX, rms_loss=_RMS):
    """Accuracies of three seeds, which fall with the logarithm of the first loss."""
    return {
        point: [
            small_study.run(
                accuracy=0.5 - slope * math.log(_MAX[point]),
                max_loss=max_loss[point],
                rms_loss=rms_loss[point],
            )
            for slope in (0.1, 0.12, 0.11)
        ]
        for point in _MAX
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
        axis=grid.Axis('epsilon', {'2': {}, '8': {}}),
        measures=('accuracy', *_BOTH),
        predictions={'accuracy': _BOTH},
        seeds=(1, 2, 3),
    )
    runs = {f'{point}/{value}': each for point, each in _with_losses().items() for value in '28'}
    whole = results.Results(study, runs, study.seeds)
    assert whole.predictions['8'][0].points == ('a/8', 'b/8', 'c/8', 'd/8')
    panels = page.draw_predictions(whole).axes
    assert [panel.get_xlabel() for panel in panels] == ['max loss', 'rms loss'] * 2
    assert {float(line.get_xdata()[0]) for line in panels[0].lines} == {*_MAX.values()}
    assert panels[2].get_title().startswith('epsilon 8: R squared ')
