import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import banded, mechanism_file
from tests import oracles


def _random(rounds, bands, seed=0, negative=True):
    rng = np.random.default_rng(seed)
    diagonals = rng.normal(size=(rounds, bands)) if negative else rng.random((rounds, bands))
    diagonals[:, 0] = rng.uniform(0.5, 1.5, size=rounds)
    return banded.Banded(diagonals * (np.arange(bands) <= np.arange(rounds)[:, None]))


def test_diagonals_by_hand():
    mechanism = banded.Banded([[1.0, 0.0], [2.0, 0.5], [3.0, -0.25]])
    expected = [[1, 0, 0], [0.5, 2, 0], [0, -0.25, 3]]
    np.testing.assert_array_equal(mechanism.strategy_matrix(), expected)
    np.testing.assert_allclose(mechanism.column_norms(), np.sqrt([1.25, 4.0625, 9]))
    assert (mechanism.rounds, mechanism.bands, mechanism.kernel().buffers) == (3, 2, 1)


@pytest.mark.parametrize('rounds, bands', [(1, 1), (4, 1), (5, 3), (6, 6), (300, 20), (513, 400)])
def test_matrix_norms_errors_and_streaming_agree_with_dense_algebra(rounds, bands):
    # A large diagonal keeps the dense inverse, which is the oracle, well conditioned.
    diagonals = _random(rounds, bands, rounds + bands).diagonals / bands
    diagonals[:, 0] += 1
    mechanism = banded.Banded(diagonals)
    matrix = mechanism.strategy_matrix()
    for j in range(rounds):
        expected = diagonals[j:, j] if j < bands else np.zeros(rounds - j)
        np.testing.assert_array_equal(np.diagonal(matrix, -j), expected)
    assert not np.triu(matrix, 1).any()
    np.testing.assert_allclose(mechanism.column_norms(), np.linalg.norm(matrix, axis=0))
    np.testing.assert_allclose(mechanism.squared_error(), oracles.squared_error(mechanism))
    noise = np.random.default_rng(0).normal(size=(rounds, 2))
    np.testing.assert_allclose(
        mechanisms.stream(mechanism.kernel(), noise),
        oracles.streamed_by_solving(mechanism, noise),
        rtol=1e-8,
        atol=1e-12,
    )
    assert banded.Banded.from_matrix(matrix, bands) == mechanism


@pytest.mark.parametrize('rounds', range(1, 8))
def test_sensitivity_is_exact_while_the_bands_do_not_exceed_the_separation(rounds):
    for bands in range(1, rounds + 1):
        mechanism = _random(rounds, bands, rounds)
        for schema in oracles.small_schemas(rounds):
            bound = mechanism.sensitivity_bound(schema)
            truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
            assert bound.squared >= truth * (1 - 1e-12)
            if bound.is_exact:
                assert bound.squared == pytest.approx(truth, rel=1e-12)
            if bands <= schema.min_separation:
                assert bound.is_exact


def test_fewer_rounds_are_the_leading_block_with_no_longer_columns():
    mechanism = _random(9, 4)
    for rounds in (1, 2, 3, 5, 9):
        block = mechanism.with_rounds(rounds)
        np.testing.assert_array_equal(
            block.strategy_matrix(), mechanism.strategy_matrix()[:rounds, :rounds]
        )
        assert (block.column_norms() <= mechanism.column_norms()[:rounds]).all()
        assert block.bands == min(4, rounds)
        schema = Participation(rounds, 2)
        assert mechanism.sensitivity(schema) == block.sensitivity(schema)


def test_more_rounds_are_refused():
    with pytest.raises(ValueError, match='rounds=6: must be at most 5, the rounds that this'):
        _random(5, 2).with_rounds(6)
    with pytest.raises(ValueError, match='rounds=6: must be an integer >= 1 and <= 5'):
        _random(5, 2).sensitivity(Participation(6))
    with pytest.raises(ValueError, match='rounds=0: must be an integer >= 1'):
        _random(5, 2).with_rounds(0)


def test_equality_and_digest_follow_the_numbers():
    mechanism = _random(6, 3)
    again = banded.Banded(**{'diagonals': mechanism.to_dict()['diagonals']})
    assert again == mechanism
    assert hash(again) == hash(mechanism)
    assert again.digest() == mechanism.digest()
    for other in (_random(6, 3, seed=1), _random(6, 2), _random(7, 3)):
        assert other != mechanism
        assert other.digest() != mechanism.digest()
    # A zero has no sign.
    assert _random(6, 1).digest() != banded.Banded(_random(6, 1).diagonals[:3]).digest()
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


@pytest.mark.parametrize(
    'diagonals, message',
    [
        ([1.0, 1.0], r'diagonals: has shape \(2,\), must have \[rounds, bands\]'),
        (np.zeros((0, 0)), r'diagonals: has shape \(0, 0\)'),
        (np.ones((2, 3)), r'diagonals: has shape \(2, 3\), .* 1 <= bands <= rounds'),
        (
            np.ones((2, 2)),
            r'diagonals: has the entry 1.0 at \[0, 1\], must have 0 left of the matrix',
        ),
        (
            [[1.0, 0.0], [0.0, 1.0]],
            r'diagonals: has 0 at \[1, 0\], each entry of \[:, 0\] must be other than 0',
        ),
        ([[1.0, 0.0], [-1e-150, 1.0]], 'where each must be >= 1e-100'),
        ([[1.0, 0.0], [1.0, float('nan')]], 'not finite'),
        ([[1.0, 0.0], [float('inf'), 0.0]], 'not finite'),
        ([['a']], 'diagonals: must be a table of numbers'),
        ([[1.0], [1.0, 2.0]], 'diagonals: must be a table of numbers'),
    ],
)
def test_bad_tables_are_named(diagonals, message):
    with pytest.raises(ValueError, match=message):
        banded.Banded(diagonals)


@pytest.mark.parametrize('seed', range(20))
def test_rows_with_a_negative_diagonal_have_their_sign_turned(seed, tmp_path):
    rng = np.random.default_rng(seed)
    rounds, bands = 6, int(rng.integers(1, 5))
    plain = _random(rounds, bands, seed)
    signs = rng.choice([-1.0, 1.0], size=rounds)
    turned = banded.Banded(signs[:, None] * plain.diagonals)
    assert turned == plain
    assert turned.digest() == plain.digest()
    assert banded.Banded.from_matrix(signs[:, None] * plain.strategy_matrix(), bands) == plain
    given = signs[:, None] * plain.strategy_matrix()
    # What is given releases x + C^-1 z, of which the covariance and the sensitivity are the same.
    inverse, ours = np.linalg.inv(given), np.linalg.inv(turned.strategy_matrix())
    np.testing.assert_allclose(ours @ ours.T, inverse @ inverse.T, rtol=1e-9, atol=1e-12)
    for schema in oracles.small_schemas(rounds)[::5]:
        truth = oracles.squared_sensitivity(given, schema)
        assert turned.sensitivity_bound(schema).squared >= truth * (1 - 1e-12)
        if bands <= schema.min_separation:
            assert turned.sensitivity_bound(schema).squared == pytest.approx(truth)
    # A file with such a table is read as the same mechanism.
    values = {'mechanism': 'banded', 'diagonals': signs[:, None] * plain.diagonals}
    mechanism_file.write(values, tmp_path / 'a.npz')
    assert mechanisms.load(tmp_path / 'a.npz') == plain


def test_bad_bands_of_a_matrix_are_named():
    with pytest.raises(ValueError, match='bands=4: must be an integer >= 1 and <= 3'):
        banded.Banded.from_matrix(np.eye(3), 4)
