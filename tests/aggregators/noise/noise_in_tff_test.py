"""Noise through processes of TFF, in their state and from rings, for every mechanism."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, aggregators
from dpfl.accounting import hardened
from dpfl.runtime import contexts
from tests import mechanism_cases, oracles, redrawn
from tests.aggregators import rounds

pytestmark = pytest.mark.tff

_ROUNDS, _CLIP_NORM = 6, 0.5  # Restarts in rounds 3 and 5.
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
_QUICK = {
    ('state', 'blt', 'nested'),
    ('ring', 'banded', 'nested'),
    ('hardened', 'banded_inverse', 'nested'),
}


def _marks(case):
    """Of quick cases, and of others; one type for every mechanism is enough."""
    if case in _QUICK:
        return []
    return pytest.mark.standard if case[-1] == 'nested' else pytest.mark.exhaustive


_CASES = [
    *(('state', name, 'nested') for name in mechanism_cases.FACTORIES),
    ('state', 'blt', 'one tensor'),
    ('state', 'honaker_tree', 'dozens'),
    *(
        ('ring', name, 'nested')
        for name in ('restarted_blt', 'honaker_tree', 'banded', 'banded_inverse')
    ),
    *(
        ('hardened', name, 'nested')
        for name in ('gaussian', 'blt', 'tree', 'honaker_tree', 'banded', 'banded_toeplitz')
        + ('banded_inverse', 'restarted_blt')
    ),
]


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _plan(place, name, **changes):
    return rounds.plan(
        mechanism_cases.FACTORIES[name](_ROUNDS),
        clients=4,
        participation=Participation(_ROUNDS, 2),
        noise='hardened' if place == 'hardened' else 'default',
        **changes,
    )


def _ring(plan):
    kind = aggregators.HardenedRing if plan.noise == 'hardened' else aggregators.NoiseRing
    return kind(plan)


def _cohorts(specs):
    """Rounds of zero updates, and of three updates of which one is clipped, in turn."""
    rng = np.random.default_rng(0)

    def update(scale):
        return tf.nest.map_structure(
            lambda spec: np.asarray(scale * rng.normal(size=spec.shape), spec.dtype.as_numpy_dtype),
            specs,
        )

    return [
        [update(scale) for scale in ((0.01, 10.0, 0.01) if t % 2 else (0.0, 0.0))]
        for t in range(_ROUNDS)
    ]


def _clipped_sum(cohort):
    updates = np.array([rounds.flat(update) for update in cohort], np.float64)
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    # Clipped updates stay 1e-5 below the bound.
    scales = np.where(norms > _CLIP_NORM, _CLIP_NORM * (1 - 1e-5) / np.maximum(norms, 1e-9), 1.0)
    return (updates * scales).sum(axis=0)


@pytest.mark.parametrize(
    'place, name, kind', [pytest.param(*case, marks=_marks(case)) for case in _CASES]
)
def test_results_without_the_clipped_mean_are_the_noise_of_the_mechanism(place, name, kind):
    plan, value_type = _plan(place, name), _TYPES[kind]
    specs, is_supplied = tff.types.type_to_tf_tensor_specs(value_type), place != 'state'
    process = aggregators.build_aggregator(plan, 7, supplied_noise=is_supplied).create(value_type)
    state, released, integers, cohorts = process.initialize(), [], [], _cohorts(specs)
    with _ring(plan) as ring:
        for cohort in cohorts:
            if is_supplied:
                state = ring.supply(state, cohort)
            if place == 'hardened':
                integers.append(state.query_state.numerator_state.noise.past.values)
            output = process.next(state, cohort)
            released.append(rounds.flat(output.result))
            state = output.state
    if place == 'hardened':  # Rows of a ring are replayed in `rings_test.py`.
        noise = np.array(integers, np.float64) * _CLIP_NORM / (hardened.STDDEV / 2)
    else:
        z = redrawn.vectors(state, specs)
        noise = oracles.streamed_by_solving(plan.mechanism, z) * plan.stddev
    sums = np.array([_clipped_sum(cohort) for cohort in cohorts])
    assert not sums[::2].any() and sums[1::2].all()
    # float32: a few units in the last place of the largest term of each sum.
    np.testing.assert_allclose(4 * np.array(released) - sums, noise, atol=1e-5)
    assert np.abs(noise).min() > 0


def _learning_process(plan, supplied):
    model = tff.learning.models.functional_model_from_keras(
        tf.keras.Sequential(
            [tf.keras.layers.Dense(1, kernel_initializer='zeros', input_shape=[2])]
        ),
        tf.keras.losses.MeanSquaredError(),
        input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
    )
    return tff.learning.algorithms.build_unweighted_fed_avg(
        model,
        tff.learning.optimizers.build_sgdm(0.1),
        model_aggregator=aggregators.build_aggregator(plan, 7, supplied_noise=supplied),
    )


# Little noise, for that of a ring has other keys; and in a sum of three rounds at most 0.5.
@pytest.mark.standard
@pytest.mark.parametrize(
    'place, noise_multiplier, atol', [('ring', 1e-6, 1e-5), ('hardened', 0.5, 0.5)]
)
def test_rows_are_found_in_the_state_of_a_learning_process(place, noise_multiplier, atol):
    data = tf.data.Dataset.from_tensors((np.ones([4, 2], np.float32), np.ones([4, 1], np.float32)))
    models = []
    for used in ('state', place):
        plan = _plan(used, 'banded', noise_multiplier=noise_multiplier if used == place else 1e-6)
        process = _learning_process(plan, used != 'state')
        state = process.initialize()
        start = rounds.flat(process.get_model_weights(state).trainable)
        with _ring(plan) as ring:
            for _ in range(3):
                ready = state if used == 'state' else ring.supply(state, 'data')
                state = process.next(ready, [data]).state
        models.append(rounds.flat(process.get_model_weights(state).trainable) - start)
    np.testing.assert_allclose(*models, atol=atol)
    assert np.abs(models[1]).min() > 1e-4
