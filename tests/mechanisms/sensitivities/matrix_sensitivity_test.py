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


def test_separate_columns_and_two_participations_are_exact_for_any_signs():
    rng = np.random.default_rng(3)
    for rounds in range(1, 9):
        for bands in range(1, rounds + 1):
            matrix = np.tril(rng.normal(size=(rounds, rounds)))
            for given, most in ((np.triu(matrix, 1 - bands), 4), (matrix, 2)):
                schema = Participation(rounds, bands, most)
                bound = matrix_sensitivity.of_matrix(given, schema)
                assert bound.is_exact
                assert bound.squared == pytest.approx(oracles.squared_sensitivity(given, schema))


def test_larger_matrices_and_blocks_of_rows_do_not_change_the_bound(monkeypatch):
    matrix = np.tril(np.random.default_rng(6).normal(size=(35, 35)))
    schema = Participation(30, 3, 5)
    expected = matrix_sensitivity.of_matrix(matrix[:30, :30], schema)
    monkeypatch.setattr(matrix_sensitivity, '_ROWS_AT_ONCE', 7)
    assert matrix_sensitivity.of_matrix(matrix, schema) == expected
