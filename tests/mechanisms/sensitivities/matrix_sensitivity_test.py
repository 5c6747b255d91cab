import numpy as np
import pytest

from dpfl import Participation
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from tests import oracles


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
    matrix = np.tril(rng.normal(size=(9, 9)))
    schema = Participation(6, 2, 3)
    expected = matrix_sensitivity.of_matrix(matrix[:6, :6], schema)
    assert matrix_sensitivity.of_matrix(matrix, schema) == expected


def test_blocks_of_rows_do_not_change_the_bound(monkeypatch):
    matrix = np.tril(np.random.default_rng(6).normal(size=(30, 30)))
    schema = Participation(30, 3, 5)
    expected = matrix_sensitivity.of_matrix(matrix, schema)
    monkeypatch.setattr(matrix_sensitivity, '_ROWS_AT_ONCE', 7)
    assert matrix_sensitivity.of_matrix(matrix, schema) == expected
