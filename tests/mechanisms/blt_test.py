"""BLTs and their inverses, and BLTs whose parameters change from block to block."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms, strategies
from dpfl.mechanisms import kernels
from tests.mechanisms import random_members

# The inverse decays of the first one are not real.
_NOT_REAL = mechanisms.Blt(60, [0.8, 0.3], [0.2, -0.9])
# Inverses that grow, and inverse decays that coincide.
_NOT_TAME = [
    mechanisms.Blt(60, decay, scale)
    for decay, scale in (
        ([0.9], [1.95]),
        ([0.9, 0.89], [3.0, -2.9]),
        ([0.9, 0.5], [-0.5, 0.9]),
        ([0.9, 0.9], [0.5, -0.2]),
        ([1.0, 0.5], [0.0, 0.0]),
    )
]
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
    # omega_i = prod_j (theta_i - theta^_j) / prod_{j != i} (theta_i - theta_j).
    both_signs = mechanisms.Blt(30, [0.9, 0.2], [-0.05 * 0.8 / 0.7, -0.75 * 0.1 / -0.7])
    for blt in [*_random(100), *_PRODUCTION, both_signs, mechanisms.Blt(5, [], [])]:
        theta_hat, omega_hat = blt.inverse_parameters()
        assert blt is both_signs or (omega_hat <= 0).all()
        assert (np.diff(theta_hat) < 0).all()
        column = np.append(1.0, omega_hat @ theta_hat[:, None] ** np.arange(blt.rounds - 1))
        np.testing.assert_allclose(column, _first_column_of_inverse(blt), atol=1e-13)
    np.testing.assert_allclose(both_signs.inverse_parameters()[0], [0.95, 0.1], rtol=1e-12)


@pytest.mark.parametrize(
    'blt, message',
    [
        (_NOT_REAL, 'the inverse of this BLT has decays .*j.*must be real'),
        # 1 + (1/8) / (y - 1/2) - (1/8) / y has a double zero at 1/4, which rounding splits.
        (mechanisms.Blt(30, [0.5, 0.0], [0.125, -0.125]), 'two coincide|must be real'),
        (
            mechanisms.Blt.from_complex(9, [0.5 + 0.2j, 0.5 - 0.2j], [0.1j, -0.1j]),
            'this BLT has complex decays: must be real',
        ),
    ],
)
def test_inverses_without_real_parameters_are_refused(blt, message):
    with pytest.raises(ValueError, match=message):
        blt.inverse_parameters()
    assert not blt.is_monotone()


def test_errors_are_those_of_the_streamed_inverse():
    for blt in [*_random(100), *_PRODUCTION, *_NOT_TAME, _NOT_REAL]:
        expected = np.cumsum(np.cumsum(_first_column_of_inverse(blt)) ** 2)
        np.testing.assert_allclose(blt.squared_error(), expected, rtol=1e-12)


def test_exact_sensitivity_follows_from_the_parameters():
    # Rounding makes some of these 3000 almost constant coefficients rise.
    blt = mechanisms.Blt(3000, [1.0, 1 - 1e-13, 0.3], [0.1, 0.2, 0.3])
    assert blt.is_monotone()
    assert blt.sensitivity_is_exact(Participation(3000, 100))
    assert not mechanisms.Blt(5, [0.5], [1.1]).is_monotone()
    assert not mechanisms.Blt(5, [0.5, 0.2], [0.3, -0.1]).is_monotone()


def test_entries_by_hand():
    decay, scale = [0.9, 0.5 + 0.4j, 0.5 - 0.4j], [0.1, 0.2 - 0.1j, 0.2 + 0.1j]
    powers = np.array(decay)[:, None] ** np.arange(8)
    found = mechanisms.Blt.from_complex(9, decay, scale).coefficients()
    np.testing.assert_allclose(found, [1, *(np.array(scale) @ powers).real])
    decay, scale, gain = [[0.5], [0.25], [0.75]], [[0.5], [0.25], [0.125]], [1.0, 2.0, 4.0]
    matrix = mechanisms.BlockBlt(5, [2, 3], decay, scale, gain).strategy_matrix()
    np.testing.assert_array_equal(matrix[2], [2 * 0.25 * 0.5, 2 * 0.25, 2.0, 0.0, 0.0])
    np.testing.assert_array_equal(matrix[4, :2], [0.5 * 0.5 * 0.25 * 0.75, 0.5 * 0.25 * 0.75])


def test_real_blts_keep_their_digest():
    blt = mechanisms.Blt(10, [0.9, 0.5], [0.2, 0.3])
    assert set(blt.to_dict()) == {'mechanism', 'rounds', 'decay', 'scale'}
    assert blt.digest() == '5fdda58842d73e8e8372fec034912232eb08447df5b4a3a54e26a0eda9892be3'
    assert mechanisms.Blt.from_complex(10, [0.9, 0.5], [0.2, 0.3]) == blt
