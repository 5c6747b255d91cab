"""Every sampling: its plans, samplers, reports, logs that refute it, and the course of epsilon."""

import dataclasses
import json
import math

import dp_accounting
import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.accounting import running, tradeoff
from dpfl.accounting.sampling import kinds
from dpfl.simulation import sampling as samplers
from tests.accounting import plans

_DELTA = 1e-4
_ESTIMATED = ('balls_in_bins', 'random_allocation', 'b_min_sep')
_BINS = _ESTIMATED[:2]
_GROUPED = ('cyclic_poisson', *_ESTIMATED)
_NOT_HARDENED = ('truncated_poisson', *_GROUPED)
_PLAIN = tuple(name for name in plans.SAMPLINGS if name not in _GROUPED)
_ONE_CLIENT = tuple(
    name for name in plans.SAMPLINGS if name not in ('poisson', 'without_replacement')
)
_APART = ('cyclic_poisson', 'balls_in_bins', 'b_min_sep')


def _quick(sampling):
    """An accountant that takes no loss distribution, where there is one."""
    return 'best' if kinds.KINDS[sampling].has_own_bound else 'rdp'


def _others(*names):
    return tuple(name for name in plans.SAMPLINGS if name not in names)


def _schema(*numbers):
    return dict(participation=Participation(7, *numbers))


# Samplings, changes of a plan, and what is said of them.
_REFUSED = [
    (plans.SAMPLINGS, dict(population=None), 'population: must be given with sampling='),
    (plans.SAMPLINGS, dict(population=2), 'population=2: must be an integer >= '),
    (_ONE_CLIENT, dict(group_size=2), '^group_size=2: must be 1 with sampling='),
    (_ONE_CLIENT, dict(adjacency='replace_one'), 'adjacency=replace_one: must be one of zero_out$'),
    (
        _others('without_replacement'),
        dict(adjacency='replace_one_half_shift'),
        'adjacency=replace_one_half_shift: must be one of zero_out',
    ),
    (
        ('truncated_poisson',),
        dict(noise='hardened'),
        'noise=hardened: must be default with sampling=truncated_poisson',
    ),
    (
        ('cyclic_poisson',),
        dict(noise='hardened'),
        'does not count what noise=hardened adds',
    ),
    (_GROUPED, dict(mechanism=mechanisms.BinaryTree(7)), 'mechanism=tree: cannot be a tree with'),
    (
        _BINS,
        dict(mechanism=mechanisms.BandedInverse(7, [1.0, 1e9, 1e18])),
        'mechanism=banded_inverse: must have parameters whose digits do not cancel with',
    ),
    (_PLAIN, dict(mechanism=mechanisms.BinaryTree(7)), 'must be none, or cyclic_poisson, with co'),
    (_GROUPED, dict(groups=None), 'groups: must be given with'),
    (_PLAIN, dict(groups=2), 'groups=2: cannot be given with sampling='),
    (('truncated_poisson',), dict(cohort_cap=None), 'cohort_cap: must be given with'),
    (('truncated_poisson',), dict(cohort_cap=61), 'cohort_cap=61: must be an integer >= 1 and <= '),
    (_others('truncated_poisson'), dict(cohort_cap=5), 'cohort_cap=5: cannot be given with'),
    ((*_PLAIN, 'random_allocation'), _schema(2), 'min_separation=2: must be 1 with sampling='),
    (_PLAIN, _schema(1, 6), 'max_participations=6: must be the number of rounds'),
    (_APART, _schema(4), 'min_separation=4: must be at most 3 with sampling='),
    (_APART, _schema(3, 2), 'max_participations=2: must be the number of turns, 3'),
    (('random_allocation',), _schema(1, 2), 'max_participations=2: must be the number of turns, 3'),
    (('cyclic_poisson', 'b_min_sep'), dict(groups=2), 'groups=2: must be at least 3, the bands'),
    (
        ('cyclic_poisson',),
        dict(mechanism=mechanisms.Blt(7, [0.9], [0.4])),
        'groups=3: must be at least 7, the bands',
    ),
    (('cyclic_poisson', 'b_min_sep'), dict(population=8), 'population=8: must be at least 9, 3 gr'),
    (_BINS, dict(population=70), 'population=70: must be about 60, 3 groups'),
    (_ESTIMATED, dict(noise='hardened'), 'cannot be composed with noise=hardened'),
    (
        # Reports had a guarantee of sums whose modulus is that of the planned cohort.
        _others('without_replacement'),
        dict(discretization=accounting.Discretization(100.0, 1000, 1.0)),
        'must not be random in size with a discretization',
    ),
    (
        _ESTIMATED,
        dict(before=(accounting.ReleaseBefore('a value', 8.0),)),
        'has a guarantee that is estimated, which cannot be composed with a value',
    ),
]


@pytest.mark.parametrize(
    'sampling, changes, message',
    [(name, changes, message) for names, changes, message in _REFUSED for name in names],
)
def test_plans_that_no_proof_covers_are_refused(sampling, changes, message):
    with pytest.raises(errors.ArgumentError, match=message):
        plans.sampled(sampling, **changes)


def test_schemas_that_admit_the_turns_are_accepted():
    for schema in (Participation(7), Participation(7, 3), Participation(7, 2, 3)):
        plans.sampled('cyclic_poisson', participation=schema)


@pytest.mark.parametrize('sampling', plans.SAMPLINGS)
def test_other_accountants_are_refused_and_without_noise_there_is_no_guarantee(sampling):
    plan = plans.sampled(sampling)
    known = ', '.join(plan.accountants)
    message = f'accountant=analytic_gaussian: must be one of {known} with sampling={sampling}'
    with pytest.raises(errors.ArgumentError, match=message):
        plan.epsilon(_DELTA, 'analytic_gaussian')
    silent = plans.sampled(sampling, noise_multiplier=0.0)
    assert silent.epsilon(_DELTA, 'best') == math.inf
    assert running.RunningEpsilon(silent, _DELTA, 'best').after(1) == math.inf
    if sampling in _ESTIMATED:
        with pytest.raises(errors.ArgumentError, match='cannot be composed with earlier runs'):
            dataclasses.replace(plan, earlier=(plan,))
        with pytest.raises(errors.ArgumentError, match='accountant=pld: must be one of best'):
            plans.calibrated(plan, 1.0, 'pld', _DELTA)


# What a report says of each sampling: an assumption, and words of its page.
_SAID = {
    'poisson': ['in each of 7 rounds with probability 3/60, independently'],
    'truncated_poisson': [
        'of more than 5 chosen clients, a uniformly random set of 5 takes part',
        'cut off at 5 clients',
    ],
    'without_replacement': ['is a uniformly random set of 3 of 60 clients'],
    'cyclic_poisson': [
        'divided into 3 groups in advance, without looking at their data',
        'every client of the group takes part with probability 9/60, independently',
        'Epsilon is that of the worst group',
        'if all other clients stay in their groups',
    ],
    'balls_in_bins': [
        'has picked one of 3 bins, uniformly and independently of all other clients',
        'bin i takes part in the rounds i, i + 3, i + 6, ... of 7 rounds',
    ],
    'random_allocation': [
        'each of the 60 clients takes part in one round of each 3, which it picks',
    ],
    # A client that waits for 2 rounds leaves 60 - 6 for 3 places.
    'b_min_sep': [
        'in none of the last 2 rounds takes part with probability 3/54, independently',
        'each w from 1 to 2 with probability 3/60, and otherwise may take part',
    ],
}


@pytest.mark.parametrize('sampling', plans.SAMPLINGS)
def test_a_log_of_the_sampler_keeps_the_plan(sampling):
    plan, accountant = plans.sampled(sampling), _quick(sampling)
    sampler = plans.sampler(plan)
    samplers.check(sampler, plan)
    report = plans.report(plan, [_DELTA], map(sampler.cohort, range(7)), accountant)
    assert report.basis == 'plan' and report.observed.violations == ()
    assert report.guarantee.epsilons[0] == plan.epsilon(_DELTA, accountant)
    assert (plan.mu, report.guarantee.rho, report.guarantee.mu) == (None, None, None)
    assumptions, page = ' '.join(report.to_dict()['assumptions']), report.render()
    assert 'Who took part is secret' in assumptions
    assert all(words in assumptions or words in page for words in _SAID[sampling])
    assert ('IS AN ESTIMATE' in assumptions) == (sampling in _ESTIMATED)
    assert 'zCDP' not in report.to_dict()['statement'] and 'Amplification by' not in page
    again = plans.read(report)
    assert again.to_dict() == report.to_dict()
    # With the log known nothing is amplified.
    most = report.observed_guarantee.max_participations
    alone = plan.without_sampling(Participation(7, 1, most))
    assert report.pattern_guarantee.epsilons[0] <= alone.epsilon(_DELTA, accountant) * (1 + 1e-9)
    # A run that ended early has fewer rounds, and says so.
    stopped = plans.report(plan, [_DELTA], map(sampler.cohort, range(4)), accountant)
    so_far = plan.with_participation(plan.participation.within(4))
    assert stopped.observed_guarantee.epsilons[0] <= so_far.epsilon(_DELTA, accountant)
    assert stopped.observed_guarantee.rounds == 4


_CYCLIC = [[0, 3], [1], [5, 8], [], [4, 1], [2], [0]]  # Clients 0, 3, .. are in group 0.
_IN_BINS = [[i for i in range(60) if i % 3 == t % 3] for t in range(7)]
_IN_SLOTS = [*map(plans.sampler(plans.sampled('random_allocation')).cohort, range(7))]


@pytest.mark.parametrize(
    'sampling, cohorts, violation',
    [
        ('poisson', [[0, 0], [1]], 'A client was counted 2 times in one round.'),
        ('poisson', [range(61)], '61 clients took part; the population is 60'),
        ('poisson', [[0], [1]] * 4, 'The run had 8 rounds; the plan has 7'),
        ('without_replacement', [[0, 1], [2]], 'A cohort had 2 clients; the plan samples 3'),
        ('truncated_poisson', [range(6)], 'A cohort had 6 clients; the plan has at most 5.'),
        ('cyclic_poisson', [*_CYCLIC[:4], [4, 3]], 'Client 3 took part in rounds 0 and 4, the tur'),
        ('cyclic_poisson', [*_CYCLIC[:6], [8]], 'Client 8 took part in rounds 2 and 6, the turns'),
        ('cyclic_poisson', [[0, 0], *_CYCLIC[1:]], 'A client was counted 2 times in one round.'),
        ('balls_in_bins', [*_IN_BINS[:6], [1]], 'Client 1 took part in rounds 1 and 6, the turns'),
        (
            'random_allocation',
            [*_IN_BINS[:1], [0, *_IN_BINS[1]], *_IN_BINS[2:]],
            'Client 0 took part in rounds 0 and 1, of the same epoch of 3 rounds.',
        ),
        (
            'random_allocation',
            [np.repeat(_IN_SLOTS[0], 2), *_IN_SLOTS[1:]],
            'A client was counted 2 times in one round.',
        ),
        ('b_min_sep', [[0, 1]] * 7, 'two rounds 1 apart; the plan has at least 3'),
    ],
)
def test_a_log_that_no_sampling_made_loses_amplification(sampling, cohorts, violation):
    schema = _schema(3) if sampling == 'b_min_sep' else {}
    report = plans.report(plans.sampled(sampling, **schema), [_DELTA], cohorts, _quick(sampling))
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
    values = report.to_dict()
    text = ' '.join([*values['assumptions'], *values['not_covered']])
    assert 'Amplification by sampling: none' in text and 'Nothing is amplified' in text
    # The file cannot keep the amplified numbers beside its violations.
    values = json.loads(report.to_json())
    assert accounting.PrivacyReport.from_json(json.dumps(values)) == report
    values['observed']['guarantee'] |= {
        name: values['plan_guarantee'][name] for name in ('rho', 'mu', 'epsilons', 'accountants')
    }
    try:
        assert accounting.PrivacyReport.from_json(json.dumps(values)) == report
    except ValueError as error:
        assert 'observed.guarantee' in str(error)


@pytest.mark.parametrize(
    'sampling, noise',
    [
        *((sampling, 'default') for sampling in ('none', *plans.SAMPLINGS)),
        *((sampling, 'hardened') for sampling in ('none', *_others(*_NOT_HARDENED))),
    ],
)
def test_epsilon_in_the_course_of_a_run_is_a_bound_by_every_accountant(sampling, noise):
    tree = dict(mechanism=mechanisms.BinaryTree(7), participation=Participation(7, 3))
    plan = (
        plans.independent(7, noise=noise, **tree)
        if sampling == 'none'
        else plans.sampled(sampling, noise=noise)
    )
    # 'best' has the numbers of 'pld', too.
    left_out = {'pld'} if sampling in ('cyclic_poisson', 'without_replacement') else set()
    if sampling == 'truncated_poisson' or (sampling, noise) == ('none', 'hardened'):
        left_out = {'pld', 'best'}
    for accountant in set(plan.accountants) - left_out:
        epsilon = running.RunningEpsilon(plan, _DELTA, accountant)
        shown = [epsilon.after(t) for t in (3, 4, 7)]
        own = [
            plan.with_participation(plan.participation.within(t)).epsilon(_DELTA, accountant)
            for t in (3, 4, 7)
        ]
        report = plans.report(plan, [_DELTA], accountant=accountant)
        assert shown[-1] == own[-1] == report.guarantee.epsilons[0]
        assert shown == sorted(shown)
        if sampling in _GROUPED:  # Each turn of three groups counts as a whole.
            assert all(seen >= alone for seen, alone in zip(shown, own, strict=True))
            continue
        is_exact = accountant not in ('pld', 'best') and noise == 'default'
        for seen, alone in zip(shown, own, strict=True):
            # 'pld' without sampling may be below the grid's own value, not below the exact one.
            assert seen == alone if is_exact else alone * (1 - 1e-5) <= seen <= alone * 1.001


def test_a_run_of_groups_that_stops_early_has_the_leading_block():
    mechanism = mechanisms.BandedToeplitz(12, [1.0, 0.5, 0.4])
    plan = plans.sampled(
        'cyclic_poisson', mechanism=mechanism, participation=Participation(12), groups=4
    )
    for rounds in (1, 5, 6, 9):
        so_far = plan.with_participation(plan.participation.within(rounds))
        alone = dataclasses.replace(so_far, mechanism=mechanism.with_rounds(rounds))
        assert so_far.dp_event() == alone.dp_event()
