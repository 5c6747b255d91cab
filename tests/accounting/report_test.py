import dataclasses
import json
import math

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting import checklist


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
        'mechanism', 'rounds', 'min_separation', 'max_participations', 'noise_multiplier',
        'sensitivity', 'sensitivity_is_exact', 'rho', 'mu', 'delta', 'epsilon', 'accountant',
        'adjacency', 'assumptions', 'not_covered',
    } <= set(values)
    assert values['mechanism'] == 'blt'
    assert (values['rounds'], values['min_separation'], values['max_participations']) == (6, 2, 3)
    assert values['sensitivity'] == plan.sensitivity
    assert values['rho'] == plan.rho
    assert (values['delta'], values['epsilon']) == (1e-6, plan.epsilon(1e-6))
    assert values['plan_guarantee']['epsilons'][1] == plan.epsilon(1e-10)
    assert values['observed'] is None and values['basis'] == 'plan'


@pytest.mark.parametrize('log', [None, ParticipationLog(), _KEPT,
                                 ParticipationLog([[0], [0]])])
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
    observed = report.observed.guarantee
    assert (observed.min_separation, observed.max_participations) == (2, 2)
    assert observed.rho == plan.over(Participation(6, 2, 2)).rho < plan.rho
    assert 'keeps the plan' in report.render()


@pytest.mark.parametrize('cohorts, violation', [
    ([[0], [0], [1], [2], [3], [4]], 'two rounds 1 apart; the plan has at least 2'),
    ([[0], [1], [0], [1], [0], [1], [0]], 'The run had 7 rounds; the plan has 6'),
    ([[0], [1], [0], [1], [0], [1], [0]], 'took part in 4 rounds; the plan has at most 3'),
])
def test_a_log_that_breaks_the_plan_gets_the_numbers_of_what_happened(cohorts, violation):
    plan, log = _plan(), ParticipationLog(cohorts)
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], log=log)
    assert report.basis == 'log'
    assert any(violation in sentence for sentence in report.observed.violations)
    assert report.to_dict()['rho'] == plan.over(log.observed()).rho
    assert report.to_dict()['min_separation'] == log.observed().min_separation
    assert '**breaks the plan**' in report.render()


def test_a_run_that_stopped_early_keeps_the_plan():
    log = ParticipationLog([[0, 1], [2, 3], [0, 4]])
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=log)
    assert report.basis == 'plan'
    assert report.observed.guarantee.rounds == 3


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
    for item in ('DP setting', 'Data accesses covered', 'Output of the mechanism',
                 'Unit of privacy', 'Adjacency', 'Type', 'Participation', 'Formal statement',
                 'Verifiability', 'Not covered'):
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
