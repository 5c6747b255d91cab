import numpy as np
import pytest

from dpfl import Participation, mechanisms
from tests import oracles

_DECAY, _LAGS = [0.9, 0.3], (0, 1, 4)
_DIRECT, _SCALE = [1, -0.1, -0.02], [[-0.1, -0.05], [0.01, 0.02], [0.03, 0.0]]


def _mechanism(rounds=9, **changes):
    values = {'decay': _DECAY, 'lags': _LAGS, 'direct': _DIRECT, 'scale': _SCALE}
    return mechanisms.LaggedBlt(rounds, **(values | changes))


def test_the_inverse_is_the_sum_of_shifted_blts():
    column = np.zeros(9)
    for lag, direct, scale in zip(_LAGS, _DIRECT, _SCALE, strict=True):
        column[lag] += direct
        for t in range(lag + 1, 9):
            column[t] += sum(
                s * decay ** (t - lag - 1) for s, decay in zip(scale, _DECAY, strict=True)
            )
    mechanism = _mechanism()
    np.testing.assert_allclose(mechanism.inverse_coefficients(), column, rtol=1e-14)
    inverse = np.linalg.inv(mechanism.strategy_matrix())
    np.testing.assert_allclose(inverse[:, 0], column, atol=1e-14)
    np.testing.assert_allclose(
        mechanisms.stream(mechanism.kernel(), np.eye(9)), inverse, atol=1e-14
    )


def test_a_blt_and_a_banded_inverse_are_special_cases():
    blt = mechanisms.Blt(30, [0.9, 0.5], [0.2, 0.1])
    same = mechanisms.LaggedBlt.product(blt, [1.0])
    np.testing.assert_allclose(same.coefficients(), blt.coefficients(), rtol=1e-12)
    banded = mechanisms.BandedInverse(30, [1.0, -0.5, -0.1])
    independent = mechanisms.Blt(30, [0.5], [0.0])
    same = mechanisms.LaggedBlt.product(independent, banded.inverse_coefficients)
    np.testing.assert_allclose(same.coefficients(), banded.coefficients(), rtol=1e-12)
    both = mechanisms.LaggedBlt.product(blt, banded.inverse_coefficients)
    expected = banded.strategy_matrix() @ blt.strategy_matrix()
    np.testing.assert_allclose(both.strategy_matrix(), expected, rtol=1e-12)
    assert (both.num_buffers(), both.lags) == (2, (0, 1, 2))


def test_lags_of_the_rounds_and_more_have_no_effect():
    short, longer = _mechanism(4), _mechanism(9)
    np.testing.assert_array_equal(short.coefficients(), longer.coefficients()[:4])
    np.testing.assert_array_equal(short.squared_error(), longer.squared_error()[:4])
    assert longer.begins_like(short, 4)


@pytest.mark.parametrize('cases', [300, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_no_sensitivity_is_below_the_truth(cases):
    rng = np.random.default_rng(cases)
    tight = 0
    for _ in range(cases):
        rounds = int(rng.integers(1, 10))
        lags = [0, *(np.flatnonzero(rng.random(7) < 0.3) + 1)]
        buffers = int(rng.integers(1, 4))
        size = rng.choice([0.05, 0.3, 1.0])
        mechanism = _mechanism(
            rounds,
            decay=rng.uniform(-0.5, 1, buffers),
            lags=lags,
            direct=np.append(1.0, rng.normal(0, size, len(lags) - 1)),
            scale=rng.normal(-0.1, size, (len(lags), buffers)),
        )
        schema = Participation(rounds, int(rng.integers(1, 6)), int(rng.integers(1, 5)))
        bound = mechanism.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
        assert bound.squared >= truth * (1 - 1e-10), (mechanism, schema)
        close = bound.squared == pytest.approx(truth, rel=1e-9)
        assert close or not bound.is_exact, (mechanism, schema)
        tight += close
    assert tight > 0.4 * cases


def test_a_lag_at_the_separation_cuts_the_correlation_off():
    schema = Participation(2052, 342, 6)
    blt = mechanisms.optimize_blt(schema, 2)
    found = mechanisms.optimize_lagged_blt(schema, 4)
    assert found.lags == (0, 342)
    columns = (blt.coefficients(), found.coefficients())
    before, after = (np.abs(column[342:]).max() / column[341] for column in columns)
    assert before > 0.9 and after < 0.25


@pytest.mark.parametrize(
    'changes, message',
    [
        ({'lags': (1, 2, 3)}, 'lags=.*: must increase, start with 0'),
        ({'lags': (0, 2, 2)}, 'lags=.*: must increase, start with 0'),
        ({'lags': (0, 1.5, 2)}, 'lags=1.5: must be an integer >= 0'),
        ({'lags': 3}, 'lags=3: must be a list of integers'),
        ({'direct': [1.0]}, 'must have as many entries as lags .3., the first 1'),
        ({'direct': [2.0, 0, 0]}, 'must have as many entries as lags .3., the first 1'),
        ({'decay': [1.1, 0.3]}, 'each within .-1, 1.'),
        ({'decay': []}, 'must have at least 1 entry'),
        ({'scale': [[0.1, 0.2]]}, 'must have one row for each lag'),
        ({'scale': 'x'}, 'scale: must be a table of finite numbers'),
        ({'scale': np.full((3, 2), 1e99), 'rounds': 40}, 'must stay below 1e150'),
    ],
)
def test_bad_fields_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        _mechanism(**changes)
