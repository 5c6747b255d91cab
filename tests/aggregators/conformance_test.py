"""What TFF's own tests check of its factories, for each factory of ours.

`variants_test.py` has the results.
"""

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import accounting, aggregators, mechanisms
from dpfl.aggregators import query
from dpfl.mechanisms.discretization import Discretization
from tests.aggregators import rounds
from tests.sizes import standard

pytestmark = [pytest.mark.tff, pytest.mark.usefixtures('local_runtime')]

_ROUNDS, _CLIENTS, _NORM, _NOISE = 4, 4, 0.5, 1e-6
_FLOAT = tff.TensorType(np.float32, [3])
_NESTED = tff.to_type(
    collections.OrderedDict(b=tff.TensorType(np.float32, [2, 3]), a=[np.float32, _FLOAT])
)
_WEIGHT = tff.TensorType(np.float32)
_NOTHING = tff.StructType([])
_KIND = 'must be a tensor or a structure of tensors'
# Types of values, and why they are refused.
_TYPES = {
    'nested': (_NESTED, None),
    'scalar': (_WEIGHT, None),
    'half precision': (tff.to_type([(np.float16, [2]), (np.float32, [2])]), None),
    'float64': (tff.TensorType(np.float64, [3]), None),
    'integers': (
        tff.to_type([_FLOAT, np.int32]),
        'record/1 has a int32 tensor: must be float32 or float64',
    ),
    'sequence': (tff.SequenceType(np.float32), _KIND),
    'sequence inside': (tff.to_type([('a', _FLOAT), ('b', tff.SequenceType(np.float32))]), _KIND),
    'unknown shape': (
        tff.to_type([_FLOAT, tff.TensorType(np.float32, [None])]),
        'must have tensors of known shapes',
    ),
}
_NOT_OF_TENSORS = ('sequence', 'sequence inside', 'unknown shape')


def _plan(mechanism=None, **changes):
    mechanism = mechanism or mechanisms.Blt(_ROUNDS, [0.9], [0.2])
    return rounds.plan(mechanism, _CLIENTS, **{'noise_multiplier': _NOISE, **changes})


def _specs(kind):
    """Specs of the tensors of a type; of another one if the type has none, for its factories."""
    is_usual = kind not in (_NOTHING, *(_TYPES[name][0] for name in _NOT_OF_TENSORS))
    return tff.types.type_to_tf_tensor_specs(kind if is_usual else _FLOAT)


def _integers(kind):
    size = sum(int(np.prod(spec.shape)) for spec in tf.nest.flatten(_specs(kind)))
    return Discretization(scale=1e5, dimension=size, clip_norm=_NORM)


def _secure(kind, **options):
    is_secure = 'record_aggregation_factory' not in options
    plan = _plan(discretization=_integers(kind))
    return aggregators.build_aggregator(plan, 3, **{'secure_sum': is_secure, **options})


def _mean(kind, seed=3, **options):
    return aggregators.build_aggregator(_plan(), seed, **options)


def _weighted(kind, seed=3, **options):
    plan = _plan(estimator=accounting.Estimator(example_cap=1.0))
    return aggregators.build_weighted_aggregator(plan, seed, **options)


def _adaptive(kind, **options):
    plan = _plan(
        mechanism=mechanisms.Identity(_ROUNDS),
        adaptive_clip=accounting.AdaptiveClip(count_stddev=1e-6),
    )
    return aggregators.build_aggregator(plan, 3, **options)


def _query(kind, **options):
    mean = aggregators.build_query(_plan(), 3, record_specs=_specs(kind))
    return tff.aggregators.DifferentiallyPrivateFactory(mean, **options)


_COLUMNS: dict[str, Callable[..., Any]] = {
    'mean': _mean,
    'adaptive': _adaptive,
    'weighted': _weighted,
    'secure': _secure,
    'query': _query,
}
# What the context of `tff.backends.test` does before it executes.
_without_secure_intrinsics = tff.backends.test.replace_secure_intrinsics_with_bodies


class _Process:
    """A process that takes values, and gives each a weight of 1 where it needs weights."""

    def __init__(self, name, kind, **options):
        self.is_weighted = name == 'weighted'
        types = [kind, _WEIGHT] if self.is_weighted else [kind]
        self.of_tff = _COLUMNS[name](kind, **options).create(*types)
        self.next_type = self.of_tff.next.type_signature
        is_secure = name == 'secure' and not options
        self._next = _without_secure_intrinsics(self.of_tff.next) if is_secure else self.of_tff.next

    def round(self, values):
        weights = [[np.float32(1)] * len(values)] if self.is_weighted else []
        output = self._next(self.of_tff.initialize(), values, *weights)
        if isinstance(output, dict):
            return output['result'], output['measurements']
        return output.result, output.measurements


_process = functools.cache(_Process)


def _filled(kind, number):
    return tf.nest.map_structure(
        lambda spec: np.full(spec.shape, number, spec.dtype.as_numpy_dtype),
        tff.types.type_to_tf_tensor_specs(kind),
    )


@pytest.mark.standard
@pytest.mark.parametrize('name', [name for name in _COLUMNS if name != 'query'])
def test_structures_without_tensors_have_no_results(name):
    # TFF's weighted mean measures the exact sum of the weights. This must not.
    assert not tf.nest.flatten(_process(name, _NOTHING).round([()] * 3))


@pytest.mark.standard
@pytest.mark.parametrize('name', _COLUMNS)
def test_records_are_summed_by_an_inner_factory(name):
    inner = tff.aggregators.add_measurements(
        tff.aggregators.SumFactory(), client_measurement_fn=_count
    )
    process = _Process(name, _FLOAT, record_aggregation_factory=inner)
    result, measurements = process.round([_filled(_FLOAT, 0.1)] * 3)
    assert measurements['dp']['clients'] == 3
    np.testing.assert_allclose(result, 0.3 / _CLIENTS, rtol=1e-3, atol=3e-5)


def _count(values):
    del values
    ones = tff.federated_value(1, tff.CLIENTS)
    return collections.OrderedDict(clients=tff.federated_sum(ones))


@pytest.mark.standard
@pytest.mark.parametrize('name', _COLUMNS)
def test_a_learning_algorithm_takes_a_clipped_step(name):
    algorithms, kind = tff.learning.algorithms, 'weighted' if name == 'weighted' else 'unweighted'
    process = getattr(algorithms, f'build_{kind}_fed_avg')(
        _model(),
        client_optimizer_fn=_sgd(0.2),
        server_optimizer_fn=_sgd(1.0),
        model_aggregator=_COLUMNS[name](_WEIGHTS),
    )
    next_round = _without_secure_intrinsics(process.next) if name == 'secure' else process.next
    data = collections.OrderedDict(x=np.ones((4, 2), np.float32), y=np.ones((4, 1), np.float32))
    client = tf.data.Dataset.from_tensor_slices(data).batch(2)
    start = process.initialize()
    output = next_round(start, [client] * _CLIENTS)
    if isinstance(output, dict):
        before, after = start.global_model_weights, output['state']['global_model_weights']
        weights = [before.trainable, after['trainable']]
    else:
        weights = [process.get_model_weights(each).trainable for each in (start, output.state)]
    before, after = (np.concatenate([np.ravel(leaf) for leaf in each]) for each in weights)
    # The gradient is the same for both inputs and the bias.
    np.testing.assert_allclose(after - before, _NORM / np.sqrt(3), rtol=2e-3, atol=3e-5)


_WEIGHTS = tff.to_type(((np.float32, [2, 1]), (np.float32, [1])))
_BATCHES = collections.OrderedDict(x=tf.TensorSpec([None, 2]), y=tf.TensorSpec([None, 1]))


def _model():
    layer = tf.keras.layers.Dense(1, input_shape=(2,), kernel_initializer='zeros')
    return tff.learning.models.functional_model_from_keras(
        tf.keras.Sequential([layer]), tf.keras.losses.MeanSquaredError(), _BATCHES
    )


_CELLS = [
    # Quick are those that build no process, and two that stand for all.
    (kind, name)
    if reason or (kind == 'nested' and name in ('mean', 'adaptive'))
    else standard(kind, name)
    for kind, (_, reason) in _TYPES.items()
    for name in _COLUMNS
    if name != 'query' or kind not in _NOT_OF_TENSORS  # TFF's own factory has words of its own.
]


@pytest.mark.parametrize('kind, name', _CELLS)
def test_values_keep_their_type_or_are_refused_with_a_reason(kind, name):
    value_type, reason = _TYPES[kind]
    if (kind, name) == ('scalar', 'secure'):
        reason = 'dimension=1: must be an integer >= 2'
    if reason is not None:
        with pytest.raises((ValueError, TypeError), match=reason) as caught:
            _process(name, value_type)
        assert '\n' not in str(caught.value)
        return
    process = _process(name, value_type)
    state, value, *_ = process.next_type.parameter
    tff.test.assert_types_identical(process.next_type.result.result.member, value_type)
    tff.test.assert_types_identical(value, tff.FederatedType(value_type, tff.CLIENTS))
    tff.test.assert_types_identical(process.next_type.result.state, state)
    tff.test.assert_types_identical(process.of_tff.initialize.type_signature.result, state)
    assert state.placement is tff.SERVER
    if kind == 'nested':
        result, _ = process.round([_filled(value_type, 0.0)] * _CLIENTS)
        assert isinstance(result, collections.OrderedDict) and list(result) == ['b', 'a']


@pytest.mark.standard
def test_a_factory_that_is_given_sees_clipped_updates_in_their_own_scale():
    plan = _plan(noise_multiplier=0.0, clip_norm=1.0)
    norm = tff.tensorflow.computation(lambda update: tf.norm(update))
    measured = tff.aggregators.add_measurements(
        tff.aggregators.SecureSumFactory(plan.clip_norm, -plan.clip_norm),
        client_measurement_fn=lambda value: collections.OrderedDict(
            largest=tff.federated_max(tff.federated_map(norm, value))
        ),
    )
    process = aggregators.build_aggregator(plan, record_aggregation_factory=measured).create(
        tff.TensorType(np.float32, [2])
    )
    values = [np.array(each, np.float32) for each in ([3, 4], [0.1, 0])]
    output = _without_secure_intrinsics(process.next)(process.initialize(), values)
    np.testing.assert_allclose(output['result'], np.array([0.7, 0.8]) / plan.denominator, rtol=1e-4)
    measurements = output['measurements']['dp']
    assert measurements['largest'] == pytest.approx(plan.clip_norm, rel=1e-4)
    assert measurements['secure_upper_clipped_count'] == 0


@pytest.mark.standard
def test_queries_without_specs_in_tffs_own_factory():
    def create(mechanism):
        mean = aggregators.build_query(_plan(mechanism=mechanism, noise_multiplier=1.0), 7)
        return tff.aggregators.DifferentiallyPrivateFactory(mean).create(_FLOAT)

    process = create(mechanisms.Identity(_ROUNDS))
    output = process.next(process.initialize(), [np.zeros(3, np.float32)] * 3)
    assert np.ptp(output.result) > 0.01
    with pytest.raises(ValueError, match='record_specs=None: must be given in TFF'):
        create(mechanisms.Blt(_ROUNDS, [0.9], [0.2]))


def test_each_start_has_its_own_noise():
    process = aggregators.build_aggregator(_plan()).create(_FLOAT)
    keys = [query.parts(process.initialize(), query.QueryState)[0].noise.key for _ in range(2)]
    assert not np.isin(*keys).any()


def _sgd(rate=0.1):
    return tff.learning.optimizers.build_sgdm(rate)


_ALGORITHMS = {
    'fed_avg': lambda factory: tff.learning.algorithms.build_unweighted_fed_avg(
        _model(), client_optimizer_fn=_sgd(), model_aggregator=factory
    ),
    'fed_sgd': lambda factory: tff.learning.algorithms.build_fed_sgd(
        _model(), server_optimizer_fn=_sgd(), model_aggregator=factory
    ),
    'mime_lite': lambda factory: tff.learning.algorithms.build_unweighted_mime_lite(
        _model(), _sgd(), model_aggregator=factory, full_gradient_aggregator=factory
    ),
    'fed_kmeans': lambda factory: tff.learning.algorithms.build_fed_kmeans(
        2, (3,), sum_aggregator=factory
    ),
}


@pytest.mark.standard
@pytest.mark.parametrize(
    'algorithm, column, releases',
    [('fed_avg', 'mean', 1), ('fed_sgd', 'weighted', 1), ('mime_lite', 'mean', 2)]
    + [('fed_kmeans', 'mean', 1)],
)
def test_how_many_releases_an_algorithm_makes_with_one_factory(algorithm, column, releases):
    state = _ALGORITHMS[algorithm](_COLUMNS[column](_FLOAT, seed=None)).initialize()
    parts = query.parts(state, query.QueryState)
    assert len(parts) == releases
    # Without a seed, each has noise of its own.
    assert len({tuple(part.noise.key) for part in parts}) == releases
