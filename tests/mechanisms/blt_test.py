"""BLTs and their inverses, and BLTs whose parameters change from block to block."""

import numpy as np

from dpfl import Participation, mechanisms, strategies
from dpfl.mechanisms import kernels
from tests.mechanisms import random_members

_PRODUCTION = [
    strategies.load(name).with_rounds(500) for name in ('blt_b100', 'blt_b400', 'blt_b1000')
]


def _random(count):
    rng = np.random.default_rng(0)
    return [random_members.monotone_blt(rng, int(rng.integers(1, 120))) for _ in range(count)]


def _first_column_of_inverse(mechanism):
    impulse = np.zeros(mechanism.rounds)
    impulse[0] = 1.0
    return kernels.stream(mechanism.kernel(), impulse)


def test_inverse_parameters_are_those_of_the_inverse():
    for blt in [*_random(100), *_PRODUCTION, mechanisms.Blt(5, [], [])]:
        theta_hat, omega_hat = blt.inverse_parameters()
        assert (omega_hat <= 0).all()
        assert (np.diff(theta_hat) < 0).all()
        column = np.append(1.0, omega_hat @ theta_hat[:, None] ** np.arange(blt.rounds - 1))
        np.testing.assert_allclose(column, _first_column_of_inverse(blt), atol=1e-13)


def test_errors_are_those_of_the_streamed_inverse():
    for blt in [*_random(100), *_PRODUCTION, mechanisms.Blt(60, [0.9], [1.95])]:
        expected = np.cumsum(np.cumsum(_first_column_of_inverse(blt)) ** 2)
        np.testing.assert_allclose(blt.squared_error(), expected, rtol=1e-12)


def test_exact_sensitivity_follows_from_the_parameters():
    # Rounding makes some of these 3000 almost constant coefficients rise.
    blt = mechanisms.Blt(3000, [1.0, 1 - 1e-13, 0.3], [0.1, 0.2, 0.3])
    assert blt.is_monotone()
    assert blt.sensitivity_is_exact(Participation(3000, 100))
    assert not mechanisms.Blt(5, [0.5], [1.1]).is_monotone()


def test_entries_by_hand():
    decay, scale, gain = [[0.5], [0.25], [0.75]], [[0.5], [0.25], [0.125]], [1.0, 2.0, 4.0]
    matrix = mechanisms.BlockBlt(5, [2, 3], decay, scale, gain).strategy_matrix()
    np.testing.assert_array_equal(matrix[2], [2 * 0.25 * 0.5, 2 * 0.25, 2.0, 0.0, 0.0])
    np.testing.assert_array_equal(matrix[4, :2], [0.5 * 0.5 * 0.25 * 0.75, 0.5 * 0.25 * 0.75])


def test_blts_keep_their_digest():
    blt = mechanisms.Blt(10, [0.9, 0.5], [0.2, 0.3])
    assert set(blt.to_dict()) == {'mechanism', 'rounds', 'decay', 'scale'}
    assert blt.digest() == '5fdda58842d73e8e8372fec034912232eb08447df5b4a3a54e26a0eda9892be3'
