import numpy as np
import pytest

from dpfl import mechanisms


def _lower_banded(rng, rounds, bands):
    matrix = np.tril(np.triu(rng.normal(size=(rounds, rounds)), 1 - bands))
    np.fill_diagonal(matrix, rng.uniform(0.5, 2, size=rounds))
    return matrix


def _diagonals(matrix, bands):
    rounds = len(matrix)
    return np.array(
        [[matrix[t, t - j] if t >= j else np.nan for j in range(bands)] for t in range(rounds)]
    )


@pytest.mark.parametrize('bands', [1, 2, 5, 9])
def test_banded_kernels_are_a_solve_and_a_product(bands):
    rng = np.random.default_rng(bands)
    matrix = _lower_banded(rng, 9, bands)
    # What lies left of the matrix must not matter: the buffers are zero there.
    diagonals = np.nan_to_num(_diagonals(matrix, bands), nan=7.0)
    z = rng.normal(size=(9, 2))
    solved = mechanisms.stream(mechanisms.BandedSolve(diagonals), z)
    np.testing.assert_allclose(solved, np.linalg.solve(matrix, z), rtol=1e-9, atol=1e-9)
    multiplied = mechanisms.stream(mechanisms.BandedProduct(diagonals), z)
    np.testing.assert_allclose(multiplied, matrix @ z, rtol=1e-10, atol=1e-10)


def test_one_row_holds_for_every_round():
    bands = np.array([[1.0, 0.5]])
    z = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(
        mechanisms.stream(mechanisms.BandedSolve(bands), z),
        mechanisms.stream(mechanisms.BandedSolve(np.repeat(bands, 5, axis=0)), z),
    )


@pytest.mark.parametrize(
    'kind', [mechanisms.StateSpace, mechanisms.BandedSolve, mechanisms.BandedProduct]
)
def test_tables_that_do_not_fit_are_refused(kind):
    with pytest.raises(ValueError, match=r'kernel table has shape \(3,\): must be'):
        kind(np.ones(3))
