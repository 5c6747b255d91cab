"""Hostile privacy reports: none promises more than its plan gives."""

import copy
import functools
import json
import math
import re

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.clipping import ClipCourse
from dpfl.accounting.reports import report as report_lib
from dpfl.accounting.reports.inputs import About, Extension
from dpfl.accounting.reports.report import PrivacyReport
from tests.accounting import plans
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
        extensions=(Extension(2, 3, 5), Extension(4, 5, 6)),
        remarks=('A remark.',),
        clip_course=ClipCourse(((0, 0.5), (2, 0.25)), 0.2),
        about=About('2026-11-23', '0.1', 'a task', 'a model', 3),
        noise_key_digest='a' * 64,
    )
    return json.loads(report.with_tradeoff().to_json())


_AGAIN = [[0, 1, 2]] * 4 + [[0, 1, 2, 2]]


def _refuted(kind: str = 'poisson', cohorts=_AGAIN, **fields) -> dict:
    report = plans.report(
        plans.sampled(kind, **fields),
        [1e-3],
        cohorts,
        'rdp',
        stop_at_accuracy=0.25,
    )
    return json.loads(report.to_json())


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


def _accepted(whole) -> set[str]:
    """The leaves of a report of which another value is accepted."""
    assert _outcome(whole) == ''
    accepted = set()
    for path in _leaves(whole):
        values = copy.deepcopy(whole)
        part = functools.reduce(lambda part, key: part[key], path[:-1], values)
        part[path[-1]] = _changed(part[path[-1]])
        if not _outcome(values):
            accepted.add('.'.join(map(str, path)))
    return accepted


def test_every_key_of_a_report_is_compared():
    whole = _with_all_parts()
    assert _accepted(whole) == _TAKEN
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
    assert 'observed.violations' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


def test_every_number_of_a_refuted_log_is_compared():
    whole = _refuted()
    refutations = whole['observed']['refutations']
    assert len(refutations) > 1 and whole['basis'] == 'log' and 'history' in whole
    assert _accepted(whole) == {
        'sampling_is_seeded',  # The log refutes the sampling.
        'observed.largest_cohort',
        'observed.clients_by_participations.0.0',
        'observed.clients_by_participations.1.0',
        'observed.patterns.sensitivity_is_exact',
        'observed.refutations.2.p_value',  # Its two digits in the sentence are the same.
    }
    for name in ('refutations', 'violations', 'max_per_round'):
        seen = {key: value for key, value in whole['observed'].items() if key != name}
        assert _outcome(whole | {'observed': seen}), name
    for name in ('history', 'stops_by_rule', 'stop_at_accuracy'):
        assert _outcome({key: value for key, value in whole.items() if key != name}), name


@pytest.mark.parametrize(
    'change, said',
    [
        (lambda tests: tests[0].update(test='none'), 'test=none: must be one of'),
        (lambda tests: tests[0].update(test=['total']), 'test='),
        (lambda tests: tests.append(tests[0]), 'test='),
        (lambda tests: tests.append('total'), 'refutations='),
        (lambda tests: tests[0].update(p_value=1e-3), 'p_value=0.001: must be .* <= 1.25e-07'),
        (lambda tests: tests[0].update(p_value=None), 'p_value='),
        (lambda tests: tests[0].update(p_value=-1.0), 'p_value='),
        (lambda tests: tests[0]['numbers'].append(1), 'numbers=.*: must be'),
        (lambda tests: tests[0].update(numbers=None), 'numbers='),
        (lambda tests: tests[0]['numbers'].__setitem__(0, 0.5), 'numbers='),
        (lambda tests: tests[0]['numbers'].__setitem__(-1, 'many'), 'numbers='),
        (lambda tests: tests[0].update(words='The log keeps the plan.'), 'words'),
        (lambda tests: tests.clear(), 'observed.violations: must have'),
    ],
)
def test_refutations_that_no_test_gives_are_refused(change, said):
    values = _refuted()
    change(values['observed']['refutations'])
    assert re.search(said, refused(lambda: PrivacyReport.from_json(json.dumps(values))))


@pytest.mark.parametrize(
    'kind, cohorts, fields',
    [
        ('poisson', [range(61)], {}),
        ('without_replacement', [[0, 1], [2]], {}),
        ('truncated_poisson', [range(6)], {}),
        ('cyclic_poisson', [[0], [0]], dict(participation=Participation(7))),
    ],
)
def test_refutations_that_the_counts_show_cannot_be_left_out(kind, cohorts, fields):
    values = _refuted(kind, cohorts, **fields)
    assert _outcome(values) == '' and values['basis'] == 'log'
    values['observed'] |= {'refutations': [], 'violations': []}
    assert 'must say how' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


def test_refutations_need_the_sampling_and_the_counts():
    (too_many,) = _refuted('poisson', [range(61)])['observed']['refutations']
    values = _refuted('poisson')
    values['observed']['refutations'].append(too_many)
    assert 'must say how' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    values = _report(log=ParticipationLog([[0, 1]] * 6))
    values['observed']['refutations'] = [too_many]
    assert 'without sampling' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


@pytest.mark.parametrize('version', [1, 7, report_lib.TEXT_VERSION])
def test_sentences_of_an_earlier_version_without_their_data_are_refused(version):
    values = _refuted() | {'text_version': version}
    del values['observed']['refutations']
    message = refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    assert 'observed.violations: must have' in message and 'earlier version' in message
    values = _refuted() | {'text_version': version}
    del values['stop_at_accuracy'], values['stops_by_rule']
    assert 'history: must have 0' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))


def test_violations_in_the_words_of_an_earlier_version_are_computed_anew():
    values = _refuted()
    report = PrivacyReport.from_json(json.dumps(values))
    values['observed']['violations'] = ['In other words.'] * len(report.observed.violations)
    assert 'observed.violations' in refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    assert PrivacyReport.from_json(json.dumps(values | {'text_version': 1})) == report


@pytest.mark.parametrize(
    'steps',
    [
        [(2, 3, 5), (4, 4, 6)],
        [(2, 3, 5), (1, 5, 6)],
        [(2, 3, 5)],
        [(6, 6, 7)],
        [(6, 5, 6)],
        [(2, 6, 6)],
        [(-1, 5, 6)],
        [(True, 5, 6)],
        [(6, 6, 6)],
    ],
)
def test_extensions_that_do_not_lead_to_the_plan_are_refused(steps):
    names = ('released', 'planned', 'rounds')
    values = _with_all_parts()
    values['extensions'] = [dict(zip(names, step, strict=True)) for step in steps]
    message = refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    assert any(f'{name}=' in message for name in (*names, 'extensions'))


def test_no_more_rounds_were_released_than_the_log_has():
    plan = accounting.PrivacyPlan.from_dict(_report()['plan'], mechanisms.BinaryTree(6))
    log = ParticipationLog([[0, 1], [2, 3]])
    # The last of three rounds had begun, and its cohort was not written.
    made = PrivacyReport.from_plan(plan, [1e-6], log, extensions=[Extension(3, 4, 6)])
    assert 'extended to 6 when 3 had' in made.history[0]
    with pytest.raises(ValueError, match=r'extensions=\[\(4, 4, 6\)\]: must .* than the log has'):
        PrivacyReport.from_plan(plan, [1e-6], log, extensions=[Extension(4, 4, 6)])


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
