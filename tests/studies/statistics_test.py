"""Intervals against scipy's, verdicts of claims, and orders."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfl.studies import definition, statistics
from tests.studies import small_study


def _runs(values, bounds=(), measure='accuracy'):
    return [
        small_study.run([measure] if i in bounds else (), **{measure: value})
        for i, value in enumerate(values)
    ]


def _claim(measure='accuracy', by=0.0):
    return definition.Claim('one is higher', measure, 'one', 'other', by)


def test_interval_is_that_of_students_t():
    values = [0.31, 0.35, 0.33, 0.30, 0.36]
    found = statistics.interval(values)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-12)
    assert found.mean == pytest.approx(0.33) and found.count == 5


def test_a_single_value_has_no_interval():
    found = statistics.interval([2.0])
    assert found.mean == 2 and found.half_width is None
    assert found.low == -math.inf and found.high == math.inf
    with pytest.raises(ValueError, match='values=0'):
        statistics.interval([])


def test_pairs_settle_what_means_do_not():
    # The seeds differ far more than the points do.
    other = [0.1, 0.2, 0.3, 0.4, 0.5]
    steps = [0.01, 0.011, 0.009, 0.01, 0.01]
    one = [value + step for value, step in zip(other, steps, strict=True)]
    assert statistics.interval(one).low < statistics.interval(other).mean
    found = statistics.check(_claim(), {'one': _runs(one), 'other': _runs(other)})
    assert found.verdict == 'holds'
    assert found.difference.mean == pytest.approx(0.01)
    reverse = statistics.check(_claim(), {'one': _runs(other), 'other': _runs(one)})
    assert reverse.verdict == 'fails'


@pytest.mark.parametrize(
    ('by', 'verdict'), [(-0.02, 'holds'), (0.0, 'not settled'), (0.02, 'fails')]
)
def test_a_claim_is_compared_with_its_margin(by, verdict):
    runs = {'one': _runs([0.30, 0.302, 0.298, 0.30]), 'other': _runs([0.30] * 4)}
    assert statistics.check(_claim(by=by), runs).verdict == verdict


def test_one_seed_or_a_measure_that_is_missing_settles_nothing():
    single = {'one': _runs([0.9]), 'other': _runs([0.1])}
    assert statistics.check(_claim(), single).verdict == 'not settled'
    missing = {'one': _runs([None, None]), 'other': _runs([0.1, 0.1])}
    found = statistics.check(_claim(), missing)
    assert found.difference is None and found.verdict == 'not settled'
    assert statistics.summary(missing['one'], 'accuracy') is None


def test_a_lower_bound_serves_where_it_is_on_the_safe_side():
    name = 'rounds_to_threshold'
    late, early = [49.0, 49.0, 49.0], [20.0, 21.0, 19.0]
    runs = {'one': _runs(late, {0, 2}, name), 'other': _runs(early, measure=name)}
    found = statistics.check(_claim(name), runs)
    assert found.verdict == 'holds' and found.difference.is_bound
    # The other way round the difference may be larger than it seems.
    runs = {'one': _runs(late, measure=name), 'other': _runs(early, {1}, name)}
    assert statistics.check(_claim(name), runs).verdict == 'not settled'
    runs = {'one': _runs(early, {1}, name), 'other': _runs(late, measure=name)}
    assert statistics.check(_claim(name), runs).verdict == 'not settled'


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
    found = statistics.orders(['accuracy', 'max_loss'], runs)
    assert found.by_measure['accuracy'] == ('banded', 'blt', 'tree')
    assert found.by_measure['max_loss'] == ('banded', 'blt', 'tree')
    assert found.agree and found.agree_where_settled
    assert found.unsettled == (('banded', 'blt'),)
    runs['banded'] = _both([0.1, 0.1, 0.1], [4.3] * 3)
    found = statistics.orders(['accuracy', 'max_loss'], runs)
    assert not found.agree and not found.agree_where_settled
    assert found.by_measure['accuracy'] == ('blt', 'tree', 'banded')


def test_orders_that_differ_in_an_unsettled_pair_only_agree_where_it_matters():
    runs = {
        'tree': _both([0.26, 0.20, 0.25], [9.7] * 3),
        'blt': _both([0.36, 0.30, 0.35], [4.6] * 3),
        'independent': _both([0.24, 0.24, 0.24], [12.0] * 3),
    }
    found = statistics.orders(['accuracy', 'max_loss'], runs)
    assert found.by_measure['accuracy'] == ('blt', 'independent', 'tree')
    assert found.by_measure['max_loss'] == ('blt', 'tree', 'independent')
    assert not found.agree and found.agree_where_settled
    assert ('independent', 'tree') in found.unsettled
