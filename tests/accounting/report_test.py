import dataclasses
import functools
import json
import math

import dp_accounting
import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, errors, mechanisms
from dpfl.accounting import running, tradeoff
from dpfl.accounting.reports import checklist, noise_keys, observed
from dpfl.accounting.reports.report import SCHEMA_VERSION
from dpfl.accounting.selection import Selection
from tests import json_schema, paths
from tests.accounting import report_schema


def _plan(**changes):
    fields = dict(
        mechanism=mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3]),
        participation=Participation(6, 2, 3),
        clip_norm=0.5,
        noise_multiplier=4.0,
        clients_per_round=2,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


_KEPT = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 2], [1, 3], [4, 6]])


def test_json_has_the_promised_keys_and_the_numbers_of_the_plan():
    plan = _plan()
    values = json.loads(accounting.PrivacyReport.from_plan(plan, [1e-6, 1e-10]).to_json())
    assert {
        'mechanism',
        'rounds',
        'min_separation',
        'max_participations',
        'noise_multiplier',
        'sensitivity',
        'sensitivity_is_exact',
        'rho',
        'mu',
        'delta',
        'epsilon',
        'accountant',
        'adjacency',
        'assumptions',
        'not_covered',
    } <= set(values)
    assert values['mechanism'] == 'blt'
    assert (values['rounds'], values['min_separation'], values['max_participations']) == (6, 2, 3)
    assert values['sensitivity'] == plan.sensitivity
    assert values['rho'] == plan.rho
    assert (values['delta'], values['epsilon']) == (1e-6, plan.epsilon(1e-6))
    assert values['plan_guarantee']['epsilons'][1] == plan.epsilon(1e-10)
    assert values['observed'] is None and values['basis'] == 'plan'


@pytest.mark.parametrize('log', [None, ParticipationLog(), _KEPT, ParticipationLog([[0], [0]])])
@pytest.mark.parametrize('noise_multiplier', [0.0, 4.0])
@pytest.mark.parametrize('noise_is_seeded', [False, True])
def test_json_round_trip(log, noise_multiplier, noise_is_seeded):
    report = accounting.PrivacyReport.from_plan(
        _plan(noise_multiplier=noise_multiplier), [1e-6], log=log, noise_is_seeded=noise_is_seeded
    )
    assert accounting.PrivacyReport.from_json(report.to_json()) == report
    assert report.render()


def test_a_log_that_keeps_the_plan_leaves_its_numbers():
    plan = _plan()
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], log=_KEPT)
    assert report.basis == 'plan'
    assert report.guarantee == accounting.PrivacyReport.from_plan(plan, [1e-6]).guarantee
    observed = report.observed_guarantee
    assert (observed.min_separation, observed.max_participations) == (2, 2)
    assert observed.rho == plan.with_participation(Participation(6, 2, 2)).rho < plan.rho
    assert 'keeps the plan' in report.render()


@pytest.mark.parametrize(
    'cohorts, violation',
    [
        ([[0], [0], [1], [2], [3], [4]], 'two rounds 1 apart; the plan has at least 2'),
        ([[0], [1], [0], [1], [0], [1], [0]], 'The run had 7 rounds; the plan has 6'),
        ([[0], [1], [0], [1], [0], [1], [0]], 'took part in 4 rounds; the plan has at most 3'),
    ],
)
def test_a_log_that_breaks_the_plan_gets_the_numbers_of_what_happened(cohorts, violation):
    plan, log = _plan(), ParticipationLog(cohorts)
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], log=log)
    assert report.basis == 'log'
    assert any(violation in sentence for sentence in report.observed.violations)
    assert report.to_dict()['rho'] == plan.with_participation(log.observed()).rho
    assert report.to_dict()['min_separation'] == log.observed().min_separation
    assert '**breaks the plan**' in report.render()


def test_a_client_counted_twice_in_a_round_still_gets_a_report():
    plan = _plan(
        mechanism=mechanisms.Blt(3, [0.9, 0.4], [0.2, 0.3]), participation=Participation(3, 2)
    )
    log = ParticipationLog([[0, 0, 1], [2, 3], [1, 4]])
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], log=log)
    assert 'A client was counted 2 times in one round.' in report.observed.violations
    once = plan.with_participation(log.observed())
    assert report.guarantee.mu == pytest.approx(2 * once.mu)
    assert report.guarantee.epsilons[0] == pytest.approx(
        accounting.epsilon_from_mu(2 * once.mu, 1e-6), rel=1e-9
    )
    # The client's update counts twice in round 0, and nowhere else; others took part twice.
    columns = plan.mechanism.strategy_matrix()
    worst = max(np.linalg.norm(2 * columns[:3, 0]), np.linalg.norm(columns[:3, [0, 2]].sum(axis=1)))
    assert report.pattern_guarantee.sensitivity == pytest.approx(worst)
    assert 'counted 2 times' in report.render()


@pytest.mark.parametrize('adjacency, shift', [('zero_out', 1), ('replace_one', 2)])
def test_observed_patterns_against_brute_force(adjacency, shift):
    plan = _plan(adjacency=adjacency)
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], log=_KEPT)
    columns = plan.mechanism.strategy_matrix()
    worst = max(
        np.linalg.norm(columns[:, [t for t in range(6) if client in _KEPT.cohort(t)]].sum(axis=1))
        for client in range(7)
    )
    patterns = report.pattern_guarantee
    assert patterns.sensitivity == pytest.approx(shift * worst)
    assert patterns.sensitivity_is_exact
    assert patterns.mu <= report.observed_guarantee.mu <= report.plan_guarantee.mu
    assert report.observed.clients == 7
    assert report.observed.clients_by_participations == ((1, 2), (2, 5))


def _sampled_report(cohorts, sampling='poisson', **changes):
    plan = _plan(
        mechanism=mechanisms.Identity(6),
        participation=Participation(6),
        sampling=sampling,
        population=10,
        **changes,
    )
    log = None if cohorts is None else ParticipationLog(cohorts)
    return accounting.PrivacyReport.from_plan(plan, [1e-6], log=log, accountant='rdp')


def test_a_sampled_run_states_its_sampling_and_no_zcdp():
    report = _sampled_report([[0, 1], [], [1, 2, 3], [1], [4, 5], [6]])
    assert report.basis == 'plan' and report.to_dict()['rho'] is None
    text = ' '.join(report.to_dict()['assumptions'])
    assert 'probability 2/10, independently' in text and 'Who took part is secret' in text
    assert 'zCDP' not in report.to_dict()['statement']
    assert not any('Amplification' in item for item in report.to_dict()['not_covered'])
    assert report.to_dict()['epsilon'] == report.plan.epsilon(1e-6, 'rdp')
    # With the log known the client of three rounds is the worst: no amplification.
    assert report.pattern_guarantee.mu == pytest.approx(math.sqrt(3) / 4)
    assert report.dp_event() == report.plan.dp_event()


@pytest.mark.parametrize(
    'cohorts, sampling, violation',
    [
        ([[0, 0], [1]], 'poisson', 'counted 2 times'),
        ([[0, 1], [2]], 'without_replacement', 'A cohort had 1 clients; the plan samples 2'),
        ([list(range(11))], 'poisson', '11 clients took part; the population is 10'),
        ([[0], [1]] * 4, 'poisson', 'The run had 8 rounds; the plan has 6'),
    ],
)
def test_a_log_that_no_sampling_made_loses_the_amplification(cohorts, sampling, violation):
    _loses_the_amplification(_sampled_report(cohorts, sampling), violation)


def _loses_the_amplification(report, violation=''):
    plain = report.plan.without_sampling(report.accounted_plan.participation)
    mu = report.observed.max_per_round * plain.mu
    assert report.basis == 'log' and any(violation in each for each in report.observed.violations)
    assert report.guarantee.mu == pytest.approx(mu)
    assert report.guarantee.epsilons[0] >= report.plan_guarantee.epsilons[0]
    event = report.dp_event()
    assert isinstance(event, dp_accounting.GaussianDpEvent)
    assert event.noise_multiplier == pytest.approx(1 / mu)
    rate, power = report.tradeoff_at([0.01]).points[0]
    assert power == pytest.approx(tradeoff.of_mu(mu, [rate]).points[0][1])
    text = ' '.join([*report.to_dict()['assumptions'], *report.to_dict()['not_covered']])
    assert 'Amplification by sampling: none' in text and 'Nothing is amplified' in text
    # The file cannot keep the amplified numbers beside its violations.
    values = json.loads(report.to_json())
    assert accounting.PrivacyReport.from_json(json.dumps(values)) == report
    amplified = values['plan_guarantee']
    values['observed']['guarantee'] |= {
        name: amplified[name] for name in ('rho', 'mu', 'epsilons', 'accountants')
    }
    try:
        assert accounting.PrivacyReport.from_json(json.dumps(values)) == report
    except ValueError as error:
        assert 'must be at least' in str(error)


def test_cohorts_that_come_back_too_early_take_the_amplification_of_b_min_sep():
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(30),
        participation=Participation(30, 5, 6),
        clip_norm=1.0,
        noise_multiplier=3.0,
        clients_per_round=50,
        sampling='b_min_sep',
        groups=5,
        population=1000,
    )
    log = ParticipationLog([range(50)] * 30)
    report = accounting.PrivacyReport.from_plan(plan, [1e-5], log=log, accountant='best')
    _loses_the_amplification(report, 'two rounds 1 apart; the plan has at least 5')
    # Independent noise, the same clients in all 30 rounds.
    exact = accounting.epsilon_from_mu(math.sqrt(30) / 3, 1e-5)
    assert report.guarantee.epsilons[0] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize('stops_by_rule', [False, True])
def test_breaking_the_plan_does_not_lower_epsilon_after_an_early_end(stops_by_rule):
    plan = _plan(participation=Participation(6, 2, 1))
    logs = [ParticipationLog([[0, 1], [2, 3], last]) for last in ([4, 5], [0, 4])]
    kept, broken = (
        accounting.PrivacyReport.from_plan(plan, [1e-6], log, stops_by_rule=stops_by_rule)
        for log in logs
    )
    assert (kept.basis, broken.basis) == ('plan', 'log')
    wider = dataclasses.replace(plan, participation=Participation(6, 2, 2))
    assert broken.guarantee == accounting.PrivacyReport.from_plan(wider, [1e-6]).guarantee
    assert broken.guarantee.epsilons[0] > kept.guarantee.epsilons[0]
    assert '2 of 6 planned rounds' in ' '.join(broken.to_dict()['assumptions'])
    if stops_by_rule:
        assert broken.so_far is None and 'did not depend' not in broken.to_dict()['statement']
    else:
        assert kept.so_far[0] < broken.so_far[0] < broken.guarantee.epsilons[0]
        assert 'did not depend on the data. In any case' in broken.to_dict()['statement']
    assert accounting.PrivacyReport.from_json(broken.to_json()) == broken


def test_no_number_of_a_report_can_be_set():
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=_KEPT).with_tradeoff()
    for name in ('plan_guarantee', 'guarantee', 'so_far', 'tradeoff', 'selected'):
        with pytest.raises(TypeError, match=name):
            dataclasses.replace(report, **{name: getattr(report, name)})


def test_a_convention_that_clipping_does_not_ensure_is_spelled_out():
    strict, lenient = (
        _sampled_report(None, 'without_replacement', adjacency=adjacency)
        for adjacency in ('replace_one', 'replace_one_half_shift')
    )
    assert strict.guarantee.sensitivity == 2 and lenient.guarantee.sensitivity == 1
    assert 'ONE IS COUNTED' in lenient.render() and 'ONE IS COUNTED' not in strict.render()
    assert 'two clip norms, as counted here' in strict.render()


def test_composition_of_reports_adds_squared_mu():
    first = accounting.PrivacyReport.from_plan(_plan(), [1e-6])
    broken = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=ParticipationLog([[0], [0]]))
    event = dp_accounting.ComposedDpEvent([first.dp_event(), broken.dp_event()])
    mu = math.hypot(first.guarantee.mu, broken.guarantee.mu)
    assert accounting.epsilon_of_event(event, 1e-6) == pytest.approx(
        accounting.epsilon_from_mu(mu, 1e-6), rel=1e-9
    )


@pytest.mark.parametrize(
    'report',
    [
        accounting.PrivacyReport.from_plan(_plan(), [1e-6, 1e-10], log=_KEPT),
        accounting.PrivacyReport.from_plan(_plan(noise_multiplier=0.0), [1e-6]),
        accounting.PrivacyReport.from_plan(
            _plan(mechanism=mechanisms.BinaryTree(6)), [1e-6], log=ParticipationLog([[0], [0]])
        ),
        _sampled_report([[0], [1]]),
        accounting.PrivacyReport.from_plan(
            _plan(), [1e-6], accountant='best', train_metrics_released=True
        ),
    ],
)
def test_json_follows_its_schema(report):
    values = json.loads(report.to_json())
    json_schema.require_report(values)
    assert set(values) - {'epsilons_so_far'} == set(json_schema.of_reports()['required'])


@pytest.mark.parametrize(
    'path, value, message',
    [
        (('epsilon',), 'low', 'epsilon'),
        (('rounds',), True, 'rounds'),
        (('rounds',), 0, 'rounds'),
        (('schema_version',), 3, 'schema_version'),
        (('sampling',), 'some', 'sampling'),
        (('new',), 1, "{'new'} not in the schema"),
        (('plan', 'new'), 1, 'plan: .*not in the schema'),
        (('plan_guarantee', 'epsilons'), ['low'], r'epsilons\[0\]'),
        (('plan', 'estimator', 'kind'), 'mean', 'estimator.kind'),
    ],
)
def test_what_breaks_the_schema_is_noticed(path, value, message):
    values = json.loads(accounting.PrivacyReport.from_plan(_plan(), [1e-6]).to_json())
    part = functools.reduce(dict.__getitem__, path[:-1], values)
    part[path[-1]] = value
    with pytest.raises(AssertionError, match=message):
        json_schema.require_report(values)
    del part[path[-1]]
    if path[-1] != 'new':
        with pytest.raises(AssertionError, match='missing'):
            json_schema.require_report(values)


def test_json_of_a_report_with_all_parts_follows_its_schema():
    plan = dataclasses.replace(_plan(), group_size=2)
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], with_tradeoff=True)
    values = json.loads(report.selected_from(Selection(0.5, 9.0)).to_json())
    json_schema.require_report(values)
    parts = {'group_size', 'tradeoff', 'membership', 'selection'}
    assert set(values) == {*json_schema.of_reports()['required'], *parts}


def test_the_schema_has_the_version_and_the_names_of_the_code():
    schema = json_schema.of_reports()
    properties, guarantee = schema['properties'], schema['$defs']['guarantee']
    version = properties['schema_version']['const']
    assert (schema['$id'], version) == (f'urn:dpfl:privacy_report:{version}', SCHEMA_VERSION)
    for part in (schema, properties['plan']):
        assert set(part['properties']['sampling']['enum']) == set(accounting.SAMPLINGS)
        assert set(part['properties']['adjacency']['enum']) == set(accounting.ADJACENCIES)
    assert set(properties['accountant']['enum']) == set(accounting.ACCOUNTANTS)
    fields = {field.name for field in dataclasses.fields(observed.Guarantee)}
    assert set(guarantee['properties']) == set(guarantee['required']) == fields
    planned = {field.name for field in dataclasses.fields(accounting.PrivacyPlan)}
    assert set(properties['plan']['properties']) == planned - {'mechanism'} | {'mechanism_digest'}


def test_the_tables_of_the_page_are_those_of_the_schema():
    page = (paths.ROOT / 'docs' / 'reference' / 'report_schema.md').read_text()
    # After a change: `python -m tests.accounting.report_schema` prints them.
    assert report_schema.tables() in page


def test_a_run_that_stopped_early_keeps_the_plan():
    log = ParticipationLog([[0, 1], [2, 3], [0, 4]])
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=log)
    assert report.basis == 'plan'
    assert report.observed.rounds == 3


def test_an_early_end_is_stated_with_the_rounds_that_happened_and_those_planned():
    log = ParticipationLog([[0, 1], [2, 3], [0, 4]])
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=log)
    ended = 'which ended after 3 of 6 planned rounds, satisfies'
    # The headline is epsilon of what was done, as in metrics.csv; the plan's is the upper bound.
    so_far = running.RunningEpsilon(_plan(), 1e-6, report.accountant).after(3)
    assert report.so_far == (so_far,) and so_far < report.guarantee.epsilons[0]
    first, _, second = report.to_dict()['statement'].partition('In any case')
    assert f'({accounting.round_up(so_far)}, 1e-06)-DP' in first and 'did not depend' in first
    assert f'({accounting.round_up(report.guarantee.epsilons[0])}, 1e-06)-DP' in second
    again = accounting.PrivacyReport.from_json(report.to_json())
    assert again == report
    smaller = report.to_dict() | {'epsilons_so_far': [so_far / 2]}
    with pytest.raises(ValueError, match='epsilons_so_far'):
        accounting.PrivacyReport.from_json(json.dumps(smaller))
    assert ended in report.to_dict()['statement']
    page = report.render()
    assert ended in page and 'The run ended after 3 of 6 planned rounds.' in page
    assert '3 rounds recorded (6 planned)' in page and 'The run had 6 rounds' not in page
    assert 'in at most 3 of 6 planned rounds' in page
    full = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=_KEPT).render()
    assert 'The run had 6 rounds.' in full and 'ended' not in full
    assert 'The plan has 6 rounds.' in accounting.PrivacyReport.from_plan(_plan(), [1e-6]).render()


def test_released_training_metrics_are_named_first_and_excepted_in_the_statement():
    silent, released = (
        accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=_KEPT, train_metrics_released=flag)
        for flag in (False, True)
    )
    values = released.to_dict()
    assert values['train_metrics_released'] and not silent.to_dict()['train_metrics_released']
    assert 'released with this run, without noise' in values['not_covered'][0]
    assert 'does not hold for the directory of the run as a whole' in values['not_covered'][0]
    assert 'except for the metrics of the training clients' in values['statement']
    assert 'training clients' not in silent.render()
    assert accounting.PrivacyReport.from_json(released.to_json()) == released


def test_the_page_says_which_accountant_was_used():
    by = {
        name: accounting.PrivacyReport.from_plan(_plan(), [1e-20], accountant=name)
        for name in ('pld', 'best')
    }
    # The privacy loss distribution has no epsilon at such a delta.
    for name, words in (
        ('pld', 'accountant=pld gives no value'),
        ('best', 'the smallest epsilon of all'),
    ):
        assert by[name].guarantee.accountants == ('analytic_gaussian',)
        assert by[name].guarantee.epsilons[0] == by[name].plan.epsilon(1e-20, 'analytic_gaussian')
        assert f'theorem 8); {words}' in by[name].render()
        assert accounting.PrivacyReport.from_json(by[name].to_json()) == by[name]
    exact = accounting.PrivacyReport.from_plan(_plan(), [1e-20], accountant='analytic_gaussian')
    assert 'theorem 8).' in exact.render()


def test_no_noise_is_no_guarantee():
    report = accounting.PrivacyReport.from_plan(_plan(noise_multiplier=0.0), [1e-6])
    assert report.to_dict()['epsilon'] is None
    assert report.to_dict()['rho'] is None
    assert 'no privacy guarantee' in ' '.join(report.to_dict()['not_covered'])
    assert '**No differential privacy' in report.render()


def test_seeded_noise_is_called_a_simulation():
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], noise_is_seeded=True)
    assert 'simulation' in report.to_dict()['not_covered'][0]
    assert '**Simulation' in report.render()


def test_seeded_cohorts_are_a_simulation_where_the_guarantee_rests_on_them():
    sampled = dataclasses.replace(_sampled_report(None), sampling_is_seeded=True)
    assert 'Simulation: with secret cohorts' in sampled.to_dict()['statement']
    assert 'knows who took part' in sampled.to_dict()['not_covered'][0]
    plain = accounting.PrivacyReport.from_plan(_plan(), [1e-6], sampling_is_seeded=True)
    assert 'Simulation' not in plain.render()
    both = dataclasses.replace(sampled, noise_is_seeded=True)
    assert 'with secret noise and cohorts' in both.to_dict()['statement']


def test_the_page_says_when_the_sensitivity_is_a_bound():
    odd = mechanisms.Blt(6, [0.8, 0.3], [0.2, -0.9])
    exact, bound = (
        accounting.PrivacyReport.from_plan(plan, [1e-6]).render()
        for plan in (_plan(), _plan(mechanism=odd))
    )
    assert 'The sensitivity is exact' in exact
    assert 'proven upper bound' in bound


def test_the_page_follows_the_checklist_and_never_understates():
    plan = _plan()
    page = accounting.PrivacyReport.from_plan(plan, [1e-6]).render()
    for item in (
        'DP setting',
        'Data accesses covered',
        'Output of the mechanism',
        'Unit of privacy',
        'Adjacency',
        'Type',
        'Participation',
        'Formal statement',
        'Verifiability',
        'Not covered',
    ):
        assert item in page
    printed = float(page.split('-zCDP')[0].rsplit(' ', 1)[1])
    assert plan.rho <= printed <= plan.rho * 1.001


@pytest.mark.parametrize('value', [1e-9, 0.15337, 0.8061224489795918, 1.0, 8.89860501, 12345.6])
def test_printed_numbers_are_rounded_up(value):
    printed = float(checklist.round_up(value))
    assert value * (1 - 1e-11) <= printed <= value * 1.001


def test_bad_input_is_named():
    with pytest.raises(ValueError, match='deltas=.*: must hold at least one'):
        accounting.PrivacyReport.from_plan(_plan(), [])
    with pytest.raises(ValueError, match='delta=2.0'):
        accounting.PrivacyReport.from_plan(_plan(), [2])
    for text in ('', '{}', '{"schema_version": 99}', '[1]'):
        with pytest.raises(ValueError, match='not a privacy report'):
            accounting.PrivacyReport.from_json(text)
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6])
    assert math.isfinite(report.plan_guarantee.rho)
    assert dataclasses.is_dataclass(report)


_KEYS = [letter * 64 for letter in 'abcd']


@pytest.mark.parametrize(
    'own, earlier, index',
    [
        (_KEYS[:3], ((), (), ()), None),
        ((None, None, _KEYS[0]), ((), (), ()), None),
        ((*_KEYS[:2], _KEYS[0]), ((), (), ()), 2),
        # A run, and a fork of it or of a copy of it.
        (_KEYS[:2], ((), (f'{_KEYS[0]}:{_KEYS[3]}',)), 1),
        # Two forks of the same rounds, of other ones, and of ones that are not known.
        (_KEYS[:2], [(f'{_KEYS[2]}:{_KEYS[3]}',)] * 2, None),
        (_KEYS[:2], ((f'{_KEYS[2]}:{_KEYS[3]}',), (f'{_KEYS[2]}:{_KEYS[0]}',)), 1),
        (_KEYS[:2], [(_KEYS[2],)] * 2, 1),
    ],
)
def test_runs_with_the_same_noise_are_not_composed(own, earlier, index):
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6])
    reports = [
        dataclasses.replace(report, noise_key_digest=key, earlier_noise_key_digests=keys)
        for key, keys in zip(own, earlier, strict=True)
    ]
    for each in reports:
        assert accounting.PrivacyReport.from_json(each.to_json()) == each
    found = noise_keys.obstacle(reports)
    assert (None if found is None else found[0]) == index


@pytest.mark.parametrize(
    'own, earlier',
    [
        (_KEYS[0], (_KEYS[0],)),
        (_KEYS[0], (f'{_KEYS[1]}:{_KEYS[3]}', f'{_KEYS[0]}:{_KEYS[3]}')),
        (_KEYS[0], (_KEYS[1], _KEYS[1])),
        (None, (f'{_KEYS[1]}:{_KEYS[3]}', f'{_KEYS[1]}:{_KEYS[2]}')),
    ],
)
def test_a_run_has_other_noise_than_the_runs_that_it_continues(own, earlier):
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6])
    keys = dict(noise_key_digest=own, earlier_noise_key_digests=earlier)
    with pytest.raises(errors.ArgumentError, match='noise_key_digest'):
        dataclasses.replace(report, **keys)
    values = report.to_dict() | keys
    with pytest.raises(ValueError, match='noise_key_digest'):
        accounting.PrivacyReport.from_json(json.dumps(values))
