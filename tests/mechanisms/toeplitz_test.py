"""Toeplitz matrices and their sensitivity; those with few bands, and with inverses of few bands."""

import math

import numpy as np
import pytest
from scipy import fft, signal

from dpfl import Participation, mechanisms
from dpfl.mechanisms import toeplitz
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from tests.mechanisms import random_members
from tests.sizes import exhaustive


def test_coefficients_that_rise_by_rounding_alone_are_monotone_if_that_is_known():
    rising, schema = np.array([1.0, 0.5, np.nextafter(0.5, 1)]), Participation(3, 1)
    assert not toeplitz.is_monotone(rising)
    assert toeplitz.sensitivity(rising, schema, known_monotone=True).is_exact


@pytest.mark.parametrize('terms, bands', [(5, 1), (7, 7), (1000, 3), (700, 200), (1030, 1025)])
def test_series_are_divided_by_many_coefficients_as_by_the_recursion(terms, bands, monkeypatch):
    rng = np.random.default_rng(terms)
    series, coefficients = rng.normal(size=terms), toeplitz.square_root_coefficients(bands)
    coefficients *= rng.uniform(0.5, 1, bands)
    exact = signal.lfilter([1.0], coefficients, series)
    monkeypatch.setattr(toeplitz, '_MANY_COEFFICIENTS', 0)
    np.testing.assert_allclose(toeplitz.divided(series, coefficients), exact, atol=1e-12)


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


@pytest.mark.parametrize('cases', [60, exhaustive(1000)])
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


def test_more_participations_than_blocks_are_bounded_closely():
    schema = Participation(200_000, 100)
    mechanism = mechanisms.BandedInverse(200_000, [1, -0.5, -0.45, -0.01])
    assert not toeplitz.is_monotone(mechanism.coefficients())
    released = toeplitz.pattern_sum(mechanism.coefficients(), 100, 2000)
    attained = math.sqrt(released @ released)
    assert attained <= mechanism.sensitivity(schema) <= attained * (1 + 1e-5)


def test_square_roots_and_powers_of_the_prefix_sums():
    inverse = mechanisms.BandedInverse.square_root(9, 9)
    assert inverse.inverse_coefficients[:5].tolist() == [1, -1 / 2, -1 / 8, -1 / 16, -5 / 128]
    for root, count in (
        (mechanisms.BandedToeplitz.fichtenberger(9, 9), 2),
        (inverse, 2),
        (mechanisms.BandedInverse.fractional_power(9, 9, 1 / 3), 3),
        (mechanisms.BandedInverse.fractional_power(9, 9, 1), 1),
    ):
        power = np.linalg.matrix_power(root.strategy_matrix(), count)
        np.testing.assert_allclose(power, np.tril(np.ones((9, 9))), atol=1e-13)
    identity = mechanisms.BandedInverse.fractional_power(4, 3, 0)
    np.testing.assert_array_equal(identity.strategy_matrix(), np.eye(4))


def test_the_transforms_of_a_division_grow_with_its_terms(monkeypatch):
    work, usual = [], fft.rfft
    monkeypatch.setattr(fft, 'rfft', lambda x, n: (work.append(n), usual(x, n))[1])
    sums = []
    for terms in (12_000, 48_000):
        work.clear()
        toeplitz.divided(np.ones(terms), toeplitz.square_root_coefficients(terms // 6))
        sums.append(sum(work))
    assert sums[1] < 5 * sums[0]
