import dataclasses
import itertools
import math

import dp_accounting
import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.mechanisms import discretization
from tests.accounting import plans


def _plan(**changes):
    fields = dict(
        mechanism=mechanisms.BinaryTree(2000),
        participation=Participation(2000, 314, 6),
        clip_norm=5.0,
        noise_multiplier=7.0,
        clients_per_round=6500,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


def test_numbers_of_document_003():
    plan = _plan()
    assert plan.sensitivity**2 == pytest.approx(79)
    assert plan.sensitivity_is_exact
    assert plan.rho == pytest.approx(79 / 98)
    assert plan.mu == pytest.approx(math.sqrt(79) / 7)
    assert plan.stddev == 35.0
    assert plan.epsilon(1e-10, 'rdp') == pytest.approx(8.8986, abs=5e-5)
    assert plan.epsilon(1e-10) == pytest.approx(8.526, abs=5e-4)


def test_independent_noise_is_composition_of_single_rounds():
    # The same guarantee, composed round by round by dp_accounting for a client in all 9 rounds.
    plan = _plan(mechanism=mechanisms.Identity(9), participation=Participation(9))
    rounds = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(7.0), 9)
    for accountant, name in (
        (dp_accounting.rdp.RdpAccountant(), 'rdp'),
        (dp_accounting.pld.PLDAccountant(), 'pld'),
    ):
        composed = accountant.compose(rounds).get_epsilon(1e-6)
        assert plan.epsilon(1e-6, name) == pytest.approx(composed, rel=1e-4)


def test_without_noise_there_is_no_guarantee():
    plan = _plan(noise_multiplier=0.0)
    assert plan.rho == plan.mu == plan.epsilon(1e-5) == math.inf
    assert plan.dp_event() == dp_accounting.NonPrivateDpEvent()


def test_replacing_a_client_doubles_the_sensitivity():
    # Oracle: opposite updates of norm 1 in every round of the worst pattern.
    blt = mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3])
    schema = Participation(6, 2, 3)
    zero_out, replace_one = (
        _plan(mechanism=blt, participation=schema, adjacency=adjacency)
        for adjacency in ('zero_out', 'replace_one')
    )
    u, v = np.zeros(6), np.zeros(6)
    u[[0, 2, 4]], v[[0, 2, 4]] = 1.0, -1.0
    assert zero_out.sensitivity == pytest.approx(np.linalg.norm(blt.strategy_matrix() @ u))
    assert replace_one.sensitivity == pytest.approx(np.linalg.norm(blt.strategy_matrix() @ (u - v)))


_TARGETS = [
    *itertools.product(['none'], ('rdp', 'analytic_gaussian'), (0.1, 8.0)),
    ('none', 'moments', 1.0),
    ('poisson', 'rdp', 1.5),
    ('without_replacement', 'moments', 1.5),
    *(
        pytest.param(sampling, 'pld', epsilon, marks=pytest.mark.standard)
        for sampling, epsilon in (('none', 1.0), ('poisson', 2.0))
    ),
]


@pytest.mark.parametrize('sampling, accountant, epsilon', _TARGETS)
def test_calibration_meets_its_target_from_below(sampling, accountant, epsilon):
    plan = _plan() if sampling == 'none' else _sampled(sampling=sampling)
    found = accounting.PrivacyPlan.calibrated(
        epsilon=epsilon, delta=1e-6, accountant=accountant, **plans.fields(plan)
    )
    reached = found.epsilon(1e-6, accountant)
    assert epsilon * (1 - 1e-5) <= reached <= epsilon


@pytest.mark.parametrize('accountant, least', [('moments', 0.7196), ('rdp', 0.01476)])
def test_a_target_that_no_noise_meets_is_refused(accountant, least):
    with pytest.raises(ValueError, match=f'epsilon=0.01: must be at least {least}, the least that'):
        accounting.mu_from_epsilon(0.01, 1e-10, accountant)
    with pytest.raises(ValueError, match='epsilon=0.01: must be at least'):
        accounting.PrivacyPlan.calibrated(
            epsilon=0.01, delta=1e-10, accountant=accountant, **plans.fields(_sampled())
        )


def test_guarantee_so_far_grows_to_that_of_the_run():
    plan = _plan()
    so_far = [
        plan.with_participation(plan.participation.within(t)).rho for t in (1, 300, 400, 1000, 2000)
    ]
    assert so_far == sorted(so_far)
    assert so_far[0] == pytest.approx(1 / 98)
    assert so_far[-1] == plan.rho


def _sampled(sampling='poisson', **changes):
    fields = dict(clients_per_round=50, population=10_000, noise_multiplier=1.0)
    return plans.independent(100, sampling=sampling, **{**fields, **changes})


def test_a_poisson_sampled_run_is_rounds_of_sampled_gaussians():
    plan = _sampled()
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.005, dp_accounting.GaussianDpEvent(1.0)), 100
    )
    assert plan.dp_event() == event
    assert plan.accountants == ('pld', 'rdp', 'moments', 'best')
    assert (plan.mu, plan.rho, plan.sensitivity) == (None, None, 1.0)
    composed = dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(1e-6)
    assert plan.epsilon(1e-6, 'rdp') == pytest.approx(composed, rel=1e-9)
    plain = plan.without_sampling(plan.participation)
    assert plain.mu == pytest.approx(10)
    assert plan.epsilon(1e-6) < plain.epsilon(1e-6)


@pytest.mark.parametrize(
    'adjacency, noise_multiplier',
    [
        ('zero_out', 0.5),
        ('replace_one', 0.5),
        ('replace_one_half_shift', 1.0),
    ],
)
def test_a_fixed_size_sample_counts_two_clip_norms_unless_told_otherwise(
    adjacency, noise_multiplier
):
    plan = _sampled(sampling='without_replacement', adjacency=adjacency)
    assert plan.dp_event().event.event.noise_multiplier == noise_multiplier
    assert plan.accountants == ('pld', 'rdp', 'moments', 'best')


def test_adjacencies_of_fixed_size_samples_are_ordered():
    half, zeroed, replaced = (
        _sampled(sampling='without_replacement', adjacency=adjacency).epsilon(1e-6)
        for adjacency in ('replace_one_half_shift', 'zero_out', 'replace_one')
    )
    assert half < zeroed < replaced
    by_renyi = _sampled(sampling='without_replacement').epsilon(1e-6, 'rdp')
    assert replaced < by_renyi


def test_a_replaced_client_of_a_poisson_sample_counts_on_both_sides():
    replaced = _sampled(adjacency='replace_one')
    assert replaced.sensitivity == 2.0 and replaced.sensitivity_is_exact
    assert replaced.accountants == ('pld', 'rdp', 'moments', 'best')
    epsilon = replaced.epsilon(1e-6)
    assert _sampled().epsilon(1e-6) < epsilon < replaced.epsilon(1e-6, 'rdp')
    # Noise for two clip norms under zero-out covers a client that moves as far.
    assert epsilon < dataclasses.replace(_sampled(), noise_multiplier=0.5).epsilon(1e-6)


_OF_STDDEV = r'its product with noise_multiplier=.* must be within \[1e-30, 1e\+30\]'


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(mechanism='tree'), 'mechanism=tree: must be a mechanism, such as BinaryTree'),
        (dict(participation=2000), 'participation=2000: must be a Participation'),
        (dict(noise_multiplier=-1), 'noise_multiplier=-1: must be a finite number >= 0'),
        (dict(noise_multiplier=1e-160), r'noise_multiplier=1e-160: must be 0 \(no noise\) or'),
        (dict(noise_multiplier=1e160), r'noise_multiplier=1e\+160: .* within \[1e-30, 1e\+30\]'),
        (dict(clip_norm=0), 'clip_norm=0: must be a finite number >= 1e-30 and <= 1e'),
        (dict(clip_norm=1e308), r'clip_norm=1e\+308: must be a finite number .* <= 1e\+30'),
        (dict(clip_norm=1e-25, noise_multiplier=1e-10), f'clip_norm=1e-25: {_OF_STDDEV}'),
        (dict(clip_norm=1e20, noise_multiplier=1e20), f'clip_norm=1e.20: {_OF_STDDEV}'),
        (dict(clients_per_round=0), 'clients_per_round=0: must be an integer >= 1'),
        (
            dict(group_size=10**400),
            'group_size=10*[.]{3}: must be an integer >= 1 and <= 9007199254740992',
        ),
        (dict(adjacency='none'), 'adjacency=none: must be one of zero_out, replace_one'),
        (dict(adjacency='replace_one_half_shift'), 'must be one of zero_out, replace_one$'),
        (dict(sampling='poisson'), 'sampling=poisson: must be a sampling, such as Poisson'),
        (dict(group_size=0), 'group_size=0: must be an integer >= 1'),
        (dict(adaptive_clip=1), 'adaptive_clip=1: must be of type AdaptiveClip or None'),
        (dict(discretization=1), 'discretization=1: must be of type Discretization or None'),
        (dict(estimator='fixed'), 'estimator=fixed: must be of type Estimator'),
        (dict(clip_schedule=5), 'clip_schedule=5: must be a tuple of pairs of a round and a'),
        (dict(earlier=(1,)), r'earlier=\(1,\): must be a tuple of plans'),
        (
            dict(mechanism=mechanisms.BinaryTree(1999)),
            'rounds=2000: must be <= 1999, the rounds that mechanism tree was made for',
        ),
    ],
)
def test_bad_fields_are_named(changes, message):
    with pytest.raises(errors.ArgumentError, match=message):
        _plan(**changes)


_SCHEDULE = dict(adaptive_clip=None)


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(mechanism=mechanisms.BinaryTree(2000)), 'mechanism=tree: must be restarted with ada'),
        (dict(clients_per_round=70), 'count_stddev=3.5: must be > 3.5, half of noise_multiplier='),
        (dict(clip_schedule=((129, 3.0),)), 'clip_schedule: must be empty with adaptive_clip'),
        # Clip norms change only where the noise starts afresh.
        (
            _SCHEDULE | dict(clip_schedule=((128, 1.0),)),
            'clip_schedule round=128: must be one in which the noise starts afresh',
        ),
        (
            _SCHEDULE | dict(clip_schedule=((129, 1.0), (129, 2.0))),
            'clip_schedule round=129: must be an integer >= 130',
        ),
        (
            _SCHEDULE | dict(clip_schedule=((0, 1.0),)),
            'clip_schedule round=0: must be an integer >= 1',
        ),
        (
            _SCHEDULE | dict(clip_schedule=((129, math.nan),)),
            'clip_schedule norm=nan: must be a finite number >= 1e-30',
        ),
    ],
)
def test_contradictions_about_clip_norms_are_named(changes, message):
    with pytest.raises(errors.ArgumentError, match=message):
        _adaptive(**changes)


@pytest.mark.parametrize(
    'name, value', [('target_quantile', 1.0), ('learning_rate', 0.0), ('count_stddev', math.nan)]
)
def test_bad_adaptive_clipping_is_named(name, value):
    with pytest.raises(errors.ArgumentError, match=f'{name}={value}: must be a finite number > 0'):
        accounting.AdaptiveClip(**{name: value})


def _adaptive(**changes):
    fields = dict(
        mechanism=mechanisms.Restarted.every(mechanisms.BinaryTree(1024), rounds=2000),
        adaptive_clip=accounting.AdaptiveClip(),
    )
    return _plan(**{**fields, **changes})


def test_adaptive_clipping_costs_noise_on_the_updates_and_no_privacy():
    plan = _adaptive()
    fixed = dataclasses.replace(plan, adaptive_clip=None)
    assert plan.mu == fixed.mu
    assert plan.count_stddev == 6500 / 20
    assert plan.update_noise_multiplier == pytest.approx((7.0**-2 - 650.0**-2) ** -0.5)
    assert plan.stddev == 5.0 * plan.update_noise_multiplier
    assert (fixed.update_noise_multiplier, fixed.count_stddev) == (7.0, None)


def test_rounding_inflates_the_updates_and_not_the_counts():
    # Both ratios of sensitivity to noise, squared and added, are at most that of the plan.
    settings = discretization.Discretization(10.0, 100, 5.0)
    plan = _adaptive(
        discretization=settings, adaptive_clip=accounting.AdaptiveClip(count_stddev=4.0)
    )
    of_mechanism = plan.sensitivity / plan.shift
    updates = of_mechanism * settings.inflated_norm / plan.clip_norm / plan.update_noise_multiplier
    counts = of_mechanism * 0.5 / plan.count_stddev
    assert updates**2 + counts**2 <= plan.mu**2


def test_calibration_with_adaptive_clipping_meets_its_target():
    fields = plans.fields(_adaptive())
    plan = accounting.PrivacyPlan.calibrated(epsilon=8.0, delta=1e-10, **fields)
    assert plan.epsilon(1e-10) <= 8.0
    few = {**fields, 'clients_per_round': 10}
    with pytest.raises(ValueError, match='count_stddev=0.5: must be > '):
        accounting.PrivacyPlan.calibrated(epsilon=0.5, delta=1e-10, **few)


def test_estimators_change_the_denominator_and_not_the_guarantee():
    plan = _plan()
    fixed, clipped = (
        dataclasses.replace(plan, estimator=accounting.Estimator(kind, 4000.0))
        for kind in ('fixed', 'clipped')
    )
    assert plan.mu == fixed.mu == clipped.mu
    # S / (q W), and 2 S / (q W_min) of [McMahan18], lemma 1.
    assert (plan.denominator, fixed.denominator, clipped.denominator) == (6500.0, 4000.0, 2000.0)
    assert fixed.sensitivity_is_exact and not clipped.sensitivity_is_exact


def test_a_clip_schedule_keeps_the_guarantee():
    plan = _adaptive(adaptive_clip=None, clip_schedule=((129, 3.0), (1153, 8.0)))
    assert plan.fresh_rounds == (129, 1153)
    assert plan.mu == dataclasses.replace(plan, clip_schedule=()).mu
    assert plan.with_participation(plan.participation.within(100)).fresh_rounds == ()
