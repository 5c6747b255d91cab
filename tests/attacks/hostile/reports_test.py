"""Hostile privacy reports: none promises more than its plan gives."""

import functools
import json
import math

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.clipping import ClipCourse
from dpfl.accounting.reports import report as report_lib
from dpfl.accounting.reports.inputs import About, Extension
from dpfl.accounting.reports.report import PrivacyReport
from tests import json_values
from tests.accounting import plans
from tests.attacks.hostile.refusals import refused

_AGAIN = [[0, 1, 2]] * 4 + [[0, 1, 2, 2]]
_KEPT = [[0, 1], [2, 3], [0, 1]] * 2
_BROKEN = [[0, 1]] * 6


def _read(values) -> PrivacyReport:
    return PrivacyReport.from_json(json.dumps(values))


def _refusal(values) -> str:
    """Why a report is refused, in one printable line."""
    return refused(lambda: _read(values))


@functools.cache
def _text(make) -> str:
    return make().to_json()


def _plan(mechanism=None, noise=3.0) -> accounting.PrivacyPlan:
    fields = dict(clip_norm=1.0, noise_multiplier=noise, clients_per_round=3)
    return plans.plan(mechanism=mechanism or mechanisms.BinaryTree(6), **fields)


def _of_a_log(cohorts=None, **changes):
    return plans.report(_plan(**changes), [1e-6], cohorts, 'analytic_gaussian')


def _with_all_parts():
    log = ParticipationLog([[0, 1], [2, 3], [0, 1], [2, 4]])
    return plans.report(
        _plan(),
        [1e-6, 1e-9],
        log,
        'analytic_gaussian',
        also_not_covered=('The vocabulary.',),
        extensions=(Extension(2, 3, 5), Extension(4, 5, 6)),
        remarks=('A remark.',),
        clip_course=ClipCourse(((0, 0.5), (2, 0.25)), 0.2),
        about=About('2026-11-23', '0.1', 'a task', 'a model', 3),
        noise_key_digest='a' * 64,
    ).with_tradeoff()


def _of_a_sample(kind='poisson', cohorts=_AGAIN, **fields):
    plan = plans.sampled(kind, **fields)
    return plans.report(plan, [1e-3], cohorts, 'rdp', stop_at_accuracy=0.25)


_REPORTS = {
    'plan': _of_a_log,
    'kept': functools.partial(_of_a_log, _KEPT),
    'broken': functools.partial(_of_a_log, _BROKEN),
    'whole': _with_all_parts,
    'refuted': _of_a_sample,
}


def _values(name: str) -> dict:
    return json.loads(_text(_REPORTS[name]))


def _leaves(values, path=''):
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        if isinstance(value, (dict, list)) and value:
            yield from _leaves(value, f'{path}{key}.')
        else:
            yield f'{path}{key}', value


def _other(value):
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, str):
        return value[:-1] + ('y' if value.endswith('x') else 'x')
    if isinstance(value, (dict, list)):
        return [7]
    return value + 1 if isinstance(value, int) else 0.97 * value


def _is_accepted(name: str, path: str, value) -> bool:
    try:
        _read(json_values.changed(_values(name), path, value))
    except ValueError:
        return False
    return True


# What a report is made from, so that nothing in it contradicts: only the run's directory shows it.
_TAKEN = {
    'whole': {
        *(f'about.{name}' for name in ('begun', 'version', 'task', 'model', 'parameters')),
        *(f'clip_course.norms.{i}.{j}' for i in range(2) for j in range(2)),
        'clip_course.estimate',
        'remarks.0',
        'observed.largest_cohort',
        'observed.patterns.sensitivity_is_exact',
        'sampling_is_seeded',  # Of a plan without sampling.
        'membership.bayes_risk',  # A smaller one promises less.
        'plan.participation.max_participations',  # More than the other limits allow.
    },
    'refuted': {
        'sampling_is_seeded',  # The log refutes the sampling.
        'observed.largest_cohort',
        'observed.clients_by_participations.0.0',
        'observed.clients_by_participations.1.0',
        'observed.patterns.sensitivity_is_exact',
        'observed.refutations.2.p_value',  # Its two digits in the sentence are the same.
    },
}
# Without them it is a report of an older version, or of a plan.
_MAY_BE_MISSING = {'text_version', 'noise_key_digest'}


@pytest.mark.parametrize('name', _TAKEN)
def test_every_value_of_a_report_is_compared(name):
    whole = _values(name)
    _read(whole)
    taken = {path for path, value in _leaves(whole) if _is_accepted(name, path, _other(value))}
    assert taken == _TAKEN[name]


def test_every_key_of_a_report_is_needed_and_no_other_is_known():
    whole, refuted = _values('whole'), _values('refuted')
    parts = {path.partition('.')[0] for path in _TAKEN['whole']}
    for key in whole.keys() - parts - _MAY_BE_MISSING:
        assert not _is_accepted('whole', key, ...), key
    observed = [f'observed.{name}' for name in ('refutations', 'violations', 'max_per_round')]
    assert len(refuted['observed']['refutations']) > 1 and refuted['basis'] == 'log'
    for path in (*observed, 'history', 'stops_by_rule', 'stop_at_accuracy'):
        assert not _is_accepted('refuted', path, ...), path
    for path in ('new', 'plan_guarantee.new', 'observed.new', 'membership.new'):
        assert 'new' in _refusal(json_values.changed(_values('whole'), path, 1))


def _extension(released, planned, rounds) -> dict:
    return {'released': released, 'planned': planned, 'rounds': rounds}


_TESTS = 'observed.refutations'
_COUNTS = 'must agree with the other counts'
_OTHER_TYPE = 'not a privacy report'
_VIOLATIONS = 'observed.violations: must have'


@pytest.mark.parametrize(
    'name, path, value, said',
    [
        ('broken', 'observed.violations', [], 'observed.violations'),
        # Refutations that no test gives.
        ('refuted', f'{_TESTS}.0.test', 'none', 'test=none: must be one of'),
        ('refuted', f'{_TESTS}.0.test', ['total'], 'test='),
        ('refuted', f'{_TESTS}.0', 'total', 'refutations='),
        ('refuted', f'{_TESTS}.0.p_value', 1e-3, 'p_value=0.001: must be'),
        ('refuted', f'{_TESTS}.0.p_value', None, 'p_value='),
        ('refuted', f'{_TESTS}.0.p_value', -1.0, 'p_value='),
        ('refuted', f'{_TESTS}.0.numbers', [1] * 9, 'numbers='),
        ('refuted', f'{_TESTS}.0.numbers', None, 'numbers='),
        ('refuted', f'{_TESTS}.0.numbers.0', 0.5, 'numbers='),
        ('refuted', f'{_TESTS}.0.numbers.0', 'many', 'numbers='),
        ('refuted', f'{_TESTS}.0.words', 'The log keeps the plan.', 'words'),
        ('refuted', _TESTS, [], _VIOLATIONS),
        # Extensions that do not lead to the plan.
        *(
            ('whole', 'extensions', [_extension(*step) for step in steps], said)
            for said, steps in (
                ('extensions=', [(2, 3, 5), (4, 4, 6)]),
                ('extensions=', [(2, 3, 5), (1, 5, 6)]),
                ('extensions=', [(2, 3, 5)]),
                ('extensions=', [(6, 6, 7)]),
                ('rounds=', [(6, 5, 6)]),
                ('rounds=', [(2, 6, 6)]),
                ('released=', [(-1, 5, 6)]),
                ('released=', [(True, 5, 6)]),
            )
        ),
        # Counts of a log that contradict each other.
        ('kept', 'observed.clients_by_participations', [[30, 4]], _COUNTS),
        ('kept', 'observed.clients_by_participations', [[3, 5]], _COUNTS),
        ('kept', 'observed.clients_by_participations', [[1, 4]], _COUNTS),
        ('kept', 'observed.clients', 10**9, _COUNTS),
        ('kept', 'observed.smallest_cohort', 3, _COUNTS),
        ('kept', 'observed.largest_cohort', 1, _COUNTS),
        ('kept', 'observed.patterns.sensitivity', 0.0, _COUNTS),
        # Values of other types.
        *(('plan', 'deltas', deltas, _OTHER_TYPE) for deltas in ([], ['1e-6'], [2.0])),
        *(('plan', 'noise_is_seeded', value, _OTHER_TYPE) for value in ('false', 0)),
        ('plan', 'also_not_covered', 'text', _OTHER_TYPE),
        ('plan', 'accountant', ['pld'], _OTHER_TYPE),
        ('plan', 'plan_guarantee', {}, _OTHER_TYPE),
        ('plan', 'observed', [], _OTHER_TYPE),
        ('plan', 'plan', [1], _OTHER_TYPE),
        ('plan', 'mechanism_parameters', 5, _OTHER_TYPE),
        ('whole', 'clip_course', None, _OTHER_TYPE),
        ('whole', 'clip_course.estimate', ..., _OTHER_TYPE),
        ('whole', 'clip_course.estimate', 0.0, _OTHER_TYPE),
        *(
            ('whole', 'clip_course.norms', norms, _OTHER_TYPE)
            for norms in ([[0, -1.0]], [[1, 1.0], [1, 2.0]], [[0.5, 1.0]], [[0]])
        ),
        # Accountants that there are not, or that give another epsilon.
        *(
            ('plan', 'plan_guarantee.accountants', names, 'plan_guarantee.accountants')
            for names in (['magic'], ['best'], ['rdp', 'rdp'], 'rdp', [3], ['a\nb'], ['pld'])
        ),
    ],
)
def test_a_value_that_no_report_has_is_refused(name, path, value, said):
    assert said in _refusal(json_values.changed(_values(name), path, value))


def test_a_report_may_promise_less():
    """A larger epsilon, with the words that fit: from a version with a looser accountant."""
    values = _values('plan')
    computed, larger = values['epsilon'], 1.5 * values['epsilon']
    values['plan_guarantee'] |= {'epsilons': [larger], 'accountants': ['pld']}
    was, now = (accounting.round_up(each) for each in (computed, larger))
    values |= {'epsilon': larger, 'statement': values['statement'].replace(was, now)}
    assert _read(values).guarantee.epsilons == (computed,)
    understated = values['statement'].replace(now, '0.01')
    for change in (
        {'statement': understated},
        {'epsilon': 0.9 * computed},
        {'rho': 1.5 * values['rho']},
    ):
        assert next(iter(change)) in _refusal(values | change)


def test_the_words_of_an_older_version_are_not_believed():
    whole = _values('kept')
    older = whole | {'statement': 'Perfect privacy.', 'assumptions': [], 'not_covered': []}
    del older['text_version'], older['noise_key_digest'], older['plan_guarantee']['accountants']
    assert _read(older).to_dict()['statement'] == whole['statement']
    for change in ({'epsilon': 0.01}, {'later': 1}, {'text_version': 1000}, {'text_version': '1'}):
        assert next(iter(change)) in _refusal(older | change)


@pytest.mark.parametrize('version', [1, 7, report_lib.TEXT_VERSION])
def test_sentences_of_an_earlier_version_without_their_data_are_refused(version):
    values = _values('refuted') | {'text_version': version}
    del values['observed']['refutations']
    message = _refusal(values)
    assert _VIOLATIONS in message and 'earlier version' in message
    values = _values('refuted') | {'text_version': version}
    del values['stop_at_accuracy'], values['stops_by_rule']
    assert 'history: must have 0' in _refusal(values)


def test_violations_in_the_words_of_an_earlier_version_are_computed_anew():
    values = _values('refuted')
    report = _read(values)
    values['observed']['violations'] = ['In other words.'] * len(report.observed.violations)
    assert 'observed.violations' in _refusal(values)
    assert _read(values | {'text_version': 1}) == report


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
    values = _of_a_sample(kind, cohorts, **fields).to_dict()
    assert _read(values).basis == 'log'
    values['observed'] |= {'refutations': [], 'violations': []}
    assert 'must say how' in _refusal(values)


def test_refutations_need_the_sampling_and_the_counts_and_are_there_once():
    (too_many,) = _of_a_sample(cohorts=[range(61)]).to_dict()['observed']['refutations']
    first = _values('refuted')['observed']['refutations'][0]
    for name, more, said in (
        ('refuted', too_many, 'must say how'),
        ('broken', too_many, 'without sampling'),
        ('refuted', first, 'test='),
    ):
        values = _values(name)
        values['observed'].setdefault('refutations', []).append(more)
        assert said in _refusal(values)


def test_no_more_rounds_were_released_than_the_log_has():
    log = ParticipationLog([[0, 1], [2, 3]])
    # The last of three rounds had begun, and its cohort was not written.
    made = PrivacyReport.from_plan(_plan(), [1e-6], log, extensions=[Extension(3, 4, 6)])
    assert 'extended to 6 when 3 had' in made.history[0]
    with pytest.raises(ValueError, match=r'extensions=\[\(4, 4, 6\)\]: must .* than the log has'):
        PrivacyReport.from_plan(_plan(), [1e-6], log, extensions=[Extension(4, 4, 6)])


def test_a_report_of_a_strategy_that_is_not_monotone_can_be_written():
    report = _of_a_log(mechanism=mechanisms.BandedToeplitz(6, [1.0, -0.5, 0.7]))
    assert report.guarantee.sensitivity > 0


@pytest.mark.parametrize('noise', [1e-30, 1e30])
def test_the_least_and_the_most_noise_have_a_guarantee(noise):
    report = PrivacyReport.from_json(_of_a_log(noise=noise).to_json())
    assert all(math.isfinite(epsilon) for epsilon in report.guarantee.epsilons)
    assert 'none' not in report.to_dict()['statement'] and report.render()
