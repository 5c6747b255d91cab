import numpy as np
import pytest

from dpfl import Participation
from dpfl.mechanisms import toeplitz, workload
from dpfl.mechanisms.sensitivities import matrix_sensitivity, toeplitz_sensitivity
from tests import oracles


def test_precondition_of_the_theorem_is_checked():
    assert toeplitz_sensitivity.is_monotone(np.array([1.0, 1.0, 0.5, 0.0]))
    assert not toeplitz_sensitivity.is_monotone(np.array([1.0, 0.4, 0.5]))
    assert not toeplitz_sensitivity.is_monotone(np.array([1.0, 0.5, -0.1]))


def test_the_theorem_would_be_wrong_without_its_precondition():
    # Rounds 0 and b are not the worst pattern for increasing coefficients.
    coefficients = np.array([1.0, 0.0, 0.0, 1.0])
    schema = Participation(4, min_separation=1, max_participations=2)
    bound = toeplitz_sensitivity.sensitivity(coefficients, schema)
    truth = oracles.squared_sensitivity(toeplitz.matrix(coefficients), schema)
    evenly_spaced = toeplitz.matrix(coefficients)[:, [0, 1]].sum(axis=1)
    assert evenly_spaced @ evenly_spaced < truth <= bound.squared
    assert not bound.is_exact


def _random_coefficients(rng, rounds):
    """Of any sign, monotone, or falling with a ripple."""
    kind = rng.integers(4)
    if kind == 0:
        return rng.normal(size=rounds)
    if kind == 1:
        return np.sort(np.abs(rng.normal(size=rounds)))[::-1]
    lags = np.arange(rounds)
    ripple = rng.uniform(0.1, 1.5) * np.cos(lags * rng.uniform(0, np.pi))
    return rng.uniform(0.5, 1) ** lags * (1 + ripple)


def _by_the_largest_of_rows(matrix, schema):
    """[Choquette23], algorithm 4: the heaviest pattern of the heaviest patterns of all rows."""
    heaviest = [
        matrix_sensitivity.heaviest_pattern(row, schema) for row in np.abs(matrix.T @ matrix)
    ]
    return matrix_sensitivity.heaviest_pattern(heaviest, schema)


def _by_a_majorant(coefficients, schema):
    """[McMahan24], theorem 3.1, for the least non-increasing sequence above all magnitudes."""
    majorant = np.maximum.accumulate(np.abs(coefficients)[::-1])[::-1]
    released = toeplitz_sensitivity.pattern_sum(majorant, schema.min_separation, schema.count)
    return released @ released


@pytest.mark.parametrize('cases', [100, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_the_bound_is_never_above_others(cases):
    rng = np.random.default_rng(cases)
    lower = 0
    for _ in range(cases):
        rounds = int(rng.integers(2, 60))
        coefficients = _random_coefficients(rng, rounds)
        schema = Participation(rounds, int(rng.integers(1, 9)), int(rng.integers(1, rounds)))
        bound = toeplitz_sensitivity.sensitivity(coefficients, schema).squared
        others = [
            _by_the_largest_of_rows(toeplitz.matrix(coefficients), schema),
            _by_the_largest_of_rows(toeplitz.matrix(np.abs(coefficients)), schema),
            _by_a_majorant(coefficients, schema),
        ]
        assert bound <= min(others) * (1 + 1e-9)
        lower += bound < min(others) * (1 - 1e-3)
    assert lower > cases / 5


def test_the_gram_matrix_of_coefficients():
    for rounds in (1, 2, 9):
        coefficients = np.random.default_rng(rounds).normal(size=rounds)
        matrix = toeplitz.matrix(coefficients)
        np.testing.assert_allclose(
            toeplitz_sensitivity.gram(coefficients), matrix.T @ matrix, atol=1e-14
        )


@pytest.mark.parametrize('most_pairs', [0, 1e8])
@pytest.mark.parametrize('cases', [300, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_random_coefficients_are_never_below_brute_force(monkeypatch, cases, most_pairs):
    monkeypatch.setattr(toeplitz_sensitivity, '_MOST_PAIRS', most_pairs)
    rng = np.random.default_rng(cases)
    for _ in range(cases):
        rounds = int(rng.integers(1, 8))
        coefficients = _random_coefficients(rng, rounds)
        schema = Participation(rounds, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        bound = toeplitz_sensitivity.sensitivity(coefficients, schema)
        truth = oracles.squared_sensitivity(toeplitz.matrix(coefficients), schema)
        assert bound.squared >= truth * (1 - 1e-12)
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-12)


def test_rounding_does_not_undo_what_is_known():
    coefficients = np.array([1.0, 0.5, 0.5 + 1e-16, 0.5])
    schema = Participation(4, 2)
    assert toeplitz_sensitivity.sensitivity(coefficients, schema, known_monotone=True).is_exact
    rising = np.array([1.0, 0.5, np.nextafter(0.5, 1)])
    assert not toeplitz_sensitivity.is_monotone(rising)
    assert toeplitz_sensitivity.sensitivity(rising, schema.within(3), known_monotone=True).is_exact


@pytest.mark.parametrize('rounds', [1, 2, 7, 30])
def test_sums_of_shifts(rounds):
    coefficients = np.random.default_rng(rounds).normal(size=rounds)
    for shift in (1, 2, 3, 8):
        for count in range(1, rounds + 3):
            expected = np.zeros(rounds)
            for i in range(count):
                expected[i * shift :] += coefficients[: max(rounds - i * shift, 0)]
            np.testing.assert_allclose(
                toeplitz_sensitivity.pattern_sum(coefficients, shift, count), expected, atol=1e-13
            )


def test_many_participations_are_not_added_one_by_one():
    ones = np.ones(100_000)
    bound = toeplitz_sensitivity.sensitivity(ones, Participation(ones.size))
    assert bound.squared == pytest.approx((np.arange(1.0, ones.size + 1) ** 2).sum())


def test_square_root_of_the_prefix_sums():
    root = toeplitz.matrix(toeplitz.square_root_coefficients(9))
    np.testing.assert_allclose(root @ root, np.tril(np.ones((9, 9))), atol=1e-14)


@pytest.mark.parametrize('rounds', [1, 6, 700])
def test_errors_of_toeplitz_workloads(rounds):
    rng = np.random.default_rng(rounds)
    prefix = rng.uniform(size=rounds) / np.arange(1, rounds + 1)
    inverse = toeplitz.matrix(np.diff(prefix, prepend=0.0))
    for a in (None, workload.momentum(rounds + 3, 0.9), rng.normal(size=rounds)):
        expected = ((workload.matrix(a, rounds) @ inverse) ** 2).sum(axis=1)
        np.testing.assert_allclose(toeplitz.workload_squared_error(prefix, a), expected, rtol=1e-11)
    with pytest.raises(ValueError, match='workload: has shape .*, must have at least'):
        toeplitz.workload_squared_error(prefix, np.ones(rounds - 1))
