"""BLTs whose parameters change, and BLTs with lags, against those that they generalise."""

import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms import switched_blt
from tests import mechanism_cases, oracles

_FIRST = mechanisms.Blt(8, [0.9, 0.4], [0.2, 0.3])
# Decays that are no numbers within [0, 1].
_PAIR = mechanisms.Blt.from_complex(8, [0.5 + 0.4j, 0.5 - 0.4j], [0.1 + 0.1j, 0.1 - 0.1j])


def test_without_a_switch_it_is_the_blt():
    same = switched_blt.as_switched(_FIRST)
    np.testing.assert_allclose(same.strategy_matrix(), _FIRST.strategy_matrix(), rtol=1e-14)
    carried = mechanisms.SwitchedBlt.after(_FIRST, 3, _FIRST.decay, _FIRST.scale)
    np.testing.assert_allclose(carried.strategy_matrix(), _FIRST.strategy_matrix(), rtol=1e-14)
    schema = Participation(8, 2)
    assert carried.sensitivity_is_exact(schema)
    assert carried.sensitivity(schema) == pytest.approx(_FIRST.sensitivity(schema), rel=1e-12)


def test_a_carry_of_zeros_is_a_restart():
    nothing = np.zeros((2, 2))
    fresh = mechanisms.SwitchedBlt.after(_FIRST, 3, _FIRST.decay, _FIRST.scale, carry=nothing)
    restarted = mechanisms.Restarted(_FIRST, (3,), 8)
    np.testing.assert_allclose(fresh.strategy_matrix(), restarted.strategy_matrix(), atol=1e-14)


def test_entries_that_fall_are_exact():
    falling = mechanisms.SwitchedBlt.after(_FIRST, 3, [0.8, 0.3], [0.2, 0.1], gain=0.9)
    matrix = falling.strategy_matrix()
    for j in range(8):
        assert (np.diff(matrix[j:, j]) <= 0).all()
        assert (np.diff(np.diagonal(matrix, -j)) <= 0).all()
    assert all(falling.sensitivity_is_exact(schema) for schema in oracles.small_schemas(8))


def test_it_begins_like_the_mechanism_before_the_switch():
    switched = mechanisms.SwitchedBlt.after(_FIRST, 5, [0.8, 0.3], [0.1, 0.1], rounds=20)
    assert switched.rounds == 20
    assert switched.begins_like(_FIRST, 5) and not switched.begins_like(_FIRST, 6)
    assert not switched.begins_like(mechanisms.Blt(8, [0.9, 0.4], [0.2, 0.2]), 5)
    assert not switched.begins_like(mechanisms.Blt(8, [0.9], [0.2]), 5)
    again = mechanisms.SwitchedBlt.after(switched, 9, [0.5, 0.5], [0.1, 0.1])
    assert again.starts == (5, 9) and again.begins_like(switched, 9)
    noise = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(
        mechanisms.stream(switched.kernel(), noise), mechanisms.stream(_FIRST.kernel(), noise)
    )


@pytest.mark.parametrize(
    'blt', [_PAIR, mechanisms.Blt(8, [-0.5], [0.1]), mechanisms.Blt(8, [], [])]
)
def test_a_blt_of_another_form_is_neither_switched_nor_begun_like(blt):
    with pytest.raises(errors.ArgumentError, match='first: must be a switched_blt, or a blt with'):
        mechanisms.SwitchedBlt.after(blt, 5, np.abs(blt.decay), blt.scale)
    with pytest.raises(errors.ArgumentError, match='mechanism: must be a switched_blt, or a blt'):
        mechanisms.optimize_switch(blt, 3, Participation(8, 2))
    real = mechanisms.Blt(8, np.abs(blt.decay), blt.scale) if blt.decay.size else _FIRST
    assert not mechanisms.SwitchedBlt.after(real, 5, real.decay, real.scale).begins_like(blt, 5)


def test_the_inverse_of_a_lagged_blt_is_the_sum_of_shifted_blts():
    mechanism = mechanism_cases.FACTORIES['lagged_blt'](9)
    column = np.zeros(9)
    for lag, direct, scale in zip(mechanism.lags, mechanism.direct, mechanism.scale, strict=True):
        column[lag] += direct
        for t in range(lag + 1, 9):
            column[t] += scale @ mechanism.decay ** (t - lag - 1)
    np.testing.assert_allclose(mechanism.inverse_coefficients(), column, rtol=1e-14)
    inverse = np.linalg.inv(mechanism.strategy_matrix())
    np.testing.assert_allclose(inverse[:, 0], column, atol=1e-14)


def test_a_blt_and_a_banded_inverse_are_lagged_blts():
    blt = mechanisms.Blt(30, [0.9, 0.5], [0.2, 0.1])
    same = mechanisms.LaggedBlt.product(blt, [1.0])
    np.testing.assert_allclose(same.coefficients(), blt.coefficients(), rtol=1e-12)
    banded = mechanisms.BandedInverse(30, [1.0, -0.5, -0.1])
    both = mechanisms.LaggedBlt.product(blt, banded.inverse_coefficients)
    expected = banded.strategy_matrix() @ blt.strategy_matrix()
    np.testing.assert_allclose(both.strategy_matrix(), expected, rtol=1e-12)
    assert (both.num_buffers(), both.lags) == (2, (0, 1, 2))


def test_lags_beyond_the_rounds_have_no_effect():
    make = mechanism_cases.FACTORIES['lagged_blt']
    assert make(9).begins_like(make(4), 4)
    np.testing.assert_array_equal(make(4).squared_error(), make(9).squared_error()[:4])
