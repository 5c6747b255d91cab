"""What TFF's own tests check of its factories, for each factory of ours.

A row is a property, a column a factory. A cell holds, or is refused with the reason that `_REFUSED`
has for it, in one line. `variants_test.py` compares results with formulas.
"""

import asyncio
import collections
import functools
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import accounting, aggregators, mechanisms
from dpfl.aggregators import query
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts
from tests.aggregators import rounds

pytestmark = pytest.mark.tff

_ROUNDS, _CLIENTS, _NORM, _NOISE = 4, 4, 0.5, 1e-6
_FLOAT = tff.TensorType(np.float32, [3])
_NESTED = tff.to_type(
    collections.OrderedDict(b=tff.TensorType(np.float32, [2, 3]), a=[np.float32, _FLOAT])
)
_WEIGHT = tff.TensorType(np.float32)
_NOTHING = tff.StructType([])
_UNKNOWN = tff.to_type(collections.OrderedDict(a=_FLOAT, b=tff.TensorType(np.float32, [None])))


def _plan(mechanism=None, **changes):
    mechanism = mechanism or mechanisms.Blt(_ROUNDS, [0.9], [0.2])
    return rounds.plan(mechanism, _CLIENTS, **{'noise_multiplier': _NOISE, **changes})


def _specs(kind):
    """Specs of the tensors of a type; of another one if the type has none, for its factories."""
    is_usual = tff.types.is_structure_of_tensors(kind) and kind not in (_NOTHING, _UNKNOWN)
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


_SECURE = ('secure',)


# What the context of `tff.backends.test` does before it executes.
_without_secure_intrinsics = tff.backends.test.replace_secure_intrinsics_with_bodies


class _Output(NamedTuple):
    state: Any
    result: Any
    measurements: Any


class _Process:
    """A process that takes values, and gives each a weight of 1 where it needs weights."""

    def __init__(self, name, kind, wrap=lambda factory: factory, **options):
        self.is_weighted = name == 'weighted'
        types = [kind, _WEIGHT] if self.is_weighted else [kind]
        self.of_tff = wrap(_COLUMNS[name](kind, **options)).create(*types)
        self.next_type = self.of_tff.next.type_signature
        is_secure = name in _SECURE and not options
        self._next = _without_secure_intrinsics(self.of_tff.next) if is_secure else self.of_tff.next

    def round(self, values, state=None):
        weights = [[np.float32(1)] * len(values)] if self.is_weighted else []
        state = self.of_tff.initialize() if state is None else state
        output = self._next(state, values, *weights)
        if isinstance(output, dict):
            return _Output(*output.values())
        return _Output(output.state, output.result, output.measurements)

    def of_state_and_values(self):
        """A computation of a state and clients' values, with their weights, as algorithms have."""
        state, *members = self.next_type.parameter
        values = tff.FederatedType(tff.to_type([each.member for each in members]), tff.CLIENTS)

        @tff.federated_computation(state, values)
        def next_round(state, values):
            parts = [
                tff.federated_map(_selection(values.type_signature.member, index), values)
                for index in range(len(members))
            ]
            output = self.of_tff.next(state, *parts)
            return output.state, output.result

        return next_round


def _selection(kind, index):
    return tff.tensorflow.computation(lambda value: value[index], kind)


_process = functools.cache(_Process)


def _filled(kind, number):
    return tf.nest.map_structure(
        lambda spec: np.full(spec.shape, number, spec.dtype.as_numpy_dtype),
        tff.types.type_to_tf_tensor_specs(kind),
    )


def _check_types(name, kind, **options):
    process = _process(name, kind, **options)
    state, value, *_ = process.next_type.parameter
    tff.test.assert_types_identical(process.next_type.result.result.member, kind)
    tff.test.assert_types_identical(value, tff.FederatedType(kind, tff.CLIENTS))
    tff.test.assert_types_identical(process.next_type.result.state, state)
    tff.test.assert_types_identical(process.of_tff.initialize.type_signature.result, state)
    assert state.placement is tff.SERVER


def containers_and_types_are_kept(name):
    _check_types(name, _NESTED)
    result = _process(name, _NESTED).round([_filled(_NESTED, 0.0)] * _CLIENTS).result
    assert isinstance(result, collections.OrderedDict) and list(result) == ['b', 'a']


def scalars(name):
    _check_types(name, _WEIGHT)


def half_precision(name):
    _check_types(name, tff.to_type([(np.float16, [2]), (np.float32, [2])]))


def float64(name):
    _check_types(name, tff.TensorType(np.float64, [3]))


def structures_without_tensors(name):
    output = _process(name, _NOTHING).round([()] * 3)
    # TFF's weighted mean measures the exact sum of the weights. This must not.
    assert not tf.nest.flatten([output.result, output.measurements])


def integers(name):
    _check_types(name, tff.to_type([_FLOAT, np.int32]))


def sequences(name):
    _process(name, tff.SequenceType(np.float32))


def functions(name):
    _process(name, tff.FunctionType(np.float32, np.float32))


def federated_types(name):
    _process(name, tff.FederatedType(np.float32, tff.CLIENTS))


def sequences_inside(name):
    _process(name, tff.StructType([('a', _FLOAT), ('b', tff.SequenceType(np.float32))]))


def unknown_shapes(name):
    _process(name, _UNKNOWN)


def states_go_on_from_a_program_state_manager(name):
    # Without secure operators, whose replacements lose the containers of the state.
    options = {'secure_sum': False} if name in _SECURE else {}
    process, values = _process(name, _NESTED, **options), [_filled(_NESTED, 0.1)] * _CLIENTS
    start = process.of_tff.initialize()
    first = process.round(values, start).state
    with tempfile.TemporaryDirectory() as folder:
        manager = tff.program.FileProgramStateManager(folder)
        asyncio.run(manager.save(first, 1))
        restored = asyncio.run(manager.load(1, start))
    one, other = (process.round(values, state) for state in (first, restored))
    tf.nest.map_structure(np.testing.assert_array_equal, one.result, other.result)


def records_are_summed_by_an_inner_factory(name):
    inner = tff.aggregators.add_measurements(
        tff.aggregators.SumFactory(), client_measurement_fn=_count
    )
    process = _Process(name, _FLOAT, record_aggregation_factory=inner)
    output = process.round([_filled(_FLOAT, 0.1)] * 3)
    assert output.measurements['dp']['clients'] == 3
    np.testing.assert_allclose(output.result, 0.3 / _CLIENTS, rtol=1e-3, atol=3e-5)


def _count(values):
    del values
    ones = tff.federated_value(1, tff.CLIENTS)
    return collections.OrderedDict(clients=tff.federated_sum(ones))


def weighted_inner_factories(name):
    _Process(name, _FLOAT, record_aggregation_factory=tff.aggregators.MeanFactory())


def an_outer_factory(name):
    """Values are zeroed before, as TFF's `zeroing_factory` does around any other factory."""
    process = _Process(name, _FLOAT, lambda factory: tff.aggregators.zeroing_factory(1.0, factory))
    values = [_filled(_FLOAT, number) for number in (0.1, 0.1, 0.1, 9.0)]
    np.testing.assert_allclose(process.round(values).result, 0.3 / _CLIENTS, rtol=1e-3, atol=3e-5)


def secure_sums(name):
    options: dict[str, Any] = {'secure_sum': True}
    if name in _OF_TFF:
        options = {'record_aggregation_factory': tff.aggregators.SecureSumFactory(1.0, -1.0)}
    tff.test.assert_not_contains_unsecure_aggregation(_Process(name, _FLOAT, **options).of_tff.next)


def computations_are_serialized(name):
    computation = _process(name, _NESTED).of_tff.next
    again = tff.framework.deserialize_computation(tff.framework.serialize_computation(computation))
    # Types of Python's containers are not kept.
    tff.test.assert_types_equivalent(again.type_signature, computation.type_signature)


def map_reduce_form(name):
    next_round = _process(name, _FLOAT).of_state_and_values()
    form = tff.backends.mapreduce.get_map_reduce_form_for_computation(next_round)
    again = tff.backends.mapreduce.get_computation_for_map_reduce_form(form)
    tff.test.assert_types_equivalent(again.type_signature, next_round.type_signature)


def in_a_learning_algorithm(name):
    algorithms = tff.learning.algorithms
    is_weighted = name == 'weighted'
    build = (
        algorithms.build_weighted_fed_avg if is_weighted else algorithms.build_unweighted_fed_avg
    )
    _check_learning(build, name)


def in_an_algorithm_of_the_other_kind(name):
    algorithms = tff.learning.algorithms
    is_weighted = name == 'weighted'
    build = (
        algorithms.build_unweighted_fed_avg if is_weighted else algorithms.build_weighted_fed_avg
    )
    _check_learning(build, name)


def _check_learning(build, name):
    process = build(
        _model(),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.2),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=_COLUMNS[name](_WEIGHTS),
    )
    next_round = _without_secure_intrinsics(process.next) if name in _SECURE else process.next
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


_QUICK = (
    containers_and_types_are_kept,
    integers,
    sequences,
    functions,
    federated_types,
    sequences_inside,
    unknown_shapes,
    weighted_inner_factories,
    computations_are_serialized,
)
_SLOW = (
    structures_without_tensors,
    scalars,
    half_precision,
    float64,
    states_go_on_from_a_program_state_manager,
    records_are_summed_by_an_inner_factory,
    an_outer_factory,
    secure_sums,
    map_reduce_form,
    in_a_learning_algorithm,
    in_an_algorithm_of_the_other_kind,
)
_ROWS = {row.__name__: row for row in (*_QUICK, *_SLOW)}
_OF_TFF = ('query',)  # In a factory of TFF.
_OURS = tuple(name for name in _COLUMNS if name not in _OF_TFF)

# Reasons of refused cells, by row: for all columns, or for some.
_KIND = 'must be a tensor or a structure of tensors'
_REASONS: dict[str, dict[tuple[str, ...], str]] = {
    'structures_without_tensors': {
        ('query',): 'does not have named field "dtype"',
    },
    'integers': {
        (*_OURS, 'query'): 'record/1 has a int32 tensor: must be float32 or float64',
    },
    'sequences': {_OURS: _KIND, _OF_TFF: 'Expected .*TensorType or .*StructType, found'},
    'functions': {_OURS: _KIND, _OF_TFF: 'Expected .*TensorType or .*StructType, found'},
    'federated_types': {_OURS: _KIND, _OF_TFF: 'Expected .*TensorType or .*StructType, found'},
    'sequences_inside': {_OURS: _KIND, _OF_TFF: 'Unsupported type .*SequenceType'},
    'unknown_shapes': {
        _OURS: 'must have tensors of known shapes',
        _OF_TFF: 'Cannot convert a partially known TensorShape',
    },
    'weighted_inner_factories': {
        ('mean', 'adaptive', 'weighted', 'secure'): 'must be a tff.aggregators.Unweighted',
        _OF_TFF: 'Expected .*UnweightedAggregationFactory, found .*MeanFactory',
    },
    'scalars': {('secure',): 'dimension=1: must be an integer >= 2'},
    'secure_sums': {
        ('mean', 'adaptive', 'weighted'): 'secure_sum=True: must be False without a discretization'
    },
    'in_an_algorithm_of_the_other_kind': {
        ('mean', 'adaptive', 'secure'): (
            'Expected .*WeightedAggregationFactory, found .*build_weighted_aggregator.plan.'
        ),
        ('weighted', *_OF_TFF): 'Expected .*eightedAggregationFactory, found',
    },
}
_REFUSED = {
    (row, name): reason
    for row, reasons in _REASONS.items()
    for names, reason in reasons.items()
    for name in names
}


def _is_quick(row, name):
    """Whether a cell builds no process, or one of the few that stand for all."""
    return row in _QUICK and ((row.__name__, name) in _REFUSED or name in ('mean', 'adaptive'))


_cells = pytest.mark.parametrize(
    'row, name',
    [
        pytest.param(row.__name__, name, marks=() if _is_quick(row, name) else pytest.mark.standard)
        for row in (*_QUICK, *_SLOW)
        for name in _COLUMNS
    ],
)


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


@_cells
def test_a_property_of_a_factory_holds_or_is_refused_with_a_reason(row, name):
    reason = _REFUSED.get((row, name))
    if reason is None:
        _ROWS[row](name)
        return
    with pytest.raises(Exception, match=reason) as caught:
        _ROWS[row](name)
    assert '\n' not in str(caught.value)


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


def _reconstruction_model():
    inputs = tf.keras.layers.Input(shape=(2,))
    of_all, own = tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)
    return tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
        keras_model=tf.keras.Model(inputs, own(of_all(inputs))),
        global_layers=[of_all],
        local_layers=[own],
        input_spec=_BATCHES,
    )


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
    'fed_recon': lambda factory: tff.learning.algorithms.build_fed_recon(
        _reconstruction_model,
        loss_fn=tf.keras.losses.MeanSquaredError,
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
        model_aggregator_factory=factory,
    ),
    'fed_kmeans': lambda factory: tff.learning.algorithms.build_fed_kmeans(
        2, (3,), sum_aggregator=factory
    ),
}


@pytest.mark.standard
@pytest.mark.parametrize(
    'algorithm, column, releases',
    [('fed_avg', 'mean', 1), ('fed_sgd', 'weighted', 1), ('mime_lite', 'mean', 2)]
    + [('fed_recon', 'mean', 1), ('fed_kmeans', 'mean', 1)],
)
def test_how_many_releases_an_algorithm_makes_with_one_factory(algorithm, column, releases):
    state = _ALGORITHMS[algorithm](_COLUMNS[column](_FLOAT, seed=None)).initialize()
    parts = query.parts(state, query.QueryState)
    assert len(parts) == releases
    # Without a seed, each has noise of its own.
    assert len({tuple(part.noise.key) for part in parts}) == releases


@pytest.mark.standard
def test_gradients_of_fed_sgd_have_weights():
    with pytest.raises(TypeError, match='positional argument'):
        _ALGORITHMS['fed_sgd'](_mean(_FLOAT))
