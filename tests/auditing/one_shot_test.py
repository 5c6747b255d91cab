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
_BLT = mechanisms.Blt(_ROUNDS, (0.9, 0.5), (0.1, 0.2))


def _plan(noise_multiplier=1.0, mechanism=_BLT):
    fields = dict(mechanism=mechanism, participation=Participation(_ROUNDS, 4, 2), clip_norm=1.0)
    return plans.plan(**fields, noise_multiplier=noise_multiplier)


def _designed(plan, count):
    return canaries.design(plan, count, 3, _SIZE)


def _directions(design):
    return audited_query.directions(design.seed, np.arange(len(design.group)), _SIZE)


def _released(plan, design):
    """Sums of the releases of a run without clients, by dense matrices."""
    z = plan.noise_multiplier * np.random.default_rng(0).standard_normal((_ROUNDS, _SIZE))
    present = design.rounds & design.takes_part[:, None]
    releases = np.linalg.solve(plan.mechanism.strategy_matrix(), z)
    return design.weights @ (releases + present.T.astype(float) @ _directions(design))


def _measured(plan, design, released, took_part=None):
    releases, final = one_shot.cosines(design, released, np.ones(_SIZE))
    scores = Scores(
        design.takes_part if took_part is None else took_part,
        design.rounds.sum(axis=1),
        releases,
        final,
        _SIZE,
        design.pattern,
        sums.SumTests(_ROUNDS, (_SIZE,), 'done', dict.fromkeys(sums.CLIP_FAULTS, 1.0), ()),
    )
    return Measured.of(scores, plan, 1e-3, 'analytic_gaussian')


def test_directions_have_length_one_and_no_common_direction():
    design = _designed(_plan(), 40)
    found = _directions(design)
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(40))
    assert np.abs(found @ found.T - np.eye(40)).max() < 6 / np.sqrt(_SIZE)
    again, other = (audited_query.directions(seed, np.array([7]), _SIZE) for seed in (3, 4))
    assert np.array_equal(found[7:8], again) and not np.array_equal(found[7:8], other)


def test_cosines_are_those_of_the_definition():
    plan = _plan()
    design = _designed(plan, 20)
    released = _released(plan, design)
    change = np.random.default_rng(2).standard_normal(_SIZE)
    releases, final = one_shot.cosines(design, released, change)
    directions = _directions(design)
    for i, direction in enumerate(directions):
        group = design.group[i]
        others = np.arange(len(directions)) != i
        rest = released[group] - design.effects[others, group] @ directions[others]
        assert releases[i] == pytest.approx(direction @ rest / np.linalg.norm(rest), abs=1e-12)
        assert final[i] == pytest.approx(direction @ change / np.linalg.norm(change), abs=1e-12)


@pytest.mark.parametrize(
    'mechanism',
    [
        _BLT,
        mechanisms.Identity(_ROUNDS),
        mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (3,), _ROUNDS),
    ],
)
def test_the_estimate_is_near_the_mu_of_the_mechanism(mechanism):
    plan = _plan(mechanism=mechanism)
    design = _designed(plan, 600)
    found = _measured(plan, design, _released(plan, design))
    # 300 scores of deviation 1: outside of these ends with probability below 1e-6. The length of
    # the noise, which the cosine divides by, has a deviation of 4 %; the canary's own is within it.
    expected = found.mu_of_canaries / np.hypot(1, found.mu_of_canaries / np.sqrt(_SIZE))
    assert found.releases.mean == pytest.approx(expected, abs=0.3 + 0.2 * expected)
    assert found.releases.null_mean == pytest.approx(0, abs=0.3)
    assert found.releases.mu_lower > 0.5 * expected
    assert not found.exceeds_claim
    # Of a plan that claims three times the noise.
    assert _measured(_plan(3.0, mechanism), design, _released(plan, design)).exceeds_claim


def test_canaries_that_are_not_there_are_not_found():
    plan = _plan()
    design = _designed(plan, 600)
    # The audit believes that nobody takes part, and asks for all: as if all were held out.
    held_out = dataclasses.replace(design, takes_part=np.zeros(600, bool))
    found = _measured(plan, held_out, _released(plan, held_out), design.takes_part)
    assert found.releases.mean == pytest.approx(0, abs=0.3)
    assert found.releases.epsilon_low == 0.0
    assert found.releases.epsilon_lower < 0.5


def test_without_noise_a_canary_is_certain():
    plan = _plan(0.0)
    design = _designed(plan, 100)
    found = _measured(plan, design, _released(plan, design))
    assert found.releases.mean == pytest.approx(np.sqrt(_SIZE))
    assert found.releases.epsilon == np.inf
    assert found.releases.mu_lower > 15


class _Weights(NamedTuple):
    """Model weights of a process."""

    trainable: Any


def test_the_change_of_the_model_is_the_other_attack():
    plan = _plan()
    design = _designed(plan, 10)
    z = np.random.default_rng(4).standard_normal((_ROUNDS, _SIZE))
    residuals = np.linalg.solve(plan.mechanism.strategy_matrix(), z)  # Those of planned noise.
    zeros = np.zeros(_ROUNDS)
    inner = audited_query.CanaryState((), np.int64(_ROUNDS), _released(plan, design))
    state = audited_query.AuditedState(inner, np.int64(_ROUNDS), residuals, zeros, zeros)
    first, second = np.split(-_directions(design)[0], [200])
    before = _Weights([np.zeros((20, 10)), np.zeros(200)])
    after = _Weights([first.reshape(20, 10), second])
    scores = one_shot.OneShotAudit(design).scores(before, after, {'state': [state]}, plan)
    assert scores.final_model[0] == pytest.approx(1.0)
    assert scores.dimension == _SIZE
    assert scores.rounds.tolist() == [2] * 10
    assert (scores.sums.tested, scores.sums.failures) == ((200, 200), ())


def test_faults_of_clipping_change_the_sum_as_canaries_planted_one_by_one():
    design = _designed(_plan(), 12)
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
