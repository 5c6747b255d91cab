"""Toeplitz matrices and their sensitivity; those with few bands, and with inverses of few bands."""

import math

import numpy as np
import pytest
from scipy import fft, signal

from dpfl import Participation, mechanisms
from dpfl.mechanisms import toeplitz, workload
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from tests import oracles
from tests.mechanisms import random_members

# C has the coefficients 1, .5, .65, .525, .. with a ripple that fades over a few rounds.
_RIPPLE = mechanisms.BandedInverse(12, (1, -0.5, -0.4))


def test_precondition_of_the_theorem_is_checked():
    assert toeplitz.is_monotone(np.array([1.0, 1.0, 0.5, 0.0]))
    assert not toeplitz.is_monotone(np.array([1.0, 0.4, 0.5]))
    assert not toeplitz.is_monotone(np.array([1.0, 0.5, -0.1]))
    rising = np.array([1.0, 0.5, np.nextafter(0.5, 1)])
    assert not toeplitz.is_monotone(rising)
    # Rounding does not undo what is known.
    schema = Participation(3, 2)
    assert toeplitz.sensitivity(rising, schema, known_monotone=True).is_exact


def test_the_theorem_would_be_wrong_without_its_precondition():
    # Rounds 0 and b are not the worst pattern for increasing coefficients.
    coefficients = np.array([1.0, 0.0, 0.0, 1.0])
    schema = Participation(4, min_separation=1, max_participations=2)
    bound = toeplitz.sensitivity(coefficients, schema)
    truth = oracles.squared_sensitivity(toeplitz.matrix(coefficients), schema)
    evenly_spaced = toeplitz.matrix(coefficients)[:, [0, 1]].sum(axis=1)
    assert evenly_spaced @ evenly_spaced < truth <= bound.squared
    assert not bound.is_exact


@pytest.mark.parametrize('terms, bands', [(5, 1), (7, 7), (1000, 3), (700, 200), (1030, 1025)])
def test_series_are_divided_by_many_coefficients_as_by_the_recursion(terms, bands, monkeypatch):
    rng = np.random.default_rng(terms)
    series, coefficients = rng.normal(size=terms), toeplitz.square_root_coefficients(bands)
    coefficients *= rng.uniform(0.5, 1, bands)
    exact = signal.lfilter([1.0], coefficients, series)
    monkeypatch.setattr(toeplitz, '_MANY_COEFFICIENTS', 0)
    np.testing.assert_allclose(toeplitz.divided(series, coefficients), exact, atol=1e-12)


def test_the_transforms_of_a_division_grow_with_its_terms(monkeypatch):
    work, usual = [], fft.rfft
    monkeypatch.setattr(fft, 'rfft', lambda x, n: (work.append(n), usual(x, n))[1])
    sums = []
    for terms in (12_000, 48_000):
        work.clear()
        toeplitz.divided(np.ones(terms), toeplitz.square_root_coefficients(terms // 6))
        sums.append(sum(work))
    assert sums[1] < 5 * sums[0]


def _by_the_largest_of_rows(matrix, schema):
    """[Choquette23], algorithm 4: the heaviest pattern of the heaviest patterns of all rows."""
    heaviest = [
        matrix_sensitivity.heaviest_pattern(row, schema) for row in np.abs(matrix.T @ matrix)
    ]
    return matrix_sensitivity.heaviest_pattern(heaviest, schema)


def _by_a_majorant(coefficients, schema):
    """[McMahan24], theorem 3.1, for the least non-increasing sequence above all magnitudes."""
    majorant = np.maximum.accumulate(np.abs(coefficients)[::-1])[::-1]
    released = toeplitz.pattern_sum(majorant, schema.min_separation, schema.count)
    return released @ released


@pytest.mark.parametrize('cases', [60, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_the_bound_is_never_above_others(cases):
    rng = np.random.default_rng(cases)
    lower = 0
    for _ in range(cases):
        rounds = int(rng.integers(2, 40))
        coefficients = random_members.banded_inverse(rng, rounds).coefficients()
        schema = Participation(rounds, int(rng.integers(1, 9)), int(rng.integers(1, rounds)))
        bound = toeplitz.sensitivity(coefficients, schema).squared
        others = [
            _by_the_largest_of_rows(toeplitz.matrix(coefficients), schema),
            _by_the_largest_of_rows(toeplitz.matrix(np.abs(coefficients)), schema),
            _by_a_majorant(coefficients, schema),
        ]
        assert bound <= min(others) * (1 + 1e-9)
        lower += bound < min(others) * (1 - 1e-3)
    assert lower > cases / 5


def test_a_ripple_that_the_separation_does_not_see_costs_nothing():
    schema = Participation(12, 4, 3)
    coefficients = _RIPPLE.coefficients()
    assert not toeplitz.is_monotone(coefficients)
    bound = _RIPPLE.sensitivity_bound(schema)
    assert bound.is_exact
    truth = oracles.squared_sensitivity(_RIPPLE.strategy_matrix(), schema)
    assert bound.squared == pytest.approx(truth, rel=1e-13)
    assert bound.squared < 0.99 * _by_a_majorant(coefficients, schema)


def test_the_last_columns_are_shorter():
    # Document 002, section 4.2: three participations need a column that is cut off.
    mechanism = mechanisms.BandedToeplitz.fichtenberger(2000, 400)
    last = mechanism.sensitivity_bound(Participation(2000, 999, 3))
    norm = mechanism.coefficients @ mechanism.coefficients
    assert last.is_exact
    assert last.squared == pytest.approx(2 * norm + (mechanism.coefficients[:2] ** 2).sum())


def test_many_participations_are_not_added_one_by_one():
    ones = np.ones(100_000)
    bound = toeplitz.sensitivity(ones, Participation(ones.size))
    assert bound.squared == pytest.approx((np.arange(1.0, ones.size + 1) ** 2).sum())


def test_more_participations_than_blocks_are_bounded_closely():
    schema = Participation(200_000, 100)
    mechanism = mechanisms.BandedInverse(200_000, [1, -0.5, -0.45, -0.01])
    assert not toeplitz.is_monotone(mechanism.coefficients())
    released = toeplitz.pattern_sum(mechanism.coefficients(), 100, 2000)
    attained = math.sqrt(released @ released)
    assert attained <= mechanism.sensitivity(schema) <= attained * (1 + 1e-5)


@pytest.mark.parametrize('rounds', [1, 2, 7, 30])
def test_sums_over_patterns_and_products_of_columns(rounds):
    coefficients = np.random.default_rng(rounds).normal(size=rounds)
    matrix = toeplitz.matrix(coefficients)
    for separation in (1, 2, 3, 8):
        for count in range(1, rounds + 3):
            expected = matrix[:, ::separation][:, :count].sum(axis=1)
            found = toeplitz.pattern_sum(coefficients, separation, count)
            np.testing.assert_allclose(found, expected, atol=1e-13)
    gram = matrix.T @ matrix
    np.testing.assert_allclose(toeplitz.gram(coefficients), gram, atol=1e-13)
    correlation = toeplitz.autocorrelation(coefficients)
    np.testing.assert_allclose(correlation, gram[0], atol=1e-13)


def test_square_roots_and_powers_of_the_prefix_sums():
    sums = np.tril(np.ones((9, 9)))
    fichtenberger = mechanisms.BandedToeplitz.fichtenberger(9, 9)
    np.testing.assert_allclose(fichtenberger.coefficients[:4], [1, 1 / 2, 3 / 8, 5 / 16])
    inverse = mechanisms.BandedInverse.square_root(9, 9)
    assert inverse.inverse_coefficients[:5].tolist() == [1, -1 / 2, -1 / 8, -1 / 16, -5 / 128]
    for power, count in ((0.5, 2), (1 / 3, 3), (1, 1)):
        root = mechanisms.BandedInverse.fractional_power(9, 9, power).strategy_matrix()
        np.testing.assert_allclose(np.linalg.matrix_power(root, count), sums, atol=1e-13)
    for mechanism in (fichtenberger, inverse):
        root = mechanism.strategy_matrix()
        np.testing.assert_allclose(root @ root, sums, atol=1e-13)
    identity = mechanisms.BandedInverse.fractional_power(4, 3, 0)
    np.testing.assert_array_equal(identity.strategy_matrix(), np.eye(4))


def test_a_banded_matrix_by_hand():
    mechanism = mechanisms.BandedToeplitz(4, [2.0, 0.5, -0.25])
    expected = [[2, 0, 0, 0], [0.5, 2, 0, 0], [-0.25, 0.5, 2, 0], [0, -0.25, 0.5, 2]]
    np.testing.assert_array_equal(mechanism.strategy_matrix(), expected)
    assert mechanisms.BandedToeplitz.fichtenberger(3, 8).with_rounds(5).rounds == 5


@pytest.mark.parametrize('kind', [mechanisms.BandedToeplitz, mechanisms.BandedInverse])
def test_a_negative_first_coefficient_is_the_same_mechanism(kind):
    mechanism, same = kind(6, [-1.0, 0.5, 0.0]), kind(6, [1.0, -0.5, 0.0])
    assert mechanism == same and mechanism.digest() == same.digest()
    assert mechanism not in (kind(7, [1.0, -0.5, 0.0]), kind(6, [1.0, -0.4, 0.0]))


def test_errors_of_toeplitz_workloads_of_many_rounds():
    rounds, rng = 300, np.random.default_rng(0)
    prefix = rng.uniform(size=rounds) / np.arange(1, rounds + 1)
    inverse = toeplitz.matrix(np.diff(prefix, prepend=0.0))
    for given in (np.ones(rounds), workload.momentum(rounds + 3, 0.9), rng.normal(size=rounds)):
        a = workload.cut(given, rounds)
        expected = ((workload.matrix(a, rounds) @ inverse) ** 2).sum(axis=1)
        np.testing.assert_allclose(toeplitz.workload_squared_error(prefix, a), expected, rtol=1e-11)
