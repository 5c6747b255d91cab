import time

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import blt_inverse, toeplitz
from dpfl.mechanisms.streaming import kernels
from tests import oracles

# Document 002, appendix A: two of the decays of the first coincide to nine digits.
_PRODUCTION = {
    100: (
        [0.989739971007307, 0.7352001759538236, 0.16776199983448145, 0.1677619998016191],
        [0.20502892852480875, 0.23357939425278557, 0.03479503245420878, 0.03479509876050538],
    ),
    400: (
        [0.9999999999921251, 0.9944453083640997, 0.8985923474607591, 0.4912001418098778],
        [0.0070314825502323835, 0.10613806907600574, 0.1898159060327625, 0.1966594748073734],
    ),
    1000: (
        [0.9999999999983397, 0.9973412136664378, 0.9584629472313878, 0.6581796870749317],
        [0.008657392263671862, 0.05890891298180163, 0.14548176930698697, 0.2770117005326523],
    ),
}


def _random_blt(rng, rounds):
    """Clustered, coinciding and constant buffers, over six decades of 1 - decay."""
    buffers = int(rng.integers(1, 8))
    rates = np.exp(rng.uniform(-14, -0.02, size=buffers))
    if rng.random() < 0.2:
        rates[0] = 0.0
    if rng.random() < 0.3:
        rates[-1] = rates[0]
    if rng.random() < 0.3:
        rates[-1] = min(rates[0] * (1 + 1e-10), 1.0)
    scale = np.exp(rng.uniform(-12, 0, size=buffers))
    if buffers > 1 and rng.random() < 0.2:
        scale[0] = 0.0
    return mechanisms.Blt(rounds, 1 - rates, scale * rng.uniform(0.1, 1) / scale.sum())


def _first_column_of_inverse(mechanism):
    impulse = np.zeros(mechanism.rounds)
    impulse[0] = 1.0
    return kernels.stream(mechanism.kernel(), impulse)


def test_coefficients_by_hand():
    blt = mechanisms.Blt(4, decay=[0.5, 0.25], scale=[0.4, 0.2])
    np.testing.assert_allclose(blt.coefficients(), [1, 0.6, 0.25, 0.1125])


def test_output_scale_by_hand():
    # C(y) = (y - 1/4) (y - 1/8) / ((y - 1/2) (y - 1/5)).
    scale = blt_inverse.output_scale([0.5, 0.2], [0.25, 0.125])
    np.testing.assert_allclose(scale, [0.25 * 0.375 / 0.3, -0.05 * 0.075 / -0.3])


@pytest.mark.parametrize('seed', range(5))
def test_inverse_decays_give_an_inverse(seed):
    rng = np.random.default_rng(seed)
    buffers = seed + 1
    decays = np.sort(rng.uniform(0, 1, size=2 * buffers))[::-1]
    forwards = mechanisms.Blt.from_inverse_decay(40, decays[::2], decays[1::2])
    inverse_scale = blt_inverse.output_scale(decays[1::2], decays[::2])
    assert (forwards.scale > 0).all() and (inverse_scale < 0).all()
    backwards = mechanisms.Blt(40, decays[1::2], inverse_scale)
    np.testing.assert_allclose(
        forwards.strategy_matrix() @ backwards.strategy_matrix(), np.eye(40), atol=1e-12
    )
    theta_hat, omega_hat = forwards.inverse_parameters()
    np.testing.assert_allclose(theta_hat, decays[1::2], rtol=1e-9)
    np.testing.assert_allclose(omega_hat, inverse_scale, rtol=1e-9)


def test_decays_in_both_lists_cancel():
    np.testing.assert_allclose(
        blt_inverse.output_scale([0.9, 0.5, 0.3], [0.5, 0.4, 0.2]),
        np.insert(blt_inverse.output_scale([0.9, 0.3], [0.4, 0.2]), 1, 0.0),
    )


@pytest.mark.parametrize(
    'decay, inverse_decay, message',
    [
        ([0.5, 0.2], [0.3], r'inverse_decay=\[0.3\]: must have 2 entries'),
        (
            [0.5, 0.5],
            [0.3, 0.2],
            r'decay=\[0.5, 0.5\]: entries that coincide must be in inverse_decay',
        ),
    ],
)
def test_inverse_decays_of_no_blt_are_refused(decay, inverse_decay, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Blt.from_inverse_decay(5, decay, inverse_decay)


def test_inverse_parameters_of_random_mechanisms():
    rng = np.random.default_rng(0)
    for _ in range(200):
        blt = _random_blt(rng, int(rng.integers(2, 120)))
        theta_hat, omega_hat = blt.inverse_parameters()
        assert (omega_hat <= 0).all() and (np.diff(theta_hat) < 0).all()
        column = np.append(1.0, omega_hat @ theta_hat[:, None] ** np.arange(blt.rounds - 1))
        np.testing.assert_allclose(column, _first_column_of_inverse(blt), atol=1e-13)
        solved = np.linalg.solve(blt.strategy_matrix(), np.eye(blt.rounds)[0])
        np.testing.assert_allclose(column, solved, atol=1e-12)


def test_errors_of_random_mechanisms():
    rng = np.random.default_rng(1)
    for _ in range(200):
        blt = _random_blt(rng, int(rng.integers(1, 120)))
        expected = toeplitz.squared_error(_first_column_of_inverse(blt))
        np.testing.assert_allclose(blt.squared_error(), expected, rtol=1e-12)
        np.testing.assert_allclose(blt.squared_error(), oracles.squared_error(blt), rtol=1e-9)
        rates = mechanisms.workload.momentum(blt.rounds, 0.8)
        np.testing.assert_allclose(
            blt.squared_error(rates),
            blt.squared_error(mechanisms.workload.matrix(rates, blt.rounds)),
            rtol=1e-10,
        )


@pytest.mark.parametrize('separation', _PRODUCTION)
def test_production_parameters(separation):
    blt = mechanisms.Blt(500, *_PRODUCTION[separation])
    assert blt.is_monotone()
    np.testing.assert_allclose(
        blt.squared_error(), toeplitz.squared_error(_first_column_of_inverse(blt)), rtol=1e-12
    )
    theta_hat, omega_hat = blt.inverse_parameters()
    assert theta_hat.size == 4 and (theta_hat < blt.decay).all() and (omega_hat < 0).all()


@pytest.mark.parametrize(
    'decay, scale',
    [
        ([0.9], [1.95]),  # C^-1 grows.
        ([0.8, 0.3], [0.2, -0.9]),  # Inverse decays are not real.
        ([0.9, 0.89], [3.0, -2.9]),
        ([0.9, 0.5], [-0.5, 0.9]),
        ([0.9, 0.9], [0.5, -0.2]),
        ([1.0, 0.5], [0.0, 0.0]),
    ],
)
def test_errors_where_the_inverse_is_no_tame_blt(decay, scale):
    blt = mechanisms.Blt(60, decay, scale)
    expected = toeplitz.squared_error(_first_column_of_inverse(blt))
    np.testing.assert_allclose(blt.squared_error(), expected, rtol=1e-12)


def test_inverse_parameters_with_scales_of_both_signs():
    blt = mechanisms.Blt.from_inverse_decay(30, [0.9, 0.2], [0.95, 0.1])
    assert blt.scale[0] < 0 < blt.scale[1]
    theta_hat, omega_hat = blt.inverse_parameters()
    np.testing.assert_allclose(theta_hat, [0.95, 0.1], rtol=1e-12)
    column = np.append(1.0, omega_hat @ theta_hat[:, None] ** np.arange(29))
    np.testing.assert_allclose(column, _first_column_of_inverse(blt), rtol=1e-9)
    with pytest.raises(ValueError, match='the inverse of this BLT has decays .*j.*must be real'):
        mechanisms.Blt(30, [0.8, 0.3], [0.2, -0.9]).inverse_parameters()
    # 1 + (1/8) / (y - 1/2) - (1/8) / y has a double zero at 1/4, which rounding splits.
    with pytest.raises(ValueError, match='two coincide|must be real'):
        mechanisms.Blt(30, [0.5, 0.0], [0.125, -0.125]).inverse_parameters()


def test_exact_sensitivity_follows_from_the_parameters():
    # Rounding makes some of these 3000 almost constant coefficients rise.
    blt = mechanisms.Blt(3000, [1.0, 1 - 1e-13, 0.3], [0.1, 0.2, 0.3])
    assert blt.is_monotone()
    assert blt.sensitivity_is_exact(Participation(3000, 100))
    assert not mechanisms.Blt(5, [0.5], [1.1]).is_monotone()
    assert not mechanisms.Blt(5, [0.5, 0.2], [0.3, -0.1]).is_monotone()


def test_loss_at_200_000_rounds_takes_milliseconds():
    blt = mechanisms.Blt(200_000, *_PRODUCTION[400])
    schema = Participation(200_000, 20_000, 10)
    start = time.process_time()
    assert blt.max_loss(schema) > 1
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    'decay, scale, message',
    [
        ([0.5], [0.1, 0.2], r'decay=\[0.5\]: must have as many entries as scale \(2\)'),
        ([], [], r'decay=\[\]: must have as many entries as scale \(0\), at least 1'),
        ([1.1], [0.1], r'decay=\[1.1\]: each entry must be within \[0, 1\]'),
        ([-0.1], [0.1], 'each entry must be within'),
        ([float('nan')], [0.1], 'decay=.*: must be a list of finite numbers'),
        ([0.5], ['x'], 'scale=.*: must be a list of numbers'),
    ],
)
def test_bad_parameters_are_named(decay, scale, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Blt(5, decay, scale)
