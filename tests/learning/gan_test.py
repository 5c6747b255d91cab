"""DP-FedAvg-GAN round by round, against NumPy with its noise redrawn, and against DP-FedAvg."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import learning, mechanisms
from dpfl.aggregators.noise import draws
from dpfl.learning import gan
from tests import redrawn
from tests.aggregators import rounds
from tests.learning import gan_models, models

pytestmark = [pytest.mark.tff, pytest.mark.usefixtures('local_runtime')]

_ROUNDS, _SEED, _COHORT = 4, 3, 5
_RATE, _PENALTY, _GENERATOR_RATE = 0.1, 10.0, 0.2
_sgd = tff.learning.optimizers.build_sgdm
# A client with fewer images than a batch, one without any.
_SIZES = [[4, 4], [3], [], [4, 1]]


def _plan(**changes):
    mechanism = mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.1])
    fields = dict(clip_norm=0.4, noise_multiplier=0.5)
    return rounds.plan(mechanism, _COHORT, **{**fields, **changes})


def _process(plan, **changes):
    fields = dict(
        client_optimizer_fn=_sgd(_RATE),
        server_optimizer_fn=_sgd(1.0),
        generator_optimizer=_sgd(_GENERATOR_RATE),
        generator_steps=2,
        generator_batch_size=5,
        gradient_penalty=_PENALTY,
        seed=_SEED,
        noise_seed=1,
    )
    return learning.build_dp_fedavg_gan(gan_models.linear_gan(), plan, **{**fields, **changes})


def _cohort(t):
    return [gan_models.client(10 * t + i, sizes) for i, sizes in enumerate(_SIZES)]


def _weights(process, state):
    return learning.gan_weights(process.get_model_weights(state))


_assert_close = functools.partial(models.assert_close, rtol=2e-5, atol=2e-6)


class _Reference:
    """The algorithm in NumPy, without clipping; inputs are drawn again from the seed."""

    def __init__(self):
        self._root = draws.seeded_root_key(_SEED, 'generator inputs')
        self.generator, self.discriminator = gan_models.GENERATOR, gan_models.DISCRIMINATOR

    def round(self, t, cohort, noise, generator_steps):
        new = [self._trained(t, client) for client in cohort]
        old = self.discriminator
        # Clients send by how much they lower the weights, so noise is subtracted.
        self.discriminator = tuple(
            leaf + (sum(client[i] - leaf for client in new) - noise[i]) / _COHORT
            for i, leaf in enumerate(old)
        )
        for step in range(generator_steps):
            inputs = self._normal(self._key([t, 1, step]), 5)
            self.generator = gan_models.generator_step(
                self.generator, self.discriminator, inputs, _GENERATOR_RATE
            )

    def _trained(self, t, client):
        weights = self.discriminator
        for batch in client:
            images = tf.reshape(2 * batch['x'] - 1, [-1])
            key = draws.derive_from_content(self._key([t, 0]), images)
            inputs = self._normal(draws.derive(key, 0), len(batch['x']))
            generated = inputs @ self.generator[0] + self.generator[1]
            weights = gan_models.discriminator_step(weights, generated, batch['x'], _RATE, _PENALTY)
        return weights

    def _key(self, path):
        return functools.reduce(draws.derive, path, self._root)

    def _normal(self, key, number):
        return tf.random.stateless_normal([number, 2], seed=key, alg='philox').numpy()


@pytest.mark.standard
def test_below_the_clip_norm_rounds_are_plain_federated_steps_and_noise():
    """The noise on the discriminator is (C^-1 Z)_t, redrawn from the state."""
    plan = _plan(noise_multiplier=1e-3, clip_norm=100.0)
    process = _process(plan, train_metrics=True)
    state, reference = process.initialize(), _Reference()
    specs = [tf.TensorSpec(np.shape(w)) for w in gan_models.DISCRIMINATOR]
    inverse = np.linalg.inv(plan.mechanism.strategy_matrix())
    for t in range(_ROUNDS):
        # Without any data there is no shard, but the round is released.
        cohort = [[]] * 3 if t == 2 else _cohort(t)
        output = process.next(state, learning.shard(cohort, 1 + t % 3))
        state = output.state
        z = redrawn.noise(state.aggregator, specs)
        noise = [
            plan.stddev * sum(inverse[t, s] * z[s][leaf] for s in range(t + 1)) for leaf in (0, 1)
        ]
        reference.round(t, cohort, noise, 2)
        weights = _weights(process, state)
        _assert_close(weights.discriminator, reference.discriminator)
        _assert_close(weights.generator, reference.generator)
        assert weights.round == t + 1
        assert output.metrics['finalizer']['generator_loss']
        assert {'discriminator_loss', 'critic_gap'} == set(output.metrics['client_work']['train'])
        assert np.abs(noise[0]).max() > 1e-2


@pytest.mark.standard
def test_the_discriminator_is_trained_by_dp_fedavg():
    """Without generator steps it is exactly the process whose guarantee it has."""
    plan = _plan(clip_norm=0.05)
    ours = _process(plan, generator_steps=0)
    model = gan.discriminator_model(gan_models.linear_gan(), _PENALTY, _SEED)
    plain = learning.build_dp_fedavg(
        model,
        plan,
        client_optimizer_fn=_sgd(_RATE),
        server_optimizer_fn=_sgd(1.0),
        noise_seed=1,
        train_metrics=False,
    )
    state, other = ours.initialize(), plain.initialize()
    for _ in range(2):
        # The same round again, for the plain process does not count rounds for the inputs.
        weights = ours.get_model_weights(state)
        others = (*weights.non_trainable[:-1], np.int64(0))
        again = tff.learning.models.ModelWeights(weights.trainable, others)
        state = ours.set_model_weights(state, again)
        shards = learning.shard(_cohort(0), 2)
        state, other = ours.next(state, shards).state, plain.next(other, shards).state
        trained = other.global_model_weights.trainable
        _assert_close(_weights(ours, state).discriminator, trained, rtol=0, atol=0)
    _assert_close(_weights(ours, state).generator, gan_models.GENERATOR, rtol=0, atol=0)


@pytest.mark.standard
def test_weights_can_be_set_and_the_generator_keeps_its_optimizer():
    process = _process(_plan(), generator_optimizer=tff.learning.optimizers.build_adam(0.1))
    state = process.initialize()
    assert isinstance(process, tff.learning.templates.LearningProcess)
    assert isinstance(state.finalizer, gan.FinalizerState)
    for t in range(2):
        state = process.next(state, learning.shard(_cohort(t), 2)).state
    assert state.finalizer.generator['step'] == 4  # Two steps in each round, of one optimizer.
    weights = process.get_model_weights(state)
    _assert_close(weights.trainable, _weights(process, state).generator)
    doubled = tf.nest.map_structure(lambda leaf: leaf + leaf, weights)
    changed = process.get_model_weights(process.set_model_weights(state, doubled))
    _assert_close(*map(tf.nest.flatten, (changed, doubled)), rtol=0, atol=0)
