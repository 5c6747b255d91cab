"""Which canaries take part when: in the worst rounds, or as the clients of each sampling do."""

import functools

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.auditing import canaries
from tests.accounting import plans

_APART = Participation(20, 5, 3)
_BLT = mechanisms.Blt(20, (0.9, 0.5), (0.1, 0.2))


def _design(mechanism=_BLT, schema=_APART, count=10, size=100):
    plan = plans.plan(mechanism=mechanism, participation=schema)
    return plan, canaries.design(plan, count, 0, size)


def _require_optimal(plan, weights, effects):
    """Noise C^-1 z in the weighted sum of releases has variance 1: the least for these effects."""
    strategy = plan.mechanism.strategy_matrix()
    for row, effect in zip(weights, effects, strict=True):
        assert np.linalg.norm(np.linalg.solve(strategy.T, row)) == pytest.approx(1.0)
        assert row @ effect == pytest.approx(np.linalg.norm(strategy @ effect))


@pytest.mark.parametrize(
    'mechanism, schema',
    [
        (_BLT, _APART),
        (mechanisms.Identity(20), _APART),
        (mechanisms.Identity(7), Participation(7)),
        (mechanisms.BinaryTree(12), Participation(12, 4)),
        (mechanisms.Restarted(mechanisms.BinaryTree(20), (6,), 20), _APART),
    ],
)
def test_patterns_are_admitted_and_among_the_worst_and_weights_fit_them(mechanism, schema):
    plan, found = _design(mechanism, schema)
    lengths = np.linalg.norm(found.pattern @ mechanism.strategy_matrix().T, axis=1)
    for row in found.pattern:
        assert schema.admits(np.flatnonzero(row))
        assert row.sum() == schema.count
    # Trees have worse patterns, of other separations; the report states that of the canaries.
    assert lengths.max() <= plan.sensitivity * (1 + 1e-9)
    if mechanism.name in ('blt', 'identity'):
        assert lengths.max() == pytest.approx(plan.sensitivity, rel=1e-6)
    assert lengths.min() >= 0.99 * lengths.max()
    _require_optimal(plan, found.weights, found.pattern)


def test_half_take_part_and_cohorts_and_effects_are_those_of_their_rounds():
    _, found = _design(count=40)
    assert found.takes_part.sum() == 20
    for is_in in (True, False):
        group = found.group[found.takes_part == is_in]
        assert np.ptp(np.bincount(group, minlength=len(found.pattern))) <= 1
    assert np.array_equal(found.rounds, found.pattern[found.group])
    added = found.added()
    effects = np.zeros((40, len(found.weights)))
    for t, cohort in enumerate(added.cohorts):
        assert all(found.takes_part[cohort])
        effects[cohort] += found.weights[:, t]
    assert np.allclose(found.effects, effects)
    assert added.largest_cohort == max(map(len, added.cohorts))
    assert sum(map(len, added.cohorts)) == found.rounds[found.takes_part].sum()


def test_large_models_have_fewer_groups():
    for size, groups in ((1000, 4), (10**7, 1)):
        assert len(_design(mechanisms.Identity(20), size=size)[1].pattern) == groups


def _sampled(name, count=6000, seed=0):
    """A plan, and canaries for it."""
    plan = plans.sampled(name, **({'cohort_cap': 3} if name == 'truncated_poisson' else {}))
    return plan, canaries.design(plan, count, seed, 100, functools.partial(plans.sampler, plan))


@pytest.mark.parametrize('name', plans.SAMPLINGS)
def test_canaries_take_part_as_clients_do(name):
    plan, found = _sampled(name)
    assert found.pattern is None
    assert all(plan.participation.admits(np.flatnonzero(row)) for row in found.rounds[:200])
    shares = np.stack([found.rounds[found.group == g].mean(axis=0) for g in np.unique(found.group)])
    rate = plan.clients_per_round / plan.population
    turns = np.ones((len(found.weights), 7))
    if name == 'cyclic_poisson':
        turns = np.arange(7) % 3 == np.arange(3)[:, None]
        assert (shares[~turns] == 0).all()
        # 2,000 canaries in each group: outside of these ends with probability below 1e-6.
        assert np.abs(shares[turns] - 3 * rate).max() < 0.07
    elif name == 'truncated_poisson':
        # Cohorts above the cap lose clients.
        assert 0.7 * rate < shares.mean() < 0.95 * rate
    else:
        # 6,000 canaries: outside of these ends with probability below 1e-6.
        assert np.abs(shares - rate).max() < 0.035
    if name == 'balls_in_bins':
        assert set(found.rounds.sum(axis=1)) == {2, 3}
    # For the mean of the rounds.
    _require_optimal(plan, found.weights, turns)
    assert np.array_equal(found.effects[1::2], np.zeros_like(found.effects[1::2]))


def test_rounds_are_a_function_of_the_seed():
    one, again, other = (_sampled('poisson', 90, seed)[1].rounds for seed in (0, 0, 1))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    # More canaries than clients: they are clients of several samplers.
    assert not np.array_equal(one[:30], one[60:])
