import numpy as np
import pytest
from scipy import linalg, optimize

from dpfl import Participation, mechanisms
from dpfl.mechanisms import banded as mechanisms_banded
from dpfl.mechanisms.optimize import banded_error, banded_start
from dpfl.mechanisms.optimize.banded import optimize_banded
from dpfl.mechanisms.optimize.banded_descent import Descent, Search
from dpfl.mechanisms.optimize.banded_norms import Norms
from tests import oracles

_GOLDEN = (3 - np.sqrt(5)) / 2


def _squared_error(mechanism, workload=None):
    return mechanism.squared_error(workload).sum()


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
    'schema, bands, column_norms',
    [
        (Participation(64, 16), 16, 'equal'),
        (Participation(97, 97), 97, 'equal'),
        (Participation(150, 6), 6, 'equal'),
        (Participation(256, 64), 64, 'equal'),
        (Participation(150, 6), 6, 'blocks'),
        (Participation(256, 64), 64, 'blocks'),
        (Participation(64, 16), 16, 'free'),
        (Participation(150, 6), 6, 'free'),
        (Participation(150, 20, 7), 6, 'free'),
        (Participation(150, 20, 4), 6, 'free'),
        (Participation(142, 10, 15), 5, 'free'),
    ],
)
def test_optimum_is_proven_by_duality(schema, bands, column_norms):
    mechanism = optimize_banded(schema, bands, column_norms=column_norms)
    bound = _least_squared_error(mechanism, schema, column_norms)
    assert bound <= _squared_error(mechanism) <= bound * (1 + 1e-4)


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
    bound = _least_squared_error(mechanism, schema, 'equal', workload)
    assert bound <= error <= bound * (1 + 1e-4)
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


@pytest.mark.parametrize('column_norms', ['equal', 'blocks', 'free'])
def test_the_largest_error_is_nearly_least(column_norms):
    schema = Participation(100, 20)
    mechanism = optimize_banded(schema, 20, loss='max', column_norms=column_norms)
    rms = optimize_banded(schema, 20, column_norms=column_norms)
    assert mechanism.max_loss(schema) < 0.95 * rms.max_loss(schema)
    # No X has a smaller largest error than the least weighted mean of errors, for any weights.
    weights = _weights_of_the_largest(mechanism)
    workload = np.sqrt(weights)[:, None] * np.tril(np.ones((100, 100)))
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


def _random_rows(rng, n, bands):
    rows = 0.7 ** np.arange(bands) * rng.uniform(0.9, 1.1, size=(n, bands))
    rows[:, 0] = 1.0
    return rows * (np.arange(bands) <= np.arange(n)[:, None])


_WORKLOADS = {
    'prefix sums': lambda n: None,
    'momentum': lambda n: mechanisms.workload.momentum(n, 0.9),
    'learning rates': lambda n: mechanisms.workload.learning_rate_schedule(
        np.linspace(1, 0.1, n), beta=0.5
    ),
    'any': lambda n: np.random.default_rng(1).uniform(0.2, 1, size=n),
}


def _errors_of(workload, n, bands):
    """The ways to compute the errors of a workload, by blocks if its inverse has few bands."""
    dense = mechanisms.workload.matrix(workload, n)
    inverse = banded_error.workload_inverse(None if workload is None else dense, n)
    by_blocks = [] if inverse is None else [banded_error.BlockError(bands, inverse)]
    return [*by_blocks, banded_error.DenseError(bands, dense)]


@pytest.mark.parametrize('workload', _WORKLOADS)
@pytest.mark.parametrize('n, bands', [(1, 1), (3, 2), (5, 5), (60, 4), (70, 40)])
def test_errors_and_their_gradients_agree_with_differences(n, bands, workload):
    rng = np.random.default_rng(n)
    given = _WORKLOADS[workload](n)
    found = _errors_of(given, n, bands)
    assert len(found) == 2 or workload == 'any'
    table, emphasis = _random_rows(rng, n, bands), rng.uniform(0.5, 1.5, size=n)
    step = rng.normal(size=(n, bands)) * (np.arange(bands) <= np.arange(n)[:, None])

    def weigh(errors):
        return float(emphasis @ errors**1.5), 1.5 * emphasis * errors**0.5

    for error in found:
        value, gradient, errors = error(table, weigh)
        np.testing.assert_allclose(
            errors, mechanisms_banded.Banded(table).squared_error(given), rtol=1e-9
        )
        ahead, behind = (error(table + s * step, weigh)[0] for s in (1e-6, -1e-6))
        assert (gradient * step).sum() == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)
        assert value == pytest.approx(weigh(errors)[0])


def test_far_from_the_optimum_errors_overflow():
    table = np.tile([1.0, -9.0], (200, 1))
    table[0, 1] = 0.0
    for error in _errors_of(None, 200, 2):
        assert error(table, lambda errors: (0.0, errors)) is None


def _descent(schema, bands, column_norms, power=1):
    error, _ = _errors_of(None, schema.rounds, bands)
    norms = getattr(Norms, column_norms)(schema)
    return Descent(error, norms, power, Search(np.inf, lambda *_: None)), norms


@pytest.mark.parametrize('column_norms', ['equal', 'blocks', 'free'])
@pytest.mark.parametrize('power', [1, 12])
def test_derivatives_of_the_loss_agree_with_differences(power, column_norms):
    rng = np.random.default_rng(0)
    schema = Participation(40, 9)
    descent, norms = _descent(schema, 6, column_norms, power)
    rows, weights = _random_rows(rng, 40, 6), rng.uniform(0.5, 1.5, size=norms.costs.size)
    step = rng.normal(size=rows.shape) * (rows != 0)
    step[:, 0] = 0
    change = rng.normal(size=weights.size)
    _, by_rows, by_weights = descent.value(rows, weights)
    ahead, behind = (descent.value(rows + s * step, weights + s * change)[0] for s in (1e-6, -1e-6))
    expected = (ahead - behind) / 2e-6
    assert (by_rows * step).sum() + by_weights @ change == pytest.approx(expected, rel=1e-6)


def _random_schema(rng, most_rounds):
    rounds = int(rng.integers(1, most_rounds + 1))
    count = None if rng.random() < 0.3 else int(rng.integers(1, rounds + 1))
    return Participation(rounds, int(rng.integers(1, rounds + 1)), count)


@pytest.mark.parametrize('cases', [300, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_the_weights_of_norms_cost_what_the_heaviest_pattern_weighs(cases):
    rng = np.random.default_rng(cases)
    for _ in range(cases):
        schema = _random_schema(rng, 9)
        norms = Norms.free(schema)
        weights = rng.exponential(size=norms.costs.size) * (rng.random(norms.costs.size) < 0.5)
        squared = norms.squared(weights)
        heaviest = max(squared[list(pattern)].sum() for pattern in oracles.patterns(schema))
        assert heaviest <= norms.costs @ weights * (1 + 1e-12) + 1e-12
        # For any norms there are weights of just that cost: the dual of the linear program.
        squared = rng.exponential(size=schema.rounds)
        heaviest = max(squared[list(pattern)].sum() for pattern in oracles.patterns(schema))
        table = np.array([norms.squared(unit) for unit in np.eye(norms.costs.size)])
        dual = optimize.linprog(norms.costs, -table.T, -squared)
        assert dual.fun == pytest.approx(heaviest, rel=1e-9)


@pytest.mark.parametrize('cases', [40, pytest.param(400, marks=pytest.mark.exhaustive)])
def test_free_norms_are_never_worse_than_the_families_that_they_contain(cases):
    rng = np.random.default_rng(cases)
    better = 0
    for case in range(cases):
        schema = _random_schema(rng, 60)
        bands = int(rng.integers(1, schema.min_separation + 1))
        loss, tolerance = (('rms', 1e-6), ('max', 1e-3))[case % 4 == 3]
        measure = f'{loss}_loss'
        free = optimize_banded(schema, bands, loss=loss, column_norms='free')
        assert free.sensitivity_is_exact(schema)
        others = [
            optimize_banded(schema, bands, loss=loss),
            mechanisms.optimize_banded_toeplitz(schema, bands, loss),
        ]
        if schema.count == -(-schema.rounds // schema.min_separation):
            others.append(optimize_banded(schema, bands, loss=loss, column_norms='blocks'))
        least = min(getattr(other, measure)(schema) for other in others)
        found = getattr(free, measure)(schema)
        assert found <= least * (1 + tolerance), (schema, bands, loss)
        better += found < least * (1 - 1e-4)
    assert better > cases / 8


@pytest.mark.exhaustive
def test_free_norms_of_many_weights_are_not_worse_than_equal_ones():
    # Four participations of ten that the rounds have place for: equal norms are nearly the best.
    schema = Participation(1000, 100, 4)
    free, equal = (
        optimize_banded(schema, 100, loss='max', column_norms=norms) for norms in ('free', 'equal')
    )
    assert free.max_loss(schema) <= equal.max_loss(schema)


def test_free_norms_where_equal_norms_lose_to_toeplitz():
    schema = Participation(142, 10, 15)
    toeplitz = mechanisms.optimize_banded_toeplitz(schema, 5).rms_loss(schema)
    assert optimize_banded(schema, 5).rms_loss(schema) > 1.005 * toeplitz
    free = optimize_banded(schema, 5, column_norms='free').rms_loss(schema)
    assert free == pytest.approx(15.02044, rel=1e-5)
    assert free < 0.94 * toeplitz


def test_few_bands_of_many_rounds():
    schema = Participation(2000, 15)
    equal, free = (
        optimize_banded(schema, 15, column_norms=norms).rms_loss(schema)
        for norms in ('equal', 'free')
    )
    assert free < equal == pytest.approx(101.08, abs=0.01)


def test_a_start_from_half_the_rounds_is_near():
    half = optimize_banded(Participation(100, 30), 30)
    rows = banded_start.refined(half.diagonals / half.diagonals[:, :1], 200, 60)
    assert not np.triu(rows[:60], 1).any()
    refined = mechanisms_banded.Banded(rows)
    norms = refined.column_norms()
    matrix = refined.strategy_matrix() / norms
    refined = mechanisms_banded.Banded.from_matrix(matrix, 60)
    schema = Participation(200, 60)
    assert refined.rms_loss(schema) < 1.03 * optimize_banded(schema, 60).rms_loss(schema)


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
    hurried = optimize_banded(schema, 200, max_seconds=1e-6)
    np.testing.assert_allclose(hurried.column_norms(), 1)
    assert hurried.rms_loss(schema) < 1.1 * optimize_banded(schema, 200).rms_loss(schema)


@pytest.mark.parametrize(
    'arguments, message',
    [
        ({'bands': 0}, 'bands=0: must be an integer >= 1 and <= 5'),
        ({'bands': 6}, 'bands=6: must be an integer >= 1 and <= 5'),
        ({'loss': 'mean'}, 'loss=mean: must be one of rms, max'),
        ({'column_norms': 'any'}, 'column_norms=any: must be one of equal, blocks, free'),
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
