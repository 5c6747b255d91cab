import math

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import toeplitz
from dpfl.mechanisms.banded_inverse import BandedInverse
from dpfl.mechanisms.sensitivities import toeplitz_sensitivity
from tests import oracles

# C has the coefficients 1, .5, .65, .525, .. with a ripple that fades over a few rounds.
_RIPPLE = (1, -0.5, -0.4)


def _random_taps(rng: np.random.Generator) -> np.ndarray:
    size = rng.integers(1, 6)
    kind = rng.integers(3)
    if kind == 0:
        return np.concatenate([[1.0], rng.normal(scale=0.5, size=size)])
    if kind == 1:  # non-negative C
        return np.concatenate([[1.0], -rng.dirichlet(np.ones(size + 1))[:size]])
    # (1 - r_1 x) (1 - r_2 x) ..: real and complex pairs of decays
    roots = rng.uniform(0.2, 1, 2) * np.exp(1j * rng.uniform(0, np.pi, 2) * rng.integers(0, 2, 2))
    return np.real(np.poly(np.concatenate([roots, roots.conj()])))


def _random_schema(rng: np.random.Generator, most_rounds: int) -> Participation:
    rounds = int(rng.integers(1, most_rounds + 1))
    return Participation(rounds, int(rng.integers(1, 5)), int(rng.integers(1, rounds + 1)))


def _envelope(coefficients):
    """The smallest non-increasing sequence that is nowhere below the absolute values."""
    return np.maximum.accumulate(np.abs(coefficients)[::-1])[::-1]


def test_strategy_is_the_inverse_of_the_banded_matrix():
    rng = np.random.default_rng(0)
    for rounds in (1, 2, 5, 9):
        for _ in range(5):
            mechanism = BandedInverse(rounds, _random_taps(rng))
            column = np.zeros(rounds)
            used = min(rounds, mechanism.bands)
            column[:used] = mechanism.inverse_coefficients[:used]
            inverse = np.linalg.inv(toeplitz.matrix(column))
            np.testing.assert_allclose(mechanism.strategy_matrix(), inverse, atol=1e-12)


def test_square_root_has_the_published_coefficients():
    mechanism = BandedInverse.square_root(50, 5)
    assert mechanism.inverse_coefficients.tolist() == [1, -1 / 2, -1 / 8, -1 / 16, -5 / 128]
    full = BandedInverse.square_root(6, 6).strategy_matrix()
    np.testing.assert_allclose(full @ full, np.tril(np.ones((6, 6))), atol=1e-14)


def test_fractional_powers_join_independent_noise_and_prefix_sums():
    np.testing.assert_array_equal(
        BandedInverse.fractional_power(4, 3, 0).strategy_matrix(), np.eye(4)
    )
    np.testing.assert_array_equal(
        BandedInverse.fractional_power(4, 3, 1).strategy_matrix(), np.tril(np.ones((4, 4)))
    )
    assert BandedInverse.fractional_power(9, 2, 0.8).inverse_coefficients.tolist() == [1, -0.8]
    third = BandedInverse.fractional_power(5, 5, 1 / 3).strategy_matrix()
    np.testing.assert_allclose(third @ third @ third, np.tril(np.ones((5, 5))), atol=1e-14)


def test_noise_needs_the_last_rounds_only():
    mechanism = BandedInverse(8, [1, -0.5, -0.2])
    noise = np.random.default_rng(1).normal(size=(8, 3))
    streamed = mechanisms.stream(mechanism.kernel(), noise)
    np.testing.assert_allclose(streamed, oracles.streamed_by_solving(mechanism, noise), atol=1e-12)
    np.testing.assert_allclose(streamed[7], noise[7] - 0.5 * noise[6] - 0.2 * noise[5])
    assert mechanism.kernel().buffers == 2


def test_sensitivity_is_never_below_brute_force():
    rng = np.random.default_rng(2)
    exact = 0
    for _ in range(800):
        schema = _random_schema(rng, 9)
        mechanism = BandedInverse(schema.rounds, _random_taps(rng))
        bound = mechanism.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
        assert bound.squared >= truth * (1 - 1e-12)
        if bound.is_exact:
            exact += 1
            assert bound.squared == pytest.approx(truth, rel=1e-11)
        envelope = toeplitz_sensitivity.sensitivity(_envelope(mechanism.coefficients()), schema)
        assert bound.squared <= envelope.squared * (1 + 1e-12)
    assert exact > 400


def test_sensitivity_covers_updates_that_are_vectors():
    rng = np.random.default_rng(3)
    for _ in range(200):
        schema = _random_schema(rng, 12)
        mechanism = BandedInverse(schema.rounds, _random_taps(rng))
        pattern = oracles.patterns(schema)[-1]
        updates = rng.normal(size=(len(pattern), 3))
        updates /= np.linalg.norm(updates, axis=1, keepdims=True)
        released = mechanism.strategy_matrix()[:, list(pattern)] @ updates
        assert np.linalg.norm(released) <= mechanism.sensitivity(schema) * (1 + 1e-12)


def test_a_ripple_that_the_separation_does_not_see_costs_nothing():
    mechanism = BandedInverse(12, _RIPPLE)
    assert not toeplitz_sensitivity.is_monotone(mechanism.coefficients())
    schema = Participation(12, 4, 3)
    bound = mechanism.sensitivity_bound(schema)
    assert bound.is_exact
    truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
    assert bound.squared == pytest.approx(truth, rel=1e-13)
    envelope = _envelope(mechanism.coefficients())
    assert bound.squared < 0.99 * toeplitz_sensitivity.sensitivity(envelope, schema).squared


def test_a_worse_pattern_than_the_closest_one_is_seen():
    # c = 1, 0, .9, 0, .81, ..: at separation 1 two participations do most harm two rounds apart.
    mechanism = BandedInverse(6, [1, 0, -0.9])
    schema = Participation(6, 1, 2)
    bound = mechanism.sensitivity_bound(schema)
    truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
    closest = mechanism.strategy_matrix()[:, :2].sum(axis=1)
    assert bound.squared == pytest.approx(truth, rel=1e-13)
    assert truth > 1.5 * closest @ closest


def test_blocks_of_participations_keep_the_bound(monkeypatch):
    monkeypatch.setattr(toeplitz_sensitivity, '_MOST_PAIRS', 0)
    rng = np.random.default_rng(4)
    cases = []
    for _ in range(60):
        schema = _random_schema(rng, 9)
        mechanism = BandedInverse(schema.rounds, _random_taps(rng))
        cases.append((mechanism, schema, mechanism.sensitivity_bound(schema).squared))
    monkeypatch.setattr(toeplitz_sensitivity, '_MAX_BLOCKS', 3)
    looser = 0
    for mechanism, schema, fine in cases:
        coarse = mechanism.sensitivity_bound(schema).squared
        assert coarse >= fine * (1 - 1e-12)
        looser += coarse > fine * (1 + 1e-9)
    assert looser > 5


@pytest.mark.parametrize('count', [1, 2, 7, 128, 129, 5000])
def test_blocks_cover_the_participations_once(count):
    blocks = toeplitz_sensitivity.participation_blocks(count, 128)
    assert len(blocks) == min(count, 128) or count > 128 >= len(blocks)
    assert [s for first, end in blocks for s in range(first, end)] == list(range(count))


def test_sums_over_a_pattern_and_correlations():
    values = np.random.default_rng(5).normal(size=11)
    for separation, count in ((1, 1), (1, 11), (3, 2), (3, 4), (11, 1)):
        u = np.zeros(11)
        u[: count * separation : separation] = 1
        np.testing.assert_allclose(
            toeplitz_sensitivity.pattern_sum(values, separation, count),
            toeplitz.matrix(values) @ u,
            atol=1e-14,
        )
    expected = np.correlate(values, values, 'full')[10:]
    np.testing.assert_allclose(toeplitz_sensitivity.autocorrelation(values), expected, atol=1e-13)


def test_weights_count_pairs():
    for first, end, count in ((0, 3, 7), (4, 7, 7), (2, 3, 9)):
        pairs = [b - a for a in range(first, end) for b in range(a + 1, count)]
        expected = [2 * pairs.count(m) for m in range(1, 10)]
        assert toeplitz_sensitivity.pair_weights(first, end, count, 9).tolist() == expected


def test_errors_of_workloads_without_dense_solves():
    mechanism = BandedInverse(7, [1, -0.6, -0.2])
    inverse = np.linalg.inv(mechanism.strategy_matrix())
    momentum = mechanisms.workload.momentum(9, 0.9)
    schedule = mechanisms.workload.learning_rate_schedule(np.linspace(1, 0.1, 8), beta=0.5)
    for workload in (None, momentum, schedule):
        dense = mechanisms.workload.matrix(workload, 7)
        np.testing.assert_allclose(
            mechanism.squared_error(workload), ((dense @ inverse) ** 2).sum(axis=1), rtol=1e-12
        )
    with pytest.raises(ValueError, match='must have at least 7 rounds'):
        mechanism.squared_error(np.ones(6))


def test_more_bands_than_rounds_do_not_matter():
    short, long = BandedInverse(2, [1, -0.5]), BandedInverse(2, [1, -0.5, 7, 8])
    np.testing.assert_array_equal(short.strategy_matrix(), long.strategy_matrix())
    np.testing.assert_array_equal(short.squared_error(), long.squared_error())


def test_large_runs_are_certified_quickly():
    # 2000 participations, many more than blocks.
    schema = Participation(200_000, 100)
    mechanism = BandedInverse(200_000, [1, -0.5, -0.45, -0.01])
    assert not toeplitz_sensitivity.is_monotone(mechanism.coefficients())
    released = toeplitz_sensitivity.pattern_sum(mechanism.coefficients(), 100, 2000)
    attained = math.sqrt(released @ released)
    assert attained <= mechanism.sensitivity(schema) <= attained * (1 + 1e-5)


@pytest.mark.parametrize(
    'taps, message',
    [
        ([], 'must have at least 1 entry, the first 1'),
        ([0.5, 0.1], 'must have at least 1 entry, the first 1'),
        ([1, float('nan')], 'must be a list of finite numbers'),
        ([[1.0]], 'must be a list of finite numbers'),
        ([1, -5], 'over rounds=1000, must stay below 1e150'),
    ],
)
def test_bad_coefficients_are_named(taps, message):
    with pytest.raises(ValueError, match=message):
        BandedInverse(1000, taps)


@pytest.mark.parametrize(
    'arguments, message',
    [
        ((0, 3, 0.5), 'rounds=0: must be an integer >= 1'),
        ((5, 0, 0.5), 'bands=0: must be an integer >= 1'),
        ((5, 3, 1.5), 'power=1.5: must be a finite number >= 0 and <= 1'),
    ],
)
def test_bad_family_members_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        BandedInverse.fractional_power(*arguments)


def test_equal_parameters_are_equal_mechanisms():
    assert BandedInverse(5, [1, -0.5]) == BandedInverse(5, np.array([1, -0.5]))
    assert len({BandedInverse(5, [1, -0.5]), BandedInverse(5, (1.0, -0.5))}) == 1
    assert BandedInverse(5, [1, -0.5]) != BandedInverse(6, [1, -0.5])


def test_a_negative_first_coefficient_is_the_same_mechanism():
    mechanism = BandedInverse(5, [-1, 0.5, 0.0])
    assert mechanism == BandedInverse(5, [1, -0.5, 0.0])
    assert mechanism.digest() == BandedInverse(5, [1, -0.5, 0.0]).digest()
