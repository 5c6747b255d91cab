"""Every kind of aggregator gives the same in stock TFF and in the sharded engine."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, learning, mechanisms
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts
from tests.learning import models

pytestmark = pytest.mark.tff

_ROUNDS, _SEED, _CLIENTS = 3, 11, 5
_RESTARTED = mechanisms.Restarted(mechanisms.BinaryTree(2), (1,), _ROUNDS)
_ADAPTIVE = accounting.AdaptiveClip(count_stddev=1.0)
# Three coordinates in `models.least_squares`.
_DISCRETE = Discretization(5000.0, 3, 0.4)
_CASES = {
    'honaker tree': (dict(mechanism=mechanisms.HonakerTree(_ROUNDS)), aggregators.clip_flat),
    'adaptive': (dict(mechanism=_RESTARTED, adaptive_clip=_ADAPTIVE), aggregators.clip_flat),
    'discretized': (dict(discretization=_DISCRETE), aggregators.clip_flat),
    'adaptive discretized': (
        dict(mechanism=_RESTARTED, adaptive_clip=_ADAPTIVE, discretization=_DISCRETE),
        aggregators.clip_flat,
    ),
    'clipped denominator': (
        dict(estimator=accounting.Estimator('clipped', 2.0)),
        aggregators.clip_flat,
    ),
    'per layer': ({}, aggregators.PerLayer((2.0, 1.0))),
    'clip schedule': (dict(clip_schedule=((1, 0.1), (2, 3.0))), aggregators.clip_flat),
}
# They go through most of the code.
_QUICK = ('adaptive discretized', 'clipped denominator', 'per layer')


def _plan(changes):
    fields = dict(
        mechanism=mechanisms.Identity(_ROUNDS),
        participation=Participation(_ROUNDS),
        clip_norm=0.4,
        noise_multiplier=0.5,
        clients_per_round=_CLIENTS,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


@pytest.mark.parametrize(
    'name',
    [pytest.param(name, marks=[] if name in _QUICK else pytest.mark.exhaustive) for name in _CASES],
)
def test_both_release_the_same(name):
    changes, clip = _CASES[name]
    plan, model = _plan(changes), models.least_squares()
    optimizers = [tff.learning.optimizers.build_sgdm(rate) for rate in (0.1, 1.0)]
    ours = learning.build_dp_fedavg(
        model,
        plan,
        client_optimizer_fn=optimizers[0],
        server_optimizer_fn=optimizers[1],
        noise_seed=_SEED,
        clip=clip,
        train_metrics=False,
    )
    stock = tff.learning.algorithms.build_unweighted_fed_avg(
        model,
        *optimizers,
        model_aggregator=aggregators.build_aggregator(plan, _SEED, clip=clip),
    )
    state, expected = ours.initialize(), stock.initialize()
    for t in range(_ROUNDS):
        cohort = [models.client(10 * t + i, [2, 1]) for i in range(_CLIENTS)]
        state = ours.next(state, learning.shard(cohort, 2)).state
        datasets = [models.dataset(client, cohort[0][0]) for client in cohort]
        expected = stock.next(expected, datasets).state
        pairs = zip(
            tf.nest.flatten(ours.get_model_weights(state)),
            tf.nest.flatten(stock.get_model_weights(expected)),
            strict=True,
        )
        # The last bit of an update decides its rounding: ten standard deviations of the mean's.
        atol = 3e-6 if plan.discretization is None else 16 / 5000.0 / _CLIENTS
        for one, other in pairs:
            np.testing.assert_allclose(one, other, rtol=3e-5, atol=atol * (t + 1))
    clip_norms = [_clip_norm(plan, each) for each in (state.aggregator, expected.aggregator)]
    np.testing.assert_allclose(*clip_norms, rtol=1e-6)


def _clip_norm(plan, aggregator_state):
    """The clip norm in use, from the state of either process."""
    inner = getattr(aggregator_state, 'query_state', aggregator_state).numerator_state
    while not hasattr(inner, 'clip_norm'):
        inner = inner.inner
    return inner.clip_norm
