"""Noise from clients: exact sums, scale and shape of the noise, cohorts that are refused."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp
from scipy import stats

from dpfl import aggregators, mechanisms
from dpfl.aggregators.integers import distributed
from dpfl.aggregators.integers.distributed_noise import KINDS, DistributedNoise
from dpfl.aggregators.noise import keys
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts
from tests.aggregators import rounds

_SIZE = 5
every_kind = pytest.mark.parametrize('kind', KINDS)


def _plan(size=_SIZE, number=4, clients=4, **changes):
    fields = dict(discretization=Discretization(scale=40.0, dimension=size, clip_norm=0.5))
    return rounds.plan(mechanisms.Identity(number), clients, **{**fields, **changes})


def _query(noise):
    spec = tf.TensorSpec([noise.plan.discretization.dimension])
    return aggregators.build_distributed_query(noise, record_specs=spec)


def _updates(count, size=_SIZE, seed=0):
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)


def _sample(query, state, updates):
    params = query.derive_sample_params(state)
    sent = [query.preprocess_record(params, tf.constant(update)) for update in updates]
    for one in sent:
        assert 0 <= int(tf.reduce_min(one.update))
    return tf.nest.map_structure(lambda *leaves: tf.add_n(leaves), *sent)


@every_kind
def test_without_noise_sums_are_those_of_central_noise(kind):
    plan = _plan(noise_multiplier=0.0, clients=7)
    query = _query(DistributedNoise(plan, kind))
    central = aggregators.build_query(plan, record_specs=tf.TensorSpec([_SIZE]))
    state, updates = central.initial_global_state(), _updates(7)
    digest = query.initial_global_state().numerator_state.inner.plan
    for _ in range(2):
        sample, other = (_sample(each, state, updates) for each in (query, central))
        result, following, _ = query.get_noised_result(sample, _with_digest(state, digest))
        expected, state, _ = central.get_noised_result(
            other._replace(update=tf.cast(other.update, tf.int32)), state
        )
        following = _with_digest(following, state.numerator_state.inner.plan)
        np.testing.assert_array_equal(result, expected)
        assert np.abs(result).max() > 0
        tf.nest.map_structure(np.testing.assert_array_equal, following, state)


def _with_digest(state, digest):
    """A state that another query takes for its own."""
    numerator = state.numerator_state
    inner = numerator.inner._replace(plan=digest)
    return state._replace(numerator_state=numerator._replace(inner=inner))


@every_kind
@pytest.mark.parametrize('clients', [3, 4])
def test_the_sum_has_the_planned_noise(kind, clients):
    # The keys are fresh: 2^14 coordinates have a variance within 8 % but for one run in 1e12.
    noise = DistributedNoise(_plan(2**14), kind, min_clients=3)
    query = _query(noise)
    state = query.initial_global_state()
    # Zero updates are sent as zeros, so the sum is the noise.
    sample = _sample(query, state, np.zeros((clients, 2**14), np.float32))
    shifted = (sample.update - clients * noise.plan.discretization.linf_bound).numpy()
    integers = np.mod(shifted + noise.modulus // 2, noise.modulus) - noise.modulus // 2
    ratio = np.square(integers).mean() / (noise.variance * clients / 3)
    for factor, is_accepted in ((1, True), (2 / 3, False), (3 / 2, False)):
        assert (abs(ratio / factor**2 - 1) < 0.08) == is_accepted
    assert abs(integers.mean()) < 8 * integers.std() / 2**7
    result, _, _ = query.get_noised_result(sample, state)
    # The rotation keeps the norm.
    released, sent = (float(np.sqrt(np.square(each).mean())) for each in (result, integers))
    expected = sent / noise.plan.discretization.scale / noise.plan.clients_per_round
    np.testing.assert_allclose(released, expected, rtol=1e-4)
    planned = noise.plan.stddev / noise.plan.clients_per_round
    if clients == 3:  # A discrete Gaussian's deviation is rounded up, here from 23.1 to 24.
        assert 0.95 * planned <= released <= 1.1 * planned


@pytest.mark.parametrize('stddev', [0.4, 2.5, 300.0])
def test_skellam_noise_has_its_distribution(stddev):
    drawn = distributed.skellam(keys.seeded_root_key(1), stddev, 40_000).numpy()
    reach = int(4 * stddev) + 1
    edges = np.unique(np.linspace(-reach, reach, 20).astype(int))
    counts = np.histogram(drawn, [-np.inf, *(edges + 0.5), np.inf])[0]
    below = stats.skellam.cdf(edges, stddev**2 / 2, stddev**2 / 2)
    expected = np.diff([0, *below, 1]) * len(drawn)
    enough = expected > 5
    chi = ((counts - expected)[enough] ** 2 / expected[enough]).sum()
    assert stats.chi2.sf(chi, enough.sum() - 1) > 1e-3
    # The key decides.
    again = distributed.skellam(keys.seeded_root_key(1), stddev, 40_000).numpy()
    other = distributed.skellam(keys.seeded_root_key(2), stddev, 40_000).numpy()
    np.testing.assert_array_equal(drawn, again)
    assert (drawn != other).any()


def test_the_noise_is_that_of_tensorflow_privacy():
    # Two samples of 20,000: equal distributions differ so much in one run of 1e9.
    noise = DistributedNoise(_plan(2**14))
    theirs = tfp.DistributedSkellamSumQuery(10**6, 10**6, noise.local_stddev)
    record = theirs.preprocess_record(
        theirs.derive_sample_params(theirs.initial_global_state()), tf.zeros([2**14], tf.int32)
    )
    ours = distributed.skellam(keys.seeded_root_key(3), noise.local_stddev, 2**14)
    assert stats.ks_2samp(ours.numpy(), record.numpy()).pvalue > 1e-9


@every_kind
@pytest.mark.standard
def test_no_two_shares_are_the_same(kind):
    # Not even for equal updates, or in a repeated round.
    query = _query(DistributedNoise(_plan(256), kind))
    state = query.initial_global_state()
    params, zeros = query.derive_sample_params(state), tf.zeros([256])
    function = tf.function(lambda: query.preprocess_record(params, zeros).update)
    shares = {tuple(function().numpy()) for _ in range(4)}
    shares |= {tuple(query.preprocess_record(params, zeros).update.numpy()) for _ in range(2)}
    assert len(shares) == 6


@every_kind
@pytest.mark.parametrize(
    'clients, message', [(2, 'fewer than 3 clients'), (5, 'larger than the planned one')]
)
def test_other_cohorts_are_refused(kind, clients, message):
    query = _query(DistributedNoise(_plan(), kind, min_clients=3))
    state = query.initial_global_state()
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        query.get_noised_result(_sample(query, state, _updates(clients)), state)


@every_kind
def test_no_clients_give_zero(kind):
    query = _query(DistributedNoise(_plan(), kind))
    result, state, _ = query.get_noised_result(
        query.initial_sample_state(None), query.initial_global_state()
    )
    np.testing.assert_array_equal(result, np.zeros(_SIZE))
    assert state.numerator_state.round == 1


@every_kind
@pytest.mark.standard
def test_the_most_extreme_sums_do_not_wrap_around(kind):
    # All clients send the same: two coordinates, of which the rotation makes one.
    settings = Discretization(1000.0, 2, 0.5)
    noise = DistributedNoise(_plan(discretization=settings, clients=8, noise_multiplier=0.02), kind)
    query = _query(noise)
    for direction in ([1, 1], [-1, 1]):
        state = query.initial_global_state()
        sample = _sample(query, state, [np.float32(direction) * 9] * 8)
        result, _, _ = query.get_noised_result(sample, state)
        # Clipped, each is 0.5 in the direction, less 2 % for the rounding; the noise has a standard
        # deviation of 0.02 * 0.5 / 8 = 0.00125. A sum that wraps around would have another sign.
        np.testing.assert_allclose(result, np.array(direction) * 0.347, atol=0.0125)


def test_clip_norms_may_change():
    plan = _plan(2**12, 2, clip_schedule=((1, 5.0),))
    query = _query(DistributedNoise(plan))
    state, deviations = query.initial_global_state(), []
    for _ in range(2):
        sample = _sample(query, state, np.zeros((4, 2**12), np.float32))
        result, state, _ = query.get_noised_result(sample, state)
        deviations.append(result.numpy().std())
    np.testing.assert_allclose(deviations, [0.25, 2.5], rtol=0.1)


def test_half_precision():
    spec = [tf.TensorSpec([3], tf.float16), tf.TensorSpec([2], tf.float64)]
    query = aggregators.build_distributed_query(DistributedNoise(_plan()), record_specs=spec)
    state = query.initial_global_state()
    params, sample = query.derive_sample_params(state), query.initial_sample_state(None)
    for _ in range(4):
        record = [tf.ones([3], tf.float16), tf.fill([2], tf.constant(np.nan, tf.float64))]
        sample = query.accumulate_record(params, sample, record)
    result, _, _ = query.get_noised_result(sample, state)
    assert [leaf.dtype for leaf in result] == [tf.float16, tf.float64]
    assert all(np.isfinite(leaf).all() for leaf in result)


@pytest.mark.standard
@pytest.mark.tff
@every_kind
def test_in_tff(kind):
    value_type = tff.to_type([tff.TensorType(np.float32, [4096]), tff.TensorType(np.float32)])
    plan = _plan(4097, 2)
    noise = DistributedNoise(plan, kind, min_clients=3)
    cohort = [[np.zeros(4096, np.float32), np.float32(0)]] * 4
    with contexts.local_runtime():
        process = aggregators.build_distributed_aggregator(noise, secure_sum=True)
        process = process.create(value_type)
        secure_next = tff.backends.test.replace_secure_intrinsics_with_bodies(process.next)
        state = process.initialize()
        output = secure_next(state, cohort)
        # The noise of clients is independent: equal shares would have twice this deviation.
        expected = plan.stddev / 4 * np.sqrt(4 / 3) * (1.04 if kind == 'discrete_gaussian' else 1)
        assert output['result'][0].std() == pytest.approx(expected, rel=0.1)
        plain = aggregators.build_distributed_aggregator(noise).create(value_type)
        released = plain.next(state, cohort)
        assert released.result[0].std() == pytest.approx(expected, rel=0.1)
        assert np.isfinite(plain.next(released.state, cohort).result[1])
        with pytest.raises(Exception, match='fewer than 3 clients'):
            plain.next(state, cohort[:2])
        with pytest.raises(Exception, match='larger than the planned one'):
            plain.next(state, cohort * 2)
