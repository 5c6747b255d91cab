"""Noise through the TFF process, for every mechanism and several shapes of models."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators
from dpfl.runtime import contexts
from tests import mechanism_cases, oracles, redrawn

pytestmark = pytest.mark.tff

_ROUNDS = 6  # Restarts in rounds 3 and 5.
_CLIP_NORM = 0.5
_TYPES = {
    'one tensor': tff.TensorType(np.float32, [5]),
    'nested': tff.to_type(
        collections.OrderedDict(
            b=tff.TensorType(np.float32, [2, 3]),
            a=(tff.TensorType(np.float32), [tff.TensorType(np.float64, [4])]),
        )
    ),
    'dozens': tff.to_type([tff.TensorType(np.float32, [1 + i % 3, 2]) for i in range(30)]),
}
# One type for every mechanism is quick enough.
_TYPES_OF_TESTS = [
    pytest.param(value, id=name, marks=[] if name == 'nested' else pytest.mark.exhaustive)
    for name, value in _TYPES.items()
]

every_mechanism = pytest.mark.parametrize('make', mechanism_cases.quick_by_kernel(_ROUNDS))


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _plan(mechanism):
    return accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(_ROUNDS, 2),
        clip_norm=_CLIP_NORM,
        noise_multiplier=2.0,
        clients_per_round=4,
    )


def _flat(value) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(value)])


def _cohorts(specs):
    """Rounds of zero updates, and of three updates of which one is clipped, in turn."""
    rng = np.random.default_rng(0)
    draw = {
        scale: [
            tf.nest.map_structure(
                lambda spec, s=scale: np.asarray(
                    s * rng.normal(size=spec.shape), spec.dtype.as_numpy_dtype
                ),
                specs,
            )
            for _ in range(_ROUNDS)
        ]
        for scale in (0.0, 0.01, 10.0)
    }
    return [
        [draw[0.01][t], draw[10.0][t], draw[0.01][t]] if t % 2 else [draw[0.0][t]] * 2
        for t in range(_ROUNDS)
    ]


def _clipped_sum(cohort) -> np.ndarray:
    updates = np.array([_flat(update) for update in cohort], np.float64)
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    # Clipped updates stay 1e-5 below the bound.
    scales = np.where(norms > _CLIP_NORM, _CLIP_NORM * (1 - 1e-5) / np.maximum(norms, 1e-9), 1.0)
    return (updates * scales).sum(axis=0)


def _check(mechanism, value_type, supplied=False):
    plan = _plan(mechanism)
    specs = tff.types.type_to_tf_tensor_specs(value_type)
    process = aggregators.build_aggregator(plan, 7, supplied_noise=supplied).create(value_type)
    state, released = process.initialize(), []
    cohorts = _cohorts(specs)
    with aggregators.NoiseRing(plan) as ring:
        for cohort in cohorts:
            output = process.next(ring.supply(state, cohort) if supplied else state, cohort)
            released.append(_flat(output.result))
            state = output.state
    z = redrawn.vectors(state, specs)
    solution = oracles.streamed_by_solving(mechanism, z) * plan.stddev
    sums = np.array([_clipped_sum(cohort) for cohort in cohorts])
    assert not sums[::2].any() and sums[1::2].all()
    # float32: a few units in the last place of the largest term of each sum.
    np.testing.assert_allclose(4 * np.array(released) - sums, solution, atol=1e-5)
    assert np.abs(solution).min() > 0


@every_mechanism
@pytest.mark.parametrize('value_type', _TYPES_OF_TESTS)
def test_results_without_the_clipped_mean_are_the_dense_solution(make, value_type):
    _check(make(_ROUNDS), value_type)


@pytest.mark.parametrize('name', ['restarted_blt', 'honaker_tree', 'banded', 'banded_inverse'])
def test_supplied_noise_is_the_dense_solution(name):
    _check(mechanism_cases.FACTORIES[name](_ROUNDS), _TYPES['nested'], supplied=True)


@pytest.mark.standard
def test_rows_are_found_in_the_state_of_a_learning_process():
    model = tff.learning.models.functional_model_from_keras(
        tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[2])]),
        tf.keras.losses.MeanSquaredError(),
        input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
    )
    # Little noise: that of a ring has other keys.
    plan = dataclasses.replace(
        _plan(mechanism_cases.FACTORIES['banded'](_ROUNDS)), noise_multiplier=1e-6
    )
    data = tf.data.Dataset.from_tensor_slices((np.ones([4, 2]), np.ones([4, 1]))).map(
        lambda x, y: (tf.cast(x, tf.float32), tf.cast(y, tf.float32))
    )
    models = []
    for supplied in (False, True):
        process = tff.learning.algorithms.build_unweighted_fed_avg(
            model,
            tff.learning.optimizers.build_sgdm(0.1),
            model_aggregator=aggregators.build_aggregator(plan, 7, supplied_noise=supplied),
        )
        state = process.initialize()
        with aggregators.NoiseRing(plan) as ring:
            for _ in range(3):
                ready = ring.supply(state, 'data') if supplied else state
                state = process.next(ready, [data.batch(2)]).state
        models.append(_flat(process.get_model_weights(state).trainable))
    np.testing.assert_allclose(models[0], models[1], atol=1e-5)
