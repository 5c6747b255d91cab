import tracemalloc

import numpy as np
import pytest
from scipy import optimize

from dpfl import Participation, mechanisms
from dpfl.mechanisms.optimize import banded
from dpfl.mechanisms.optimize.banded import Norms, optimize_banded
from tests.sizes import standard


def _gram(mechanism):
    matrix = mechanism.strategy_matrix()
    return matrix.T @ matrix


def _least_squared_error(mechanism, participation, column_norms, workload=None):
    """A lower bound on the squared error of every banded X with such norms and sensitivity.

    For any positive semidefinite Y, `tr(A X^-1 A^T) + tr(Y X) >= 2 tr((A Y A^T)^(1/2))`. If Y is
    zero on the bands but for its diagonal g, tr(Y X) is the sum of g_t X_tt. With squared
    sensitivity S it is at most S times the largest sum of g over the admitted windows, or of all g
    over k, because g over that is in the polytope of patterns. The best multiple of Y gives the
    bound. It is tight at the optimum, with Y = X^-1 A^T A X^-1: so it proves how near an X is.
    """
    n, bands = mechanism.rounds, mechanism.bands
    a = mechanisms.workload.matrix(workload, n)
    decoder = a @ np.linalg.inv(_gram(mechanism))
    y = decoder.T @ decoder
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    y[(lag > 0) & (lag < bands)] = 0
    y[np.diag_indices(n)] *= 1 + 1e-9  # rounding must not make it indefinite
    norms = getattr(Norms, column_norms)(participation)
    largest = (norms.gradient(np.diag(y)) / norms.costs).max()
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(a @ y @ a.T), 0))
    return roots.sum() ** 2 / (largest * mechanism.sensitivity(participation) ** 2)


def _cosine(n):
    rates = 0.501 + 0.5 * np.cos(np.pi * np.arange(n) / n)
    return mechanisms.workload.learning_rate_schedule(rates, beta=0.9)


@pytest.mark.parametrize(
    'schema, bands, column_norms, workload',
    [
        ((7, 7), 7, 'equal', None),
        ((40, 40), 40, 'equal', None),
        ((64, 16), 16, 'equal', None),
        ((60, 15), 15, 'equal', mechanisms.workload.momentum(60, 0.9)),
        ((60, 6), 6, 'free', None),
        ((60, 8, 3), 6, 'free', None),
        standard((60, 15), 15, 'equal', _cosine(60)),
        standard((256, 64), 64, 'equal', None),
        standard((142, 10, 15), 5, 'free', None),
    ],
)
def test_optimum_is_proven_by_duality(schema, bands, column_norms, workload):
    schema = Participation(*schema)
    mechanism = optimize_banded(schema, bands, column_norms=column_norms, workload=workload)
    bound = _least_squared_error(mechanism, schema, column_norms, workload)
    assert bound <= mechanism.squared_error(workload).sum() <= bound * (1 + 1e-4)


@pytest.mark.parametrize('loss', ['rms', 'max'])
def test_columns_have_norm_one(loss):
    # Rows, if the Cholesky factor of X itself is taken for C: the sensitivity then exceeds 2.
    schema = Participation(100, 25)
    mechanism = optimize_banded(schema, 25, loss=loss)
    np.testing.assert_allclose(mechanism.column_norms(), 1, rtol=1e-12)
    assert mechanism.sensitivity(schema) == pytest.approx(2)
    assert mechanism.sensitivity_is_exact(schema)
    not_reversed = np.linalg.cholesky(_gram(mechanism))
    trap = mechanisms.Banded.from_matrix(not_reversed, 25)
    assert trap.sensitivity(schema) > 2.2


@pytest.mark.parametrize('column_norms', ['equal', 'free'])
def test_the_largest_error_is_nearly_least(column_norms):
    schema = Participation(50, 10)
    mechanism = optimize_banded(schema, 10, loss='max', column_norms=column_norms)
    rms = optimize_banded(schema, 10, column_norms=column_norms)
    assert mechanism.max_loss(schema) < 0.95 * rms.max_loss(schema)
    # No X has a smaller largest error than the least weighted mean of errors, for any weights.
    weights = _weights_of_the_largest(mechanism)
    workload = np.sqrt(weights)[:, None] * np.tril(np.ones((50, 50)))
    bound = _least_squared_error(mechanism, schema, column_norms, workload)
    assert mechanism.max_error() ** 2 <= 1.01 * bound / weights.sum()


def _weights_of_the_largest(mechanism):
    """Weights w >= 0 for which `X^-1 A^T diag(w) A X^-1` is nearly diagonal on the bands."""
    n, bands = mechanism.rounds, mechanism.bands
    decoder = np.tril(np.ones((n, n))) @ np.linalg.inv(_gram(mechanism))
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    i, j = np.nonzero((lag > 0) & (lag < bands))
    entries = (decoder[:, i] * decoder[:, j]).T
    normal = entries.T @ entries
    # Least squares with mean weight 1: a penalty that outweighs the rest fixes the mean.
    penalty = 1e3 * np.sqrt(np.trace(normal))
    stacked = np.vstack([np.linalg.cholesky(normal + 1e-9 * np.eye(n)).T, np.full(n, penalty / n)])
    return optimize.nnls(stacked, np.append(np.zeros(n), penalty))[0]


@pytest.mark.standard
@pytest.mark.parametrize('family', ['equal', 'free'])
def test_the_largest_tables_end_near_the_optimum(family, monkeypatch):
    schema = Participation(256, 64, 4)
    least = optimize_banded(schema, 64, column_norms=family)
    monkeypatch.setattr(banded, '_HUGE', 4_000)
    near = optimize_banded(schema, 64, column_norms=family)
    assert near.rms_loss(schema) <= least.rms_loss(schema) * (1 + 1e-4)
    assert near.digest() != least.digest()


@pytest.mark.parametrize('bands', [4, 48])
def test_memory_grows_with_rounds_and_bands(bands, monkeypatch):
    monkeypatch.setattr(banded, '_MAX_ITERATIONS', 2)
    peaks = []
    for rounds in (500, 2000):
        tracemalloc.start()
        optimize_banded(Participation(rounds, 50), bands)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 4.5 * peaks[0]
