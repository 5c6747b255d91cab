import numpy as np
import pytest

from dpfl import Participation
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from tests import oracles


def _random_schema(rng, rounds):
    return Participation(rounds, int(rng.integers(1, rounds + 1)), int(rng.integers(1, rounds + 1)))


def _random_strategy(rng, rounds):
    """Lower-triangular: all signs, mostly positive, positive or banded; sometimes decreasing."""
    matrix = rng.normal(size=(rounds, rounds))
    kind = rng.integers(5)
    if kind == 1:
        matrix += 1
    elif kind == 2:
        matrix = np.abs(matrix)
    elif kind == 3:
        lag = np.subtract.outer(np.arange(rounds), np.arange(rounds))
        matrix = np.abs(matrix) ** 0.2 / (1.0 + np.abs(lag))
    elif kind == 4:
        matrix = np.triu(matrix, -int(rng.integers(1, rounds + 1)) + 1)
    return np.tril(matrix)


@pytest.mark.parametrize('rounds', [1, 2, 5, 8])
def test_heaviest_pattern_is_the_best_of_all_patterns(rounds):
    rng = np.random.default_rng(rounds)
    for schema in oracles.small_schemas(rounds):
        weights = rng.exponential(size=rounds) * (rng.random(rounds) < 0.8)
        best = max(weights[list(pattern)].sum() for pattern in oracles.patterns(schema))
        assert matrix_sensitivity.heaviest_pattern(weights, schema) == pytest.approx(
            best, rel=1e-14
        )


def test_heaviest_pattern_of_a_long_run():
    weights = np.random.default_rng(0).random(10_000)
    spread = matrix_sensitivity.heaviest_pattern(weights, Participation(10_000, 400, 25))
    assert 24 < spread < 25
    every_round = Participation(10_000, 1, 25)
    expected = np.sort(weights)[-25:].sum()
    assert matrix_sensitivity.heaviest_pattern(weights, every_round) == pytest.approx(expected)


@pytest.mark.parametrize('weights', [[1, 2], [1, 2, -1], [1, 2, float('nan')]])
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match='weights=.*: must be at least 3 numbers, each >= 0'):
        matrix_sensitivity.heaviest_pattern(np.array(weights), Participation(3))


def test_upper_bound_is_never_below_brute_force():
    rng = np.random.default_rng(1)
    tight, exact = 0, 0
    for _ in range(200):
        rounds = int(rng.integers(1, 8))
        matrix, schema = _random_strategy(rng, rounds), _random_schema(rng, rounds)
        truth = oracles.squared_sensitivity(matrix, schema)
        bound = matrix_sensitivity.of_matrix(matrix, schema)
        assert bound.squared >= truth * (1 - 1e-12)
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-12)
        exact += bound.is_exact
        tight += bound.squared < truth * (1 + 1e-9)
    # Tightness on this mix: not a promise, but worth to notice when it changes.
    assert tight > 0.8 * 200
    assert exact > 0.75 * 200


def test_orthogonal_columns_are_exact_for_any_signs():
    rng = np.random.default_rng(3)
    for rounds in range(1, 9):
        for bands in range(1, rounds + 1):
            matrix = np.triu(np.tril(rng.normal(size=(rounds, rounds))), -bands + 1)
            schema = Participation(rounds, bands, 4)
            bound = matrix_sensitivity.of_matrix(matrix, schema)
            assert bound.is_exact
            norms = (matrix**2).sum(axis=0)
            assert bound.squared == pytest.approx(
                matrix_sensitivity.heaviest_pattern(norms, schema)
            )
            assert bound.squared == pytest.approx(oracles.squared_sensitivity(matrix, schema))


def test_two_participations_are_exact_for_any_signs():
    rng = np.random.default_rng(4)
    for _ in range(40):
        matrix = np.tril(rng.normal(size=(7, 7)))
        schema = Participation(7, int(rng.integers(1, 8)), 2)
        bound = matrix_sensitivity.of_matrix(matrix, schema)
        assert bound.is_exact
        assert bound.squared == pytest.approx(oracles.squared_sensitivity(matrix, schema))


def test_larger_matrices_use_only_the_rounds_of_the_schema():
    rng = np.random.default_rng(5)
    matrix = _random_strategy(rng, 9)
    schema = Participation(6, 2, 3)
    expected = matrix_sensitivity.of_matrix(matrix[:6, :6], schema)
    assert matrix_sensitivity.of_matrix(matrix, schema) == expected


def test_blocks_of_rows_do_not_change_the_bound(monkeypatch):
    matrix = _random_strategy(np.random.default_rng(6), 30)
    schema = Participation(30, 3, 5)
    expected = matrix_sensitivity.of_matrix(matrix, schema)
    monkeypatch.setattr(matrix_sensitivity, '_ROWS_AT_ONCE', 7)
    assert matrix_sensitivity.of_matrix(matrix, schema) == expected
