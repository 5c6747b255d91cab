"""N-grams and their distances against brute force, and what Holm's correction keeps clear."""

import collections

import numpy as np
import pytest

from experiments.studies.shared import ngrams, written

pytestmark = pytest.mark.standard

_PAD, _BEGIN, _END = 0, 1, 2
_ALPHABET = ngrams.Alphabet(6, _BEGIN, _END, _PAD)
_FIRST = np.array([[3, 4, 3, 2], [5, 2, 0, 0], [3, 4, 3, 4], [2, 0, 0, 0]])
_SECOND = np.array([[3, 4, 2], [4, 4, 2]])


def _brute_force(rows, order):
    """Numbers of sequences with an n-gram, and of its occurrences."""
    having, occurring = collections.Counter(), collections.Counter()
    for row in rows.tolist():
        sequence = [token for token in row if token != _PAD]
        if order == 1:
            sequence = [token for token in sequence if token != _END]
        else:
            sequence = [_BEGIN, *sequence]
        found = [tuple(sequence[i : i + order]) for i in range(len(sequence) - order + 1)]
        occurring.update(found)
        having.update(set(found))
    return having, occurring


@pytest.mark.parametrize('order', [1, 2, 3, 4])
def test_counts_are_those_of_brute_force(order):
    found = ngrams.ngrams(_FIRST, _SECOND, order, _ALPHABET)
    names = list(map(tuple, found.grams.tolist()))
    assert names == sorted(set(names))
    for side, rows in enumerate((_FIRST, _SECOND)):
        having, occurring = _brute_force(rows, order)
        sequences, occurrences = found.sequences()[side], found.occurrences()[side]
        assert {n: c for n, c in zip(names, sequences.tolist(), strict=True) if c} == having
        assert {n: c for n, c in zip(names, occurrences.tolist(), strict=True) if c} == occurring


def test_a_share_that_differs_is_first_and_clear_and_chance_is_not():
    rng = np.random.default_rng(5)
    first, second = rng.integers(3, 40, (2, 2000, 6))
    second[:60, 2:4] = [38, 39]  # 3 % of the sequences have a pair that is rare otherwise.
    alphabet = ngrams.Alphabet(40, _BEGIN, _END, _PAD)
    found = ngrams.compare(ngrams.ngrams(first, second, 2, alphabet), least=5)
    assert found[0].gram == (38, 39) and found[0].difference.is_clear(0.01)
    assert found[0].second.hits >= 60 and found[0].second.count == 2000
    assert found[0].difference.high < 0
    assert not any(each.difference.is_clear(0.01) for each in found[1:])
    assert all(each.first.hits + each.second.hits >= 5 for each in found)
    # An allowance for training again of the size of the difference makes it unclear.
    wide = ngrams.compare(
        ngrams.ngrams(first, second, 2, alphabet), least=5, between=lambda shares: 2 * shares
    )
    assert not any(each.difference.is_clear(0.01) for each in wide)


def test_distances_by_hand():
    first, second = np.array([3, 1, 0]), np.array([1, 1, 2])
    # Shares 3/4, 1/4, 0 and 1/4, 1/4, 1/2; the averages are 1/2, 1/4, 1/4.
    assert ngrams.total_variation(first, second) == 0.5
    one = 0.75 * np.log2(1.5)
    other = 0.25 * np.log2(0.5) + 0.5 * np.log2(2)
    assert ngrams.divergence(first, second) == pytest.approx((one + other) / 2)
    assert ngrams.divergence(first, 7 * first) == pytest.approx(0, abs=1e-12)
    apart = np.array([5, 0]), np.array([0, 2])
    assert ngrams.total_variation(*apart) == ngrams.divergence(*apart) == 1


def test_the_noise_floor_is_the_distance_of_equal_distributions():
    rng = np.random.default_rng(3)
    alphabet = ngrams.Alphabet(30, _BEGIN, _END, _PAD)
    first, second = rng.integers(3, 30, (2, 400, 5))
    equal = ngrams.distance(ngrams.ngrams(first, second, 2, alphabet), 39, seed=1)
    assert equal.total_variation == pytest.approx(equal.floor, rel=0.1) and equal.p_value > 0.05
    second = np.minimum(second, 20)
    other = ngrams.distance(ngrams.ngrams(first, second, 2, alphabet), 39, seed=1)
    assert other.total_variation > 1.5 * other.floor
    assert other.divergence > other.divergence_floor
    assert other.p_value == 1 / 40
    again = ngrams.distance(ngrams.ngrams(first, second, 2, alphabet), 39, seed=1)
    assert again == other


def test_the_permutation_test_is_exact():
    """Of equal distributions, p <= 1/5 has probability 1/5: 100 draws, 5 standard deviations."""
    rng = np.random.default_rng(9)
    alphabet = ngrams.Alphabet(8, _BEGIN, _END, _PAD)
    small = 0
    for seed in range(100):
        first, second = rng.integers(3, 8, (2, 12, 3))
        found = ngrams.distance(ngrams.ngrams(first, second, 1, alphabet), 4, seed)
        small += found.p_value <= 0.2
    assert abs(small - 20) < 5 * np.sqrt(100 * 0.2 * 0.8)


def test_the_allowance_grows_for_rare_events_and_is_recovered_from_shares():
    allowed = written.Allowance(0.2)
    at = allowed.of_shares(np.array([0.5, 0.05, 0.05 / 8, 0.0, 1.0]))
    expected = [0.2 * 0.25, 0.2 * 0.05 * 0.95, 0.4 * (0.05 / 8) * (1 - 0.05 / 8), 0, 0]
    np.testing.assert_allclose(at, expected)
    rng = np.random.default_rng(2)
    shares = rng.uniform(0.01, 0.3, 2000)
    moved = shares + allowed.of_shares(shares) * rng.normal(size=2000)
    counts = 50_000, 40_000
    first, second = (rng.binomial(n, p) for n, p in zip(counts, (shares, moved), strict=True))
    assert written.implied(first, second, counts) == pytest.approx(0.2, rel=0.1)
    second = rng.binomial(counts[1], shares)
    assert written.implied(first, second, counts) < 0.04
    assert written.implied(first[:5], second[:5], counts) is None
