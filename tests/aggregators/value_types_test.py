"""The contract of TFF's factories: which types of values aggregators take."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.runtime import contexts

pytestmark = pytest.mark.tff

_FLOAT = tff.TensorType(np.float32, [2])
_REFUSED = {
    'sequence': tff.SequenceType(np.float32),
    'federated': tff.FederatedType(np.float32, tff.CLIENTS),
    'function': tff.FunctionType(np.float32, np.float32),
    'a sequence inside': tff.StructType([('a', _FLOAT), ('b', tff.SequenceType(np.float32))]),
    'integers': tff.TensorType(np.int32, [2]),
    'unknown length': tff.StructType([('a', _FLOAT), ('b', tff.TensorType(np.float32, [None]))]),
    'unknown rank': tff.TensorType(np.float32, None),
}
_SAYS = {
    'integers': 'must be float32 or float64',
    'unknown length': 'must have tensors of known shapes',
    'unknown rank': 'must have tensors of known shapes',
}


def _plan(**values):
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(2),
        participation=Participation(2),
        clip_norm=1.0,
        clients_per_round=2,
        **{'noise_multiplier': 1.0, **values},
    )


_WEIGHTED = _plan(estimator=accounting.Estimator('fixed', None, 4.0))


@pytest.mark.parametrize('name', _REFUSED)
def test_other_types_are_type_errors_of_one_line(name):
    plain = aggregators.build_aggregator(_plan())
    weighted = aggregators.build_weighted_aggregator(_WEIGHTED)
    for create in (plain.create, lambda kind: weighted.create(kind, tff.TensorType(np.float32))):
        with pytest.raises(TypeError) as caught:
            create(_REFUSED[name])
        assert _SAYS.get(name, 'must be a tensor or a structure of tensors') in str(caught.value)
        assert '\n' not in str(caught.value)


def test_what_tff_refuses_is_refused():
    for name in ('sequence', 'federated', 'function'):
        with pytest.raises(TypeError):
            tff.aggregators.UnweightedMeanFactory().create(_REFUSED[name])


@pytest.mark.parametrize(
    'empty, value',
    [(tff.StructType([]), ()), (tff.to_type({'a': ()}), {'a': ()})],
    ids=['nothing', 'nothing with a name'],
)
def test_nothing_is_summed_as_by_tff(empty, value):
    reference = tff.aggregators.UnweightedMeanFactory().create(empty)
    one = aggregators.build_aggregator(_plan()).create(empty)
    assert one.next.type_signature.result.result.is_equivalent_to(
        reference.next.type_signature.result.result
    )
    results = [
        process.next(process.initialize(), [value] * 3).result for process in (one, reference)
    ]
    assert results[0] == results[1]
    weight = tff.TensorType(np.float32)
    other = aggregators.build_weighted_aggregator(_WEIGHTED).create(empty, weight)
    output = other.next(other.initialize(), [value] * 3, [1.0, 2.0, 3.0])
    assert output.result == results[1]
    # TFF's weighted mean measures the exact sum of the weights. This must not.
    assert output.measurements == one.next(one.initialize(), [value] * 3).measurements
    assert not tff.structure.flatten(tff.structure.from_container(output.measurements))


class _Counted(tff.aggregators.UnweightedAggregationFactory):
    """A sum of someone else's that also keeps how many clients there were."""

    def create(self, value_type):
        inner = tff.aggregators.SumFactory().create(value_type)

        @tff.federated_computation(
            inner.initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
        )
        def next_sum(state, value):
            ones = tff.federated_value(1, tff.CLIENTS)
            done = inner.next(state, value)
            return tff.templates.MeasuredProcessOutput(
                done.state, done.result, tff.federated_sum(ones)
            )

        return tff.templates.AggregationProcess(inner.initialize, next_sum)


def test_records_are_summed_by_a_factory_that_is_given():
    values = [np.array(each, np.float32) for each in ([3, 4], [0.1, 0])]
    results = []
    with contexts.local_runtime():
        for given in (None, _Counted()):
            process = aggregators.build_aggregator(
                _plan(), seed=1, record_aggregation_factory=given
            ).create(_FLOAT)
            output = process.next(process.initialize(), values)
            results.append(output.result)
        assert output.measurements['dp'] == 2
        plain, given = (
            aggregators.build_weighted_aggregator(
                _WEIGHTED, seed=1, record_aggregation_factory=each
            ).create(_FLOAT, tff.TensorType(np.float32))
            for each in (None, _Counted())
        )
        weighted = [
            each.next(each.initialize(), values, [1.0, 4.0]).result for each in (plain, given)
        ]
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(*weighted)


def test_a_factory_that_is_given_sees_clipped_updates_in_their_own_scale():
    plan = _plan(noise_multiplier=0.0)
    norm = tff.tensorflow.computation(lambda update: tf.norm(update))
    measured = tff.aggregators.add_measurements(
        tff.aggregators.SecureSumFactory(plan.clip_norm, -plan.clip_norm),
        client_measurement_fn=lambda value: collections.OrderedDict(
            largest=tff.federated_max(tff.federated_map(norm, value))
        ),
    )
    process = aggregators.build_aggregator(plan, record_aggregation_factory=measured).create(_FLOAT)
    with contexts.local_runtime():
        # What the context of `tff.backends.test` does before it executes.
        next_round = tff.backends.test.replace_secure_intrinsics_with_bodies(process.next)
        values = [np.array(each, np.float32) for each in ([3, 4], [0.1, 0])]
        output = next_round(process.initialize(), values)
    np.testing.assert_allclose(output['result'], np.array([0.7, 0.8]) / plan.denominator, rtol=1e-4)
    measurements = output['measurements']['dp']
    assert measurements['largest'] == pytest.approx(plan.clip_norm, rel=1e-4)
    assert measurements['secure_upper_clipped_count'] == 0


def test_a_sum_of_another_kind_is_refused():
    for build, plan in (
        (aggregators.build_aggregator, _plan()),
        (aggregators.build_weighted_aggregator, _WEIGHTED),
    ):
        with pytest.raises(TypeError, match='record_aggregation_factory: must be a tff.aggre'):
            build(plan, record_aggregation_factory=tff.aggregators.MeanFactory())
    integers = _plan(discretization=accounting.Discretization(2.0**14, 2, 1.0))
    with pytest.raises(ValueError, match='secure_sum'):
        aggregators.build_aggregator(
            integers,
            secure_sum=True,
            record_aggregation_factory=tff.aggregators.SumFactory(),
        )
