"""The sharded engine equals `tff.learning` with the aggregator of the same plan, round by round."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, learning, mechanisms
from dpfl.runtime import contexts
from dpfl.tasks.text.models import catalog as language_models
from tests.learning import models

pytestmark = pytest.mark.tff

_ROUNDS = 3
_SEED = 11
_optimizers = tff.learning.optimizers


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _plan(**changes):
    fields = dict(
        mechanism=mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.1]),
        participation=Participation(_ROUNDS, 1),
        clip_norm=0.4,
        noise_multiplier=0.5,
        clients_per_round=6,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


def _server():
    return _optimizers.build_sgdm(1.0, momentum=0.9)


def _sentences(seed, sizes):
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(0, 30, (size, 6)).astype(np.int32) for size in sizes]
    return [collections.OrderedDict(x=rows[:, :-1], y=rows[:, 1:]) for rows in tokens]


# Seven clients for shards of two and three; batches of many sizes, and a client without any.
_SIZES = [[4, 4, 1], [3], [], [4], [4, 2], [1], [4] * 6]
_CASES = {
    'least squares': (models.least_squares, models.client, _optimizers.build_sgdm(0.1)),
    'least squares, Adam': (models.least_squares, models.client, _optimizers.build_adam(0.05)),
    'language model': (
        lambda: language_models.build('micro', 30, 5, seed=0),
        _sentences,
        _optimizers.build_sgdm(0.5, momentum=0.5),
    ),
}


def _cohorts(make_client):
    cohorts = [
        [make_client(100 * t + client, sizes) for client, sizes in enumerate(_SIZES)]
        for t in range(_ROUNDS)
    ]
    first = cohorts[1][4][0]
    if first['x'].dtype == np.float32:
        first['x'][0, 0] = np.nan
    return cohorts


def _assert_same(actual, expected):
    assert type(actual) is type(expected)
    for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        # Sums in another order differ by some units in the last place, of values up to one.
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize('case', _CASES)
def test_equals_stock_tff(case):
    make_model, make_client, optimizer = _CASES[case]
    model = make_model()
    ours = learning.build_dp_fedavg(
        model,
        _plan(),
        client_optimizer_fn=optimizer,
        server_optimizer_fn=_server(),
        noise_seed=_SEED,
    )
    stock = tff.learning.algorithms.build_unweighted_fed_avg(
        model,
        optimizer,
        _server(),
        model_aggregator=aggregators.build_aggregator(_plan(), _SEED),
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )
    state, expected = ours.initialize(), stock.initialize()
    start = ours.get_model_weights(state)
    for t, cohort in enumerate(_cohorts(make_client)):
        output = ours.next(state, learning.shard(cohort, 2 + t % 2))
        datasets = [models.dataset(client, cohort[0][0]) for client in cohort]
        stock_output = stock.next(expected, datasets)
        state, expected = output.state, stock_output.state
        weights = ours.get_model_weights(state)
        _assert_same(weights, stock.get_model_weights(expected))
        _assert_same(state.finalizer, expected.finalizer)
        _assert_same(output.metrics['client_work'], stock_output.metrics['client_work'])
    assert np.abs(weights.trainable[0] - start.trainable[0]).max() > 0.01


def test_single_clients_are_shards_too():
    model = models.least_squares()
    process = learning.build_dp_fedavg(
        model,
        _plan(),
        client_optimizer_fn=_optimizers.build_sgdm(0.1),
        server_optimizer_fn=_server(),
        noise_seed=_SEED,
    )
    cohort = _cohorts(models.client)[0]
    state = process.initialize()
    plain = process.next(state, [models.dataset(client, cohort[0][0]) for client in cohort])
    _assert_same(plain.state, process.next(state, learning.shard(cohort, 2)).state)
    # A round without clients releases noise, as with tff.learning.
    output = process.next(state, learning.shard([], 2))
    assert output.state.aggregator.numerator_state.noise.round == 1


def test_fedsgd_steps_along_the_clipped_gradients():
    model = models.least_squares()
    process = learning.build_dp_fedavg(
        model,
        _plan(noise_multiplier=0.0, clip_norm=100.0),
        client_update='fedsgd',
        server_optimizer_fn=_optimizers.build_sgdm(0.3),
        train_metrics=False,
    )
    cohort = _cohorts(models.client)[0]
    state = process.initialize()
    output = process.next(state, learning.shard(cohort, 3))
    weights = [models.INITIAL, np.zeros(1, np.float32)]
    expected = weights
    for client in filter(None, cohort):
        rows = {name: np.concatenate([batch[name] for batch in client]) for name in ('x', 'y')}
        expected = [
            w - 0.3 * g / 6 for w, g in zip(expected, models.gradient(weights, rows), strict=True)
        ]
    for actual, leaf in zip(output.state.global_model_weights.trainable, expected, strict=True):
        np.testing.assert_allclose(actual, leaf, rtol=1e-5)
    assert output.metrics['client_work'] == {}


def test_it_is_a_learning_process():
    process = learning.build_dp_fedavg(
        models.least_squares(),
        _plan(),
        client_optimizer_fn=_optimizers.build_sgdm(0.1),
        server_optimizer_fn=_server(),
    )
    assert isinstance(process, tff.learning.templates.LearningProcess)
    state = process.initialize()
    hparams = process.get_hparams(state)
    hparams['finalizer']['learning_rate'] = 0.25
    assert process.set_hparams(state, hparams).finalizer['learning_rate'] == 0.25
    weights = process.get_model_weights(state)
    doubled = tf.nest.map_structure(lambda leaf: 2 * leaf, weights)
    assert process.set_model_weights(state, doubled).global_model_weights.trainable[0][0] == 1.0


def test_a_batch_without_rows_is_one_line():
    model = models.least_squares()
    process = learning.build_dp_fedavg(
        model,
        _plan(),
        client_optimizer_fn=_optimizers.build_sgdm(0.1),
        server_optimizer_fn=_server(),
    )
    broken = models.client(0, [2, 0, 2])
    with pytest.raises(contexts.ComputationError, match='batch without rows'):
        process.next(process.initialize(), [models.dataset(broken, broken[0])])


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(client_update='fedprox'), 'client_update=fedprox: must be one of fedavg, fedsgd'),
        (dict(client_optimizer_fn=None), 'client_optimizer_fn=None: must be given for fedavg'),
        (dict(client_update='fedsgd'), 'client_optimizer_fn=.*, not for fedsgd'),
        (dict(noise_seed=-1), 'seed=-1: must be an integer >= 0'),
    ],
)
def test_bad_arguments_are_named(changes, message):
    arguments = dict(client_optimizer_fn=_optimizers.build_sgdm(0.1), server_optimizer_fn=_server())
    with pytest.raises(ValueError, match=message):
        learning.build_dp_fedavg(models.least_squares(), _plan(), **{**arguments, **changes})
