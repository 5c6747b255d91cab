"""Privacy reports: their numbers, the log they are compared with, and what they must say."""

import dataclasses
import functools
import itertools
import json
import re

import jsonschema
import numpy as np
import pytest
from scipy import stats

from dpfl import Participation, ParticipationLog, accounting, errors, mechanisms
from dpfl.accounting import running
from dpfl.accounting.reports import inputs, observed
from dpfl.accounting.reports.report import SCHEMA_VERSION
from dpfl.accounting.sampling import kinds
from dpfl.mechanisms import rounding
from tests import json_schema
from tests.accounting import plans

_KEPT = plans.LOG
_STOPPED = [[0, 1], [2, 3], [0, 4]]
_BROKEN = [[0], [0], [1], [2], [3], [4]]
_SAMPLED = plans.sampled('poisson')
_SILENT = dict(noise_multiplier=0.0)


def test_json_has_the_numbers_of_the_plan():
    plan = plans.plan()
    values = json.loads(plans.report(plan, [1e-6, 1e-10]).to_json())
    assert values['mechanism'] == 'blt'
    assert (values['rounds'], values['min_separation'], values['max_participations']) == (6, 2, 3)
    assert (values['sensitivity'], values['rho']) == (plan.sensitivity, plan.rho)
    assert (values['delta'], values['epsilon']) == (1e-6, plan.epsilon(1e-6, 'best'))
    assert values['plan_guarantee']['epsilons'][1] == plan.epsilon(1e-10, 'best')
    assert values['observed'] is None and values['basis'] == 'plan'


def test_a_log_that_keeps_the_plan_leaves_its_numbers():
    plan = plans.plan()
    report = plans.report(plan, log=_KEPT)
    assert report.basis == 'plan'
    assert report.guarantee == plans.report(plan).guarantee
    observed = report.observed_guarantee
    assert (observed.min_separation, observed.max_participations) == (2, 2)
    assert observed.rho == plan.with_participation(Participation(6, 2, 2)).rho < plan.rho
    page = report.render()
    assert '7 clients took part (2 once, 5 twice), in 6 rounds of 2 clients.' in page
    assert 'The participation log keeps the plan: it has at most 6 rounds' in page
    assert report.to_dict()['statement'].startswith('The run satisfies ')
    alone = plans.report(plan)
    assert 'Nothing: this report is of a plan' in alone.render()
    assert alone.to_dict()['statement'].startswith('A run of this plan satisfies ')


@pytest.mark.parametrize(
    'cohorts, violation',
    [
        (_BROKEN, 'two rounds 1 apart; the plan has at least 2'),
        ([[0], [1], [0], [1], [0], [1], [0]], 'The run had 7 rounds; the plan has 6'),
        ([[0], [1], [0], [1], [0], [1], [0]], 'took part in 4 rounds; the plan has at most 3'),
    ],
)
def test_a_log_that_breaks_the_plan_gets_the_numbers_of_what_happened(cohorts, violation):
    plan, log = plans.plan(), ParticipationLog(cohorts)
    report = plans.report(plan, log=log)
    assert report.basis == 'log'
    assert any(violation in sentence for sentence in report.observed.violations)
    assert report.to_dict()['rho'] == plan.with_participation(log.observed()).rho
    assert report.to_dict()['min_separation'] == log.observed().min_separation
    assert '**breaks the plan**' in report.render()


def test_a_client_counted_twice_in_a_round_still_gets_a_report():
    plan = plans.plan(participation=Participation(3, 2))
    log = ParticipationLog([[0, 0, 1], [2, 3], [1, 4]])
    report = plans.report(plan, log=log)
    assert 'A client was counted 2 times in one round.' in report.observed.violations
    once = plan.with_participation(log.observed())
    assert report.guarantee.mu == pytest.approx(2 * once.mu)
    assert report.guarantee.epsilons[0] == pytest.approx(
        accounting.epsilon_from_mu(2 * once.mu, 1e-6, 'best'), rel=1e-9
    )
    # The client's update counts twice in round 0, and nowhere else; others took part twice.
    columns = plan.mechanism.strategy_matrix()[:3]
    worst = max(np.linalg.norm(2 * columns[:, 0]), np.linalg.norm(columns[:, [0, 2]].sum(axis=1)))
    assert report.pattern_guarantee.sensitivity == pytest.approx(worst)
    assert 'counted 2 times' in report.render()


@pytest.mark.parametrize('adjacency, shift', [('zero_out', 1), ('replace_one', 2)])
def test_observed_patterns_against_brute_force(adjacency, shift):
    plan = plans.plan(adjacency=adjacency)
    report = plans.report(plan, log=_KEPT)
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


@pytest.mark.parametrize('accuracy', [None, 0.9])
def test_breaking_the_plan_does_not_lower_epsilon_after_an_early_end(accuracy):
    plan = plans.plan(participation=Participation(6, 2, 1))
    kept, broken = (
        plans.report(plan, log=[[0, 1], [2, 3], last], stop_at_accuracy=accuracy)
        for last in ([4, 5], [0, 4])
    )
    assert (kept.basis, broken.basis) == ('plan', 'log')
    wider = dataclasses.replace(plan, participation=Participation(6, 2, 2))
    assert broken.guarantee == plans.report(wider).guarantee
    assert broken.guarantee.epsilons[0] > kept.guarantee.epsilons[0]
    assert '2 of 6 planned rounds' in ' '.join(broken.to_dict()['assumptions'])
    if accuracy is not None:
        assert broken.so_far is kept.so_far is None
        assert 'In any case' not in kept.to_dict()['statement'] + broken.to_dict()['statement']
    else:
        assert kept.so_far[0] < broken.so_far[0] < broken.guarantee.epsilons[0]
        assert 'did not depend on the data. In any case' in broken.to_dict()['statement']
    assert plans.read(broken) == broken


@pytest.mark.parametrize('most', [None, 2])
def test_limits_of_a_run_that_ended_early_admit_all_that_may_still_come(most):
    planned = Participation(8, 3, most)
    plan = plans.plan(mechanism=mechanisms.Identity(8), participation=planned)
    for seen in itertools.product((0, 1), repeat=4):
        log = ParticipationLog([[7] if is_there else [] for is_there in seen])
        holds = observed.observe(plan, log).holding(plan).participation
        before = [t for t in range(4) if seen[t]]
        for count in range(5):
            for later in itertools.combinations(range(4, 8), count):
                pattern = [*before, *later]
                apart = [later - earlier for earlier, later in itertools.pairwise(pattern)]
                # The rounds that are left keep the plan.
                is_planned = not count or len(pattern) <= planned.count if most else True
                if is_planned and all(gap >= 3 for gap in apart[max(0, len(before) - 1) :]):
                    assert holds.admits(pattern), (before, later)


def test_an_early_end_is_stated_with_the_rounds_that_happened_and_those_planned():
    about = accounting.About('2026-11-23', '0.1.0', 'user_text', 'small', 1_234_567)
    report = plans.report(plans.plan(), log=_STOPPED, about=about)
    assert (report.basis, report.observed.rounds) == ('plan', 3)
    # The headline is epsilon of what was done, as in metrics.csv; the plan's is the upper bound.
    so_far = running.RunningEpsilon(plans.plan(), 1e-6, 'best').after(3)
    assert report.so_far == (so_far,) and so_far < report.guarantee.epsilons[0]
    first, _, second = report.to_dict()['statement'].partition('In any case')
    assert 'which ended after 3 of 6 planned rounds, satisfies' in first
    assert f'({accounting.round_up(so_far)}, 1e-06)-DP' in first and 'did not depend' in first
    assert f'({accounting.round_up(report.guarantee.epsilons[0])}, 1e-06)-DP' in second
    assert plans.read(report) == report
    continued = dataclasses.replace(plans.plan(), earlier=(plans.plan(noise_multiplier=3.0),))
    statement = plans.report(continued, log=_STOPPED).to_dict()['statement']
    assert 'it continues from, which ended after 3 of 6 planned rounds, satisfies' in statement
    smaller = report.to_dict() | {'epsilons_so_far': [so_far / 2]}
    with pytest.raises(ValueError, match='epsilons_so_far'):
        accounting.PrivacyReport.from_json(json.dumps(smaller))
    page = report.render()
    assert 'The run ended after 3 of 6 planned rounds.' in page
    assert 'in at most 3 of 6 planned rounds' in page
    headline, about, *_ = page.split('\n\n')
    assert f'epsilon = {accounting.round_up(so_far)} after 3 rounds' in headline
    assert about == 'user_text, small, 1,234,567 parameters, 2026-11-23, dpfl 0.1.0'
    assert 'in 3 of 6 planned rounds of' in page


def test_lost_amplification_of_a_run_without_noise_has_no_epsilon():
    silent = plans.report(dataclasses.replace(_SAMPLED, noise_multiplier=0.0), log=[[0, 0]])
    assert silent.basis == 'log'
    text = ' '.join(silent.to_dict()['assumptions'])
    assert 'Nothing is amplified by sampling=poisson.' in text and 'epsilon' not in text


def test_no_number_of_a_report_can_be_set():
    report = plans.report(plans.plan(), log=_KEPT, with_tradeoff=True)
    for name in ('plan_guarantee', 'guarantee', 'so_far', 'tradeoff', 'selected'):
        with pytest.raises(TypeError, match=name):
            dataclasses.replace(report, **{name: getattr(report, name)})


_REPORTS = [
    plans.report(plans.plan(), [1e-6, 1e-10], _KEPT),
    plans.report(plans.plan(), log=ParticipationLog(), noise_is_seeded=True),
    plans.report(plans.plan(noise_multiplier=0.0), log=_KEPT),
    plans.report(plans.plan(mechanism=mechanisms.BinaryTree(6)), log=[[0], [0]]),
    plans.report(_SAMPLED, log=[[0], [1]], accountant='rdp'),
    plans.report(plans.plan(), train_metrics_released=True),
    plans.report(plans.plan(group_size=2), with_tradeoff=True),
]


@pytest.mark.parametrize('report', _REPORTS)
def test_json_follows_its_schema_and_is_read_back(report):
    values = json.loads(report.to_json())
    parts = {'epsilons_so_far', 'group_size', 'tradeoff', 'membership'}
    assert set(values) - parts == set(accounting.report_schema()['required'])
    assert plans.read(report) == report and report.render()


def test_without_a_value_of_its_own_the_accountant_is_replaced_and_no_noise_has_none():
    report = plans.report(plans.plan(), [1e-20], accountant='pld')
    assert report.guarantee.accountants == ('analytic_gaussian',)
    assert report.guarantee.epsilons[0] == report.plan.epsilon(1e-20, 'analytic_gaussian')
    assert plans.read(report) == report
    silent = plans.report(plans.plan(**_SILENT)).to_dict()
    assert silent['epsilon'] is None and silent['rho'] is None


def _objects(schema):
    """Every described value of a schema, with its path."""
    yield '', schema
    for name, part in schema.get('properties', {}).items():
        for path, value in _objects(part):
            yield f'{name}.{path}', value


def test_the_schema_describes_every_key_and_follows_the_classes():
    schema = accounting.report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for path, value in _objects(schema):
        assert path in ('', 'composition.') or value['description'], path
    properties = schema['properties']
    version = properties['schema_version']['const']
    assert (schema['$id'], version) == (f'urn:dpfl:privacy_report:{version}', SCHEMA_VERSION)
    planned = {field.name for field in dataclasses.fields(accounting.PrivacyPlan)}
    assert set(properties['plan']['properties']) == (
        planned - {'mechanism'} | {'mechanism_digest', *kinds.every_setting()}
    )


_LOGGED = plans.report(
    _SAMPLED, log=[[0, 1, 2]] * 7, accountant='rdp', about=inputs.About(parameters=3)
)


@pytest.mark.parametrize(
    'path, value',
    [
        ('epsilon', -1.0),
        ('rho', 'x'),
        ('accountant', 'other'),
        ('schema_version', 3),
        ('deltas.0', 1),
        ('sampling', None),
        ('population', 0),
        ('text_version', True),
        ('plan.noise_multiplier', -0.5),
        ('plan.clip_norm', 0),
        ('plan.participation.max_participations', 1.5),
        ('plan.estimator.weight', 0),
        ('plan.new', 1),
        ('plan.mechanism_digest', ...),
        ('plan_guarantee.epsilons.0', -1),
        ('plan_guarantee.accountants.0', 'best'),
        ('observed.patterns.mu', ...),
        ('observed.clients_by_participations.0', [1]),
        ('observed.refutations.0.p_value', -1e-9),
        ('about.parameters', -1),
        ('tradeoff.0.tpr', 1.5),
        ('membership.bayes_risk', ...),
        ('noise_is_seeded', ...),
    ],
)
def test_the_schema_refuses_damaged_reports(path, value):
    values = json.loads(_LOGGED.with_tradeoff().to_json())
    *places, last = [int(place) if place.isdecimal() else place for place in path.split('.')]
    part = functools.reduce(lambda part, place: part[place], places, values)
    json_schema.require_report(values)
    if value is ...:
        del part[last]
    else:
        part[last] = value
    with pytest.raises(AssertionError, match=re.escape(str(last) if value is ... else '$')):
        json_schema.require_report(values)


def test_released_training_metrics_are_named_first_and_excepted_in_the_statement():
    silent, released = (
        plans.report(plans.plan(), log=_KEPT, train_metrics_released=flag) for flag in (False, True)
    )
    values = released.to_dict()
    assert values['train_metrics_released'] and not silent.to_dict()['train_metrics_released']
    assert 'released with this run, without noise' in values['not_covered'][0]
    assert 'does not hold for the directory of the run as a whole' in values['not_covered'][0]
    assert 'except for the metrics of the training clients' in values['statement']
    assert 'training clients' not in silent.render()


_FIXED_SIZE = functools.partial(plans.sampled, 'without_replacement')
_SEEDED = dict(sampling_is_seeded=True)
# Settings of a report, what it says, and what another one without them says in its place.
_STATED = [
    (
        dict(plan=_FIXED_SIZE(adjacency='replace_one'), accountant='rdp'),
        ['two clip norms, as counted here'],
        ['ONE IS COUNTED'],
    ),
    (
        dict(plan=_FIXED_SIZE(adjacency='replace_one_half_shift'), accountant='rdp'),
        ['ONE IS COUNTED'],
        [],
    ),
    # The privacy loss distribution has no epsilon at such a delta.
    (
        dict(deltas=[1e-20], accountant='pld'),
        ['theorem 8); accountant=pld gives no value'],
        ['the smallest epsilon of all'],
    ),
    (dict(deltas=[1e-20]), ['theorem 8); the smallest epsilon of all'], ['gives no value']),
    (dict(plan=plans.plan(**_SILENT)), ['no privacy guarantee', '**No differential privacy'], []),
    (dict(), ['The sensitivity is exact'], ['proven upper bound', 'Simulation']),
    (
        dict(plan=plans.plan(mechanism=mechanisms.BandedInverse(6, [1, -0.9, 0.6, -0.1]))),
        ['proven upper bound'],
        ['The sensitivity is exact'],
    ),
    (dict(log=[[0]]), [' after 1 round, ', '1 client took part (each once)'], []),
    (dict(log=[[], []]), ['0 clients took part, in 2 of 6 planned rounds of 0 clients.'], []),
    # Seeds make a simulation where the guarantee rests on what they draw.
    (_SEEDED, [], ['Simulation']),
    (_SEEDED | dict(noise_is_seeded=True), ['**Simulation', 'a simulation'], ['secret cohorts']),
    (
        _SEEDED | dict(plan=_SAMPLED),
        ['Simulation: with secret cohorts', 'knows who took part'],
        [],
    ),
    (
        _SEEDED | dict(plan=_SAMPLED, noise_is_seeded=True),
        ['with secret noise and cohorts'],
        [],
    ),
]


@pytest.mark.parametrize('values, said, not_said', _STATED)
def test_what_a_report_states(values, said, not_said):
    report = plans.report(**{'plan': plans.plan(), **values})
    stated = report.to_dict()
    text = '\n'.join([report.render(), stated['statement'], *stated['not_covered']])
    assert [words for words in said if words not in text] == []
    assert [words for words in not_said if words in text] == []


def test_the_page_follows_the_checklist_explains_its_symbols_and_never_understates():
    plan = plans.plan()
    page = plans.report(plan, log=_KEPT).render()
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
    text, _, glossary = page.partition('## Glossary')
    for term in ('rho', 'mu', 'zCDP', 'sensitivity', 'min separation', 'observed limits'):
        assert term in text and term in glossary
    printed = float(page.split('-zCDP')[0].rsplit(' ', 1)[1])
    assert plan.rho <= printed <= plan.rho * 1.001
    (epsilon,) = plans.report(plan).guarantee.epsilons
    more, shown = accounting.round_up(epsilon, 7), accounting.round_up(epsilon)
    assert epsilon <= float(more) <= epsilon * (1 + 1e-6)
    assert f'| epsilon at delta = 1e-06 | {shown} ({more}) |' in page
    # A delta of more digits is rounded up as well: 1 / 3e6.
    report = plans.report(plan, [1 / 3e6])
    assert '3.33334e-07)-DP' in report.to_dict()['statement']
    assert 'delta = 3.33333e-07' not in report.render()


@pytest.mark.parametrize(
    'plan, accountant',
    [
        *((plans.plan(noise_multiplier=noise), 'best') for noise in (0.1, 1.0, 4.0, 100.0)),
        (plans.plan(adjacency='replace_one'), 'best'),
        (plans.plan(group_size=3), 'best'),
        (plans.sampled('poisson'), 'rdp'),
    ],
)
def test_the_first_sentences_never_understate_what_a_membership_test_reaches(plan, accountant):
    quick = plans.report(plan, accountant=accountant)
    exact = quick.with_tradeoff()
    reached = 100 * (1 - exact.tradeoff.error)
    if plan.mu is not None:
        assert reached == pytest.approx(100 * stats.norm.cdf(plan.mu / 2))
    for report in (quick, exact):
        page = report.render()
        stated = float(re.findall(r'at most \*\*(\S+) of 100 cases', page)[0])
        is_bound = report is quick and plan.mu is None  # From epsilon alone, which is quick.
        assert min(reached, 99.99) <= stated <= (100 if is_bound else reached + 0.1)
        found = re.findall(r'at most ([\d.]+) of 100 .* that took part are found', page)
        assert bool(found) == (plan.adjacency == 'zero_out' and not is_bound)
        at_one = 100 * dict(exact.tradeoff.points)[0.01]
        assert all(at_one <= float(each) <= at_one + 0.1 for each in found)
        risks = [float(risk) for risk in re.findall(r'\(Bayes risk\): (\S+)\.', page)]
        assert all(0.99 * exact.tradeoff.error <= risk <= exact.tradeoff.error for risk in risks)
        assert len(risks) == (report is exact)


@pytest.mark.parametrize('value', [0.0, 1e-9, 0.15337, 0.8061224489795918, 1.0, 8.89860501, np.inf])
def test_printed_numbers_are_rounded_up(value):
    printed = float(rounding.round_up(value))
    assert value * (1 - 1e-11) <= printed <= value * 1.001
    assert rounding.round_up(5e-324) == '1e-300'


@pytest.mark.parametrize('text', ['', '{}', '{"schema_version": 99}', '[1]'])
def test_texts_that_are_no_report_are_refused(text):
    with pytest.raises(ValueError, match='not a privacy report'):
        accounting.PrivacyReport.from_json(text)


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
    report = plans.report(plans.plan())
    reports = [
        dataclasses.replace(report, noise_key_digest=key, earlier_noise_key_digests=keys)
        for key, keys in zip(own, earlier, strict=True)
    ]
    assert all(plans.read(each) == each for each in reports)
    found = inputs.shared_noise(reports)
    assert (None if found is None else found[0]) == index
    # A fork has no joint guarantee with its origin because its own report has it already.
    assert found is None or 'its own report counts both' in found[1]


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
    report = plans.report(plans.plan())
    keys = dict(noise_key_digest=own, earlier_noise_key_digests=earlier)
    with pytest.raises(errors.ArgumentError, match='noise_key_digest'):
        dataclasses.replace(report, **keys)
    values = report.to_dict() | keys
    with pytest.raises(ValueError, match='noise_key_digest'):
        accounting.PrivacyReport.from_json(json.dumps(values))
