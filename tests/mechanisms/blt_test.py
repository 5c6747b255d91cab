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


def test_loss_at_200_000_rounds():
    blt = mechanisms.Blt(200_000, *_PRODUCTION[400])
    schema = Participation(200_000, 20_000, 10)
    squares, state = 0.0, np.zeros(blt.decay.size)
    for _ in range(blt.rounds):
        coefficient = 1 - blt.scale @ state
        state = blt.decay * state + coefficient
        squares += coefficient**2
    assert blt.max_loss(schema) == pytest.approx(np.sqrt(squares) * blt.sensitivity(schema))


@pytest.mark.parametrize(
    'decay, scale, message',
    [
        ([0.5], [0.1, 0.2], r'decay=\[0.5\]: must have as many entries as scale \(2\)'),
        ([], [0.1], r'decay=\[\]: must have as many entries as scale \(1\), at most 1024'),
        ([1.1], [0.1], r'decay=\[1.1\]: each entry must be within \[-1, 1\]'),
        ([-1.1], [0.1], 'each entry must be within'),
        ([float('nan')], [0.1], 'decay=.*: must be a list of finite numbers'),
        ([0.5], ['x'], 'scale=.*: must be a list of numbers'),
        (None, [0.1], 'decay=None: must be a list of numbers'),
    ],
)
def test_bad_parameters_are_named(decay, scale, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Blt(5, decay, scale)


def test_without_buffers_the_noise_is_independent():
    blt, schema = mechanisms.Blt(5, [], []), Participation(5, 2)
    np.testing.assert_array_equal(blt.strategy_matrix(), np.eye(5))
    np.testing.assert_array_equal(blt.squared_error(), np.arange(1, 6))
    assert blt.num_buffers() == 0 and blt.sensitivity_is_exact(schema)
    assert [array.size for array in blt.inverse_parameters()] == [0, 0]
    noise = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_array_equal(kernels.stream(blt.kernel(), noise), noise)


def _random_wave(rng, rounds):
    """Real decays of any sign, and up to two complex pairs, of any order."""
    decays, scales = [], []
    for _ in range(rng.integers(0, 3)):
        decays.append([rng.uniform(-1, 1)])
        scales.append([rng.normal(scale=0.4)])
    for _ in range(rng.integers(0, 3)):
        decay = rng.uniform(0.2, 1) * np.exp(1j * rng.uniform(0.1, np.pi))
        scale = rng.normal(scale=0.3) + 1j * rng.normal(scale=0.3)
        decays.append([decay, decay.conjugate()])
        scales.append([scale, scale.conjugate()])
    order = rng.permutation(len(decays))
    return mechanisms.Blt.from_complex(
        rounds,
        [value for place in order for value in decays[place]],
        [value for place in order for value in scales[place]],
    )


@pytest.mark.parametrize('cases', [300, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_decays_of_any_sign_and_complex_pairs(cases):
    rng = np.random.default_rng(cases)
    exact = 0
    for _ in range(cases):
        rounds = int(rng.integers(1, 9))
        blt = _random_wave(rng, rounds)
        decay, scale = blt._complex()
        expected = [1.0] + [(scale * decay**i).sum().real for i in range(rounds - 1)]
        np.testing.assert_allclose(blt.coefficients(), expected, atol=1e-13)
        noise = rng.normal(size=(rounds, 2))
        streamed = kernels.stream(blt.kernel(), noise)
        size = np.abs(np.linalg.inv(blt.strategy_matrix())).max()
        np.testing.assert_allclose(
            streamed, oracles.streamed_by_solving(blt, noise), atol=1e-11 * size
        )
        np.testing.assert_allclose(blt.squared_error(), oracles.squared_error(blt), rtol=1e-8)
        schema = Participation(
            rounds, int(rng.integers(1, rounds + 1)), int(rng.integers(1, rounds + 1))
        )
        truth = oracles.squared_sensitivity(blt.strategy_matrix(), schema)
        bound = blt.sensitivity_bound(schema)
        assert bound.squared >= truth * (1 - 1e-12)
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-11)
        exact += bound.is_exact
        again = mechanisms.from_dict(blt.to_dict())
        assert again == blt and again.digest() == blt.digest()
    assert exact > cases / 2


def test_real_blts_keep_their_digest():
    blt = mechanisms.Blt(10, [0.9, 0.5], [0.2, 0.3])
    assert set(blt.to_dict()) == {'mechanism', 'rounds', 'decay', 'scale'}
    assert blt.digest() == '5fdda58842d73e8e8372fec034912232eb08447df5b4a3a54e26a0eda9892be3'
    assert mechanisms.Blt(10, [0.9, 0.5], [0.2, 0.3], [0.0, 0.0]) == blt
    assert mechanisms.Blt.from_complex(10, [0.9, 0.5], [0.2, 0.3]) == blt


def test_complex_decays_are_saved_and_have_no_real_inverse(tmp_path):
    blt = mechanisms.Blt.from_complex(9, [0.5 + 0.2j, 0.5 - 0.2j], [0.1j, -0.1j])
    mechanisms.save(blt, tmp_path / 'wave.npz')
    assert mechanisms.load(tmp_path / 'wave.npz') == blt
    with pytest.raises(ValueError, match='this BLT has complex decays: must be real'):
        blt.inverse_parameters()
    assert not blt.is_monotone()


def test_a_wave_of_about_the_separation_lowers_the_loss():
    schema = Participation(2052, 342, 6)
    real = mechanisms.optimize_blt(schema, 4)
    wave = mechanisms.Blt.from_complex(
        2052,
        [0.9942, 0.6950, 0.9959 + 0.0204j, 0.9959 - 0.0204j],
        [0.1723, 0.3088, 0.0069 + 0.0205j, 0.0069 - 0.0205j],
    )
    assert wave.num_buffers() == real.num_buffers() == 4
    assert wave.max_loss(schema) == pytest.approx(10.6528, abs=1e-3)
    assert wave.max_loss(schema) < 0.993 * real.max_loss(schema)


@pytest.mark.parametrize(
    'decay, scale, message',
    [
        ([0.5 + 0.2j], [0.1], 'must be in pairs of neighbours that are conjugate'),
        ([0.5 + 0.2j, 0.5 + 0.2j], [0.1, 0.1], 'must be in pairs of neighbours'),
        ([0.5 + 0.2j, 0.3, 0.5 - 0.2j], [0.1, 0.1, 0.1], 'must be in pairs of neighbours'),
        ([0.5 + 0.2j, 0.5 - 0.2j], [0.1j, 0.1j], 'must be in pairs of neighbours'),
        ([0.9 + 0.9j, 0.9 - 0.9j], [0.1, 0.1], r'each \|decay\| must be at most 1'),
        ([0.5, 0.2], [0.1j, -0.1j], 'imaginary_scale=.*: must be 0 where imaginary_decay is'),
        ([0.5, 0.4 + 0.1j, 0.4 - 0.1j], [0.1j, 0.1, 0.1], 'real decays have real scales'),
    ],
)
def test_complex_parameters_of_no_real_matrix_are_refused(decay, scale, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Blt.from_complex(5, decay, scale)


def test_imaginary_parts_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r'imaginary_decay=.*: must have 2 entries, as decay has'):
        mechanisms.Blt(5, [0.5, 0.5], [0.1, 0.1], [0.1])
