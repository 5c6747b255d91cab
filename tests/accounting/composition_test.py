"""Everything that a client takes part in: releases before training, earlier runs, other runs."""

import dataclasses
import json
import math
import types

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting import events, gaussian, part, tradeoff
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.reports import page, two_reports
from dpfl.accounting.selection import Selection
from dpfl.errors import ArgumentError
from tests import oracles
from tests.accounting import plans
from tests.sizes import standard

_DELTA = 1e-6
_WORDS = accounting.ReleaseBefore('a list of words', 6.0, math.sqrt(2), 2e-7)
_VALUE = accounting.ReleaseBefore('a value', 8.0, 1.25)
_FIRST = plans.plan(mechanism=mechanisms.Blt(5, [0.9], [0.3]), participation=Participation(5, 2))
_SECOND = plans.plan(
    mechanism=mechanisms.BinaryTree(4, released='prefix_sums'),
    participation=Participation(4, 3),
    noise_multiplier=6.0,
    earlier=(_FIRST,),
)
_POISSON = dict(sampling='poisson', population=1000)
_SAMPLED = plans.independent(30, noise_multiplier=1.0, **_POISSON)


def _with(plan, *before):
    return dataclasses.replace(plan, before=before)


def _divergence(mu, revealed, epsilon):
    """Delta at an epsilon of the pair: N(0, 1) and N(mu, 1), or by chance the answer itself.

    By sums over a fine grid, from the definition.
    """
    x = np.linspace(-12, 12 + mu, 400_001)
    p, q = stats.norm.pdf(x), stats.norm.pdf(x - mu)
    return revealed + (1 - revealed) * oracles.hockey_stick(p, q, epsilon, x[1] - x[0])


@pytest.mark.parametrize(
    'before, delta', [((_WORDS,), 1e-6), ((_VALUE,), 1e-3), ((_WORDS, _VALUE), 1e-6)]
)
def test_epsilon_with_releases_before_is_that_of_the_composed_pair(before, delta):
    plan = _with(_FIRST, *before)
    noises = [_FIRST.noise_multiplier / _FIRST.sensitivity, *(e.noise_multiplier for e in before)]
    mu = math.sqrt(sum(noise**-2 for noise in noises))
    assert plan.mu == pytest.approx(mu, rel=1e-12) and plan.mu >= mu * (1 - 1e-15)
    epsilon = plan.epsilon(delta, 'analytic_gaussian')
    revealed = sum(each.delta for each in before)
    assert _divergence(mu, revealed, epsilon) <= delta * (1 + 1e-6)
    assert _divergence(mu, revealed, epsilon * 0.999) > delta
    assert epsilon > _FIRST.epsilon(delta, 'analytic_gaussian')


def test_all_of_a_delta_may_be_spent():
    plan = _with(_FIRST, dataclasses.replace(_WORDS, delta=1e-6))
    report = plans.report(plan, [1e-7, 1e-6, 1.1e-6])
    assert report.guarantee.epsilons[:2] == (None, None) and report.guarantee.epsilons[2] > 0


def test_sampling_does_not_amplify_what_was_released_before():
    plan = _with(_SAMPLED, _WORDS)
    one_event = dp_accounting.ComposedDpEvent(
        [_SAMPLED.dp_event(), dp_accounting.GaussianDpEvent(6.0)]
    )
    left = 1e-6 - _WORDS.delta
    for method in ('rdp', 'moments'):
        expected = events.bound(one_event, left, method, neighbours=plan.neighbours).epsilon
        assert plan.epsilon(1e-6, method) == pytest.approx(expected, rel=1e-9)
    # A release of a sample would have cost next to nothing.
    sampled = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(6.0))
    less = dp_accounting.ComposedDpEvent([_SAMPLED.dp_event(), sampled])
    assert plan.epsilon(1e-6, 'rdp') > 1.05 * accounting.epsilon_of_event(less, 1e-6, 'rdp')


@pytest.mark.parametrize(
    'adjacency, group_size, expected',
    [('zero_out', 1, 1 / 8), ('replace_one', 1, 1.25 / 8), ('zero_out', 3, 3 / 8)],
)
def test_neighbours_move_a_release_as_far_as_they_can(adjacency, group_size, expected):
    assert _VALUE.mu(Neighbours(adjacency, group_size)) == expected
    alone = dataclasses.replace(_FIRST, adjacency=adjacency, group_size=group_size)
    assert _with(alone, _VALUE).mu == pytest.approx(math.hypot(alone.mu, expected), rel=1e-12)


def test_a_client_may_take_part_in_both_runs():
    """All patterns of both runs, one after the other, with the noise of each."""
    squares = [
        oracles.squared_sensitivity(plan.mechanism.strategy_matrix(), plan.participation)
        / plan.noise_multiplier**2
        for plan in (_FIRST, _SECOND)
    ]
    worst = math.sqrt(sum(squares))
    assert _SECOND.mu == pytest.approx(worst, rel=1e-9) and _SECOND.mu >= worst
    alone = dataclasses.replace(_SECOND, earlier=())
    assert _SECOND.rho == pytest.approx(_FIRST.rho + alone.rho, rel=1e-9)
    together = dp_accounting.ComposedDpEvent([_FIRST.dp_event(), alone.dp_event()])
    expected = accounting.epsilon_of_event(together, 1e-6, 'analytic_gaussian')
    assert _SECOND.epsilon(1e-6, 'analytic_gaussian') == pytest.approx(expected, rel=1e-6)
    # Even a client that was in no round of this run may have been in all rounds of the earlier one.
    report = plans.report(_SECOND, log=[[0], [1], [2], [0]])
    assert report.observed_guarantee.mu == _SECOND.mu
    assert report.pattern_guarantee.mu > _FIRST.mu
    assert 'together with the 1 earlier run(s)' in report.to_dict()['statement']


def test_earlier_runs_bring_their_releases_along():
    both = dataclasses.replace(_with(_FIRST, _VALUE), earlier=(_with(_FIRST, _WORDS),))
    parts = [_FIRST.mu, _FIRST.mu, 1 / 6, 1 / 8]
    assert both.mu == pytest.approx(math.hypot(*parts), rel=1e-12)
    assert both.delta_before == pytest.approx(_WORDS.delta) and both.delta_before >= _WORDS.delta
    left = 1e-6 - both.delta_before
    expected = gaussian.epsilon_from_mu(both.mu, left, 'analytic_gaussian')
    assert both.epsilon(1e-6, 'analytic_gaussian') == pytest.approx(expected, rel=1e-9)


def test_a_log_of_a_broken_plan_counts_releases_too():
    cohorts = [[0], [0], [1]]
    report = plans.report(_with(_FIRST, _WORDS), log=cohorts)
    alone = plans.report(_FIRST, log=cohorts)
    assert report.basis == alone.basis == 'log'
    mu = math.hypot(alone.guarantee.mu, 1 / 6)
    assert report.guarantee.mu == pytest.approx(mu, rel=1e-9)
    expected = gaussian.epsilon_from_mu(mu, 1e-6 - _WORDS.delta, 'analytic_gaussian')
    assert report.guarantee.epsilons[0] == pytest.approx(expected, rel=1e-6)
    composed = accounting.epsilon_of_event(report.dp_event(), 1e-6)
    assert composed == pytest.approx(report.guarantee.epsilons[0], rel=1e-6)


def test_the_report_states_releases_and_is_read_back():
    report = plans.report(_with(_FIRST, _WORDS), with_tradeoff=True)
    values = json.loads(report.to_json())
    assert '2e-07-approximate' in values['statement'] and 'a list of words' in values['statement']
    assert any('does not amplify' in each for each in values['assumptions'])
    assert not any('for the vocabulary' in each for each in values['not_covered'])
    assert plans.read(report).plan == report.plan
    with pytest.raises(ArgumentError, match='selected_from'):
        report.selected_from(Selection('geometric', 8.0))


def test_the_tradeoff_curve_has_what_is_revealed():
    revealed = 0.1
    event = events.with_delta(dp_accounting.GaussianDpEvent(2.0), revealed)
    found = tradeoff.of_event(event, rates=(0.01, 0.3))
    for rate, true in found.points:
        # The best test: what is revealed, or else the likelihood ratio, as the definition says.
        inner = stats.norm.sf(stats.norm.isf(rate / (1 - revealed)) - 0.5)
        assert true == pytest.approx(revealed + (1 - revealed) * inner, rel=1e-9)
    assert found.advantage == pytest.approx(_divergence(0.5, revealed, 0.0), abs=1e-5)
    sure = events.with_delta(dp_accounting.GaussianDpEvent(2.0), 1.0 - 1e-17)
    assert tradeoff.of_event(sure).advantage == 1.0


def test_without_noise_in_the_earlier_run_there_is_no_guarantee():
    silent = dataclasses.replace(_FIRST, noise_multiplier=0.0)
    plan = dataclasses.replace(_SECOND, earlier=(silent,))
    assert math.isinf(plan.epsilon(1e-6))
    report = plans.report(plan)
    assert report.guarantee.epsilons == (None,)
    assert report.to_dict()['statement'].startswith('No differential privacy: an earlier run')


# --- Several reports.


def test_a_run_that_its_audit_refutes_is_not_composed():
    report = plans.report(_FIRST)
    refuted = dataclasses.replace(report, measured=types.SimpleNamespace(refutations=('noise',)))
    for reports in ([refuted, report], [report, refuted], [report, report, refuted]):
        with pytest.raises(ArgumentError, match='measured: must not be an audit that refutes'):
            two_reports.guarantee(reports)


def _alike(rounds=100, **changes):
    return plans.independent(rounds, **changes)


@pytest.mark.parametrize(
    'changes, epsilon',
    [
        ({}, None),
        ({'group_size': 3}, None),
        (_POISSON, None),
        ({**_POISSON, 'group_size': 2}, 0.6721),
        (
            {**_POISSON, 'sampling': 'without_replacement', 'adjacency': 'replace_one'}
            | {'group_size': 2},
            5.612,
        ),
        ({**_POISSON, 'adjacency': 'replace_one'}, None),
    ],
)
def test_two_runs_are_one_run_of_twice_the_rounds(changes, epsilon):
    found = two_reports.guarantee([plans.report(_alike(**changes))] * 2)
    whole = _alike(200, **changes).epsilon(_DELTA, 'best')
    assert found.epsilon == pytest.approx(whole, rel=1e-6)
    if epsilon is not None:
        assert round(found.epsilon, 4 if epsilon < 1 else 3) == epsilon


def test_seeded_runs_with_one_log_are_not_composed():
    plan = _alike(20, **_POISSON)
    rng = np.random.default_rng(0)
    one, other = (
        plans.report(
            plan,
            log=[rng.permutation(1000)[: rng.binomial(1000, 0.01)] for _ in range(20)],
            sampling_is_seeded=True,
        )
        for _ in range(2)
    )
    assert one.basis == other.basis == 'plan'
    with pytest.raises(ArgumentError, match='sampling_is_seeded'):
        two_reports.guarantee([one, one])
    two_reports.guarantee([one, other])
    assert 'drawn independently' in page.statement_together([one, other], '(1, 1e-6)-DP')
    two_reports.guarantee([dataclasses.replace(one, sampling_is_seeded=False)] * 2)


def test_seeded_cohorts_of_runs_with_other_noise_are_not_composed():
    cohort = plans.sampler(plans.sampled('cyclic_poisson')).cohort
    one, other = (
        plans.report(
            plans.sampled('cyclic_poisson', mechanism=mechanisms.BandedToeplitz(7, [1.0, b])),
            log=map(cohort, range(7)),
            sampling_is_seeded=True,
        )
        for b in (0.5, 0.25)
    )
    assert one.basis == other.basis == 'plan' and one.observed != other.observed
    with pytest.raises(ArgumentError, match='sampling_is_seeded'):
        two_reports.guarantee([one, other])


@pytest.mark.parametrize(
    'plan',
    [
        _alike(noise='hardened', noise_multiplier=30.0),
        _alike(before=(_WORDS,), noise_multiplier=30.0),
        _alike(earlier=(_alike(50, noise_multiplier=30.0),), noise_multiplier=30.0),
        _alike(**_POISSON, group_size=2),
        plans.sampled('cyclic_poisson'),
        standard(plans.sampled('balls_in_bins')),
        _alike(noise_multiplier=0.0),
    ],
    ids=['hardened', 'before', 'earlier', 'group', 'cyclic', 'estimated', 'silent'],
)
def test_one_report_has_its_own_guarantee_and_two_have_more(plan):
    report = plans.report(plan)
    alone = two_reports.guarantee([report])
    assert alone.finite_epsilon == report.guarantee.epsilons[0]
    assert (alone.rho, alone.delta) == (report.guarantee.rho, _DELTA)
    assert two_reports.guarantee([report] * 2).epsilon > alone.epsilon or math.isinf(alone.epsilon)


def test_slack_of_hardened_noise_adds_up():
    # A log in which a client takes part in every round breaks the second plan, and counts instead.
    log = ParticipationLog([[0]] * 100)
    few = Participation(100, 50)
    reports = [
        plans.report(_alike(noise='hardened', noise_multiplier=30.0)),
        plans.report(_alike(noise='hardened', noise_multiplier=40.0, participation=few), log=log),
    ]
    assert [each.basis for each in reports] == ['plan', 'log']
    slacks = [each.slack for each in reports]
    assert slacks[0] == reports[0].plan.slack > 0
    # That of the log is that of a plan that admits it, above that of the broken plan.
    admitting = _alike(noise='hardened', noise_multiplier=40.0)
    assert slacks[1] == pytest.approx(admitting.slack, rel=1e-9)
    assert slacks[1] > reports[1].plan.slack
    mu = math.hypot(*(each.guarantee.mu for each in reports))
    expected = part.with_slack(
        lambda at: gaussian.bound(mu, at, 'analytic_gaussian'), _DELTA, sum(slacks)
    )
    found = two_reports.guarantee(reports)
    assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-9)
    assert found.epsilon > accounting.epsilon_from_mu(mu, _DELTA, 'analytic_gaussian')


def test_releases_before_training_and_earlier_runs_count_once_for_each_report():
    first = _alike(before=(_WORDS,), noise_multiplier=30.0)
    second = _alike(50, earlier=(_alike(20, noise_multiplier=25.0),), noise_multiplier=40.0)
    found = two_reports.guarantee([plans.report(first), plans.report(second)])
    mu = math.hypot(math.sqrt(100) / 30, 1 / 6, math.sqrt(50) / 40, math.sqrt(20) / 25)
    expected = accounting.epsilon_from_mu(mu, _DELTA - _WORDS.delta, 'analytic_gaussian')
    assert found.epsilon == pytest.approx(expected, rel=1e-6)
    assert found.rho == pytest.approx(mu**2 / 2) and found.revealed == pytest.approx(_WORDS.delta)


def test_an_accountant_that_does_not_support_the_composition_is_replaced_by_the_best():
    plain = plans.report(_alike(4), accountant='analytic_gaussian')
    sampled = plans.report(_alike(4, **_POISSON))
    both = two_reports.guarantee([plain, sampled]).epsilon
    assert both == pytest.approx(two_reports.guarantee([sampled, plain]).epsilon)
