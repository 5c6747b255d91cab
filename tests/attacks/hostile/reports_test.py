"""Hostile privacy reports: none promises more than its plan gives."""

import json
import math

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.reports.report import PrivacyReport
from tests.attacks.hostile.refusals import refused


def _report(mechanism=None, log=None, noise=3.0) -> dict:
    plan = accounting.PrivacyPlan(
        mechanism=mechanism or mechanisms.BinaryTree(6),
        participation=Participation(6, 2, 3),
        clip_norm=1.0,
        noise_multiplier=noise,
        clients_per_round=3,
    )
    return json.loads(PrivacyReport.from_plan(plan, [1e-6], log, 'analytic_gaussian').to_json())


@pytest.mark.parametrize(
    'part',
    [
        ('plan_guarantee',),
        ('observed', 'guarantee'),
        ('observed', 'patterns'),
    ],
)
@pytest.mark.parametrize('name', ['epsilons', 'mu', 'rho', 'sensitivity'])
def test_a_report_promises_no_more_than_its_plan_gives(part, name):
    values = _report(log=ParticipationLog([[0, 1], [2, 3], [0, 1]] * 2))
    PrivacyReport.from_json(json.dumps(values))
    inner = values
    for key in part:
        inner = inner[key]
    inner[name] = [inner[name][0] / 2] if name == 'epsilons' else inner[name] / 2
    if part[-1] == 'patterns' and name == 'sensitivity':
        return  # Only the log can tell: the numbers that follow from it are those compared.
    message = refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    assert f'{".".join(part)}.{name}' in message and 'must be at least' in message


def test_a_report_whose_limits_break_the_plan_says_so():
    values = _report(log=ParticipationLog([[0, 1]] * 6))
    assert PrivacyReport.from_json(json.dumps(values)).basis == 'log'
    values['observed']['violations'] = []
    assert 'must say how' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


@pytest.mark.parametrize('value', ['0.01', True, -1.0])
def test_the_first_numbers_of_a_report_are_numbers(value):
    text = json.dumps(_report() | {'epsilon': value})
    assert 'epsilon' in refused(lambda: PrivacyReport.from_json(text))


@pytest.mark.parametrize(
    'changes',
    [
        {'clients_by_participations': [[30, 4]]},
        {'clients_by_participations': [[3, 5]]},
        {'clients_by_participations': [[1, 4]]},
        {'clients': 10**9},
        {'smallest_cohort': 3},
        {'largest_cohort': 1},
        {'patterns': {'sensitivity': 0.0}},
    ],
)
def test_counts_of_a_log_that_contradict_each_other_are_refused(changes):
    values = _report(log=ParticipationLog([[0, 1], [2, 3], [0, 1]] * 2))
    PrivacyReport.from_json(json.dumps(values))
    for name, value in changes.items():
        is_part = isinstance(value, dict)
        values['observed'][name] = values['observed'][name] | value if is_part else value
    message = refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    assert 'must agree with the other counts' in message


@pytest.mark.parametrize('name', ['sensitivity', 'rho', 'mu', 'epsilon', 'basis'])
@pytest.mark.parametrize('is_broken', [False, True])
def test_the_first_numbers_of_a_report_promise_no_more_than_the_others(name, is_broken):
    values = _report(log=ParticipationLog([[0, 1]] * 6) if is_broken else None)
    if name == 'basis':
        values['basis'] = 'plan' if is_broken else 'log'
    else:
        values[name] /= 2
    assert name in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


@pytest.mark.parametrize(
    'name, value',
    [
        ('deltas', []),
        ('deltas', ['1e-6']),
        ('deltas', [2.0]),
        ('noise_is_seeded', 'false'),
        ('noise_is_seeded', 0),
        ('also_not_covered', 'text'),
        ('accountant', ['pld']),
        ('plan_guarantee', {}),
        ('observed', []),
        ('plan', [1]),
        ('mechanism_parameters', 5),
    ],
)
def test_a_report_of_other_types_is_refused(name, value):
    values = _report()
    values[name] = value
    assert 'not a privacy report' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


@pytest.mark.parametrize('accountants', [['magic'], ['best'], ['rdp', 'rdp'], 'rdp', [3], ['a\nb']])
def test_a_report_names_accountants_that_there_are(accountants):
    values = _report()
    values['plan_guarantee']['accountants'] = accountants
    message = refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    assert 'plan_guarantee.accountants' in message


def test_a_report_of_a_strategy_that_is_not_monotone_can_be_written():
    assert _report(mechanisms.BandedToeplitz(6, [1.0, -0.5, 0.7]))['sensitivity'] > 0


@pytest.mark.parametrize('noise', [1e-30, 1e30])
def test_the_least_and_the_most_noise_have_a_guarantee(noise):
    report = PrivacyReport.from_json(json.dumps(_report(noise=noise)))
    assert all(math.isfinite(epsilon) for epsilon in report.guarantee.epsilons)
    assert 'none' not in report.to_dict()['statement'] and report.render()


def test_a_number_near_zero_is_rounded_up():
    assert accounting.round_up(5e-324) == '1e-300'
