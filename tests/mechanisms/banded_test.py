"""Banded matrices, and those that go on with a banded Toeplitz matrix."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import banded, mechanism_file
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from tests import oracles


def _random(rounds, bands, seed=0):
    rng = np.random.default_rng(seed)
    diagonals = rng.normal(size=(rounds, bands))
    diagonals[:, 0] = rng.uniform(0.5, 1.5, size=rounds)
    return banded.Banded(diagonals * (np.arange(bands) <= np.arange(rounds)[:, None]))


def test_diagonals_by_hand():
    mechanism = banded.Banded([[1.0, 0.0], [2.0, 0.5], [3.0, -0.25]])
    expected = [[1, 0, 0], [0.5, 2, 0], [0, -0.25, 3]]
    np.testing.assert_array_equal(mechanism.strategy_matrix(), expected)
    np.testing.assert_allclose(mechanism.column_norms(), np.sqrt([1.25, 4.0625, 9]))
    assert (mechanism.rounds, mechanism.bands, mechanism.kernel().buffers) == (3, 2, 1)


def test_more_rows_than_are_computed_at_once_agree_with_dense_algebra():
    rounds, bands = 513, 400
    # A large diagonal keeps the dense inverse, which is the oracle, well conditioned.
    diagonals = _random(rounds, bands).diagonals / bands
    diagonals[:, 0] += 1
    mechanism = banded.Banded(diagonals)
    matrix = mechanism.strategy_matrix()
    np.testing.assert_allclose(mechanism.column_norms(), np.linalg.norm(matrix, axis=0))
    np.testing.assert_allclose(mechanism.squared_error(), oracles.squared_error(mechanism))
    noise = np.random.default_rng(0).normal(size=(rounds, 2))
    streamed = mechanisms.stream(mechanism.kernel(), noise)
    expected = oracles.streamed_by_solving(mechanism, noise)
    np.testing.assert_allclose(streamed, expected, rtol=1e-8, atol=1e-12)
    assert banded.Banded.from_matrix(matrix, bands) == mechanism


def test_equality_and_digest_follow_the_numbers():
    mechanism = _random(6, 3)
    for other in (_random(6, 3, seed=1), _random(6, 2), _random(7, 3)):
        assert other != mechanism
        assert other.digest() != mechanism.digest()
    # A zero has no sign.
    signed = [[1.0, -0.0], [1.0, -0.0]]
    unsigned = [[1.0, 0.0], [1.0, 0.0]]
    assert banded.Banded(signed) == banded.Banded(unsigned)
    assert banded.Banded(signed).digest() == banded.Banded(unsigned).digest()


def test_the_table_cannot_be_changed():
    table = np.ones((3, 1))
    mechanism = banded.Banded(table)
    table[0] = 7
    assert mechanism.diagonals[0] == 1
    with pytest.raises(ValueError, match='read-only'):
        mechanism.diagonals[0] = 7


def test_rows_with_a_negative_diagonal_have_their_sign_turned(tmp_path):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        bands = int(rng.integers(1, 5))
        plain = _random(6, bands, seed)
        signs = rng.choice([-1.0, 1.0], size=6)
        given = signs[:, None] * plain.strategy_matrix()
        turned = banded.Banded(signs[:, None] * plain.diagonals)
        assert turned == plain and turned.digest() == plain.digest()
        assert banded.Banded.from_matrix(given, bands) == plain
        # What is given releases x + C^-1 z, of which covariance and sensitivity are the same.
        inverse, ours = np.linalg.inv(given), np.linalg.inv(turned.strategy_matrix())
        np.testing.assert_allclose(ours @ ours.T, inverse @ inverse.T, rtol=1e-9, atol=1e-12)
        for schema in oracles.small_schemas(6)[::5]:
            truth = oracles.squared_sensitivity(given, schema)
            assert turned.sensitivity_bound(schema).squared >= truth * (1 - 1e-12)
    # A file with such a table is read as the same mechanism.
    values = {'mechanism': 'banded', 'diagonals': signs[:, None] * plain.diagonals}
    mechanism_file.write(values, tmp_path / 'a.npz')
    assert mechanisms.load(tmp_path / 'a.npz') == plain


@pytest.mark.parametrize('most', [None, 3])
def test_sensitivities_of_all_first_rounds_share_one_table(most, monkeypatch):
    usual, calls = matrix_sensitivity.best_patterns, []

    def counted(*args):
        calls.append(args)
        return usual(*args)

    monkeypatch.setattr(matrix_sensitivity, 'best_patterns', counted)
    rng = np.random.default_rng(6)
    for rounds in (30, 60):
        mechanism = mechanisms.Banded.from_matrix(np.tril(rng.uniform(-1, 1, (rounds,) * 2)), 4)
        calls.clear()
        schemas = [Participation(n, 5, most) for n in range(1, rounds + 1)]
        running = [mechanism.sensitivity_bound(schema) for schema in schemas]
        assert len(calls) == 1
        for schema, bound in zip(schemas, running, strict=True):
            norms = mechanism.with_rounds(schema.rounds).column_norms()
            heaviest = matrix_sensitivity.heaviest_pattern(norms**2, schema)
            assert bound.is_exact and heaviest <= bound.squared <= heaviest * (1 + 1e-12)
