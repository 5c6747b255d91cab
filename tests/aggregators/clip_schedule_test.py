"""Clip norms that change in planned rounds, at a constant noise multiplier ([McMahan18])."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts
from tests import oracles, redrawn

_ROUNDS, _SIZE = 12, 6
_SCHEDULE = ((4, 2.0), (9, 0.25))
_NORMS = np.repeat([0.5, 2.0, 0.25], [4, 5, 3])


def _plan(noise_multiplier, **changes):
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Restarted(mechanisms.BinaryTree(5), (4, 9), _ROUNDS),
        participation=Participation(_ROUNDS),
        clip_norm=0.5,
        noise_multiplier=noise_multiplier,
        clients_per_round=1,
        clip_schedule=_SCHEDULE,
        **changes,
    )


def _run(plan, update):
    query = aggregators.build_query(plan, seed=1, record_specs=tf.TensorSpec([_SIZE]))
    state, results = query.initial_global_state(), []
    for _ in range(_ROUNDS):
        params = query.derive_sample_params(state)
        sample = query.preprocess_record(params, tf.constant(update, tf.float32))
        result, state, _ = query.get_noised_result(sample, state)
        results.append(result.numpy())
    return np.array(results), state


def test_updates_are_clipped_to_the_norm_of_their_round():
    lengths = np.linalg.norm(_run(_plan(0.0), np.full(_SIZE, 9.0))[0], axis=1)
    np.testing.assert_allclose(lengths, _NORMS, rtol=3e-5)


def test_noise_is_in_units_of_the_norm_of_its_round():
    plan = _plan(3.0)
    results, state = _run(plan, np.zeros(_SIZE))
    z = redrawn.vectors(state, tf.TensorSpec([_SIZE]))
    expected = 3.0 * _NORMS[:, None] * oracles.streamed_by_solving(plan.mechanism, z)
    np.testing.assert_allclose(results, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.tff
def test_tff_follows_the_schedule():
    plan, update = _plan(3.0), np.full(_SIZE, 9.0, np.float32)
    process = aggregators.build_aggregator(plan, seed=1).create(tff.TensorType(np.float32, [_SIZE]))
    results = []
    with contexts.local_runtime():
        state = process.initialize()
        for _ in range(_ROUNDS):
            output = process.next(state, [update])
            state = output.state
            results.append(output.result)
    np.testing.assert_allclose(results, _run(plan, update)[0], rtol=1e-5)


@pytest.mark.standard
def test_integers_follow_the_norm():
    # The scale adapts, so rounding errors shrink with the norm and the modulus stays.
    settings = Discretization(scale=1000.0, dimension=_SIZE, clip_norm=0.5)
    update = np.full(_SIZE, 9.0)
    integers, _ = _run(_plan(0.0, discretization=settings), update)
    errors = np.abs(integers - _run(_plan(0.0), update)[0])
    assert (errors.max(axis=1) <= np.sqrt(8) / 1000 * _NORMS / 0.5).all()
    assert errors.max() > 0


@pytest.mark.parametrize('norm', [1e-11, 1e16])
def test_norms_that_float32_cannot_measure_are_refused(norm):
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(3),
        participation=Participation(3),
        clip_norm=1.0,
        noise_multiplier=1.0,
        clients_per_round=1,
        clip_schedule=((1, norm),),
    )
    with pytest.raises(ValueError, match='clip_schedule norm=.*: must be a finite number >= 1e-10'):
        aggregators.build_query(plan)
