"""The estimators of [McMahan18]: sensitivities by trial, scale of the noise, weights.

`variants_test.py` compares what they release with the formulas of the paper.
"""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import accounting, aggregators, mechanisms
from tests.aggregators import rounds

_SIZE, _NORM = 3, 0.5


def _plan(estimator, mechanism=None, noise_multiplier=0.0, **changes):
    return rounds.plan(
        mechanism, clients=8, noise_multiplier=noise_multiplier, estimator=estimator, **changes
    )


def _released(plan, cohorts):
    """What is released in the first round for each cohort of (update, number of examples)."""
    is_weighted, specs = plan.estimator.example_cap is not None, tf.TensorSpec([_SIZE])
    if is_weighted:
        specs = aggregators.WeightedRecord(specs, tf.TensorSpec([]))
    query = aggregators.build_query(plan, 0, record_specs=specs)
    state, rows = query.initial_global_state(), []
    for cohort in cohorts:
        records = [
            aggregators.WeightedRecord(np.float32(update), np.float32(examples))
            if is_weighted
            else np.float32(update)
            for update, examples in cohort
        ]
        rows.append(rounds.run(query, state, [records], specs)[0][0])
    return np.array(rows)


def _cohort(rng, size):
    directions = rng.normal(size=(size, _SIZE))
    lengths = rng.choice([0.1, 0.5, 3.0], size=size)
    updates = directions * (lengths / np.linalg.norm(directions, axis=1))[:, None]
    return list(zip(updates, rng.integers(0, 30, size=size), strict=True))


@pytest.mark.parametrize('cap', [None, 10.0])
@pytest.mark.parametrize('kind, factor', [('fixed', 1), ('clipped', 2)])
def test_one_client_moves_the_release_by_at_most_lemma_1(kind, factor, cap):
    rng = np.random.default_rng(4)
    min_weight = 3.0
    plan = _plan(accounting.Estimator(kind, min_weight, cap))
    bound = factor * _NORM / min_weight
    assert plan.clip_norm / plan.denominator == pytest.approx(bound)
    cohorts = []
    for size in (1, 3, 3, 6) * 2:
        cohort, (client,) = _cohort(rng, size), _cohort(rng, 1)
        if size == 3:  # The worst case: all agree but one.
            cohort = [(np.array([9.0, 0, 0]), 99)] * size
            client = (np.array([-9.0, 0, 0]), 99)
        cohorts += [cohort, [*cohort, client]]
    released = _released(plan, cohorts)
    moves = np.linalg.norm(released[1::2] - released[::2], axis=1)
    assert max(moves) <= bound
    # Attained up to the weight that the client itself adds to the denominator.
    assert max(moves) >= bound * (min_weight / (min_weight + 1) if kind == 'clipped' else 1) * 0.999


@pytest.mark.parametrize(
    'examples, weight',
    [(0, 0), (3, 0.3), (10, 1), (1e30, 1), (-5, 0), (np.nan, 0), (np.inf, 1)],
)
def test_weights_are_within_0_and_1(examples, weight):
    plan = _plan(accounting.Estimator('fixed', 1.0, 10.0))
    (moved,) = _released(plan, [[(np.array([0.2, 0, 0]), examples)]])
    np.testing.assert_allclose(moved, [0.2 * weight, 0, 0], rtol=1e-6)


@pytest.mark.parametrize('kind', ['fixed', 'clipped'])
def test_adaptive_clipping_sees_the_update_and_not_its_weight(kind):
    plan = _plan(
        accounting.Estimator(kind, 2.0, 10.0),
        mechanism=mechanisms.Identity(6),
        adaptive_clip=accounting.AdaptiveClip(count_stddev=1e-9),
    )
    specs = aggregators.WeightedRecord(tf.TensorSpec([_SIZE]), tf.TensorSpec([], tf.int32))
    query = aggregators.build_query(plan, record_specs=specs)
    record = aggregators.WeightedRecord(np.float32([2.0, 0, 0]), np.int32(1))
    rows, state = rounds.run(query, None, [[record]], specs)
    # w = 1/10 of the clipped update, over 2; one client of 8 outside, none within.
    np.testing.assert_allclose(rows[0], [0.1 * _NORM / 2, 0, 0], rtol=1e-4)
    expected = _NORM * np.exp(-0.2 * (0.5 - 0.5 / 8))
    assert float(query.derive_metrics(state)['current_clip']) == pytest.approx(expected, rel=1e-6)
