"""Algorithm 1 of [McMahan18] by hand: weights, both estimators, a clip after every batch."""

import functools

import numpy as np
import pytest
import tensorflow_federated as tff

from dpfl import accounting, aggregators, learning, mechanisms
from tests.aggregators import rounds
from tests.learning import models

pytestmark = [pytest.mark.tff, pytest.mark.usefixtures('local_runtime')]

_CLIP, _CLIENTS, _RATE, _CAP = 0.4, 6, 0.1, 8.0
_SGD_RATE = 0.3  # Of FedSGD; some clients are below the clip norm with it, and some above.
_sgd = tff.learning.optimizers.build_sgdm
_trained = functools.partial(models.trained, rate=_RATE)
_stepped = functools.partial(models.gradient_step, rate=_SGD_RATE)


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
    return [new - old for new, old in zip(weights, models.START, strict=True)]


_flat = functools.partial(rounds.clipped, clip_norm=_CLIP)


def _per_layer(update):
    bound = _CLIP / np.sqrt(len(update))
    return [rounds.clipped([leaf], bound)[0] for leaf in update]


def _weights(cohort=models.COHORT):
    return [min(sum(len(batch['x']) for batch in client) / _CAP, 1) for client in cohort]


def _mean(updates, weights=None, kind='fixed', weight=_CLIENTS):
    """The weighted mean of clipped updates."""
    weights = [1.0] * len(updates) if weights is None else weights
    denominator = max(weight, sum(weights)) if kind == 'clipped' else weight
    return [
        sum(w * leaf for w, leaf in zip(weights, leaves, strict=True)) / denominator
        for leaves in zip(*updates, strict=True)
    ]


def _trained_mean(kind, weight, cohort=models.COHORT):
    """What the weighted mean of an honest cohort is."""
    return _mean([_flat(_trained(client)) for client in cohort], _weights(), kind, weight)


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
    record = _trained if client_update == 'fedavg' else _stepped
    updates = [_flat(record(client)) for client in models.COHORT]
    expected = _mean(updates, _weights(), kind, weight or _CLIENTS)
    process = _weighted(kind, weight, client_update)
    for num_shards in (1, 3):
        models.assert_close(_moved(process, learning.shard(models.COHORT, num_shards)), expected)


def test_fedsgd_clips_the_gradient_times_its_rate():
    moved = [rounds.norm(_stepped(client)) for client in models.COHORT if client]
    unscaled = [norm / _SGD_RATE for norm in moved]
    assert min(moved) < _CLIP < max(moved)
    # With the rate outside of the clip, as many as here would be clipped to another length.
    assert sum(norm > _CLIP for norm in unscaled) > sum(norm > _CLIP for norm in moved)
    updates = [_flat(_stepped(client)) for client in models.COHORT]
    expected = _mean(updates)
    process = _process(_plan(), 'fedsgd')
    models.assert_close(_moved(process, learning.shard(models.COHORT, 2)), expected)


@pytest.mark.standard
def test_weights_count_different_examples():
    twice = [[*client, *client] for client in models.COHORT]
    plan = _plan(estimator=accounting.Estimator('fixed', 3.0, _CAP))
    process = _process(plan, client_epochs=2)
    models.assert_close(
        _moved(process, learning.shard(twice, 2)), _trained_mean('fixed', 3.0, twice)
    )


def test_a_record_that_is_not_finite_has_no_weight():
    broken = models.client(7, [3, 2])
    broken[1]['x'][0, 0] = np.nan
    moved = _moved(_weighted('clipped', 1.5, 'fedavg'), learning.shard([*models.COHORT, broken], 2))
    models.assert_close(moved, _trained_mean('clipped', 1.5))


@pytest.mark.standard
def test_weights_with_hardened_noise():
    estimator = accounting.Estimator(weight=3.0, example_cap=_CAP)
    plan = _plan(estimator=estimator, noise='hardened', noise_multiplier=0.5)
    process = _process(plan, noise_seed=1, supplied_noise=True)
    with aggregators.build_noise_ring(plan) as ring:
        state = ring.supply(process.initialize(), 'data')
        noise = _moved(process, learning.shard([], 2), state)
        noised = _moved(process, learning.shard(models.COHORT, 2), state)
    without = [a - b for a, b in zip(noised, noise, strict=True)]
    models.assert_close(without, _trained_mean('fixed', 3.0))


@functools.cache
def _clipping_each_batch(clip):
    return _process(_plan(), clip=clip, clip_each_batch=True)


@pytest.mark.parametrize('kind', ['flat', pytest.param('per layer', marks=pytest.mark.standard)])
def test_the_model_is_clipped_after_every_batch(kind):
    by_hand = _flat if kind == 'flat' else _per_layer
    clip = aggregators.clip_flat if kind == 'flat' else aggregators.PerLayer()
    expected = _mean([_trained(client, clip=by_hand) for client in models.COHORT])
    models.assert_close(
        _moved(_clipping_each_batch(clip), learning.shard(models.COHORT, 3)), expected
    )
    at_the_end = _mean([by_hand(_trained(client)) for client in models.COHORT])
    # The test would notice if only the end were clipped.
    assert np.abs(rounds.flat(expected) - rounds.flat(at_the_end)).max() > 1e-3


@pytest.mark.standard
def test_a_clip_after_every_batch_follows_the_norm_in_use():
    plan = _plan(clip_schedule=((1, 1000.0),))
    process = _process(plan, clip_each_batch=True)
    cohort = [models.COHORT[3]]
    state = process.initialize()
    second = process.next(state, learning.shard([], 1)).state
    expected = [leaf / _CLIENTS for leaf in _trained(models.COHORT[3])]
    assert rounds.norm(expected) * _CLIENTS > _CLIP
    models.assert_close(_moved(process, learning.shard(cohort, 1), second), expected)


@pytest.mark.parametrize('position', [0, 1])
def test_a_batch_that_breaks_the_model_breaks_the_record(position):
    broken = models.client(7, [3, 2, 3])
    broken[position]['x'][0, 0] = np.inf
    process = _clipping_each_batch(aggregators.clip_flat)
    moved = _moved(process, learning.shard([models.COHORT[1], broken], 1))
    models.assert_close(moved, [leaf / _CLIENTS for leaf in _trained(models.COHORT[1], clip=_flat)])


def test_shards_of_clients_without_data_have_no_weight():
    shards = [models.dataset([], models.COHORT[0][0])]
    assert not rounds.flat(_moved(_weighted('clipped', 1.5, 'fedavg'), shards)).any()
