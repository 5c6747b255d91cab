"""Which canaries take part when: in the worst rounds, or as the clients of each sampling do."""

import functools

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.auditing import canaries
from tests.accounting import plans


def _plan(mechanism, participation):
    return plans.plan(mechanism=mechanism, participation=participation)


_BLT = _plan(mechanisms.Blt(20, (0.9, 0.5), (0.1, 0.2)), Participation(20, 5, 3))
_PLANS = [
    _BLT,
    _plan(mechanisms.Identity(20), Participation(20, 5, 3)),
    _plan(mechanisms.Identity(7), Participation(7)),
    _plan(mechanisms.BinaryTree(12), Participation(12, 4)),
    _plan(
        mechanisms.Restarted(mechanisms.BinaryTree(20), (6,), 20),
        Participation(20, 5, 3),
    ),
]


@pytest.mark.parametrize('plan', _PLANS, ids=lambda plan: plan.mechanism.name)
def test_patterns_are_admitted_and_among_the_worst(plan):
    found = canaries.design(plan, 10, 0, 100)
    strategy = plan.mechanism.strategy_matrix()
    lengths = np.linalg.norm(found.pattern @ strategy.T, axis=1)
    for row in found.pattern:
        assert plan.participation.admits(np.flatnonzero(row))
        assert row.sum() == plan.participation.count
    # Trees have worse patterns, of other separations; the report states that of the canaries.
    assert lengths.max() <= plan.sensitivity * (1 + 1e-9)
    if plan.mechanism.name in ('blt', 'identity'):
        assert lengths.max() == pytest.approx(plan.sensitivity, rel=1e-6)
    assert lengths.min() >= 0.99 * lengths.max()


def test_weights_are_those_of_the_optimal_test():
    found = canaries.design(_BLT, 10, 0, 100)
    strategy = _BLT.mechanism.strategy_matrix()
    for row, weights in zip(found.pattern, found.weights, strict=True):
        # Noise C^-1 z in the weighted sum of releases has variance 1, which is the least for the
        # effect that the pattern has.
        assert np.linalg.norm(np.linalg.solve(strategy.T, weights)) == pytest.approx(1.0)
        assert weights @ row == pytest.approx(np.linalg.norm(strategy @ row))


def test_half_take_part_and_both_halves_are_alike():
    found = canaries.design(_BLT, 40, 0, 100)
    assert found.takes_part.sum() == 20
    groups = len(found.pattern)
    for is_in in (True, False):
        counts = np.bincount(found.group[found.takes_part == is_in], minlength=groups)
        assert counts.max() - counts.min() <= 1
    assert np.array_equal(found.rounds, found.pattern[found.group])


def test_cohorts_and_effects_are_those_of_the_rounds():
    found = canaries.design(_BLT, 12, 3, 100)
    added = found.added()
    effects = np.zeros((12, len(found.weights)))
    for t, cohort in enumerate(added.cohorts):
        assert all(found.takes_part[cohort])
        effects[cohort] += found.weights[:, t]
    assert np.allclose(found.effects, effects)
    assert added.largest_cohort == max(map(len, added.cohorts))
    assert sum(map(len, added.cohorts)) == found.rounds[found.takes_part].sum()


def test_large_models_have_fewer_groups():
    plan = _PLANS[1]
    assert len(canaries.design(plan, 10, 0, 1000).pattern) == 4
    assert len(canaries.design(plan, 10, 0, 10**7).pattern) == 1


@functools.cache
def _sampled(name, count=6000, seed=0):
    """A plan, and canaries for it."""
    cap = {'cohort_cap': 3} if name == 'truncated_poisson' else {}
    plan = plans.sampled(name, **cap)
    return plan, canaries.design(plan, count, seed, 100, functools.partial(plans.sampler, plan))


@pytest.mark.parametrize('name', plans.SAMPLINGS)
def test_canaries_take_part_as_clients_do(name):
    plan, found = _sampled(name)
    assert found.pattern is None
    assert all(plan.participation.admits(np.flatnonzero(row)) for row in found.rounds[:200])
    shares = np.stack([found.rounds[found.group == g].mean(axis=0) for g in np.unique(found.group)])
    rate = plan.clients_per_round / plan.population
    turns = np.arange(7) % 3 == np.arange(3)[:, None]
    if name == 'truncated_poisson':
        # Cohorts above the cap lose clients.
        assert 0.7 * rate < shares.mean() < 0.95 * rate
    elif name == 'cyclic_poisson':
        assert (shares[~turns] == 0).all()
        # 2,000 canaries in each group: outside of these ends with probability below 1e-6.
        assert np.abs(shares[turns] - 3 * rate).max() < 0.07
    else:
        # 6,000 canaries: outside of these ends with probability below 1e-6.
        assert np.abs(shares - rate).max() < 0.035
    if name == 'balls_in_bins':
        assert set(found.rounds.sum(axis=1)) == {2, 3}
    # Weights are those of the optimal test for the mean of the rounds.
    strategy = plan.mechanism.strategy_matrix()
    for g, weights in enumerate(found.weights):
        # Noise C^-1 z in the weighted sum of releases has variance 1.
        assert np.linalg.norm(np.linalg.solve(strategy.T, weights)) == pytest.approx(1.0)
        rounds = turns[g] if name == 'cyclic_poisson' else np.ones(7)
        assert weights @ rounds == pytest.approx(np.linalg.norm(strategy @ rounds))
    assert np.array_equal(found.effects[1::2], np.zeros_like(found.effects[1::2]))


def test_rounds_are_a_function_of_the_seed():
    one, again, other = (
        _sampled.__wrapped__('cyclic_poisson', 40, seed)[1].rounds for seed in (0, 0, 1)
    )
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    # More canaries than clients: they are clients of several samplers.
    assert np.unique(_sampled('poisson')[1].rounds, axis=0).shape[0] > 20
