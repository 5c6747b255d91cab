import numpy as np
import pytest
from scipy import optimize

from dpfl import Participation, mechanisms
from dpfl.mechanisms import toeplitz, workload
from dpfl.mechanisms.optimize import blt_loss, toeplitz_error
from dpfl.mechanisms.optimize.blt import optimize_blt

_STACKOVERFLOW = Participation(2052, 342, 6)
_SCHEDULE = workload.learning_rate_schedule(np.linspace(1, 0.1, 40), beta=0.6)


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', '')


def _loss(mechanism, schema, loss, a=None):
    return getattr(mechanism, f'{loss}_loss')(schema, a)


def _numeric_gradient(function, x, step=1e-6):
    return np.array(
        [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(x.size)]
    )


@pytest.mark.parametrize('terms', [0, 1, 2, 3, 8, 41])
def test_sums_of_powers(terms):
    w = np.array([0.0, 1e-9, 1e-3, 0.1, 0.9, 1.0, 1.1, 1.7])
    powers = (1 - w) ** np.arange(terms)[:, None]
    ramp = terms - np.arange(terms)[:, None]
    np.testing.assert_allclose(blt_loss.geometric_sum(terms, w)[0], powers.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(
        blt_loss.ramp_sum(terms, w)[0], (ramp * powers).sum(axis=0), rtol=1e-12
    )
    for function in (blt_loss.geometric_sum, blt_loss.ramp_sum):
        above, below = function(terms, w[3:] + 1e-6)[0], function(terms, w[3:] - 1e-6)[0]
        np.testing.assert_allclose(
            function(terms, w)[1][3:], (above - below) / 2e-6, rtol=1e-6, atol=1e-7
        )


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize('last_is_free', [False, True])
@pytest.mark.parametrize('rates', [2, 3, 4, 5, 8])
def test_objective_is_the_loss_and_its_gradient_is_right(loss, last_is_free, rates):
    rng = np.random.default_rng(rates)
    for schema in (
        _STACKOVERFLOW,
        Participation(50, 7, 3),
        Participation(20),
        Participation(9, 9),
        Participation(2, 1, 2),
        Participation(1),
    ):
        objective = blt_loss.Objective(schema, blt_loss.PrefixError(schema.rounds, loss))
        coordinates = rng.normal(scale=0.4, size=rates)
        value, gradient = objective(coordinates, 1e-3, last_is_free)
        assert np.isfinite(value)
        numeric = _numeric_gradient(lambda x: objective(x, 1e-3, last_is_free)[0], coordinates)  # noqa: B023
        np.testing.assert_allclose(gradient, numeric, atol=2e-7 * max(1, np.abs(numeric).max()))
        rate, scale = blt_loss.parameters(blt_loss.log_rates_of(coordinates, last_is_free))
        blt = mechanisms.Blt(schema.rounds, 1 - rate, scale)
        assert objective(coordinates, 0.0, last_is_free)[0] == pytest.approx(
            2 * np.log(_loss(blt, schema, loss)), abs=1e-10
        )


def test_coordinates_round_trip():
    for log_rates, free in (([-7.0, -2.5, -0.5, -0.1], False), ([-7.0, -2.5, -0.5, 0.2], True)):
        coordinates = blt_loss.coordinates_of(np.array(log_rates), free)
        np.testing.assert_allclose(blt_loss.log_rates_of(coordinates, free), log_rates)


def test_errors_of_other_workloads_and_their_gradients():
    rates, weights = np.array([0.0, 0.05, 0.4, 1.3]), np.array([0.05, 0.2, 0.3, 0.4])
    b = weights @ (1 - rates)[:, None] ** np.arange(40)
    momentum = workload.momentum(40, 0.8)

    def squared(a):
        difference = np.diff(workload.matrix(a, 40), axis=1, append=0.0) * -1
        return ((difference @ toeplitz.matrix(b)) ** 2).sum(axis=1)

    for error, expected in (
        (blt_loss.PrefixError(40, 'max'), squared(np.ones(40))[-1]),
        (blt_loss.PrefixError(40, 'rms'), squared(np.ones(40)).mean()),
        (toeplitz_error.BltToeplitzError(momentum, 'max'), squared(momentum)[-1]),
        (toeplitz_error.BltToeplitzError(momentum, 'rms'), squared(momentum).mean()),
        (toeplitz_error.BltMeanError(_SCHEDULE), squared(_SCHEDULE).mean()),
        (toeplitz_error.BltRowsError(_SCHEDULE, [39, 20], 1e6), squared(_SCHEDULE)[[39, 20]].max()),
    ):
        value, by_log_weight, by_rate = error(rates, weights)
        assert value == pytest.approx(np.log(expected), rel=1e-9)
        numeric = _numeric_gradient(lambda x: error(rates, weights * np.exp(x))[0], np.zeros(4))  # noqa: B023
        np.testing.assert_allclose(by_log_weight, numeric, atol=1e-6)
        numeric = _numeric_gradient(lambda x: error(x, weights)[0], rates)  # noqa: B023
        np.testing.assert_allclose(by_rate[1:], numeric[1:], atol=1e-6)


@pytest.mark.parametrize(
    'buffers, max_loss', [(2, 10.81), (3, 10.7514), (4, 10.7341), (5, 10.7341)]
)
def test_published_losses_of_table_3(buffers, max_loss):
    blt = optimize_blt(_STACKOVERFLOW, buffers)
    assert blt.max_loss(_STACKOVERFLOW) <= max_loss + 5e-5
    assert blt.decay.size <= buffers


@pytest.mark.parametrize('buffers, rms_loss, max_loss', [(2, 11.15, 11.80), (5, 10.87, 11.40)])
def test_published_losses_of_one_participation(buffers, rms_loss, max_loss):
    blt = optimize_blt(Participation(2052, 342, 1), buffers)
    assert blt.rms_loss(_STACKOVERFLOW) == pytest.approx(rms_loss, abs=0.005)
    assert blt.max_loss(_STACKOVERFLOW) == pytest.approx(max_loss, abs=0.005)


def test_better_than_the_production_parameters():
    schema = Participation(2000, 100, 10)
    assert optimize_blt(schema).max_loss(schema) <= 17.4035


def test_an_inverse_decay_may_be_negative_where_that_is_better():
    schema = Participation(500, 20, 25)
    blt = optimize_blt(schema, 2, 'rms')
    assert blt.rms_loss(schema) <= 23.20279  # 23.2036 with inverse decays of at least 0.
    assert blt.inverse_parameters()[0].min() < 0


@pytest.mark.parametrize('schema', [Participation(8, 3), Participation(12, 4, 2)])
@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize('buffers', [1, 2])
def test_an_independent_search_finds_nothing_better(schema, loss, buffers):
    """Nelder-Mead over (theta, omega) with the loss of the mechanism itself."""

    def value(x):
        decay, scale = 1 / (1 + np.exp(-x[:buffers])), np.exp(x[buffers:])
        if scale.sum() > 1:
            return 1e6
        return _loss(mechanisms.Blt(schema.rounds, decay, scale), schema, loss)

    rng = np.random.default_rng(0)
    found = min(
        optimize.minimize(
            value,
            np.concatenate([rng.normal(scale=2, size=buffers), rng.normal(-2, 1, size=buffers)]),
            method='Nelder-Mead',
            options={'maxiter': 150},
        ).fun
        for _ in range(2)
    )
    assert _loss(optimize_blt(schema, buffers, loss), schema, loss) <= found * (1 + 1e-8)


def test_coefficients_are_monotone_for_random_schemas():
    rng = np.random.default_rng(0)
    for _ in range(25):
        rounds = int(np.exp(rng.uniform(0, 12)))
        separation = int(np.exp(rng.uniform(0, np.log(rounds + 1))))
        count = (
            None if rounds // separation < 500 and rng.random() < 0.5 else int(rng.integers(1, 20))
        )
        schema = Participation(rounds, separation, count)
        loss = ('max', 'rms')[int(rng.integers(2))]
        blt = optimize_blt(schema, int(rng.integers(1, 5)), loss, starts=2)
        assert blt.is_monotone()
        assert blt.sensitivity_is_exact(schema)
        coefficients = blt.with_rounds(min(rounds, 5000)).coefficients()
        assert coefficients.min() >= 0 and np.diff(coefficients).max(initial=0) <= 1e-15
        # The identity is the limit of vanishing scales.
        identity = _loss(mechanisms.Identity(rounds), schema, loss)
        assert _loss(blt, schema, loss) <= identity * (1 + 1e-5)


def test_more_buffers_are_never_worse_and_useless_ones_are_left_out():
    schema = Participation(2000, 100, 10)
    losses = [optimize_blt(schema, d, 'rms').rms_loss(schema) for d in range(1, 5)]
    assert all(b <= a * (1 + 1e-9) for a, b in zip(losses, losses[1:], strict=False))
    assert optimize_blt(Participation(20), 6).decay.size < 6


def test_two_hundred_thousand_rounds():
    blt = optimize_blt(Participation(200_000, 20_000, 10))
    assert blt.max_loss(Participation(200_000, 20_000, 10)) <= 20.2961


def test_equal_arguments_give_equal_mechanisms():
    schema = Participation(100, 10)
    assert optimize_blt(schema, 3) == optimize_blt(schema, 3)


@pytest.mark.exhaustive
@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize(
    'a',
    [
        workload.momentum(40, 0.9),
        workload.learning_rate_schedule(np.linspace(1, 0.05, 40), beta=0.5),
        workload.learning_rate_schedule(np.cos(np.linspace(0, 1.5, 40))),
    ],
    ids=['momentum', 'schedule', 'cosine'],
)
def test_other_workloads(loss, a):
    schema = Participation(40, 12, 4)
    found = _loss(optimize_blt(schema, 2, loss, workload=a), schema, loss, a)
    assert found < _loss(optimize_blt(schema, 2, loss), schema, loss, a)

    def value(x):
        decay, scale = 1 / (1 + np.exp(-x[:2])), np.exp(x[2:])
        if scale.sum() > 1:
            return 1e6
        return _loss(mechanisms.Blt(40, decay, scale), schema, loss, a)

    rng = np.random.default_rng(1)
    for _ in range(2):
        start = np.concatenate([rng.normal(1, 1, size=2), rng.normal(-2, 1, size=2)])
        other = optimize.minimize(value, start, method='Nelder-Mead', options={'maxiter': 200})
        assert found <= other.fun * (1 + 1e-5)


def test_prefix_sums_as_an_explicit_workload():
    schema = Participation(80, 20, 4)
    expected = optimize_blt(schema, 2).max_loss(schema)
    for a in (np.ones(90), np.tril(np.ones((80, 80)))):
        blt = optimize_blt(schema, 2, workload=a)
        assert blt.max_loss(schema) == pytest.approx(expected, rel=1e-6)


def test_progress_goes_to_standard_error(capsys):
    optimize_blt(Participation(30, 5), 2, progress=True)
    printed = capsys.readouterr()
    assert 'optimize_blt: found: max loss' in printed.err and not printed.out


@pytest.mark.parametrize(
    'arguments, message',
    [
        ({'num_buffers': 0}, 'num_buffers=0: must be an integer >= 1 and <= 20'),
        ({'loss': 'mean'}, 'loss=mean: must be one of max, rms'),
        ({'starts': 0}, 'starts=0: must be an integer >= 1 and <= 8'),
        ({'workload': np.ones(5)}, 'workload: has shape .*, must have at least 30 rounds'),
        ({'workload': np.ones((30, 30))}, 'workload: must be lower-triangular'),
        ({'workload': np.zeros(30)}, 'workload: must have finite entries, not all of them 0'),
        ({'workload': np.full((30, 30), np.nan)}, 'workload'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimize_blt(Participation(30, 5), **arguments)
