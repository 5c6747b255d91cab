"""The audit of aggregators that keep their promise: what it finds, and what it reports."""

import math

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.auditing import aggregator_audit, aggregator_runs, lower_bounds
from dpfl.auditing.aggregator_runs import worst_pattern
from dpfl.auditing.config import AggregatorAuditConfig
from tests import mechanism_cases, oracles
from tests.accounting import plans

_SCHEMA = Participation(6, 2)
_FAST = AggregatorAuditConfig(trials=2048, seed=5)


def _plan(**changes):
    noise = plans.plan().mechanism.sensitivity(_SCHEMA) / 2
    fields = dict(participation=_SCHEMA, noise_multiplier=noise, clients_per_round=4096)
    return plans.plan(**{**fields, **changes})


@pytest.mark.standard
def test_bounds_are_below_the_claim_and_close_to_it_and_the_same_again():
    done = []
    found = aggregator_audit.audit(_plan(), _FAST, 1e-6, on_round=lambda: done.append(1))
    assert len(done) == 6
    assert found.mu_of_canaries == pytest.approx(2.0)
    assert 0.75 * 2 < found.mu_lower < 2.0
    assert found.epsilon_claimed == _plan().epsilon(1e-6)
    assert 1.0 < found.mu_lower_one_run < 2.0
    assert 2.0 < found.epsilon_lower < found.epsilon_claimed
    assert not found.exceeds_claim
    assert (found.verdict, found.pattern) == ('not refuted', (0, 2, 4))
    assert found.trials == 2048
    assert 900 < found.present < 1150
    values = found.to_dict()
    assert aggregator_audit.audit(_plan(), _FAST, 1e-6).to_dict() == values
    assert 'The noise has a seed: a simulation.' in values['assumptions']
    assert (values['mechanism'], values['method']) == ('blt', 'likelihood_ratio')


def test_few_trials_cannot_tell():
    config = AggregatorAuditConfig(trials=64, seed=5)
    found = aggregator_audit.audit(_plan(noise_multiplier=40.0), config, 1e-6)
    assert found.power['half the noise'] < 0.5 < found.power['no noise']
    assert found.verdict == found.to_dict()['verdict'] == 'cannot tell'


@pytest.mark.parametrize(
    'fault, deviations, mean',
    [
        ('half the noise', (0.5,) * 4, 1.0),
        ('noise on the first tensor only', (1.0, 1e-6, 1e-6, 1e-6), 1.0),
        ('no clipping', (1.0,) * 4, 100.0),
    ],
)
def test_the_stated_power_is_the_share_of_faults_that_are_found(fault, deviations, mean):
    plan = _plan(noise_multiplier=_plan().noise_multiplier * 2)
    size, rng = 80, np.random.default_rng(0)
    power = aggregator_audit._powers(plan, 1.0, (size, size), 0.95)[fault]
    threshold = lower_bounds.planned_threshold(
        1.0, lambda counts: lower_bounds.mu(counts, 0.95), (size, size)
    )
    exceeded = 0
    for _ in range(400):
        absent, present = rng.standard_normal((2, size)) * np.repeat(deviations, size // 4)
        counts = lower_bounds.count(present + mean, absent, threshold)
        exceeded += bool(lower_bounds.mu(counts, 0.95) > plan.mu)
    # Shares of 400 and 400 differ by more with probability below 1e-5.
    assert exceeded / 400 == pytest.approx(power, abs=0.16)
    assert power > 0.05


@pytest.mark.standard
def test_replacing_moves_twice_as_far():
    found = aggregator_audit.audit(_plan(adjacency='replace_one'), _FAST, 1e-6)
    assert found.mu_of_canaries == pytest.approx(4.0)
    assert 0.85 * 4 < found.mu_lower < 4.0


def test_runs_have_keys_of_their_own():
    config = AggregatorAuditConfig(trials=8192, seed=5)
    plan = _plan()
    assert aggregator_audit.runs(plan, config) == 2
    for_plan, for_learner = aggregator_audit._sequences(plan, config, np.zeros(6), lambda: None)
    everything = np.hstack([*for_plan, *for_learner])
    assert everything.shape == (6, 8192)
    assert np.unique(everything[0]).size > 8000
    assert np.hstack(for_learner).shape == (6, 2048)


def test_the_likelihood_ratio_by_hand():
    """C = [[1, 0], [1, 1]], u = (1, 0): the projection of (y_0, y_0 + y_1) / z on (1, 1)."""
    matrix, pattern = np.array([[1.0, 0], [1, 1]]), np.array([1.0, 0])
    sequences = aggregator_runs.Sequences(np.array([[3.0], [1.0]]), np.array([[0.0], [-2.0]]))
    present, absent = aggregator_runs.likelihood_ratio(sequences, matrix, pattern, 2.0)
    assert present == pytest.approx((3 + 4) / math.sqrt(2) / 2)
    assert absent == pytest.approx(-2 / math.sqrt(2) / 2)


def test_the_learner_finds_noise_that_cancels():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=400)
    absent = np.array([noise, noise])
    present = np.array([noise[::-1] + 0.1, noise[::-1]])
    known = aggregator_runs.Sequences(present, absent)
    statistics, _ = aggregator_runs.learned(known, known, np.eye(2), 1.0)
    assert statistics.present.min() > statistics.absent.max()


@pytest.mark.parametrize(
    'name',
    [
        *('gaussian', 'tree', 'honaker_tree', 'full_honaker_tree', 'restarted_tree'),
        *('banded_with_negative_entries', 'banded_inverse_with_negative_entries'),
    ],
)
def test_the_pattern_of_the_canaries_is_the_worst_of_all(name):
    matrix = mechanism_cases.FACTORIES[name](6).strategy_matrix()
    for schema in [Participation(6), Participation(6, 2), Participation(6, 2, 2)]:
        u = worst_pattern(matrix, schema)
        assert set(u) <= {-1.0, 0.0, 1.0}
        assert schema.admits(np.flatnonzero(u))
        largest = oracles.squared_sensitivity(matrix, schema)
        assert (matrix @ u) @ (matrix @ u) == pytest.approx(largest, rel=1e-9)


def test_the_worst_participations_move_to_the_restarts():
    schema = Participation(64, 16)
    mechanism = mechanisms.Restarted(mechanisms.Blt(64, [0.9], [0.3]), (20, 40), 64)
    u = worst_pattern(mechanism.strategy_matrix(), schema)
    assert mechanism.sensitivity_is_exact(schema)
    reached = np.linalg.norm(mechanism.strategy_matrix() @ u)
    assert reached == pytest.approx(mechanism.sensitivity(schema), rel=1e-9)
