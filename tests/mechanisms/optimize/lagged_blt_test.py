import numpy as np
import pytest
from scipy import optimize

from dpfl import Participation, mechanisms
from dpfl.mechanisms.optimize import lagged_blt as optimizer
from dpfl.mechanisms.optimize.lagged_blt import optimize_lagged_blt
from tests import oracles

_WORKLOADS = {
    'prefix_sums': None,
    'momentum': mechanisms.workload.momentum(14, 0.8),
    'schedule': mechanisms.workload.learning_rate_schedule(np.linspace(1, 0.1, 14), beta=0.5),
}

every_loss = pytest.mark.parametrize('loss', ['max', 'rms'])


def _small(rounds=14):
    return mechanisms.LaggedBlt(
        rounds, [0.8, 0.2], (0, 1, 4), [1, -0.2, 0.05], [[-0.2, -0.1], [0.03, 0.0], [0.02, 0.01]]
    )


@every_loss
@pytest.mark.parametrize('name', _WORKLOADS)
def test_the_value_is_the_loss_and_its_gradient_that_of_finite_differences(loss, name):
    workload, schema, mechanism = _WORKLOADS[name], Participation(14, 4, 3), _small()
    if name == 'schedule' and loss == 'max':
        worst = int(mechanism.squared_error(workload).argmax())
        error = optimizer._LargestRow(workload, [worst, 0])
    else:
        error = optimizer._error_function(14, loss, workload)
    objective = optimizer.Objective(schema, error, mechanism.lags)
    x = objective.unknowns(mechanism)
    np.testing.assert_allclose(objective.mechanism(x).scale, mechanism.scale, rtol=1e-12)
    expected = getattr(mechanism, f'{loss}_loss')(schema, workload)
    assert np.exp(objective(x, 1e-6)[0]) == pytest.approx(expected, rel=1e-3)
    steps = 1e-6 * np.eye(x.size)
    slopes = [(objective(x + s, 0.03)[0] - objective(x - s, 0.03)[0]) / 2e-6 for s in steps]
    np.testing.assert_allclose(objective(x, 0.03)[1], slopes, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    'schema, draws, lags',
    [
        ((30, 10, 3), 1, (0,)),
        ((30, 10, 3), 2, (0, 10)),
        ((30, 10, 3), 4, (0, 1, 2, 10)),
        ((30, 2, 3), 4, (0, 1, 2, 3)),
        ((30, 30, 1), 3, (0, 1, 2)),
        ((2, 1, 2), 9, (0, 1)),
    ],
)
def test_default_lags(schema, draws, lags):
    assert optimizer.default_lags(Participation(*schema), draws) == lags


@pytest.mark.parametrize('buffers, draws, loss', [(2, 2, 10.595), (4, 2, 10.51)])
def test_losses_of_the_paper_setting(buffers, draws, loss):
    schema = Participation(2052, 342, 6)
    found = optimize_lagged_blt(schema, buffers, draws=draws)
    assert found.max_loss(schema) < loss
    # Not even with 20 buffers is a BLT as good, and no monotone Toeplitz matrix is much better.
    assert found.max_loss(schema) < mechanisms.optimize_blt(schema, 20).max_loss(schema) * 0.99
    floor = mechanisms.optimize_banded_toeplitz(schema, 342, 'max').max_loss(schema)
    assert floor < found.max_loss(schema) < 1.02 * floor


def test_rms_loss_of_the_paper_setting():
    schema = Participation(2052, 342, 6)
    assert optimize_lagged_blt(schema, 2, 'rms').rms_loss(schema) < 8.99


@every_loss
@pytest.mark.parametrize('schema', [(40, 4, 8), (30, 30, 1)])
def test_it_is_never_worse_than_a_blt_or_than_fewer_buffers(schema, loss):
    schema = Participation(*schema)
    last = np.inf
    for buffers in (1, 2):
        reached = getattr(optimize_lagged_blt(schema, buffers, loss), f'{loss}_loss')(schema)
        blt = getattr(mechanisms.optimize_blt(schema, buffers, loss), f'{loss}_loss')(schema)
        assert reached <= min(last, blt) * (1 + 1e-9)
        last = reached
    assert schema.count == 1 or last < 0.995 * blt


@every_loss
def test_a_small_optimum_against_direct_search_with_the_true_sensitivity(loss):
    schema = Participation(9, 3, 3)
    found = optimize_lagged_blt(schema, 1, loss)

    def true_loss(x):
        mechanism = mechanisms.LaggedBlt(
            9, [np.tanh(x[0])], found.lags, [1.0, x[1]], x[2:, None].reshape(2, 1)
        )
        truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
        return np.sqrt(truth) * getattr(mechanism, f'{loss}_error')()

    start = np.concatenate([np.arctanh(found.decay), found.direct[1:], found.scale.ravel()])
    best = optimize.minimize(true_loss, start, method='Nelder-Mead', options={'maxfev': 1500}).fun
    reached = getattr(found, f'{loss}_loss')(schema)
    assert best * (1 - 1e-6) <= reached <= best * 1.01


@every_loss
@pytest.mark.parametrize('name', ['momentum', 'schedule'])
def test_a_workload_is_what_is_optimised(name, loss):
    schema, workload = Participation(14, 4, 3), _WORKLOADS[name]
    found = optimize_lagged_blt(schema, 2, loss, workload=workload)
    other = optimize_lagged_blt(schema, 2, loss)
    reached = getattr(found, f'{loss}_loss')(schema, workload)
    assert reached < getattr(other, f'{loss}_loss')(schema, workload)


def test_the_same_arguments_give_the_same_mechanism():
    schema = Participation(60, 20, 3)
    first, second = (optimize_lagged_blt(schema, 2, lags=(0, 3, 20)) for _ in range(2))
    assert first.digest() == second.digest() and first.lags == (0, 3, 20)


def test_degenerate_sizes():
    one = Participation(1)
    assert optimize_lagged_blt(one, 3).max_loss(one) == pytest.approx(1.0, rel=1e-12)
    two = Participation(2, 1, 2)
    assert optimize_lagged_blt(two, 1, draws=5, lags=(0, 7)).lags == (0,)


def test_progress_names_the_stages(capsys):
    optimize_lagged_blt(Participation(30, 4, 8), 2, draws=3, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith('optimize_lagged_blt: 1 buffers, 2 lags: max loss ')
    assert lines[-1].startswith('optimize_lagged_blt: 2 buffers, 3 lags: max loss ')


@pytest.mark.parametrize(
    'arguments, message',
    [
        ({'num_buffers': 0}, 'num_buffers=0: must be an integer >= 1 and <= 20'),
        ({'draws': 0}, 'draws=0: must be an integer >= 1'),
        ({'loss': 'mean'}, 'loss=mean: must be one of max, rms'),
        ({'lags': (1, 2)}, 'lags=.*: must increase, start with 0'),
        ({'workload': np.ones(5)}, 'must have'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimize_lagged_blt(Participation(12, 3, 3), **arguments)
