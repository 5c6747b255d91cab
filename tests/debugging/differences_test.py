"""Differences of shares and means: published intervals, brute-force coverage, Holm by hand."""

import numpy as np
import pytest
from scipy import stats

from dpfl.debugging import differences


@pytest.mark.parametrize(
    'hits, count, low, high',
    # Newcombe 1998, Statistics in Medicine 17, pages 857-872, table I, method 3.
    [
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
    ],
)
def test_wilson_has_the_published_bounds(hits, count, low, high):
    assert differences.Share(hits, count).interval() == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize(
    'counts, low, high',
    # Newcombe 1998, Statistics in Medicine 17, pages 873-890, table II, method 10.
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_has_the_published_bounds(counts, low, high):
    found = differences.newcombe(*counts)
    assert [float(bound) for bound in found] == pytest.approx([low, high], abs=6e-5)


@pytest.mark.parametrize('share', [0.05, 0.3])
def test_share_p_values_reject_as_often_as_they_say(share):
    count = 200
    hits = np.arange(count + 1)
    p_values = differences.share_p_values(hits[:, None], count, hits[None, :], count)
    weights = np.outer(*2 * [stats.binom.pmf(hits, count, share)])
    assert 0.03 < weights[p_values <= 0.05].sum() < 0.06


@pytest.mark.parametrize('share, least', [(0.2, 0.0), (0.2, 0.09), (0.14, 0.0)])
def test_power_is_that_of_the_test_by_enumeration(share, least):
    count, alpha, other = 300, 0.05, 0.1
    hits = np.arange(count + 1)
    p_values = differences.share_p_values(hits[:, None], count, hits[None, :], count)
    is_clear = (p_values <= alpha) & ((hits[:, None] - hits[None, :]) / count >= least - 1e-12)
    weights = np.outer(stats.binom.pmf(hits, count, share), stats.binom.pmf(hits, count, other))
    expected = differences.compare(
        'x', differences.Share(round(share * count), count), differences.Share(30, count)
    )
    found = differences.power(expected, alpha, least)
    assert found == pytest.approx(weights[is_clear].sum(), abs=0.03)


def test_the_allowance_covers_how_trainings_vary():
    rng = np.random.default_rng(1)
    trials, count, between = 20_000, 2000, 0.03
    # Each of two trainings has its own share; their difference deviates by `between`.
    shares = 0.4 + rng.normal(0, between / np.sqrt(2), (2, trials))
    hits, others = rng.binomial(count, shares)
    naive = differences.share_p_values(hits, count, others, count)
    allowed = differences.share_p_values(hits, count, others, count, between=between)
    assert np.mean(naive <= 0.05) > 0.2
    assert 0.04 < np.mean(allowed <= 0.05) < 0.06
    low, high = differences.newcombe(hits, count, others, count, between=between)
    assert 0.94 < np.mean((low <= 0) & (high >= 0)) < 0.96


def test_means_are_those_of_welch():
    rng = np.random.default_rng(2)
    first, second = rng.normal(3, 2, 40), rng.normal(1, 5, 25)
    found = differences.compare('x', *map(differences.Mean.of, (first, second)))
    expected = stats.ttest_ind(first, second, equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue)
    # The bounds are where a test of that difference has the p-value 1 - level.
    for bound in (found.low, found.high):
        moved = stats.ttest_ind(first - bound, second, equal_var=False)
        assert moved.pvalue == pytest.approx(0.05)


def test_the_allowance_of_means_is_added_in_quadrature():
    first, second = differences.Mean(5.0, 0.3, 10**6), differences.Mean(4.0, 0.4, 10**6)
    found = differences.compare('x', first, second, between=1.2)
    assert found.high - found.value == pytest.approx(1.96 * 1.3, rel=1e-3)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(1 / 1.3), rel=1e-3)


def test_a_ratio_has_the_error_of_whole_draws():
    rng = np.random.default_rng(3)
    # All words of a sentence are unknown or none is: the words of a sentence are not independent.
    words = rng.integers(1, 10, (2000, 50))
    unknown = words * (rng.random(words.shape) < 0.3)
    means = [differences.Mean.ratio(*each) for each in zip(unknown, words, strict=True)]
    values = np.array([mean.value for mean in means])
    assert values[0] == unknown[0].sum() / words[0].sum()
    assert np.median([mean.error for mean in means]) == pytest.approx(values.std(), rel=0.06)


def test_holm_by_hand():
    assert differences.holm([0.5, 0.01, 0.04, 0.03]) == pytest.approx([0.5, 0.04, 0.09, 0.09])


def test_all_comparisons_are_corrected_together():
    shares = ((60, 40), (50, 50))
    compared = [
        differences.compare('x', *(differences.Share(hits, 100) for hits in pair))
        for pair in shares
    ]
    first, second = differences.corrected(compared)
    assert first.adjusted == pytest.approx(2 * first.p_value)
    assert first.is_clear(0.05) and not first.is_clear(0.05, least=0.3)
    assert second.adjusted == 1 and not second.is_clear(0.5)
    assert first.to_dict()['difference'] == pytest.approx(0.2)


def test_without_draws_nothing_is_clear():
    empty, some = differences.Share.of([]), differences.Share.of([True, False])
    assert empty.interval() == (0, 1) and some.interval()[0] > 0
    found = differences.compare('x', empty, some)
    assert (found.low, found.high, found.p_value) == (-1, 1, 1)
    assert found.to_dict()['first'] is None
    single = differences.compare('x', differences.Mean.of([3.0]), differences.Mean.of([1.0, 2.0]))
    assert single.p_value == 1 and single.low == -np.inf
    unknown = differences.Mean.ratio([0, 0], [0, 0])
    assert unknown.to_dict() == {'value': None, 'error': None, 'count': 2}
    # All draws alike: certain by the samples alone, not with an allowance.
    ones, twos = differences.Mean.of([1, 1, 1]), differences.Mean.of([2, 2, 2])
    assert differences.compare('x', ones, twos).p_value == 0
    assert differences.compare('x', ones, ones).p_value == 1
    assert differences.compare('x', ones, twos, between=1.0).p_value > 0.3
