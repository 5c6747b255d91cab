"""Algorithm 1 of [McMahan18] by hand: weights, both estimators, a clip after every batch."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import accounting, aggregators, learning, mechanisms
from dpfl.errors import ArgumentError
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts
from tests import redrawn
from tests.aggregators import rounds
from tests.learning import models

pytestmark = pytest.mark.tff

_CLIP, _CLIENTS, _RATE, _CAP = 0.4, 6, 0.1, 8.0
_SGD_RATE = 0.3  # Of FedSGD; some clients are below the clip norm with it, and some above.
_START = [models.INITIAL, np.zeros(1, np.float32)]
# Numbers of rows: 5, 4, 0, 20, 1.
_COHORT = [models.client(seed, sizes) for seed, sizes in enumerate([[3, 2], [4], [], [4] * 5, [1]])]
_sgd = tff.learning.optimizers.build_sgdm


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _plan(**changes):
    fields = dict(clip_norm=_CLIP, noise_multiplier=0.0)
    return rounds.plan(mechanisms.Identity(2), _CLIENTS, **{**fields, **changes})


def _process(plan, client_update='fedavg', **changes):
    fields = dict(
        client_optimizer_fn=_sgd(_RATE) if client_update == 'fedavg' else None,
        server_optimizer_fn=_sgd(1.0),
        client_update=client_update,
        client_learning_rate=1.0 if client_update == 'fedavg' else _SGD_RATE,
        train_metrics=False,
    )
    return learning.build_dp_fedavg(models.least_squares(), plan, **{**fields, **changes})


def _moved(process, shards, state=None):
    """How far a round moves the model, as arrays [2, 1] and [1]."""
    state = process.initialize() if state is None else state
    weights = process.next(state, shards).state.global_model_weights.trainable
    return [new - old for new, old in zip(weights, _START, strict=True)]


def _norm(leaves):
    return np.sqrt(sum((leaf**2).sum() for leaf in leaves))


def _flat(update):
    return [leaf * min(1, _CLIP / max(_norm(update), 1e-30)) for leaf in update]


def _per_layer(update):
    bound = _CLIP / np.sqrt(len(update))
    return [leaf * min(1, bound / max(_norm([leaf]), 1e-30)) for leaf in update]


def _trained(client, clip=None):
    """How local training changes the model."""
    weights = _START
    for batch in client:
        weights = [
            w - _RATE * g for w, g in zip(weights, models.gradient(weights, batch), strict=True)
        ]
        if clip is not None:
            moved = clip([new - old for new, old in zip(weights, _START, strict=True)])
            weights = [old + change for old, change in zip(_START, moved, strict=True)]
    return [new - old for new, old in zip(weights, _START, strict=True)]


def _one_gradient(client):
    if not client:
        return [np.zeros_like(leaf) for leaf in _START]
    rows = {name: np.concatenate([batch[name] for batch in client]) for name in ('x', 'y')}
    return [-_SGD_RATE * leaf for leaf in models.gradient(_START, rows)]


def _weights():
    return [min(sum(len(batch['x']) for batch in client) / _CAP, 1) for client in _COHORT]


def _weighted_mean(updates, weights, kind, weight):
    denominator = max(weight, sum(weights)) if kind == 'clipped' else weight
    return [
        sum(w * leaf for w, leaf in zip(weights, leaves, strict=True)) / denominator
        for leaves in zip(*updates, strict=True)
    ]


def _assert_close(actual, expected, **tolerance):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, **{**dict(rtol=1e-4, atol=1e-6), **tolerance})


@functools.cache
def _weighted(kind, weight, client_update):
    return _process(_plan(estimator=accounting.Estimator(kind, weight, _CAP)), client_update)


# The weights add up to 2.25, so W_min is below it in one case and above it in the other. Without
# a weight the denominator is the planned cohort.
@pytest.mark.parametrize(
    'kind, weight, client_update',
    [
        pytest.param('fixed', 3.0, 'fedavg', marks=pytest.mark.standard),
        ('clipped', 1.5, 'fedavg'),
        pytest.param('clipped', 4.0, 'fedsgd', marks=pytest.mark.standard),
        pytest.param('fixed', None, 'fedavg', marks=pytest.mark.standard),
        pytest.param('clipped', 1.5, 'fedsgd', marks=pytest.mark.standard),
    ],
)
def test_the_weighted_mean_of_a_round(kind, weight, client_update):
    record = _trained if client_update == 'fedavg' else _one_gradient
    updates = [_flat(record(client)) for client in _COHORT]
    expected = _weighted_mean(updates, _weights(), kind, weight or _CLIENTS)
    process = _weighted(kind, weight, client_update)
    for num_shards in (1, 3):
        _assert_close(_moved(process, learning.shard(_COHORT, num_shards)), expected)


def test_fedsgd_clips_the_gradient_times_its_rate():
    moved = [_norm(_one_gradient(client)) for client in _COHORT if client]
    unscaled = [norm / _SGD_RATE for norm in moved]
    assert min(moved) < _CLIP < max(moved)
    # With the rate outside of the clip, as many as here would be clipped to another length.
    assert sum(norm > _CLIP for norm in unscaled) > sum(norm > _CLIP for norm in moved)
    updates = [_flat(_one_gradient(client)) for client in _COHORT]
    expected = _weighted_mean(updates, [1.0] * len(_COHORT), 'fixed', _CLIENTS)
    process = _process(_plan(), 'fedsgd')
    _assert_close(_moved(process, learning.shard(_COHORT, 2)), expected)
    with pytest.raises(ArgumentError, match='client_learning_rate=0.3: must be 1 for fedavg'):
        _process(_plan(), client_learning_rate=0.3)


@pytest.mark.standard
def test_weights_count_different_examples():
    twice = [[*client, *client] for client in _COHORT]
    plan = _plan(estimator=accounting.Estimator('fixed', 3.0, _CAP))
    updates = [_flat(_trained(client)) for client in twice]
    expected = _weighted_mean(updates, _weights(), 'fixed', 3.0)
    process = _process(plan, client_epochs=2)
    _assert_close(_moved(process, learning.shard(twice, 2)), expected)


def test_a_record_that_is_not_finite_has_no_weight():
    broken = models.client(7, [3, 2])
    broken[1]['x'][0, 0] = np.nan
    updates = [_flat(_trained(client)) for client in _COHORT]
    expected = _weighted_mean(updates, _weights(), 'clipped', 1.5)
    process = _weighted('clipped', 1.5, 'fedavg')
    _assert_close(_moved(process, learning.shard([*_COHORT, broken], 2)), expected)


@pytest.mark.standard
@pytest.mark.parametrize('kind', ['fixed', 'clipped'])
def test_noise_is_z_times_what_one_client_moves(kind, monkeypatch):
    redrawn.ignore_context(monkeypatch)
    # [McMahan18], theorem 1: z S / (q W), or 2 z S / (q W_min).
    draws = {}
    for noise_multiplier in (0.0, 1.5):
        estimator = accounting.Estimator(kind, 3.0, _CAP)
        plan = _plan(estimator=estimator, noise_multiplier=noise_multiplier)
        process = _process(plan, noise_seed=5)
        draws[noise_multiplier] = _moved(process, learning.shard(_COHORT, 2))
    noise = np.concatenate([(a - b).ravel() for a, b in zip(*draws.values(), strict=True)])
    plain = _process(_plan(noise_multiplier=1.0), noise_seed=5)
    unit = np.concatenate([leaf.ravel() for leaf in _moved(plain, learning.shard([], 1))])
    factor = 2 if kind == 'clipped' else 1
    expected = unit * _CLIENTS / _CLIP * (1.5 * factor * _CLIP / 3.0)
    np.testing.assert_allclose(np.abs(noise), np.abs(expected), rtol=1e-3, atol=1e-5)


@pytest.mark.standard
def test_weights_with_sums_of_integers():
    discretization = Discretization(5000.0, 3, _CLIP)
    estimator = accounting.Estimator(weight=3.0, example_cap=_CAP)
    process = _process(_plan(estimator=estimator, discretization=discretization), noise_seed=1)
    updates = [_flat(_trained(client)) for client in _COHORT]
    expected = _weighted_mean(updates, _weights(), 'fixed', 3.0)
    actual = _moved(process, learning.shard(_COHORT, 2))
    _assert_close(actual, expected, atol=len(_COHORT) * 2 / 5000.0)
    with pytest.raises(ValueError, match='estimator=clipped: must be fixed with a discretization'):
        _plan(estimator=accounting.Estimator('clipped', 3.0, _CAP), discretization=discretization)


@pytest.mark.standard
def test_weights_with_hardened_noise():
    estimator = accounting.Estimator(weight=3.0, example_cap=_CAP)
    plan = _plan(estimator=estimator, noise='hardened', noise_multiplier=0.5)
    process = _process(plan, noise_seed=1, supplied_noise=True)
    with aggregators.HardenedRing(plan) as ring:
        state = ring.supply(process.initialize(), 'data')
        noise = _moved(process, learning.shard([], 2), state)
        noised = _moved(process, learning.shard(_COHORT, 2), state)
    updates = [_flat(_trained(client)) for client in _COHORT]
    expected = _weighted_mean(updates, _weights(), 'fixed', 3.0)
    _assert_close([a - b for a, b in zip(noised, noise, strict=True)], expected)


@functools.cache
def _clipping_each_batch(clip):
    return _process(_plan(), clip=clip, clip_each_batch=True)


@pytest.mark.parametrize('kind', ['flat', pytest.param('per layer', marks=pytest.mark.standard)])
def test_the_model_is_clipped_after_every_batch(kind):
    by_hand = _flat if kind == 'flat' else _per_layer
    clip = aggregators.clip_flat if kind == 'flat' else aggregators.PerLayer()
    shards = learning.shard(_COHORT, 3)
    ones = [1.0] * len(_COHORT)
    at_the_end = [by_hand(_trained(client)) for client in _COHORT]
    each_batch = [_trained(client, by_hand) for client in _COHORT]
    expected = _weighted_mean(each_batch, ones, 'fixed', _CLIENTS)
    _assert_close(_moved(_clipping_each_batch(clip), shards), expected)
    other = _weighted_mean(at_the_end, ones, 'fixed', _CLIENTS)
    # The test would notice if only the end were clipped.
    assert max(np.abs(a - b).max() for a, b in zip(expected, other, strict=True)) > 1e-3


@pytest.mark.standard
def test_a_clip_after_every_batch_follows_the_norm_in_use():
    plan = _plan(clip_schedule=((1, 1000.0),))
    process = _process(plan, clip_each_batch=True)
    cohort = [_COHORT[3]]
    state = process.initialize()
    second = process.next(state, learning.shard([], 1)).state
    expected = [leaf / _CLIENTS for leaf in _trained(_COHORT[3])]
    assert _norm(expected) * _CLIENTS > _CLIP
    _assert_close(_moved(process, learning.shard(cohort, 1), second), expected)


@pytest.mark.parametrize('position', [0, 1])
def test_a_batch_that_breaks_the_model_breaks_the_record(position):
    broken = models.client(7, [3, 2, 3])
    broken[position]['x'][0, 0] = np.inf
    process = _clipping_each_batch(aggregators.clip_flat)
    moved = _moved(process, learning.shard([_COHORT[1], broken], 1))
    _assert_close(moved, [leaf / _CLIENTS for leaf in _trained(_COHORT[1], _flat)])


def test_where_no_clip_after_every_batch_is_possible():
    with pytest.raises(ArgumentError, match='clip_each_batch=True: must be False for fedsgd'):
        _process(_plan(), 'fedsgd', clip_each_batch=True)
    adaptive = _plan(adaptive_clip=accounting.AdaptiveClip(count_stddev=1.0), noise_multiplier=1.0)
    with pytest.raises(ArgumentError, match='must be False with adaptive_clip'):
        _process(adaptive, clip_each_batch=True)


@pytest.mark.standard
def test_adaptive_clipping_with_weights():
    adaptive = accounting.AdaptiveClip(count_stddev=1e-9)
    estimator = accounting.Estimator('clipped', 1.5, _CAP)
    process = _process(_plan(estimator=estimator, adaptive_clip=adaptive))
    output = process.next(process.initialize(), learning.shard(_COHORT, 2))
    updates = [_flat(_trained(client)) for client in _COHORT]
    expected = _weighted_mean(updates, _weights(), 'clipped', 1.5)
    weights = output.state.global_model_weights.trainable
    _assert_close([a - b for a, b in zip(weights, _START, strict=True)], expected)
    norms = [_norm(_trained(client)) for client in _COHORT]
    within = sum(np.sign(_CLIP - norm) for norm in norms if norm > 0) / 2
    estimate = _CLIP * np.exp(-0.2 * (within / _CLIENTS + 0.5))
    assert float(output.metrics['aggregator']['clip_norm_estimate']) == pytest.approx(
        estimate, rel=1e-5
    )


def test_shards_of_clients_without_data_have_no_weight():
    process = _weighted('clipped', 1.5, 'fedavg')
    moved = _moved(process, [models.dataset([], _COHORT[0][0])])
    for leaf in moved:
        np.testing.assert_array_equal(leaf, tf.zeros_like(leaf))


def test_a_function_that_makes_a_model_is_no_model():
    with pytest.raises(ArgumentError, match='model=function: must be a tff.learning.models.Funct'):
        learning.build_dp_fedavg(
            lambda: models.least_squares(), None, server_optimizer_fn=None, client_update='fedsgd'
        )
