"""Hostile privacy reports: none promises more than its plan gives."""

import copy
import functools
import json
import math

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.reports.about import About
from dpfl.accounting.reports.clip_course import ClipCourse
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


# Without them it is a report of an older version, or of a plan.
_MAY_BE_MISSING = {'text_version', 'noise_key_digest'}
# What a report is made from, so that nothing in it contradicts: only the run's directory shows it.
_TAKEN = {
    *(f'about.{name}' for name in ('begun', 'version', 'task', 'model', 'parameters')),
    *(f'clip_course.norms.{i}.{j}' for i in range(2) for j in range(2)),
    'clip_course.estimate',
    'history.0',
    'remarks.0',
    'observed.largest_cohort',
    'observed.patterns.sensitivity_is_exact',
    'sampling_is_seeded',  # Of a plan without sampling.
    'membership.bayes_risk',  # A smaller one promises less.
    'plan.participation.max_participations',  # More than the other limits allow.
}


def _with_all_parts() -> dict:
    plan = accounting.PrivacyPlan.from_dict(_report()['plan'], mechanisms.BinaryTree(6))
    report = PrivacyReport.from_plan(
        plan,
        [1e-6, 1e-9],
        ParticipationLog([[0, 1], [2, 3], [0, 1], [2, 4]]),
        'analytic_gaussian',
        also_not_covered=('The vocabulary.',),
        history=('It was extended.',),
        remarks=('A remark.',),
        clip_course=ClipCourse(((0, 0.5), (2, 0.25)), 0.2),
        about=About('2026-11-23', '0.1', 'a task', 'a model', 3),
        noise_key_digest='a' * 64,
    )
    return json.loads(report.with_tradeoff().to_json())


def _leaves(values, path=()):
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in items:
        if isinstance(value, (dict, list)) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def _changed(value):
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, str):
        return value[:-1] + ('y' if value.endswith('x') else 'x')
    if isinstance(value, (dict, list)):
        return [7]
    return value + 1 if isinstance(value, int) else 0.97 * value


def _outcome(values) -> str:
    try:
        PrivacyReport.from_json(json.dumps(values))
    except ValueError as error:
        return str(error)
    return ''


def test_every_key_of_a_report_is_compared():
    whole = _with_all_parts()
    assert _outcome(whole) == ''
    accepted = set()
    for path in _leaves(whole):
        values = copy.deepcopy(whole)
        part = functools.reduce(lambda part, key: part[key], path[:-1], values)
        part[path[-1]] = _changed(part[path[-1]])
        if not _outcome(values):
            accepted.add('.'.join(map(str, path)))
    assert accepted == _TAKEN
    for name in whole.keys() - {path.partition('.')[0] for path in _TAKEN} - _MAY_BE_MISSING:
        assert _outcome({key: value for key, value in whole.items() if key != name}), name
    for part in ((), ('plan_guarantee',), ('observed',), ('membership',)):
        values = copy.deepcopy(whole)
        functools.reduce(dict.get, part, values)['new'] = 1
        assert 'new' in _outcome(values), part


def test_a_report_may_promise_less():
    """A larger epsilon, with the words that fit: from a version with a looser accountant."""
    values = _report()
    computed, larger = values['epsilon'], 1.5 * values['epsilon']
    values['plan_guarantee']['epsilons'], values['epsilon'] = [larger], larger
    values['plan_guarantee']['accountants'] = ['pld']
    was, now = (accounting.round_up(each) for each in (computed, larger))
    values['statement'] = values['statement'].replace(was, now)
    report = PrivacyReport.from_json(json.dumps(values))
    assert report.guarantee.epsilons == (computed,)
    for key, change in (
        ('statement', lambda text: text.replace(now, '0.01')),
        ('epsilon', lambda epsilon: 0.9 * computed),
        ('rho', lambda rho: 1.5 * rho),
    ):
        message = refused(
            lambda key=key, change=change: PrivacyReport.from_json(
                json.dumps(values | {key: change(values[key])})
            )
        )
        assert key in message
    values = _report()
    values['plan_guarantee']['accountants'] = ['pld']
    assert 'accountants' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


def test_the_words_of_an_older_version_are_not_believed():
    whole = _report(log=ParticipationLog([[0, 1], [2, 3], [0, 1]] * 2))
    older = whole | {'statement': 'Perfect privacy.', 'assumptions': [], 'not_covered': []}
    del older['text_version'], older['noise_key_digest'], older['plan_guarantee']['accountants']
    report = PrivacyReport.from_json(json.dumps(older))
    assert report.to_dict()['statement'] == whole['statement']
    for change in ({'epsilon': 0.01}, {'later': 1}, {'text_version': 1000}, {'text_version': '1'}):
        (name,) = change
        assert name in refused(
            lambda change=change: PrivacyReport.from_json(json.dumps(older | change))
        )


def test_a_report_whose_limits_break_the_plan_says_so():
    values = _report(log=ParticipationLog([[0, 1]] * 6))
    assert PrivacyReport.from_json(json.dumps(values)).basis == 'log'
    values['observed']['violations'] = []
    assert 'must say how' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


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
