"""Groups of clients: the guarantee of several clients that change together."""

import dataclasses
import math

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting import running
from tests import oracles
from tests.accounting import plans

_SCHEMA = Participation(rounds=6, min_separation=2, max_participations=2)


def _plan(**changes):
    tree = dict(mechanism=mechanisms.BinaryTree(6), participation=_SCHEMA, clip_norm=1.0)
    return plans.plan(**{**tree, 'noise_multiplier': 3.0, **changes})


def _sampled(sampling='poisson', **changes):
    return plans.independent(10, sampling=sampling, population=200, **changes)


def test_the_sensitivity_of_a_group_by_brute_force():
    # Every choice of a pattern for each member, with updates of 1 in one coordinate.
    plan = _plan(mechanism=mechanisms.Blt(6, [0.5], [0.25]), group_size=2)
    matrix = plan.mechanism.strategy_matrix()
    patterns = oracles.patterns(_SCHEMA)
    columns = np.array([matrix[:, list(pattern)].sum(axis=1) for pattern in patterns])
    sums = columns[:, np.newaxis] + columns
    worst = np.linalg.norm(sums, axis=-1).max()
    assert plan.sensitivity_is_exact and plan.sensitivity == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize('sampling', ['poisson', 'without_replacement'])
@pytest.mark.parametrize('adjacency', ['zero_out', 'replace_one'])
def test_groups_in_sampled_plans_lie_between_one_client_and_no_amplification(sampling, adjacency):
    plan = _sampled(sampling=sampling, adjacency=adjacency, noise_multiplier=4.0)
    group = dataclasses.replace(plan, group_size=3)
    assert group.accountants == ('pld', 'best')
    assert group.rho is None and group.mu is None
    with pytest.raises(ValueError, match='accountant=rdp: must be one of pld, best'):
        group.epsilon(1e-6, 'rdp')
    epsilon = group.epsilon(1e-6)
    assert 3 * plan.epsilon(1e-6) < epsilon
    assert epsilon < group.without_sampling(group.participation).epsilon(1e-6)


def test_group_privacy_from_the_definition_is_never_below():
    # k steps from neighbour to neighbour: epsilon k, delta (e^(k epsilon) - 1)/(e^epsilon - 1).
    plan, size, delta = _sampled(noise_multiplier=4.0), 2, 1e-6
    epsilon = plan.epsilon(delta)
    grown = delta * math.expm1(size * epsilon) / math.expm1(epsilon)
    assert dataclasses.replace(plan, group_size=size).epsilon(grown) <= size * epsilon


def test_a_group_without_a_loss_distribution_has_the_guarantee_without_amplification():
    plan = _sampled(noise_multiplier=1e-3, group_size=2)
    found = plan.bound(1e-6)
    assert found.accountant == 'analytic_gaussian'
    assert found.epsilon == pytest.approx(
        accounting.epsilon_from_mu(2 * math.sqrt(10) / 1e-3, 1e-6, 'analytic_gaussian')
    )


def test_the_course_and_the_log_of_a_group_end_at_its_guarantee():
    plan = _plan(group_size=2)
    course = running.RunningEpsilon(plan, 1e-6, 'analytic_gaussian')
    assert course.after(6) == plan.epsilon(1e-6, 'analytic_gaussian')
    assert course.after(3) > running.RunningEpsilon(_plan(), 1e-6, 'analytic_gaussian').after(3)
    log = ParticipationLog([[0], [1], [0], [2], [1], [3]])
    report = plans.report(plan, log=log)
    assert report.observed_guarantee.mu == pytest.approx(
        2 * plans.report(_plan(), log=log).observed_guarantee.mu
    )
    assert 'every group of 2 clients' in report.render()
