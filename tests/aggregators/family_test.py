"""The whole family in TFF: types, replay, eager loop and TFF equal, unusual inputs, secure sums."""

import collections
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts
from tests import oracles, redrawn

pytestmark = pytest.mark.tff

_ROUNDS = 7
_RESTARTED = mechanisms.Restarted.every(mechanisms.BinaryTree(4), 2, 3, _ROUNDS)
_NESTED = tff.to_type(
    collections.OrderedDict(
        b=tff.TensorType(np.float32, [2, 3]),
        a=[tff.TensorType(np.float32), tff.TensorType(np.float32, [4])],
    )
)
_DISCRETE = Discretization(scale=100.0, dimension=11, clip_norm=0.5)
_ADAPTIVE = accounting.AdaptiveClip(count_stddev=2.0)
_PLANS = {
    'plain': dict(mechanism=mechanisms.Blt(_ROUNDS, [0.99, 0.7, 0.2], [0.2, 0.25, 0.05])),
    'adaptive': dict(adaptive_clip=_ADAPTIVE),
    'discretized': dict(discretization=_DISCRETE),
    'adaptive discretized': dict(adaptive_clip=_ADAPTIVE, discretization=_DISCRETE),
    'adaptive clipped denominator': dict(
        estimator=accounting.Estimator('clipped', 3.0), adaptive_clip=_ADAPTIVE
    ),
}

every_plan = pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=pytest.mark.standard if 'adaptive' in name else [])
        for name in _PLANS
    ],
)


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _plan(changes, **more):
    fields = dict(
        mechanism=_RESTARTED,
        participation=Participation(_ROUNDS, 2),
        clip_norm=0.5,
        noise_multiplier=2.0,
        clients_per_round=4,
    )
    return accounting.PrivacyPlan(**{**fields, **changes, **more})


@functools.cache
def _process(name):
    """A process for nested updates, built once: to trace it takes most of a test's time."""
    return aggregators.build_aggregator(_plan(_PLANS[name]), seed=3).create(_NESTED)


def _specs(value_type):
    return tff.types.type_to_tf_tensor_specs(value_type)


def _filled(value_type, draw):
    return tf.nest.map_structure(
        lambda spec: np.asarray(draw(spec.shape), spec.dtype.as_numpy_dtype), _specs(value_type)
    )


def _cohort(value_type, clients, seed=0):
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-3, 1, size=clients)
    return [_filled(value_type, lambda shape, s=s: s * rng.normal(size=shape)) for s in scales]


def _flat(value) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(value)])


def _run(process, state, cohorts):
    results = []
    for cohort in cohorts:
        output = process.next(state, cohort)
        state = output.state
        results.append(_flat(output.result))
    return np.array(results), state


def _run_eagerly(plan, value_type, seed, cohorts):
    query = aggregators.build_query(plan, seed, record_specs=_specs(value_type))
    state, results = query.initial_global_state(), []
    for cohort in cohorts:
        params = query.derive_sample_params(state)
        sample = query.initial_sample_state(_specs(value_type))
        for record in cohort:
            sample = query.accumulate_record(
                params, sample, tf.nest.map_structure(tf.constant, record)
            )
        result, state, _ = query.get_noised_result(sample, state)
        results.append(_flat(tf.nest.map_structure(lambda leaf: leaf.numpy(), result)))
    return np.array(results)


@every_plan
def test_tff_and_an_eager_loop_release_the_same(name):
    cohorts = [_cohort(_NESTED, clients, seed) for seed, clients in enumerate((4, 4, 2, 0, 4, 1))]
    process = _process(name)
    results, _ = _run(process, process.initialize(), cohorts)
    expected = _run_eagerly(_plan(_PLANS[name]), _NESTED, 3, cohorts)
    # Sums of integers do not depend on the order of clients; sums of floats only by rounding.
    np.testing.assert_allclose(results, expected, rtol=1e-5, atol=1e-6)


@every_plan
def test_zero_updates_give_noise_in_units_of_what_a_client_moves(name):
    plan, process = _plan(_PLANS[name]), _process(name)
    # The norm in use after a restart is checked by the tests of adaptive clipping.
    rounds = 3 if plan.adaptive_clip else _ROUNDS
    zeros = [_filled(_NESTED, np.zeros)] * 2
    results, state = _run(process, process.initialize(), [zeros] * rounds)
    z = redrawn.vectors(state, _specs(_NESTED))
    mechanism = plan.mechanism.with_rounds(rounds)
    expected = oracles.streamed_by_solving(mechanism, z) * plan.stddev / plan.denominator
    np.testing.assert_allclose(results, expected, atol=3e-6)


@every_plan
def test_stopping_and_continuing_changes_no_bit(name):
    """Nor does it need the seed: the key is in the state."""
    cohorts = [_cohort(_NESTED, 1, seed) for seed in range(_ROUNDS)]
    process = _process(name)
    start = process.initialize()
    whole, _ = _run(process, start, cohorts)
    first, state = _run(process, start, cohorts[:4])
    saved = tf.nest.map_structure(np.asarray, state)
    again = aggregators.build_aggregator(_plan(_PLANS[name])).create(_NESTED)
    second, _ = _run(again, saved, cohorts[4:])
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


@every_plan
def test_measurements_come_from_noised_numbers_alone(name):
    plan, process = _plan(_PLANS[name]), _process(name)
    measurements = process.next(process.initialize(), _cohort(_NESTED, 2)).measurements
    metrics = measurements['dp_query_metrics']
    assert measurements['dp'] == ()  # Of the sum.
    names = {'tree_agg_dpftrl_clip'}
    if plan.adaptive_clip:
        names = {'current_clip', 'estimate_clip', 'clip_counts'}
    else:  # As of TFF's tree.
        assert metrics['tree_agg_dpftrl_clip'] == plan.clip_norm
    assert set(metrics) == names | {'round', 'noise_stddev'}
    assert metrics['round'] == 1
    assert metrics['noise_stddev'] == pytest.approx(plan.stddev)


@pytest.mark.standard
@pytest.mark.parametrize(
    'changes',
    [
        _PLANS['discretized'],
        _PLANS['adaptive discretized'],
        dict(discretization=dataclasses.replace(_DISCRETE, scale=1e10)),
    ],
    ids=['32 bits', 'adaptive', '64 bits'],
)
def test_secure_sums_give_what_plain_sums_give(changes):
    plan = _plan(changes)
    plain = aggregators.build_aggregator(plan, seed=3).create(_NESTED)
    process = aggregators.build_aggregator(plan, seed=3, secure_sum=True).create(_NESTED)
    tff.test.assert_not_contains_unsecure_aggregation(process.next)
    with pytest.raises(AssertionError):
        tff.test.assert_not_contains_unsecure_aggregation(plain.next)
    # What the context of `tff.backends.test` does before it executes.
    secure_next = tff.backends.test.replace_secure_intrinsics_with_bodies(process.next)
    state = plain_state = plain.initialize()
    for seed, clients in enumerate((4, 3, 0, 4)):
        cohort = _cohort(_NESTED, clients, seed)
        output = secure_next(state, cohort)
        plain_output = plain.next(plain_state, cohort)
        state, plain_state = output['state'], plain_output.state
        np.testing.assert_array_equal(_flat(output['result']), _flat(plain_output.result))
    with pytest.raises(Exception, match='larger than the planned one'):
        secure_next(state, _cohort(_NESTED, 5))


@pytest.mark.parametrize(
    'name', ['discretized', pytest.param('adaptive discretized', marks=pytest.mark.standard)]
)
def test_a_cohort_beyond_the_planned_one_is_refused(name):
    process = _process(name)
    with pytest.raises(Exception, match='larger than the planned one'):
        process.next(process.initialize(), _cohort(_NESTED, 5))


def test_secure_sums_need_a_discretization():
    with pytest.raises(ValueError, match='secure_sum=True: must be False without'):
        aggregators.build_aggregator(_plan({}), secure_sum=True)


@pytest.mark.parametrize('kind', ['fixed', 'clipped'])
def test_weights_in_tff(kind):
    plan = _plan(
        dict(estimator=accounting.Estimator(kind, 2.0, example_cap=10.0)), noise_multiplier=0.0
    )
    value_type = tff.TensorType(np.float32, [3])
    process = aggregators.build_weighted_aggregator(plan).create(
        value_type, tff.TensorType(np.int32)
    )
    signature = process.next.type_signature
    tff.test.assert_types_identical(
        signature.result.result, tff.FederatedType(value_type, tff.SERVER)
    )
    updates = [np.array(u, np.float32) for u in ([0.4, 0, 0], [0, 0.2, 0], [0, 0, -0.3])]
    examples = [5, 40, 10]
    output = process.next(process.initialize(), updates, examples)
    expected = np.array([0.5 * 0.4, 0.2, -0.3]) / (2.5 if kind == 'clipped' else 2.0)
    np.testing.assert_allclose(output.result, expected, rtol=1e-6)


@pytest.mark.standard
def test_weights_secure_and_adaptive_together():
    plan = _plan(
        dict(adaptive_clip=_ADAPTIVE, discretization=dataclasses.replace(_DISCRETE, dimension=3)),
        estimator=accounting.Estimator(example_cap=10.0),
    )
    value_type = tff.TensorType(np.float32, [3])
    results = []
    for secure_sum in (False, True):
        process = aggregators.build_weighted_aggregator(plan, 5, secure_sum=secure_sum).create(
            value_type, tff.TensorType(np.float32)
        )
        next_round = tff.backends.test.replace_secure_intrinsics_with_bodies(process.next)
        updates = _cohort(value_type, 4)
        output = next_round(process.initialize(), updates, [1.0, 5.0, 10.0, 20.0])
        results.append(output['result'])
    np.testing.assert_array_equal(*results)


@pytest.mark.standard
@pytest.mark.parametrize('dtype', [np.float64, np.float16])
@pytest.mark.parametrize('name', ['discretized', 'adaptive clipped denominator'])
def test_other_floating_point_types_come_back_as_they_came(dtype, name):
    value_type = tff.to_type([tff.TensorType(dtype, [7]), tff.TensorType(np.float32, [4])])
    single_type = tff.to_type([tff.TensorType(np.float32, [7]), tff.TensorType(np.float32, [4])])
    plan = _plan(_PLANS[name], noise_multiplier=0.0)
    process = aggregators.build_aggregator(plan, 1).create(value_type)
    cohort = _cohort(value_type, 4)
    output = process.next(process.initialize(), cohort)
    assert [leaf.dtype for leaf in output.result] == [dtype, np.float32]
    single = aggregators.build_aggregator(plan, 1).create(single_type)
    narrow = [[leaf.astype(np.float32) for leaf in update] for update in cohort]
    expected = single.next(single.initialize(), narrow).result
    for leaf, other in zip(output.result, expected, strict=True):
        # The rounding of integers depends on the last bit of an update: 11 coordinates / 100.
        atol = 2 * 11 / 100 / 4 if name == 'discretized' and dtype == np.float64 else 1e-6
        np.testing.assert_allclose(
            leaf, other, rtol=1e-3 if dtype == np.float16 else 1e-5, atol=atol
        )


def test_half_precision_results_end_at_their_limits():
    value_type = tff.TensorType(np.float16, [50])
    plan = _plan({}, noise_multiplier=1e6)
    process = aggregators.build_aggregator(plan).create(value_type)
    result = process.next(process.initialize(), [np.zeros(50, np.float16)]).result
    assert np.isfinite(result).all() and np.abs(result).max() == np.finfo(np.float16).max


@pytest.mark.standard
def test_many_tensors():
    shapes = [[i % 3] for i in range(40)] + [[]]
    value_type = tff.to_type([tff.TensorType(np.float32, shape) for shape in shapes])
    settings = dataclasses.replace(_DISCRETE, dimension=1 + sum(i % 3 for i in range(40)))
    plan = _plan(dict(adaptive_clip=_ADAPTIVE, discretization=settings))
    process = aggregators.build_aggregator(plan, 2).create(value_type)
    cohorts = [_cohort(value_type, 2, seed) for seed in range(2)]
    results, _ = _run(process, process.initialize(), cohorts)
    np.testing.assert_allclose(
        results, _run_eagerly(plan, value_type, 2, cohorts), rtol=1e-5, atol=1e-6
    )


@every_plan
def test_updates_that_are_not_finite_count_as_zero(name):
    good, broken = _cohort(_NESTED, 2)
    broken['a'][1][2] = np.nan
    zeroed = _filled(_NESTED, np.zeros)
    process = _process(name)
    start = process.initialize()
    first, second = (_run(process, start, [[good, other], [good]])[0] for other in (broken, zeroed))
    np.testing.assert_array_equal(first, second)
