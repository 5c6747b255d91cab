"""Differences of shares and means: published intervals, brute-force coverage, Holm by hand."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from dpfl.debugging import differences
from dpfl.debugging.differences import Mean, Share


@pytest.mark.parametrize(
    'hits, count, low, high',
    # Newcombe 1998, Statistics in Medicine 17, pages 857-872, table I, method 3.
    [
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
    ],
)
def test_wilson_has_the_published_bounds(hits, count, low, high):
    assert Share(hits, count).interval() == pytest.approx((low, high), abs=6e-5)


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
    shares = Share(*counts[:2]), Share(*counts[2:])
    assert differences.newcombe(*shares) == pytest.approx((low, high), abs=6e-5)


@np.vectorize
def _p_value(hits, count, others, other_count, between=0.0):
    shares = Share(int(hits), int(count)), Share(int(others), int(other_count))
    return differences.share_p_value(*shares, float(between))


def test_share_p_values_are_those_of_fisher():
    """Without an allowance of the exact test, with one of the average over trained shares."""
    cases = ((5, 20, 100, 2000), (0, 20, 3, 7), (9, 9, 0, 4), (3, 10, 30, 100))
    deviates = np.linspace(-6, 6, 241)
    weights = stats.norm.pdf(deviates) / stats.norm.pdf(deviates).sum()
    for between in (0.0, 0.02):
        for hits, count, others, other_count in cases:
            p_value = _p_value(hits, count, others, other_count, between)
            total, draws = hits + others, count + other_count
            middle = (total + 0.5) / (draws + 1)
            apart = deviates * between / draws
            first = np.clip(middle + apart * other_count, 1e-12, 1 - 1e-12)
            second = np.clip(middle - apart * count, 1e-12, 1 - 1e-12)
            odds = first / (1 - first) * (1 - second) / second
            law = stats.nchypergeom_fisher(draws, total, count, odds)
            tails = weights @ law.sf(hits - 1), weights @ law.cdf(hits)
            assert p_value == pytest.approx(min(2 * min(tails), 1), rel=1e-3)
            if not between:
                table = [[hits, others], [count - hits, other_count - others]]
                exact = [stats.fisher_exact(table, side).pvalue for side in ('greater', 'less')]
                assert tails == pytest.approx(exact)


@pytest.mark.parametrize('count, other_count', [(20, 2000), (200, 200)])
@pytest.mark.parametrize('share, between', [(0.02, 0.0), (0.05, 0.0), (0.05, 0.03), (0.3, 0.05)])
def test_false_alarms_are_no_more_frequent_than_p_values_say(count, other_count, share, between):
    rng = np.random.default_rng(1)
    trials = 30_000
    trained = np.clip(share + rng.normal(0, between / np.sqrt(2), (2, trials)), 0, 1)
    hits, others = rng.binomial([[count], [other_count]], trained)
    cases, number = np.unique([hits, others], axis=1, return_counts=True)
    p_values = _p_value(cases[0], count, cases[1], other_count, between)
    for level in (0.05, 0.002, 0.00048):
        assert number[p_values <= level].sum() <= level * trials


@pytest.mark.parametrize('share, least', [(0.2, 0.0), (0.2, 0.09), (0.14, 0.0)])
def test_power_is_that_of_the_test_by_enumeration(share, least):
    count, alpha, other = 300, 0.05, 0.1
    hits = np.arange(90)  # More are rarer than one in 10,000.
    p_values = _p_value(hits[:, None], count, hits[None, :], count)
    is_clear = (p_values <= alpha) & ((hits[:, None] - hits[None, :]) / count >= least - 1e-12)
    weights = np.outer(stats.binom.pmf(hits, count, share), stats.binom.pmf(hits, count, other))
    expected = differences.compare('x', Share(round(share * count), count), Share(30, count))
    found = differences.power(expected, alpha, least)
    assert found == pytest.approx(weights[is_clear].sum(), abs=0.03)


def test_the_allowance_covers_how_trainings_vary():
    rng = np.random.default_rng(1)
    trials, count, between = 1000, 400, 0.06
    # Each of two trainings has its own share; their difference deviates by `between`.
    shares = 0.4 + rng.normal(0, between / np.sqrt(2), (2, trials))
    hits, others = rng.binomial(count, shares)
    naive = _p_value(hits, count, others, count)
    allowed = _p_value(hits, count, others, count, between)
    assert np.mean(naive <= 0.05) > 0.2
    assert 0.03 < np.mean(allowed <= 0.05) < 0.06
    pairs = zip(hits.tolist(), others.tolist(), strict=True)
    bounds = [
        differences.newcombe(*(Share(each, count) for each in pair), between) for pair in pairs
    ]
    assert 0.93 < np.mean([low <= 0 <= high for low, high in bounds]) < 0.97


def test_means_are_those_of_welch():
    rng = np.random.default_rng(2)
    first, second = rng.normal(3, 2, 40), rng.normal(1, 5, 25)
    found = differences.compare('x', *map(Mean.of, (first, second)))
    expected = stats.ttest_ind(first, second, equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue)
    # The bounds are where a test of that difference has the p-value 1 - level.
    for bound in (found.low, found.high):
        moved = stats.ttest_ind(first - bound, second, equal_var=False)
        assert moved.pvalue == pytest.approx(0.05)


def test_the_allowance_of_means_is_added_in_quadrature():
    first, second = Mean(5.0, 0.3, 10**6), Mean(4.0, 0.4, 10**6)
    found = differences.compare('x', first, second, between=1.2)
    assert found.high - found.value == pytest.approx(1.96 * 1.3, rel=1e-3)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(1 / 1.3), rel=1e-3)


def test_a_ratio_has_the_error_of_whole_draws():
    rng = np.random.default_rng(3)
    # All words of a sentence are unknown or none is: the words of a sentence are not independent.
    words = rng.integers(1, 10, (2000, 50))
    unknown = words * (rng.random(words.shape) < 0.3)
    means = [Mean.ratio(*each) for each in zip(unknown, words, strict=True)]
    values = np.array([mean.value for mean in means])
    assert values[0] == unknown[0].sum() / words[0].sum()
    assert np.median([mean.error for mean in means]) == pytest.approx(values.std(), rel=0.06)


def test_holm_by_hand():
    pair = Share(60, 100), Share(40, 100)
    compared = [
        dataclasses.replace(differences.compare('x', *pair), p_value=p_value)
        for p_value in (0.5, 0.01, 0.04, 0.03)
    ]
    found = differences.corrected(compared)
    assert [each.adjusted for each in found] == pytest.approx([0.5, 0.04, 0.09, 0.09])
    assert found[1].is_clear(0.05) and not found[1].is_clear(0.05, least=0.3)
    assert not found[2].is_clear(0.05)
    assert found[1].to_dict()['difference'] == pytest.approx(0.2)


def test_without_draws_nothing_is_clear():
    empty, some = Share.of([]), Share.of([True, False])
    assert empty.interval() == (0, 1) and some.interval()[0] > 0
    found = differences.compare('x', empty, some)
    assert (found.low, found.high, found.p_value) == (-1, 1, 1)
    assert differences.json_values(found)['first'] is None
    single = differences.compare('x', Mean.of([3.0]), Mean.of([1.0, 2.0]))
    assert single.p_value == 1 and single.low == -np.inf
    unknown = Mean.ratio([0, 0], [0, 0])
    assert differences.json_values(unknown) == {'value': None, 'error': None, 'count': 2}
    # All draws alike: certain by the samples alone, not with an allowance.
    ones, twos = Mean.of([1, 1, 1]), Mean.of([2, 2, 2])
    assert differences.compare('x', ones, twos).p_value == 0
    assert differences.compare('x', ones, ones).p_value == 1
    assert differences.compare('x', ones, twos, between=1.0).p_value > 0.3
