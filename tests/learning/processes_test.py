"""The sharded engine equals `tff.learning` with the aggregator of the same plan, round by round."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, errors, learning, mechanisms
from dpfl.mechanisms.discretization import Discretization
from dpfl.tasks.text.models import saved_models as language_models
from tests.aggregators import rounds
from tests.learning import models

pytestmark = [pytest.mark.tff, pytest.mark.usefixtures('local_runtime')]

# Seven clients for shards of two and three; batches of many sizes, and a client without any.
_SIZES = [[4, 4, 1], [3], [], [4], [4, 2], [1], [4] * 6]
_ROUNDS = 3
_SEED = 11
_optimizers = tff.learning.optimizers


def _plan(**changes):
    fields = dict(
        mechanism=mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.1]),
        participation=Participation(_ROUNDS, 1),
        clip_norm=0.4,
        noise_multiplier=0.5,
        clients=len(_SIZES),
    )
    return rounds.plan(**{**fields, **changes})


def _server():
    return _optimizers.build_sgdm(1.0, momentum=0.9)


def _sentences(seed, sizes):
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(0, 30, (size, 6)).astype(np.int32) for size in sizes]
    return [collections.OrderedDict(x=rows[:, :-1], y=rows[:, 1:]) for rows in tokens]


_MODELS = {
    'least squares': (models.least_squares, models.client, _optimizers.build_sgdm(0.1)),
    'Adam': (models.least_squares, models.client, _optimizers.build_adam(0.05)),
    'language model': (
        lambda: language_models.build('micro', 30, 5, seed=0),
        _sentences,
        _optimizers.build_sgdm(0.5, momentum=0.5),
    ),
}
_RESTARTED = mechanisms.Restarted(mechanisms.BinaryTree(2), (1,), _ROUNDS)
_ADAPTIVE = dict(mechanism=_RESTARTED, adaptive_clip=accounting.AdaptiveClip(count_stddev=1.0))
# Three coordinates in `models.least_squares`.
_SCALE = 5000.0
_DISCRETE = dict(discretization=Discretization(_SCALE, 3, 0.4))
# The kind of a plan: what it changes, and the model that it is tried with.
_CASES = {
    **{name: ({}, name) for name in _MODELS},
    'honaker tree': (dict(mechanism=mechanisms.HonakerTree(_ROUNDS)), 'least squares'),
    'adaptive': (_ADAPTIVE, 'least squares'),
    'discretized': (_DISCRETE, 'least squares'),
    'adaptive discretized': ({**_ADAPTIVE, **_DISCRETE}, 'least squares'),
    'clipped denominator': (dict(estimator=accounting.Estimator('clipped', 2.0)), 'least squares'),
    'weighted': (dict(estimator=accounting.Estimator('clipped', 1.5, 8.0)), 'least squares'),
    'weighted adaptive': (
        {**_ADAPTIVE, 'estimator': accounting.Estimator('clipped', 1.5, 8.0)},
        'least squares',
    ),
    'weighted discretized': (
        {**_DISCRETE, 'estimator': accounting.Estimator('fixed', 3.0, 8.0)},
        'least squares',
    ),
    'per layer': ({}, 'least squares'),
    'clip schedule': (
        dict(mechanism=mechanisms.Identity(_ROUNDS), clip_schedule=((1, 0.1), (2, 3.0))),
        'least squares',
    ),
}
# What each of the two does, other cases show.
_COMBINED = ('adaptive discretized', 'weighted adaptive', 'weighted discretized')


def _cohorts(make_client):
    cohorts = [
        [make_client(100 * t + client, sizes) for client, sizes in enumerate(_SIZES)]
        for t in range(_ROUNDS)
    ]
    first = cohorts[1][4][0]
    if first['x'].dtype == np.float32:
        first['x'][0, 0] = np.nan
    return cohorts


def _assert_same(actual, expected, atol=2e-6):
    assert type(actual) is type(expected)
    # Sums in another order differ by some units in the last place, of values up to one.
    models.assert_close(*map(tf.nest.flatten, (actual, expected)), rtol=2e-5, atol=atol)


def _of_stock_tff(plan, model, optimizer, clip):
    """The process of `tff.learning` with the aggregator of the plan."""
    if plan.estimator.example_cap is None:
        build = tff.learning.algorithms.build_unweighted_fed_avg
        aggregator = aggregators.build_aggregator(plan, _SEED, clip=clip)
    else:
        build = tff.learning.algorithms.build_weighted_fed_avg
        aggregator = aggregators.build_weighted_aggregator(plan, _SEED, clip=clip)
    return build(
        model,
        optimizer,
        _server(),
        model_aggregator=aggregator,
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )


@pytest.mark.parametrize(
    'case',
    [
        pytest.param(
            case, marks=pytest.mark.exhaustive if case in _COMBINED else pytest.mark.standard
        )
        for case in _CASES
    ],
)
def test_equals_stock_tff(case):
    changes, name = _CASES[case]
    make_model, make_client, optimizer = _MODELS[name]
    plan, model = _plan(**changes), make_model()
    clip = aggregators.PerLayer((2.0, 1.0)) if case == 'per layer' else aggregators.clip_flat
    ours = learning.build_dp_fedavg(
        model,
        plan,
        client_optimizer_fn=optimizer,
        server_optimizer_fn=_server(),
        noise_seed=_SEED,
        clip=clip,
    )
    stock = _of_stock_tff(plan, model, optimizer, clip)
    state, expected = ours.initialize(), stock.initialize()
    start = ours.get_model_weights(state)
    for t, cohort in enumerate(_cohorts(make_client)):
        output = ours.next(state, learning.shard(cohort, 2 + t % 2))
        datasets = [models.dataset(client, cohort[0][0]) for client in cohort]
        stock_output = stock.next(expected, datasets)
        state, expected = output.state, stock_output.state
        weights = ours.get_model_weights(state)
        # The last bit of an update decides its rounding: ten standard deviations of the mean's.
        atol = 2e-6 if plan.discretization is None else 16 / _SCALE / plan.denominator * (t + 1)
        _assert_same(weights, stock.get_model_weights(expected), atol)
        _assert_same(state.finalizer, expected.finalizer, 2 * atol)
        if plan.discretization is None:
            metrics = output.metrics['client_work']
            _assert_same(metrics, stock_output.metrics['client_work'])
    assert np.abs(weights.trainable[0] - start.trainable[0]).max() > 0.01
    clip_norms = [_clip_norm(each) for each in (state.aggregator, expected.aggregator)]
    np.testing.assert_allclose(*clip_norms, rtol=1e-6)


def _clip_norm(aggregator_state):
    """The clip norm in use, from the state of either process."""
    inner = getattr(aggregator_state, 'query_state', aggregator_state).numerator_state
    while not hasattr(inner, 'clip_norm'):
        inner = inner.inner
    return inner.clip_norm


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


def _model(rows=None):
    model, spec = models.least_squares(), tf.TensorSpec([rows, 2])
    return tff.learning.models.FunctionalModel(
        initial_weights=((), (np.zeros(1),)),
        predict_on_batch_fn=model.predict_on_batch,
        loss_fn=model.loss,
        input_spec=(spec, spec),
    )


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(model=_model()), 'model: must have trainable weights'),
        (dict(model=_model(rows=8)), r'input_spec=\(8, 2\): must have None for the number of rows'),
        (dict(clip=aggregators.PerLayer((1.0,))), 'shares=.1.0,.: must be 2 numbers'),
        (dict(client_update='fedprox'), 'client_update=fedprox: must be one of fedavg, fedsgd'),
        (dict(client_optimizer_fn=None), 'client_optimizer_fn=None: must be given for fedavg'),
        (dict(client_update='fedsgd'), 'client_optimizer_fn=.*, not for fedsgd'),
        (dict(noise_seed=-1), 'seed=-1: must be an integer >= 0'),
        (dict(model=lambda: None), 'model=function: must be a tff.learning.models.Funct'),
        (dict(client_learning_rate=0.3), 'client_learning_rate=0.3: must be 1 for fedavg'),
        (
            dict(client_optimizer_fn=None, client_update='fedsgd', clip_each_batch=True),
            'clip_each_batch=True: must be False for fedsgd',
        ),
        (
            dict(plan=_plan(**_ADAPTIVE), clip_each_batch=True),
            'clip_each_batch=True: must be False with adaptive_clip',
        ),
    ],
)
def test_bad_arguments_are_named(changes, message):
    arguments = dict(model=models.least_squares(), plan=_plan(), server_optimizer_fn=_server())
    arguments |= dict(client_optimizer_fn=_optimizers.build_sgdm(0.1)) | changes
    with pytest.raises(errors.ArgumentError, match=message):
        learning.build_dp_fedavg(arguments.pop('model'), arguments.pop('plan'), **arguments)
