"""What TFF's own tests check of its factories, for each factory of ours and for TFF's tree.

A row is a property, a column a factory. A cell holds, or is refused with the reason that `_REFUSED`
has for it, in one line.
"""

import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts

pytestmark = pytest.mark.tff

_ROUNDS, _CLIENTS, _NORM, _NOISE = 4, 4, 0.5, 1e-6
_FLOAT = tff.TensorType(np.float32, [3])
_NESTED = tff.to_type(
    collections.OrderedDict(b=tff.TensorType(np.float32, [2, 3]), a=[np.float32, _FLOAT])
)
_WEIGHT = tff.TensorType(np.float32)


def _plan(rounds=_ROUNDS, **changes):
    fields = dict(
        mechanism=mechanisms.Blt(rounds, [0.9], [0.2]),
        participation=Participation(rounds),
        clip_norm=_NORM,
        noise_multiplier=_NOISE,
        clients_per_round=_CLIENTS,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


def _size(kind) -> int:
    if not tff.types.is_structure_of_tensors(kind):
        return 2
    specs = tf.nest.flatten(tff.types.type_to_tf_tensor_specs(kind))
    return sum(int(np.prod(spec.shape)) for spec in specs if spec.shape.is_fully_defined())


def _integers(kind):
    return Discretization(scale=1e5, dimension=_size(kind), clip_norm=_NORM)


def _secure(kind, **options):
    if 'record_aggregation_factory' not in options:
        options['secure_sum'] = True
    return aggregators.build_aggregator(_plan(discretization=_integers(kind)), 3, **options)


def _distributed(kind, **options):
    plan = _plan(mechanism=mechanisms.Identity(_ROUNDS), discretization=_integers(kind))
    return aggregators.build_distributed_aggregator(
        aggregators.DistributedNoise(plan), secure_sum=True, **options
    )


def _weighted(kind, **options):
    plan = _plan(estimator=accounting.Estimator(example_cap=1.0))
    return aggregators.build_weighted_aggregator(plan, 3, **options)


def _adaptive(kind, **options):
    plan = _plan(
        mechanism=mechanisms.Identity(_ROUNDS),
        adaptive_clip=accounting.AdaptiveClip(count_stddev=1e-6),
    )
    return aggregators.build_aggregator(plan, 3, **options)


def _query(kind, **options):
    specs = tff.types.type_to_tf_tensor_specs(kind)
    query = aggregators.build_query(_plan(), 3, record_specs=specs)
    return tff.aggregators.DifferentiallyPrivateFactory(query, **options)


def _tff_tree(kind, **options):
    tree = tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
        _NOISE, _CLIENTS, _NORM, tff.types.type_to_tf_tensor_specs(kind), noise_seed=3
    )
    return tff.aggregators.DifferentiallyPrivateFactory(tree._query, **options)


_COLUMNS: dict[str, Callable[..., Any]] = {
    'mean': lambda kind, **options: aggregators.build_aggregator(_plan(), 3, **options),
    'adaptive': _adaptive,
    'weighted': _weighted,
    'secure': _secure,
    'distributed': _distributed,
    'query': _query,
    'tff_tree': _tff_tree,
}


class _Output(NamedTuple):
    state: Any
    result: Any
    measurements: Any


class _Process:
    """A process that takes values, and gives each a weight of 1 where it needs weights."""

    def __init__(self, name, kind, **options):
        self.is_weighted = name == 'weighted'
        types = [kind, _WEIGHT] if self.is_weighted else [kind]
        self.of_tff = _COLUMNS[name](kind, **options).create(*types)
        self.next_type = self.of_tff.next.type_signature
        # What the context of `tff.backends.test` does before it executes.
        self._next = tff.backends.test.replace_secure_intrinsics_with_bodies(self.of_tff.next)

    def round(self, values, state=None):
        weights = [[np.float32(1)] * len(values)] if self.is_weighted else []
        state = self.of_tff.initialize() if state is None else state
        output = self._next(state, values, *weights)
        return _Output(*output.values()) if isinstance(output, dict) else _Output(*output)

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

        @tff.federated_computation
        def initialize():
            return self.of_tff.initialize()

        return initialize, next_round


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
    result = _process(name, _NESTED).round([_filled(_NESTED, 0.0)]).result
    assert list(result) == ['b', 'a'] and isinstance(result['a'], list)


def scalars(name):
    _check_types(name, _WEIGHT)


def half_precision(name):
    _check_types(name, tff.to_type([(np.float16, [2]), (np.float32, [2])]))


def float64(name):
    _check_types(name, tff.TensorType(np.float64, [3]))


def structures_without_tensors(name):
    assert _process(name, tff.StructType([])).round([()] * 3).result == ()


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
    _process(name, tff.StructType([('a', _FLOAT), ('b', tff.TensorType(np.float32, [None]))]))


def long_updates_are_clipped_and_others_are_not(name):
    process = _process(name, _NESTED)
    for number, expected in ((1e-3, 1e-3), (100.0, _NORM / np.sqrt(10))):
        result = process.round([_filled(_NESTED, number)] * _CLIENTS).result
        for leaf in tf.nest.flatten(result):
            np.testing.assert_allclose(leaf, expected, rtol=2e-3, atol=3e-5)


def the_mean_is_by_the_planned_number(name):
    result = _process(name, _NESTED).round([_filled(_NESTED, 0.1)]).result
    np.testing.assert_allclose(result['a'][1], 0.1 / _CLIENTS, rtol=2e-3, atol=3e-5)


def no_clients(name):
    process = _process(name, _NESTED)
    after = process.round([])
    after = process.round([_filled(_NESTED, 0.1)] * _CLIENTS, after.state)
    np.testing.assert_allclose(after.result['a'][1], 0.1, rtol=2e-3, atol=3e-5)
    for leaf in tf.nest.flatten(process.round([], after.state).result):
        np.testing.assert_allclose(leaf, 0, atol=1e-5)


def states_go_on(name):
    process, values = _process(name, _NESTED), [_filled(_NESTED, 0.1)] * 2
    first = process.round(values)
    again = process.round(
        values, tff.types.type_to_py_container(first.state, process.next_type[0][0].member)
    )
    whole = process.round(values, first.state)
    tf.nest.map_structure(np.testing.assert_array_equal, again.result, whole.result)


def the_clip_norm_is_measured(name):
    metrics = _process(name, _NESTED).round([_filled(_NESTED, 0.1)]).measurements
    norms = metrics['dp_query_metrics']
    key = 'current_clip' if name == 'adaptive' else 'tree_agg_dpftrl_clip'
    assert norms[key] == pytest.approx(_NORM)


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
    """Values are zeroed before, as `zeroing_factory` does around any unweighted factory."""
    outer = tff.aggregators.zeroing_factory(1.0, _COLUMNS[name](_FLOAT))
    process = outer.create(_FLOAT)
    output = process.next(process.initialize(), [_filled(_FLOAT, 0.1), _filled(_FLOAT, 9.0)])
    np.testing.assert_allclose(output.result, 0.1 / _CLIENTS, rtol=1e-3)


def no_unsecure_sums(name):
    tff.test.assert_not_contains_unsecure_aggregation(_process(name, _NESTED).of_tff.next)


def computations_are_serialized(name):
    computation = _process(name, _NESTED).of_tff.next
    again = tff.framework.deserialize_computation(tff.framework.serialize_computation(computation))
    tff.test.assert_types_identical(again.type_signature, computation.type_signature)


def map_reduce_form(name):
    initialize, next_round = _process(name, _FLOAT).of_state_and_values()
    form = tff.backends.mapreduce.get_map_reduce_form_for_computation(next_round)
    again = tff.backends.mapreduce.get_computation_for_map_reduce_form(form)
    del initialize
    tff.test.assert_types_equivalent(again.type_signature, next_round.type_signature)


_QUICK = (
    containers_and_types_are_kept,
    structures_without_tensors,
    integers,
    sequences,
    functions,
    federated_types,
    sequences_inside,
    unknown_shapes,
    weighted_inner_factories,
    no_unsecure_sums,
    computations_are_serialized,
)
_SLOW = (
    scalars,
    half_precision,
    float64,
    long_updates_are_clipped_and_others_are_not,
    the_mean_is_by_the_planned_number,
    no_clients,
    states_go_on,
    the_clip_norm_is_measured,
    records_are_summed_by_an_inner_factory,
    an_outer_factory,
    map_reduce_form,
)
_ROWS = {row.__name__: row for row in (*_QUICK, *_SLOW)}
_EVERY = tuple(_COLUMNS)
_OF_PLANS = tuple(name for name in _COLUMNS if name not in ('query', 'tff_tree'))
_REFUSED: dict[tuple[str, str], str] = {}


def _refuse(row, names, reason):
    _REFUSED.update({(row, name): reason for name in names})


_cells = pytest.mark.parametrize(
    'row, name',
    [
        pytest.param(row.__name__, name, marks=() if row in _QUICK else pytest.mark.standard)
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
