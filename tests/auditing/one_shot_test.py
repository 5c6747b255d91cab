"""What canaries show of mechanisms whose mu is known, and of runs without canaries or noise."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.accounting.measured import sums
from dpfl.accounting.measured.measured import Measured, Scores
from dpfl.aggregators import audited_query
from dpfl.auditing import canaries, one_shot
from tests.accounting import plans

_SIZE = 400
_ROUNDS = 8
_ACCOUNTANT = 'analytic_gaussian'


def _plan(noise_multiplier=1.0, mechanism=None):
    return plans.plan(
        mechanism=mechanism or mechanisms.Blt(_ROUNDS, (0.9, 0.5), (0.1, 0.2)),
        participation=Participation(_ROUNDS, 4, 2),
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
    )


def _directions(design):
    return audited_query.directions(design.seed, np.arange(len(design.group)), _SIZE)


def _released(plan, design, seed=0, with_canaries=True):
    """Sums of the releases of a run without clients, by dense matrices."""
    random = np.random.default_rng(seed)
    z = plan.noise_multiplier * random.standard_normal((_ROUNDS, _SIZE))
    releases = np.linalg.solve(plan.mechanism.strategy_matrix(), z)
    if with_canaries:
        present = design.rounds & design.takes_part[:, None]
        releases += present.T.astype(float) @ _directions(design)
    return design.weights @ releases


def _scores(plan, design, released):
    releases, final = one_shot.cosines(design, released, np.ones(_SIZE))
    return Scores(
        design.takes_part, design.rounds.sum(axis=1), releases, final, _SIZE, design.pattern
    )


def test_directions_have_length_one_and_no_common_direction():
    design = canaries.design(_plan(), 40, 3, _SIZE)
    found = _directions(design)
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(40))
    products = found @ found.T - np.eye(40)
    assert np.abs(products).max() < 6 / np.sqrt(_SIZE)
    again = audited_query.directions(3, np.array([7]), _SIZE)
    assert np.array_equal(found[7:8], again)
    assert not np.array_equal(found[7:8], audited_query.directions(4, np.array([7]), _SIZE))


def test_cosines_are_those_of_the_definition():
    plan = _plan()
    design = canaries.design(plan, 20, 3, _SIZE)
    released = _released(plan, design)
    change = np.random.default_rng(2).standard_normal(_SIZE)
    releases, final = one_shot.cosines(design, released, change)
    directions = _directions(design)
    for i, direction in enumerate(directions):
        rest = released[design.group[i]].copy()
        for j, other in enumerate(directions):
            if j != i:
                rest -= design.effects[j, design.group[i]] * other
        assert releases[i] == pytest.approx(direction @ rest / np.linalg.norm(rest), abs=1e-12)
        assert final[i] == pytest.approx(direction @ change / np.linalg.norm(change), abs=1e-12)


_MECHANISMS = {
    'blt': mechanisms.Blt(_ROUNDS, (0.9, 0.5), (0.1, 0.2)),
    'identity': mechanisms.Identity(_ROUNDS),
    'restarted': mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (3,), _ROUNDS),
}


@pytest.mark.parametrize('name', _MECHANISMS)
def test_the_estimate_is_near_the_mu_of_the_mechanism(name):
    plan = _plan(mechanism=_MECHANISMS[name])
    design = canaries.design(plan, 600, 1, _SIZE)
    found = Measured.of(_scores(plan, design, _released(plan, design)), plan, 1e-3, _ACCOUNTANT)
    # 300 scores of deviation 1: outside of these ends with probability below 1e-6. The length of
    # the noise, which the cosine divides by, has a deviation of 4 %; the canary's own is within it.
    expected = found.mu_of_canaries / np.hypot(1, found.mu_of_canaries / np.sqrt(_SIZE))
    assert found.releases.mean == pytest.approx(expected, abs=0.3 + 0.2 * expected)
    assert found.releases.null_mean == pytest.approx(0, abs=0.3)
    assert found.releases.mu_lower > 0.5 * expected
    assert not found.exceeds_claim


def test_less_noise_than_claimed_is_noticed():
    claimed, real = _plan(3.0), _plan(1.0)
    design = canaries.design(claimed, 600, 1, _SIZE)
    scores = _scores(claimed, design, _released(real, design))
    assert Measured.of(scores, claimed, 1e-3, _ACCOUNTANT).exceeds_claim
    assert not Measured.of(scores, real, 1e-3, _ACCOUNTANT).exceeds_claim


def test_canaries_that_are_not_there_are_not_found():
    plan = _plan()
    design = canaries.design(plan, 600, 1, _SIZE)
    # The audit believes that nobody takes part, and asks for all: as if all were held out.
    held_out = dataclasses.replace(design, takes_part=np.zeros(600, bool))
    released = _released(plan, held_out)
    cosines, _ = one_shot.cosines(held_out, released, np.ones(_SIZE))
    scores = dataclasses.replace(_scores(plan, held_out, released), took_part=design.takes_part)
    found = Measured.of(dataclasses.replace(scores, releases=cosines), plan, 1e-3, _ACCOUNTANT)
    assert found.releases.mean == pytest.approx(0, abs=0.3)
    assert found.releases.epsilon_low == 0.0
    assert found.releases.epsilon_lower < 0.5


def test_without_noise_a_canary_is_certain():
    plan = _plan(0.0)
    design = canaries.design(plan, 100, 1, _SIZE)
    found = Measured.of(_scores(plan, design, _released(plan, design)), plan, 1e-3, _ACCOUNTANT)
    assert found.releases.mean == pytest.approx(np.sqrt(_SIZE))
    assert found.releases.epsilon == np.inf
    assert found.releases.mu_lower > 15


class _Weights(NamedTuple):
    """Model weights of a process."""

    trainable: Any


def _audited_state(plan, design, sizes):
    """A state whose residuals are the planned noise, and the residuals."""
    residuals = np.linalg.solve(
        plan.mechanism.strategy_matrix(),
        plan.noise_multiplier * np.random.default_rng(4).standard_normal((_ROUNDS, _SIZE)),
    )
    inner = audited_query.CanaryState((), np.int64(_ROUNDS), _released(plan, design))
    zeros = np.zeros(_ROUNDS)
    assert sum(sizes) == _SIZE
    return audited_query.AuditedState(inner, np.int64(_ROUNDS), residuals, zeros, zeros)


def test_the_change_of_the_model_is_the_other_attack():
    plan = _plan()
    design = canaries.design(plan, 10, 1, _SIZE)
    state = _audited_state(plan, design, [200, 200])
    before = [np.zeros((20, 10)), np.zeros(200)]
    after = [-each for each in np.split(_directions(design)[0], [200])]
    scores = one_shot.OneShotAudit(design).scores(
        _Weights(before),
        _Weights([after[0].reshape(20, 10), after[1]]),
        {'state': [state]},
        plan,
    )
    assert scores.final_model[0] == pytest.approx(1.0)
    assert scores.dimension == _SIZE
    assert scores.rounds.tolist() == [2] * 10
    assert (scores.sums.tested, scores.sums.failures) == ((200, 200), ())


def test_faults_of_clipping_change_the_sum_as_canaries_planted_one_by_one():
    plan = _plan()
    design = canaries.design(plan, 12, 1, _SIZE)
    sizes = [300, 0, 99, 1]
    found = one_shot.planted_clip_errors(design, sizes, 4)
    cohort = max(design.added().cohorts, key=len)
    vectors = _directions(design)[cohort]
    alone = [
        np.concatenate([each / max(np.linalg.norm(each), 1e-9) for each in parts])
        for parts in (np.split(vector, np.cumsum(sizes)[:-1]) for vector in vectors)
    ]
    expected = [99 * vectors, 9 * vectors, np.array(alone) - vectors]
    for name, change in zip(sums.CLIP_FAULTS, expected, strict=True):
        length = np.linalg.norm(change.sum(axis=0)) / (4 + len(cohort))
        assert found[name] == pytest.approx(length, rel=1e-12)
