import time

import numpy as np
import pytest
from scipy import linalg, optimize

from dpfl import Participation, mechanisms
from dpfl.mechanisms import banded as mechanisms_banded
from dpfl.mechanisms.optimize import banded_objective
from dpfl.mechanisms.optimize.banded import optimize_banded

_GOLDEN = (3 - np.sqrt(5)) / 2


def _squared_error(mechanism, workload=None):
    return mechanism.squared_error(workload).sum()


def _gram(mechanism):
    matrix = mechanism.strategy_matrix()
    return matrix.T @ matrix


def _blocks(participation, column_norms):
    rounds = np.arange(participation.rounds)
    if column_norms == 'equal':
        return np.zeros_like(rounds)
    return rounds // participation.min_separation


def _least_squared_error(mechanism, blocks, workload=None):
    """A lower bound on the squared error of every banded X whose diagonal is allowed.

    For any positive semidefinite Y, `tr(A X^-1 A^T) + tr(Y X) >= 2 tr((A Y A^T)^(1/2))`. If Y is
    zero on the bands but for its diagonal, with equal sums over all blocks, tr(Y X) is the same
    for all X, namely the trace of Y where the mean of the diagonal over blocks is 1. The bound is
    tight at the optimum, with Y = X^-1 A^T A X^-1: so it proves how near an X is to it.
    """
    n, bands = mechanism.rounds, mechanism.bands
    a = mechanisms.workload.matrix(workload, n)
    decoder = a @ np.linalg.inv(_gram(mechanism))
    y = decoder.T @ decoder
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    y[(lag > 0) & (lag < bands)] = 0
    sums = np.bincount(blocks, np.diag(y))
    y[np.diag_indices(n)] *= (sums.mean() / sums)[blocks]
    y[np.diag_indices(n)] *= 1 + 1e-9  # rounding must not make it indefinite
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(a @ y @ a.T), 0))
    return 2 * roots.sum() - np.trace(y)


def _by_another_method(n, bands, workload=None):
    """Least squared error over banded C with normalised columns, by a generic optimiser."""
    a = mechanisms.workload.matrix(workload, n)
    rows, columns = np.nonzero(np.tril(np.triu(np.ones((n, n)), -bands + 1)))

    def error(entries):
        c = np.zeros((n, n))
        c[rows, columns] = entries
        c /= np.linalg.norm(c, axis=0)
        return (linalg.solve_triangular(c, a.T, lower=True, trans='T') ** 2).sum()

    start = 0.5 ** (rows - columns)
    return optimize.minimize(error, start, method='SLSQP', options={'maxiter': 500, 'ftol': 1e-13})


def test_two_rounds_by_hand():
    # X = [[1, x], [x, 1]]: the error (3 - 2x) / (1 - x^2) is least where x^2 - 3x + 1 = 0.
    mechanism = optimize_banded(Participation(2, 2), 2)
    assert _gram(mechanism)[1, 0] == pytest.approx(_GOLDEN, rel=1e-5)
    least = (3 - 2 * _GOLDEN) / (1 - _GOLDEN**2)
    assert _squared_error(mechanism) == pytest.approx(least, rel=1e-10)


@pytest.mark.parametrize('n', [1, 2, 7])
def test_one_band_is_the_identity(n):
    mechanism = optimize_banded(Participation(n, 3), 1)
    np.testing.assert_array_equal(mechanism.strategy_matrix(), np.eye(n))


@pytest.mark.parametrize('n, bands', [(3, 2), (6, 2), (6, 3), (7, 7), (8, 4)])
def test_small_optima_agree_with_a_generic_optimiser(n, bands):
    ours = _squared_error(optimize_banded(Participation(n, bands), bands))
    theirs = _by_another_method(n, bands)
    assert ours <= theirs.fun * (1 + 1e-7)
    assert ours == pytest.approx(theirs.fun, rel=1e-5)


def test_all_bands_satisfy_the_known_condition():
    # Without bands the optimum is X = D^-1/2 (D^1/2 A^T A D^1/2)^1/2 D^-1/2 for a diagonal D:
    # then X^-1 A^T A X^-1 = D.
    n = 12
    mechanism = optimize_banded(Participation(n, n), n)
    decoder = np.tril(np.ones((n, n))) @ np.linalg.inv(_gram(mechanism))
    weight = decoder.T @ decoder
    off_diagonal = weight - np.diag(np.diag(weight))
    assert np.abs(off_diagonal).max() < 1e-3 * np.diag(weight).min()


@pytest.mark.parametrize(
    'n, bands, column_norms',
    [
        (64, 16, 'equal'),
        (97, 97, 'equal'),
        (150, 6, 'equal'),
        (256, 64, 'equal'),
        (150, 6, 'blocks'),
        (256, 64, 'blocks'),
    ],
)
def test_optimum_is_proven_by_duality(n, bands, column_norms):
    schema = Participation(n, bands)
    mechanism = optimize_banded(schema, bands, column_norms=column_norms)
    bound = _least_squared_error(mechanism, _blocks(schema, column_norms))
    assert bound <= _squared_error(mechanism) <= bound * (1 + 3e-6)


def test_a_recorded_loss():
    # Minimising over the entries of C, columns normalised in the objective, with SciPy's L-BFGS-B
    # from the coefficients of (1 - x)^(-1/2) stops after 131 steps (ftol 1e-15) at 7.025131553.
    schema = Participation(257, 43, 6)
    mechanism = optimize_banded(schema, 43)
    assert mechanism.rms_loss(schema) == pytest.approx(7.025131553, rel=1e-7)


@pytest.mark.parametrize(
    'make',
    [
        lambda n: mechanisms.workload.momentum(n, 0.9),
        lambda n: mechanisms.workload.learning_rate_schedule(np.linspace(1, 0.05, n), beta=0.5),
        lambda n: mechanisms.workload.learning_rate_schedule(
            0.501 + 0.5 * np.cos(np.pi * np.arange(n) / n), beta=0.9
        ),
    ],
)
def test_optima_for_other_workloads_are_proven_by_duality(make):
    n, bands = 120, 30
    schema, workload = Participation(n, bands), make(n)
    mechanism = optimize_banded(schema, bands, workload=workload)
    error = _squared_error(mechanism, workload)
    bound = _least_squared_error(mechanism, _blocks(schema, 'equal'), workload)
    assert bound <= error <= bound * (1 + 3e-6)
    assert error < _squared_error(optimize_banded(schema, bands), workload)


def test_prefix_sums_given_as_a_workload_are_no_other_problem():
    schema = Participation(70, 20)
    by_default = optimize_banded(schema, 20)
    for workload in (np.ones(70), np.tril(np.ones((75, 75)))):
        given = optimize_banded(schema, 20, workload=workload)
        np.testing.assert_allclose(given.diagonals, by_default.diagonals, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize('loss', ['rms', 'max'])
def test_columns_have_norm_one(loss):
    # Rows, if the Cholesky factor of X itself is taken for C: the sensitivity then exceeds 2.
    schema = Participation(400, 100)
    mechanism = optimize_banded(schema, 100, loss=loss)
    np.testing.assert_allclose(mechanism.column_norms(), 1, rtol=1e-12)
    assert mechanism.sensitivity(schema) == pytest.approx(2)
    assert mechanism.sensitivity_is_exact(schema)
    not_reversed = np.linalg.cholesky(_gram(mechanism))
    trap = mechanisms_banded.Banded.from_matrix(not_reversed, 100)
    np.testing.assert_allclose(np.linalg.norm(not_reversed, axis=1), 1)
    assert trap.sensitivity(schema) > 2.5


def test_more_bands_lower_the_loss():
    schema = Participation(80, 40)
    losses = [optimize_banded(schema, bands).rms_loss(schema) for bands in (1, 2, 5, 10, 20, 40)]
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize('n, separation, count', [(120, 30, None), (121, 60, 3), (90, 20, 5)])
def test_norms_by_block_have_a_smaller_loss_at_the_same_sensitivity(n, separation, count):
    schema = Participation(n, separation, count)
    equal = optimize_banded(schema, separation)
    blocks = optimize_banded(schema, separation, column_norms='blocks')
    levels = [
        set(np.round(norms, 9))
        for norms in np.array_split(blocks.column_norms(), range(separation, n, separation))
    ]
    assert {len(level) for level in levels} == {1}
    assert blocks.sensitivity(schema) == pytest.approx(equal.sensitivity(schema), rel=1e-9)
    assert blocks.sensitivity_is_exact(schema)
    assert blocks.rms_loss(schema) < 0.99 * equal.rms_loss(schema)


@pytest.mark.parametrize('column_norms', ['equal', 'blocks'])
def test_the_largest_error_is_nearly_least(column_norms):
    schema = Participation(100, 20)
    mechanism = optimize_banded(schema, 20, loss='max', column_norms=column_norms)
    rms = optimize_banded(schema, 20, column_norms=column_norms)
    assert mechanism.max_loss(schema) < 0.95 * rms.max_loss(schema)
    # No X has a smaller largest error than the least weighted mean of errors, for any weights.
    weights = _weights_of_the_largest(mechanism)
    workload = np.sqrt(weights)[:, None] * np.tril(np.ones((100, 100)))
    bound = _least_squared_error(mechanism, _blocks(schema, column_norms), workload)
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


@pytest.mark.parametrize('column_norms', ['equal', 'blocks'])
@pytest.mark.parametrize(
    'power, workload',
    [
        (1, None),
        (1, mechanisms.workload.momentum(40, 0.9)),
        (5, None),
    ],
)
def test_derivatives_agree_with_differences(monkeypatch, power, workload, column_norms):
    monkeypatch.setattr(banded_objective, '_INNER_TYPE', np.float64)
    monkeypatch.setattr(banded_objective, '_ROWS_AT_ONCE', 7)
    rng = np.random.default_rng(0)
    n, bands = 40, 9
    blocks = _blocks(Participation(n, bands), column_norms)
    if workload is not None:
        workload = mechanisms.workload.matrix(workload, n)
    objective = banded_objective.Objective(blocks, bands, workload, power)
    objective.emphasis = rng.uniform(0.5, 1.5, size=n)
    rows = 0.7 ** np.arange(bands) * rng.uniform(0.9, 1.1, size=(n, bands))
    gram = objective.gram(rows, np.ones(blocks[-1] + 1))
    step = _random_step(rng, n, bands, blocks)
    width = 1e-5
    point = objective.evaluate(gram)
    ahead, behind = objective.evaluate(gram + width * step), objective.evaluate(gram - width * step)
    slope = (ahead.value - behind.value) / (2 * width)
    assert banded_objective.inner(point.gradient, step) == pytest.approx(slope, rel=1e-6)
    change = (ahead.gradient - behind.gradient) / (2 * width)
    curved = objective.curvature(point, step)
    np.testing.assert_allclose(curved, change, atol=1e-6 * np.abs(change).max())
    # The approximate inverse is symmetric and positive, as conjugate gradients require.
    precondition = objective.preconditioner(point)
    other = _random_step(rng, n, bands, blocks)
    crossed = banded_objective.inner(other, precondition(step))
    assert crossed == pytest.approx(banded_objective.inner(step, precondition(other)), rel=1e-8)
    assert banded_objective.inner(step, precondition(step)) > 0


def _random_step(rng, n, bands, blocks):
    step = rng.normal(size=(n, bands)) * (np.arange(bands) <= np.arange(n)[:, None])
    levels = rng.normal(size=blocks[-1] + 1)
    step[:, 0] = (levels - levels.mean())[blocks]
    return step


def test_optimisation_is_deterministic_and_progress_goes_to_standard_error(capsys):
    schema = Participation(100, 30)
    quiet = optimize_banded(schema, 30)
    assert capsys.readouterr() == ('', '')
    assert optimize_banded(schema, 30, progress=True) == quiet
    output, errors = capsys.readouterr()
    assert output == ''
    assert '100 of 100 rounds, rms loss' in errors


def test_a_limit_on_the_time_returns_a_valid_strategy():
    schema = Participation(600, 200)
    start = time.perf_counter()
    hurried = optimize_banded(schema, 200, max_seconds=1e-6)
    assert time.perf_counter() - start < 5
    np.testing.assert_allclose(hurried.column_norms(), 1)
    assert hurried.rms_loss(schema) < 1.1 * optimize_banded(schema, 200).rms_loss(schema)


@pytest.mark.parametrize(
    'arguments, message',
    [
        ({'bands': 0}, 'bands=0: must be an integer >= 1 and <= 5'),
        ({'bands': 6}, 'bands=6: must be an integer >= 1 and <= 5'),
        ({'loss': 'mean'}, 'loss=mean: must be one of rms, max'),
        ({'column_norms': 'free'}, 'column_norms=free: must be one of equal, blocks'),
        ({'max_seconds': 0}, 'max_seconds=0: must be a finite number > 0'),
        ({'max_seconds': float('nan')}, 'max_seconds=nan: must be a finite number > 0'),
        ({'workload': np.ones(9)}, 'workload: has shape'),
        ({'workload': np.tril(np.ones((10, 10)), -1)}, r'workload: has 0 at \[0, 0\]'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimize_banded(Participation(10, 5), **{'bands': 3, **arguments})


def test_norms_by_block_need_a_round_in_every_block():
    with pytest.raises(ValueError, match='max_participations=2 must be at least 3, the number of'):
        optimize_banded(Participation(11, 5, 2), 5, column_norms='blocks')
