"""The joint guarantee of several reports, against one run that is as long as all of them."""

import dataclasses
import math

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, errors, mechanisms
from dpfl.accounting import gaussian, hardened
from dpfl.accounting.reports import checklist, joint

_DELTA = 1e-6
_BEFORE = (accounting.ReleaseBefore('a vocabulary', 8.0, delta=1e-7),)


def _plan(rounds=100, **changes):
    fields = dict(
        mechanism=mechanisms.Identity(rounds),
        participation=Participation(rounds),
        clip_norm=1.0,
        noise_multiplier=2.0,
        clients_per_round=10,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


def _report(plan, accountant='best', log=None):
    return accounting.PrivacyReport.from_plan(plan, [_DELTA], log, accountant)


_SAMPLED = dict(sampling='poisson', population=1000)
_FIXED = dict(sampling='without_replacement', population=1000, adjacency='replace_one')


@pytest.mark.parametrize(
    'changes, epsilon',
    [
        ({}, None),
        ({'group_size': 3}, None),
        (_SAMPLED, None),
        ({**_SAMPLED, 'group_size': 2}, 0.6721),
        ({**_FIXED, 'group_size': 2}, 5.612),
        ({**_SAMPLED, 'adjacency': 'replace_one'}, None),
    ],
)
def test_two_runs_are_one_run_of_twice_the_rounds(changes, epsilon):
    found = joint.guarantee([_report(_plan(**changes))] * 2)
    whole = _plan(200, **changes).epsilon(_DELTA, 'best')
    assert found.epsilon == pytest.approx(whole, rel=1e-6)
    if epsilon is not None:
        assert round(found.epsilon, 4 if epsilon < 1 else 3) == epsilon


def test_seeded_runs_with_one_log_are_not_composed():
    plan = _plan(20, **_SAMPLED)
    rng = np.random.default_rng(0)
    logs = [
        ParticipationLog(rng.permutation(1000)[: rng.binomial(1000, 0.01)] for _ in range(20))
        for _ in range(2)
    ]
    one, other = (
        dataclasses.replace(_report(plan, log=log), sampling_is_seeded=True) for log in logs
    )
    assert one.basis == other.basis == 'plan'
    with pytest.raises(errors.ArgumentError, match='sampling_is_seeded'):
        joint.guarantee([one, one])
    joint.guarantee([one, other])
    assert 'drawn independently' in checklist.statement_together([one, other], '(1, 1e-6)-DP')
    joint.guarantee([dataclasses.replace(one, sampling_is_seeded=False)] * 2)


@pytest.mark.parametrize(
    'plan',
    [
        _plan(noise='hardened', noise_multiplier=30.0),
        _plan(before=_BEFORE, noise_multiplier=30.0),
        _plan(earlier=(_plan(50, noise_multiplier=30.0),), noise_multiplier=30.0),
        _plan(**_SAMPLED, group_size=2),
        _plan(
            mechanism=mechanisms.BandedToeplitz(100, [1.0, 0.5]),
            sampling='cyclic_poisson',
            population=1000,
            groups=2,
        ),
        _plan(
            10,
            sampling='balls_in_bins',
            population=100,
            groups=10,
            participation=Participation(10, 10),
        ),
        _plan(noise_multiplier=0.0),
    ],
    ids=['hardened', 'before', 'earlier', 'group', 'cyclic', 'estimated', 'silent'],
)
def test_one_report_has_its_own_guarantee_and_two_have_more(plan):
    report = _report(plan)
    alone = joint.guarantee([report])
    assert alone.finite_epsilon == report.guarantee.epsilons[0]
    assert (alone.rho, alone.delta) == (report.guarantee.rho, _DELTA)
    assert joint.guarantee([report] * 2).epsilon > alone.epsilon or math.isinf(alone.epsilon)


def test_slack_of_hardened_noise_adds_up():
    # A log in which a client takes part in every round breaks the second plan, and counts instead.
    log = ParticipationLog([[0]] * 100)
    reports = [
        _report(_plan(noise='hardened', noise_multiplier=30.0)),
        _report(
            _plan(noise='hardened', noise_multiplier=40.0, participation=Participation(100, 50)),
            log=log,
        ),
    ]
    assert [each.basis for each in reports] == ['plan', 'log']
    slacks = [each.slack for each in reports]
    assert slacks[0] == reports[0].plan.slack > 0
    # That of the log is that of a plan that admits it, above that of the broken plan.
    admitting = _plan(noise='hardened', noise_multiplier=40.0)
    assert slacks[1] == pytest.approx(admitting.slack, rel=1e-9)
    assert slacks[1] > reports[1].plan.slack
    mu = math.hypot(*(each.guarantee.mu for each in reports))
    expected = hardened.with_slack(
        lambda at: gaussian.bound(mu, at, 'analytic_gaussian'), _DELTA, sum(slacks)
    )
    found = joint.guarantee(reports)
    assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-9)
    assert found.epsilon > accounting.epsilon_from_mu(mu, _DELTA, 'analytic_gaussian')


def test_releases_before_training_and_earlier_runs_count_once_for_each_report():
    first = _plan(before=_BEFORE, noise_multiplier=30.0)
    second = _plan(50, earlier=(_plan(20, noise_multiplier=25.0),), noise_multiplier=40.0)
    found = joint.guarantee([_report(first), _report(second)])
    mu = math.hypot(math.sqrt(100) / 30, 1 / 8, math.sqrt(50) / 40, math.sqrt(20) / 25)
    expected = accounting.epsilon_from_mu(mu, _DELTA - 1e-7, 'analytic_gaussian')
    assert found.epsilon == pytest.approx(expected, rel=1e-6)
    assert found.rho == pytest.approx(mu**2 / 2) and found.revealed == pytest.approx(1e-7)


def test_an_accountant_that_does_not_support_the_composition_is_replaced_by_the_best():
    plain, sampled = _report(_plan(), 'analytic_gaussian'), _report(_plan(**_SAMPLED))
    assert joint.guarantee([plain, sampled]).epsilon == pytest.approx(
        joint.guarantee([sampled, plain]).epsilon
    )


@pytest.mark.parametrize(
    'changes, name',
    [({'adjacency': 'replace_one'}, 'adjacency'), ({'group_size': 2}, 'group_size')],
)
def test_reports_about_other_neighbours_are_not_composed(changes, name):
    report, other = _report(_plan()), _report(dataclasses.replace(_plan(), **changes))
    with pytest.raises(errors.ArgumentError, match='as in the first report') as caught:
        joint.guarantee([report, report, other])
    assert caught.value.name == name
