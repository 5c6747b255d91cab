"""Banded matrices, and those that go on with a banded Toeplitz matrix."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import mechanism_file
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from tests import oracles


def _random(rounds, bands, seed=0):
    rng = np.random.default_rng(seed)
    diagonals = rng.normal(size=(rounds, bands))
    diagonals[:, 0] = rng.uniform(0.5, 1.5, size=rounds)
    return mechanisms.Banded(diagonals * (np.arange(bands) <= np.arange(rounds)[:, None]))


def test_more_rows_than_are_computed_at_once_agree_with_dense_algebra():
    rounds, bands = 513, 400
    # A large diagonal keeps the dense inverse, which is the oracle, well conditioned.
    diagonals = _random(rounds, bands).diagonals / bands
    diagonals[:, 0] += 1
    mechanism = mechanisms.Banded(diagonals)
    matrix = mechanism.strategy_matrix()
    np.testing.assert_allclose(mechanism.column_norms(), np.linalg.norm(matrix, axis=0))
    np.testing.assert_allclose(mechanism.squared_error(), oracles.squared_error(mechanism))
    noise = np.random.default_rng(0).normal(size=(rounds, 2))
    streamed = mechanisms.stream(mechanism.kernel(), noise)
    expected = oracles.streamed_by_solving(mechanism, noise)
    np.testing.assert_allclose(streamed, expected, rtol=1e-8, atol=1e-12)
    assert mechanisms.Banded.from_matrix(matrix, bands) == mechanism


def test_rows_with_a_negative_diagonal_have_their_sign_turned(tmp_path):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        bands = int(rng.integers(1, 5))
        plain, signs = _random(6, bands, seed), rng.choice([-1.0, 1.0], size=(6, 1))
        given = signs * plain.strategy_matrix()
        assert mechanisms.Banded(signs * plain.diagonals).digest() == plain.digest()
        assert mechanisms.Banded.from_matrix(given, bands) == plain
        # What is given releases x + C^-1 z, of which covariance and sensitivity are the same.
        inverse, ours = np.linalg.inv(given), np.linalg.inv(plain.strategy_matrix())
        np.testing.assert_allclose(ours @ ours.T, inverse @ inverse.T, rtol=1e-9, atol=1e-12)
        for schema in oracles.small_schemas(6)[::5]:
            truth = oracles.squared_sensitivity(given, schema)
            assert plain.sensitivity_bound(schema).squared >= truth * (1 - 1e-12)
    # A file with such a table is read as the same mechanism.
    values = {'mechanism': 'banded', 'diagonals': signs * plain.diagonals}
    mechanism_file.write(values, tmp_path / 'a.npz')
    assert mechanisms.load(tmp_path / 'a.npz') == plain
    for kind in (mechanisms.BandedToeplitz, mechanisms.BandedInverse):
        assert kind(6, [-1.0, 0.5, 0.0]).digest() == kind(6, [1.0, -0.5, 0.0]).digest()


@pytest.mark.parametrize('most', [None, 3])
def test_sensitivities_of_all_first_rounds_share_one_table(most, monkeypatch):
    usual, calls = matrix_sensitivity.best_patterns, []
    monkeypatch.setattr(
        matrix_sensitivity, 'best_patterns', lambda *args: (calls.append(args), usual(*args))[1]
    )
    mechanism = _random(60, 4)
    for rounds in range(1, 61):
        schema = Participation(rounds, 5, most)
        bound = mechanism.sensitivity_bound(schema)
        norms = mechanism.with_rounds(rounds).column_norms()
        heaviest = matrix_sensitivity.heaviest_pattern(norms**2, schema)
        assert bound.is_exact and heaviest <= bound.squared <= heaviest * (1 + 1e-12)
    assert len(calls) == 1 + 60  # Those of the oracle are the others.
