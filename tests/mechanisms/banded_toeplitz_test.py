import numpy as np
import pytest
from scipy import optimize

from dpfl import Participation, mechanisms
from dpfl.mechanisms import workload
from dpfl.mechanisms.banded_toeplitz import BandedToeplitz
from dpfl.mechanisms.optimize import banded_toeplitz, toeplitz_error
from dpfl.mechanisms.optimize.banded_toeplitz import optimize_banded_toeplitz
from dpfl.mechanisms.sensitivities import toeplitz_sensitivity
from tests import oracles

_STACKOVERFLOW = Participation(2052, 342, 6)
_SCHEDULE = workload.learning_rate_schedule(np.linspace(1, 0.1, 24), beta=0.6)


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', '')


def _loss(mechanism, schema, loss, a=None):
    return getattr(mechanism, f'{loss}_loss')(schema, a)


def test_strategy_by_hand():
    mechanism = BandedToeplitz(4, [2.0, 0.5, -0.25])
    expected = [[2, 0, 0, 0], [0.5, 2, 0, 0], [-0.25, 0.5, 2, 0], [0, -0.25, 0.5, 2]]
    np.testing.assert_array_equal(mechanism.strategy_matrix(), expected)
    assert mechanism.bands == 3 and mechanism.kernel().buffers == 2


@pytest.mark.parametrize('rounds', [1, 2, 5, 40])
def test_streaming_and_errors_equal_dense_algebra(rounds):
    rng = np.random.default_rng(rounds)
    mechanism = BandedToeplitz(rounds, np.append(1.5, rng.normal(scale=0.2, size=6)))
    noise = rng.normal(size=(rounds, 2))
    np.testing.assert_allclose(
        mechanisms.stream(mechanism.kernel(), noise),
        oracles.streamed_by_solving(mechanism, noise),
        rtol=1e-10,
        atol=1e-12,
    )
    np.testing.assert_allclose(
        mechanism.squared_error(), oracles.squared_error(mechanism), rtol=1e-10
    )
    inverse = np.linalg.inv(mechanism.strategy_matrix())
    schedule = workload.learning_rate_schedule(np.linspace(1, 0.2, rounds), 0.5)
    for a in (workload.momentum(rounds + 2, 0.7), schedule):
        expected = ((workload.matrix(a, rounds) @ inverse) ** 2).sum(axis=1)
        np.testing.assert_allclose(mechanism.squared_error(a), expected, rtol=1e-10)


def test_sensitivity_is_never_below_brute_force():
    rng = np.random.default_rng(0)
    exact = 0
    for _ in range(60):
        rounds, bands = int(rng.integers(1, 8)), int(rng.integers(1, 6))
        coefficients = np.append(1.0, rng.normal(size=bands - 1))
        if rng.random() < 0.3:
            coefficients = np.sort(np.abs(coefficients))[::-1]
        mechanism = BandedToeplitz(rounds, coefficients)
        for schema in oracles.small_schemas(rounds):
            bound = mechanism.sensitivity_bound(schema)
            truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
            assert bound.squared >= truth * (1 - 1e-12)
            if bands <= schema.min_separation:
                assert bound.is_exact
            if bound.is_exact:
                exact += 1
                assert bound.squared == pytest.approx(truth, rel=1e-12)
    assert exact > 300


def test_the_last_columns_are_shorter():
    # Document 002, section 4.2: three participations need a column that is cut off.
    mechanism = BandedToeplitz.fichtenberger(2000, 400)
    last = mechanism.sensitivity_bound(Participation(2000, 999, 3))
    norm = mechanism.coefficients @ mechanism.coefficients
    assert last.is_exact
    assert last.squared == pytest.approx(2 * norm + (mechanism.coefficients[:2] ** 2).sum())


def test_fichtenberger_coefficients():
    mechanism = BandedToeplitz.fichtenberger(6, 6)
    np.testing.assert_allclose(mechanism.coefficients[:4], [1, 1 / 2, 3 / 8, 5 / 16])
    square = mechanism.strategy_matrix() @ mechanism.strategy_matrix()
    np.testing.assert_allclose(square, np.tril(np.ones((6, 6))), atol=1e-14)
    assert BandedToeplitz.fichtenberger(3, 8).with_rounds(5).rounds == 5


def test_parameters_round_trip():
    mechanism = BandedToeplitz(5, [1.0, 0.5])
    values = mechanism.to_dict()
    assert values.pop('mechanism') == 'banded_toeplitz'
    again = BandedToeplitz(**values)
    assert again == mechanism and hash(again) == hash(mechanism)
    assert again != BandedToeplitz(6, [1.0, 0.5]) and again != BandedToeplitz(5, [1.0, 0.4])


@pytest.mark.parametrize(
    'arguments, message',
    [
        ((0, [1.0]), 'rounds=0: must be an integer >= 1'),
        ((5, []), r'coefficients=\[\]: must start with a number other than 0'),
        ((5, [0.0, 1.0]), r'coefficients=\[0.0, 1.0\]: must start with a number other than 0'),
        ((5, [1.0, float('inf')]), 'coefficients=.*: must be a list of finite numbers'),
    ],
)
def test_bad_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        BandedToeplitz(*arguments)


def _errors():
    shares = toeplitz_error.row_shares(24, 'rms')
    form = toeplitz_error.mean_form(_SCHEDULE)
    momentum = workload.momentum(24, 0.7)
    return {
        'series': (
            banded_toeplitz.SeriesError(momentum, lambda b: shares * b),
            lambda m: m.squared_error(momentum).mean(),
        ),
        'dense': (
            banded_toeplitz.SeriesError(np.ones(24), lambda b: form @ b),
            lambda m: m.squared_error(_SCHEDULE).mean(),
        ),
        'rows': (
            banded_toeplitz.RowsError(_SCHEDULE, [23, 8, 15], 1e6),
            lambda m: m.squared_error(_SCHEDULE)[[23, 8, 15]].max(),
        ),
    }


@pytest.mark.parametrize('kind', _errors())
def test_objective_and_its_gradient(kind):
    error, expected = _errors()[kind]
    coefficients = np.array([1.1, 0.5, 0.3, 0.4, -0.1])
    mechanism = BandedToeplitz(24, coefficients)
    assert error(coefficients)[0] == pytest.approx(np.log(expected(mechanism)), rel=1e-9)
    for separation, count in ((5, 3), (2, 9), (1, 24), (24, 1), (7, 4)):
        schema = Participation(24, separation, count)
        objective = banded_toeplitz.Objective(schema, error)
        value, gradient = objective(coefficients)
        pattern = np.arange(count) * separation
        released = mechanism.strategy_matrix()[:, pattern].sum(axis=1)
        squared = expected(mechanism) * (released @ released)
        assert value == pytest.approx(0.5 * np.log(squared), rel=1e-9)
        assert objective(3 * coefficients)[0] == pytest.approx(value, rel=1e-9)
        step = 1e-6 * np.eye(5)
        numeric = [
            (objective(coefficients + e)[0] - objective(coefficients - e)[0]) / 2e-6 for e in step
        ]
        np.testing.assert_allclose(gradient, numeric, atol=1e-7)


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize(
    'bands, schema',
    [
        (2, Participation(8, 3)),
        (3, Participation(9, 4, 2)),
        (4, Participation(10, 4)),
        (3, Participation(9, 1, 2)),
        (4, Participation(12, 2)),
    ],
)
def test_an_independent_search_finds_nothing_better(loss, bands, schema):
    def value(free):
        coefficients = np.append(1.0, free)
        # Wider than the separation: only where theorem 3.1 holds is the answer promised.
        if bands > schema.min_separation and not toeplitz_sensitivity.is_monotone(coefficients):
            return 1e6
        return _loss(BandedToeplitz(schema.rounds, coefficients), schema, loss)

    found = optimize_banded_toeplitz(schema, bands, loss)
    assert found.bands <= bands and found.coefficients[0] == 1
    for start in (0.9, 0.4):
        other = optimize.minimize(
            value,
            start ** np.arange(1, bands),
            method='Nelder-Mead',
            options={'xatol': 1e-7, 'fatol': 1e-10},
        )
        assert _loss(found, schema, loss) <= other.fun * (1 + 1e-8)


def test_losses_at_the_setting_of_table_3():
    rms = optimize_banded_toeplitz(_STACKOVERFLOW, 342)
    assert rms.rms_loss(_STACKOVERFLOW) == pytest.approx(8.8041, abs=1e-4)
    largest = optimize_banded_toeplitz(_STACKOVERFLOW, 342, 'max')
    assert largest.max_loss(_STACKOVERFLOW) == pytest.approx(10.4046, abs=1e-4)
    for found in (rms, largest):
        assert found.sensitivity_is_exact(_STACKOVERFLOW)


def test_ten_thousand_rounds():
    schema = Participation(10_000, 400, 25)
    found = optimize_banded_toeplitz(schema, 400)
    assert found.rms_loss(schema) <= 26.541


def test_more_bands_than_the_separation():
    schema = Participation(200, 20, 5)
    losses = []
    for bands in (20, 35, 200):
        found = optimize_banded_toeplitz(schema, bands)
        assert found.sensitivity_is_exact(schema)
        losses.append(found.rms_loss(schema))
        assert losses[-1] <= BandedToeplitz.fichtenberger(200, bands).rms_loss(schema)
    assert losses[1] <= losses[0] * (1 + 1e-9) and losses[2] <= losses[1] * (1 + 1e-6)
    # Two participations that may be adjacent: a single band would be far from optimal.
    schema = Participation(300, 1, 2)
    assert optimize_banded_toeplitz(schema, 60).rms_loss(schema) < 7


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize(
    'a',
    [
        workload.momentum(24, 0.9),
        _SCHEDULE,
        workload.learning_rate_schedule(np.cos(np.linspace(0, 1.5, 24))),
    ],
    ids=['momentum', 'schedule', 'cosine'],
)
def test_other_workloads(loss, a):
    schema = Participation(24, 5)
    found = _loss(optimize_banded_toeplitz(schema, 4, loss, workload=a), schema, loss, a)

    def value(free):
        return _loss(BandedToeplitz(24, np.append(1.0, free)), schema, loss, a)

    for start in (0.5, 0.2):
        other = optimize.minimize(value, start ** np.arange(1, 4), method='Nelder-Mead')
        assert found <= other.fun * (1 + 1e-5)


def test_one_band_is_the_identity():
    assert optimize_banded_toeplitz(Participation(9, 3), 1) == BandedToeplitz(9, [1.0])
    assert optimize_banded_toeplitz(Participation(1), 5) == BandedToeplitz(1, [1.0])


def test_equal_arguments_give_equal_mechanisms():
    schema = Participation(60, 10)
    assert optimize_banded_toeplitz(schema, 10) == optimize_banded_toeplitz(schema, 10)


def test_progress_goes_to_standard_error(capsys):
    optimize_banded_toeplitz(Participation(30, 5), 3, progress=True)
    printed = capsys.readouterr()
    assert 'optimize_banded_toeplitz: 3 bands: rms loss' in printed.err and not printed.out


@pytest.mark.parametrize(
    'arguments, message',
    [
        ({'bands': 0}, 'bands=0: must be an integer >= 1'),
        ({'bands': 2, 'loss': 'mean'}, 'loss=mean: must be one of max, rms'),
        (
            {'bands': 2, 'workload': np.ones(5)},
            'workload: has shape .*, must have at least 30 rounds',
        ),
        ({'bands': 2, 'workload': np.zeros(30)}, 'workload: must have finite entries'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimize_banded_toeplitz(Participation(30, 5), **arguments)


def test_a_negative_first_coefficient_is_the_same_mechanism():
    mechanism = mechanisms.BandedToeplitz(6, [-1.0, 0.5, 0.0])
    assert mechanism == mechanisms.BandedToeplitz(6, [1.0, -0.5, 0.0])
    assert mechanism.digest() == mechanisms.BandedToeplitz(6, [1.0, -0.5, 0.0]).digest()
