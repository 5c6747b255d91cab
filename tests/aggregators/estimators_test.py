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


class _Release:
    """What a query releases in its first round for a cohort of (update, number of examples)."""

    def __init__(self, plan, seed=0, is_compiled=False):
        self._weighted = plan.estimator.example_cap is not None
        specs = tf.TensorSpec([_SIZE])
        if self._weighted:
            specs = aggregators.WeightedRecord(specs, tf.TensorSpec([]))
        self._specs = specs
        self._query = aggregators.build_query(plan, seed, record_specs=specs)
        self.state = self._query.initial_global_state()
        self._result = self._query.get_noised_result
        if is_compiled:  # Half a second that pays from 30 releases on.
            self._result = tf.function(self._result)

    def __call__(self, cohort) -> np.ndarray:
        params = self._query.derive_sample_params(self.state)
        sample = self._query.initial_sample_state(self._specs)
        for update, num_examples in cohort:
            record = tf.constant(update, tf.float32)
            if self._weighted:
                record = aggregators.WeightedRecord(record, tf.constant(num_examples, tf.float32))
            sample = self._query.accumulate_record(params, sample, record)
        result, self.next_state = self._result(sample, self.state)[:2]
        return result.numpy()


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
    release = _Release(plan, is_compiled=True)
    bound = factor * _NORM / min_weight
    assert plan.clip_norm / plan.denominator == pytest.approx(bound)
    moves = []
    for size in (1, 3, 3, 6) * 4:
        cohort, (client,) = _cohort(rng, size), _cohort(rng, 1)
        if rng.random() < 0.5:  # The worst case: all agree but one.
            cohort = [(np.array([9.0, 0, 0]), 99)] * size
            client = (np.array([-9.0, 0, 0]), 99)
        moves.append(np.linalg.norm(release([*cohort, client]) - release(cohort)))
    assert max(moves) <= bound
    # Attained up to the weight that the client itself adds to the denominator.
    assert max(moves) >= bound * (min_weight / (min_weight + 1) if kind == 'clipped' else 1) * 0.999


@pytest.mark.parametrize(
    'examples, weight',
    [
        (0, 0),
        (3, 0.3),
        (10, 1),
        (1e30, 1),
        (-5, 0),
        (np.nan, 0),
        (np.inf, 1),
    ],
)
def test_weights_are_within_0_and_1(examples, weight):
    release = _Release(_plan(accounting.Estimator('fixed', 1.0, 10.0)))
    moved = release([(np.array([0.2, 0, 0]), examples)])
    np.testing.assert_allclose(moved, [0.2 * weight, 0, 0], rtol=1e-6)


@pytest.mark.parametrize('kind', ['fixed', 'clipped'])
def test_adaptive_clipping_sees_the_update_and_not_its_weight(kind):
    adaptive = accounting.AdaptiveClip(count_stddev=1e-9)
    plan = _plan(
        accounting.Estimator(kind, 2.0, 10.0),
        mechanism=mechanisms.Identity(6),
        adaptive_clip=adaptive,
    )
    specs = aggregators.WeightedRecord(tf.TensorSpec([_SIZE]), tf.TensorSpec([], tf.int32))
    query = aggregators.build_query(plan, record_specs=specs)
    state = query.initial_global_state()
    params = query.derive_sample_params(state)
    record = aggregators.WeightedRecord(tf.constant([2.0, 0, 0]), tf.constant(1))
    sample = query.accumulate_record(params, query.initial_sample_state(specs), record)
    result, state, _ = query.get_noised_result(sample, state)
    # w = 1/10 of the clipped update, over 2; one client of 8 outside, none within.
    np.testing.assert_allclose(result, [0.1 * _NORM / 2, 0, 0], rtol=1e-4)
    expected = _NORM * np.exp(-0.2 * (0.5 - 0.5 / 8))
    assert float(query.derive_metrics(state)['current_clip']) == pytest.approx(expected, rel=1e-6)
