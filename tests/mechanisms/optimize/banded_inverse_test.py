import numpy as np
import pytest
from scipy import optimize

from dpfl import Participation, mechanisms
from dpfl.mechanisms import toeplitz
from dpfl.mechanisms.banded_inverse import BandedInverse
from dpfl.mechanisms.optimize import banded_inverse as optimizer
from dpfl.mechanisms.optimize.banded_inverse import optimize_banded_inverse
from dpfl.mechanisms.sensitivities import toeplitz_sensitivity
from tests import oracles

_PAPER = Participation(2052, 342, 6)
_WORKLOADS = {
    'prefix_sums': None,
    'momentum': mechanisms.workload.momentum(14, 0.8),
    'schedule': mechanisms.workload.learning_rate_schedule(np.linspace(1, 0.1, 14), beta=0.5),
}

every_loss = pytest.mark.parametrize('loss', ['max', 'rms'])
every_workload = pytest.mark.parametrize('workload', _WORKLOADS.values(), ids=_WORKLOADS)


def _true_loss(taps: np.ndarray, schema: Participation, loss: str) -> float:
    """Loss by brute force over all patterns, dense."""
    column = np.zeros(schema.rounds)
    column[: taps.size] = taps
    inverse = toeplitz.matrix(column)
    errors = (np.cumsum(inverse, axis=0) ** 2).sum(axis=1)
    sensitivity = oracles.squared_sensitivity(np.linalg.inv(inverse), schema)
    return float(np.sqrt(sensitivity * (errors.max() if loss == 'max' else errors.mean())))


@every_loss
@every_workload
def test_error_forms_are_the_errors(loss, workload):
    taps = np.array([1, -0.6, 0.2, -0.3])
    forms = optimizer.error_forms(12, 4, loss, workload)
    mechanism = BandedInverse(12, taps)
    error = getattr(mechanism, f'{loss}_error')(workload)
    assert (taps @ forms @ taps).max() == pytest.approx(error**2, rel=1e-12)


@every_loss
@every_workload
@pytest.mark.parametrize('smooth', [False, True])
@pytest.mark.parametrize('schema', [(12, 3, 3), (12, 1, 12), (12, 5, 2), (12, 12, 1), (12, 2, 4)])
def test_gradients_are_those_of_finite_differences(loss, workload, smooth, schema):
    schema = Participation(*schema)
    forms = optimizer.error_forms(12, 4, loss, workload)
    objective = optimizer.Objective(schema, forms, smooth)
    free = np.array([-0.5, 0.2, -0.3])
    _, gradient = objective(free, 0.03)
    steps = 1e-6 * np.eye(3)
    expected = [(objective(free + s, 0.03)[0] - objective(free - s, 0.03)[0]) / 2e-6 for s in steps]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


@pytest.fixture
def _first_bound_only(monkeypatch):
    """Without the bound from all pairs of columns, which the search does not minimise."""
    monkeypatch.setattr(toeplitz_sensitivity, '_MOST_PAIRS', 0)


@pytest.mark.usefixtures('_first_bound_only')
def test_smooth_sensitivity_tends_to_the_bound_from_above():
    rng = np.random.default_rng(0)
    for schema in (Participation(12, 3, 3), Participation(11, 2, 5), Participation(7, 7, 1)):
        coefficients = np.concatenate([[1.0], rng.normal(scale=0.5, size=schema.rounds - 1)])
        bound = toeplitz_sensitivity.sensitivity(coefficients, schema).squared
        values = [
            optimizer.smooth_sensitivity(coefficients, schema, temperature)[0]
            for temperature in (1e-1, 1e-2, 1e-3, 1e-6)
        ]
        assert values == sorted(values, reverse=True)
        assert bound * (1 - 1e-12) <= values[-1] <= bound * (1 + 1e-4)


def test_pattern_sensitivity_is_the_norm_of_one_pattern():
    coefficients = np.random.default_rng(1).normal(size=10)
    released = toeplitz.matrix(coefficients)[:, [0, 4, 8]].sum(axis=1)
    value, _ = optimizer.pattern_sensitivity(coefficients, Participation(10, 4))
    assert value == pytest.approx(released @ released)


@every_loss
# The gap is what the bound costs where its maxima, or signs of C, matter.
@pytest.mark.parametrize(
    'schema, gap',
    [
        ((8, 4, 2), 1e-6),
        ((9, 9, 1), 1e-6),
        ((9, 3, 3), 0.01),
        ((8, 2, 3), 0.015),
        ((7, 1, 2), 0.001),
    ],
)
@pytest.mark.parametrize('bands', [2, 3])
def test_small_optima_against_direct_search_with_the_true_sensitivity(schema, gap, bands, loss):
    schema = Participation(*schema)
    found = optimize_banded_inverse(schema, bands, loss)
    reached = getattr(found, f'{loss}_loss')(schema)
    best = min(
        optimize.minimize(
            lambda free: _true_loss(np.concatenate([[1.0], free]), schema, loss),
            start,
            method='Nelder-Mead',
            options={'xatol': 1e-7, 'fatol': 1e-9, 'maxfev': 150 * bands},
        ).fun
        for start in (np.full(bands - 1, -0.3), found.inverse_coefficients[1:])
    )
    assert reached >= _true_loss(found.inverse_coefficients, schema, loss) * (1 - 1e-12)
    assert reached >= best * (1 - 1e-6)
    assert reached <= best * (1 + gap)


@pytest.mark.parametrize(
    'bands, most, loss', [(2, 1.55, 16.58250), (8, 1.12, 11.99065), (32, 1.02, 10.91786)]
)
def test_losses_of_the_paper_setting(bands, most, loss):
    found = optimize_banded_inverse(_PAPER, bands)
    assert found.sensitivity_is_exact(_PAPER)
    assert found.max_loss(_PAPER) == pytest.approx(loss, abs=2e-4)
    assert found.max_loss(_PAPER) <= most * 10.735  # the best BLT
    assert found.max_loss(_PAPER) < 0.65 * BandedInverse.square_root(2052, bands).max_loss(_PAPER)
    # Non-increasing coefficients would be another mechanism, and its bound another number.
    assert bands == 2 or not toeplitz_sensitivity.is_monotone(found.coefficients())


def test_rms_loss_of_the_paper_setting():
    found = optimize_banded_inverse(_PAPER, 16, 'rms')
    assert found.rms_loss(_PAPER) == pytest.approx(9.53263, abs=2e-4)
    assert found.rms_loss(_PAPER) < optimize_banded_inverse(_PAPER, 16, 'max').rms_loss(_PAPER)


def test_bands_beyond_the_separation_are_held_against_the_bound():
    schema = Participation(100, 10, 3)
    found = optimize_banded_inverse(schema, 16)
    assert found.max_loss(schema) == pytest.approx(5.9169, abs=1e-3)
    # The optimum for one pattern has a worse one: that loss cannot be proven.
    forms = optimizer.error_forms(100, 16, 'max')
    pattern = optimizer.Objective(schema, forms, smooth=False)
    tempting = pattern.minimize(found, 1e-5)
    assert pattern.loss(tempting) < 5.74
    assert tempting.max_loss(schema) > 6.3


def test_more_bands_are_never_worse():
    for schema in (Participation(60, 20, 3), Participation(60, 4, 8)):
        losses = [optimize_banded_inverse(schema, bands).max_loss(schema) for bands in range(1, 8)]
        assert (np.diff(np.log(losses)) <= 1e-5).all()


@pytest.mark.usefixtures('_first_bound_only')
@every_loss
@pytest.mark.parametrize('name', ['momentum', 'schedule'])
def test_a_workload_is_what_is_optimised(name, loss):
    schema, workload = Participation(14, 4, 3), _WORKLOADS[name]
    found = optimize_banded_inverse(schema, 4, loss, workload=workload)
    other = optimize_banded_inverse(schema, 4, loss)
    reached = getattr(found, f'{loss}_loss')(schema, workload)
    assert reached < getattr(other, f'{loss}_loss')(schema, workload)
    for step in 0.01 * np.vstack([np.eye(3), -np.eye(3)]):
        near = BandedInverse(14, found.inverse_coefficients + np.concatenate([[0.0], step]))
        assert getattr(near, f'{loss}_loss')(schema, workload) > reached


def test_the_same_arguments_give_the_same_mechanism():
    schema = Participation(80, 20, 4)
    first, second = (optimize_banded_inverse(schema, 5) for _ in range(2))
    assert first.digest() == second.digest()


def test_degenerate_widths():
    schema = Participation(6, 2, 2)
    assert optimize_banded_inverse(schema, 1).inverse_coefficients.tolist() == [1.0]
    assert optimize_banded_inverse(schema, 50).bands == 6
    loss = optimize_banded_inverse(Participation(1), 3).max_loss(Participation(1))
    assert loss == pytest.approx(1.0, rel=1e-13)


def test_progress_names_the_stages(capsys):
    optimize_banded_inverse(Participation(30, 4, 8), 4, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith('square root: max loss ')
    assert lines[-1].startswith('bound, smoothed by 1e-05: max loss ')
    optimize_banded_inverse(Participation(30, 4, 8), 4)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    'arguments, message',
    [
        ({'bands': 0}, 'bands=0: must be an integer >= 1'),
        ({'bands': 2.5}, 'bands=2.5: must be an integer >= 1'),
        ({'loss': 'mean'}, 'loss=mean: must be one of max, rms'),
        ({'workload': np.ones(5)}, 'must have at least 12 rounds'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimize_banded_inverse(Participation(12, 3, 3), **{'bands': 3, **arguments})
