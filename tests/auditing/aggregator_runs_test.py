"""What is released, against dense linear algebra with the noise drawn again from its key."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, errors, mechanisms
from dpfl.aggregators.noise import correlated, keys
from dpfl.auditing import aggregator_runs
from tests import redrawn

_ROUNDS, _SIZE = 5, 6
_PATTERN = np.array([1.0, 0.0, -1.0, 0.0, 1.0])
_PRESENT = np.array([True, False, True, True, False, False])
_UPDATES = np.outer(_PATTERN, _PRESENT)


def _plan(mechanism=None, **fields):
    values = dict(
        mechanism=mechanism or mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.3]),
        participation=Participation(_ROUNDS, 2),
        clip_norm=0.5,
        noise_multiplier=2.0,
        clients_per_round=_SIZE,
    )
    return accounting.PrivacyPlan(**(values | fields))


@pytest.fixture(autouse=True)
def _keys_without_context(monkeypatch):
    """The noise is then known without the sums."""
    redrawn.ignore_context(monkeypatch)


def _expected(plan, signs, seed):
    spec = tf.TensorSpec([_SIZE], tf.float32)
    root = keys.seeded_root_key(seed)
    drawn = [keys.of_round(root, t, ()) for t in range(_ROUNDS)]
    z = np.array([correlated.independent_noise(key, spec) for key in drawn])
    noise = np.linalg.solve(plan.mechanism.strategy_matrix(), z)
    return np.outer(_PATTERN, signs) + plan.noise_multiplier * noise


@pytest.mark.parametrize('how', [{}, {'resume_after': 3}, {'supplied_noise': True}])
def test_releases_are_canaries_plus_noise(how):
    plan = _plan()
    found = aggregator_runs.released(plan, _UPDATES, seed=3, **how)
    # Clipping leaves a margin of 1e-5.
    np.testing.assert_allclose(found, _expected(plan, _PRESENT, 3), atol=3e-5)


def test_every_canary_has_rounds_and_signs_of_its_own():
    plan = _plan()
    updates = np.random.default_rng(0).integers(-1, 2, (_ROUNDS, _SIZE)).astype(float)
    found = aggregator_runs.released(plan, updates, seed=3)
    noise = _expected(plan, np.zeros(_SIZE), 3)
    np.testing.assert_allclose(found, updates + noise, atol=3e-5)


def test_a_group_has_several_updates():
    plan = _plan(group_size=2)
    found = aggregator_runs.released(plan, _UPDATES, seed=3)
    np.testing.assert_allclose(found, _expected(plan, 2 * _PRESENT, 3), atol=6e-5)


def test_releases_are_in_units_of_the_clip_norm_in_use():
    mechanism = mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (2,), _ROUNDS)
    plan = _plan(mechanism, clip_schedule=((2, 0.01),))
    found = aggregator_runs.released(plan, _UPDATES, seed=3)
    np.testing.assert_allclose(found, _expected(plan, _PRESENT, 3), atol=3e-5)


def test_the_adapted_clip_norm_is_divided_out():
    mechanism = mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (2,), _ROUNDS)
    plan = _plan(mechanism, adaptive_clip=accounting.AdaptiveClip(count_stddev=3.0))
    changed = dataclasses.replace(
        plan, noise_multiplier=plan.update_noise_multiplier, adaptive_clip=None
    )
    found = aggregator_runs.released(plan, _UPDATES, seed=3)
    np.testing.assert_allclose(found, _expected(changed, _PRESENT, 3), atol=3e-5)


def test_rounded_updates_arrive():
    rounding = mechanisms.Discretization(1e5, _SIZE, 0.5)
    plan = _plan(discretization=rounding)
    found = aggregator_runs.released(plan, _UPDATES, seed=3)
    np.testing.assert_allclose(found, _expected(plan, _PRESENT, 3), atol=2e-3)


def test_hardened_noise_differs_between_keys_and_not_between_repetitions():
    plan = _plan(noise='hardened')
    once, again, other = (
        aggregator_runs.released(plan, _UPDATES, seed=seed, **how)
        for seed, how in ((3, {}), (3, {'resume_after': 2}), (4, {}))
    )
    np.testing.assert_array_equal(once, again)
    assert not np.isclose(once, other).any()


def test_without_a_seed_the_noise_is_new():
    one, two = (aggregator_runs.released(_plan(), _UPDATES) for _ in range(2))
    assert not np.isclose(one, two).any()


@pytest.mark.tff
def test_the_aggregator_of_tff_releases_the_same():
    plan = _plan()
    process = aggregators.build_aggregator(plan, seed=3).create(tff.TensorType(np.float32, [_SIZE]))
    state, results = process.initialize(), []
    for sign in _PATTERN:
        there = np.flatnonzero(_PRESENT) if sign else []
        records = [sign * 100 * 0.5 * np.eye(_SIZE, dtype=np.float32)[j] for j in there]
        output = process.next(state, [record.astype(np.float32) for record in records])
        state = output.state
        results.append(np.float64(output.result) * plan.denominator / plan.clip_norm)
    found = aggregator_runs.released(plan, _UPDATES, seed=3)
    np.testing.assert_allclose(found, results, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ('plan', 'how', 'name'),
    [
        (_plan(clients_per_round=2), {}, 'clients_per_round'),
        (_plan(estimator=accounting.Estimator('clipped')), {}, 'estimator'),
        (_plan(), {'resume_after': _ROUNDS}, 'resume_after'),
    ],
)
def test_what_cannot_be_audited_is_refused(plan, how, name):
    with pytest.raises(errors.ArgumentError) as refused:
        aggregator_runs.released(plan, _UPDATES, seed=3, **how)
    assert refused.value.name == name
