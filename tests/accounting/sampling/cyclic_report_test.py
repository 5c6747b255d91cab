"""Reports of cyclic Poisson sampling: what they say, and how they check a participation log."""

import dataclasses

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting import extrapolation

_DELTA = 1e-6


def _report(cohorts=None, **changes):
    plan = accounting.PrivacyPlan(
        **{
            **dict(
                mechanism=mechanisms.BandedToeplitz(7, [1.0, 0.5, 0.25]),
                participation=Participation(7, 3),
                clip_norm=1.0,
                noise_multiplier=4.0,
                clients_per_round=2,
                population=60,
                sampling='cyclic_poisson',
                groups=3,
            ),
            **changes,
        }
    )
    log = None if cohorts is None else ParticipationLog(cohorts)
    return accounting.PrivacyReport.from_plan(plan, [_DELTA], log=log, accountant='best')


# Clients 0, 3, .. are in group 0, and so on.
_KEPT = [[0, 3], [1], [5, 8], [], [4, 1], [2], [0]]


def test_a_log_of_turns_keeps_the_plan():
    report = _report(_KEPT)
    assert report.basis == 'plan' and report.observed.violations == ()
    assert report.guarantee.epsilons[0] == report.plan.epsilon(_DELTA, 'best')
    assert (report.guarantee.rho, report.guarantee.mu) == (None, None)
    values = report.to_dict()
    assert (values['groups'], values['min_separation'], values['max_participations']) == (3, 3, 3)
    text = ' '.join(values['assumptions'])
    assert 'divided into 3 groups in advance, without looking at their data' in text
    assert 'every client of the group takes part with probability 6/60, independently' in text
    assert 'Who took part is secret' in text and 'Epsilon is that of the worst group' in text
    assert 'cyclic Poisson sampling from 3 groups in turn, 2 of 60 clients' in report.render()
    assert 'if all other clients stay in their groups' in report.render()
    assert accounting.PrivacyReport.from_json(report.to_json()).to_dict() == values
    # A client with three turns, if the log is known: no amplification.
    alone = report.plan.without_sampling(Participation(7, 3, 2))
    assert report.pattern_guarantee.epsilons[0] <= alone.epsilon(_DELTA, 'best')


@pytest.mark.parametrize(
    'changed, violation',
    [
        ({4: [4, 3]}, 'Client 3 took part in rounds 0 and 4, the turns of two of the 3 groups.'),
        ({6: [8]}, 'Client 8 took part in rounds 2 and 6, the turns of two of the 3 groups.'),
        ({5: [0]}, 'Client 0 took part in rounds 0 and 5, the turns of two of the 3 groups.'),
        ({0: [0, 0]}, 'A client was counted 2 times in one round.'),
    ],
)
def test_a_client_in_the_rounds_of_two_groups_loses_the_amplification(changed, violation):
    report = _report([changed.get(t, cohort) for t, cohort in enumerate(_KEPT)])
    assert report.basis == 'log' and violation in report.observed.violations
    assert report.guarantee.mu is not None
    assert report.guarantee.epsilons[0] > report.plan_guarantee.epsilons[0]
    assert 'Amplification by sampling: none' in ' '.join(report.to_dict()['not_covered'])


def test_a_run_that_ended_early_has_fewer_turns():
    report = _report(_KEPT[:4])
    so_far = report.plan.with_participation(report.plan.participation.within(4))
    observed = report.observed_guarantee
    assert observed.epsilons[0] == so_far.epsilon(_DELTA, 'best') < report.guarantee.epsilons[0]
    assert (observed.rounds, observed.max_participations) == (4, 2)


def test_a_plan_for_a_larger_population_keeps_its_groups():
    plan = _report().plan
    found = extrapolation.scaled(plan, 6000, 20)
    assert (found.groups, found.population, found.noise_multiplier) == (3, 6000, 40.0)
    assert found.epsilon(_DELTA) < plan.epsilon(_DELTA) / 5
    assert extrapolation.with_cohort_scaled(plan, 10.0, 6000) == found
    with pytest.raises(ValueError, match='population=50: must be at least 60, 3 groups'):
        extrapolation.scaled(plan, 50, 20)
    assert dataclasses.replace(found, groups=5).digest() != found.digest()
