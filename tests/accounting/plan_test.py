import dataclasses
import math

import dp_accounting
import pytest

from dpfl import accounting
from dpfl.mechanisms import discretization
from tests.accounting import plans


@pytest.mark.parametrize(
    'changes, factor, epsilon, by_renyi',
    [
        ({}, 1, 8.526, 8.8986),
        ({'adjacency': 'replace_one'}, 2, 18.880, None),
        ({'group_size': 2}, 2, 18.880, None),
        ({'group_size': 2, 'adjacency': 'replace_one'}, 4, 44.560, None),
    ],
)
def test_readings_of_the_production_run_of_document_003(changes, factor, epsilon, by_renyi):
    plan = plans.production(**changes)
    assert plan.sensitivity**2 == pytest.approx(79 * factor**2) and plan.sensitivity_is_exact
    assert plan.rho == pytest.approx(79 / 98 * factor**2)
    assert plan.mu == pytest.approx(math.sqrt(79) / 7 * factor)
    assert plan.stddev == 35.0
    assert plan.epsilon(1e-10, 'analytic_gaussian') == pytest.approx(epsilon, abs=5e-4)
    if by_renyi:
        assert plan.epsilon(1e-10, 'rdp') == pytest.approx(by_renyi, abs=5e-5)


def test_a_poisson_sampled_run_is_rounds_of_sampled_gaussians():
    plan = plans.independent(
        100, sampling='poisson', population=10_000, clients_per_round=50, noise_multiplier=1.0
    )
    event = plans.poisson_event(0.005, 1.0, 100)
    assert plan.dp_event() == event
    assert plan.accountants == ('pld', 'rdp', 'moments', 'best')
    assert (plan.mu, plan.rho, plan.sensitivity) == (None, None, 1.0)
    composed = dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(1e-6)
    assert plan.epsilon(1e-6, 'rdp') == pytest.approx(composed, rel=1e-9)
    assert plan.without_sampling(plan.participation).mu == pytest.approx(10)


@pytest.mark.parametrize('sampling', ['poisson', 'without_replacement'])
def test_adjacencies_of_samples_are_ordered(sampling):
    """A client of a fixed size sample moves two clip norms, unless the convention is another."""
    few = dict(sampling=sampling, population=1000, noise_multiplier=1.0)
    zeroed, replaced = (
        plans.independent(10, adjacency=adjacency, **few)
        for adjacency in accounting.ADJACENCIES[:2]
    )
    assert replaced.accountants == zeroed.accountants == ('pld', 'rdp', 'moments', 'best')
    assert zeroed.epsilon(1e-6) < replaced.epsilon(1e-6) < replaced.epsilon(1e-6, 'rdp')
    if sampling == 'poisson':
        assert replaced.sensitivity == 2.0 and replaced.sensitivity_is_exact
        # Noise for two clip norms under zero-out covers a client that moves as far.
        less = dataclasses.replace(zeroed, noise_multiplier=0.5)
        assert replaced.epsilon(1e-6) < less.epsilon(1e-6)
    else:
        half = dataclasses.replace(zeroed, adjacency='replace_one_half_shift')
        assert half.epsilon(1e-6) < zeroed.epsilon(1e-6)
        events = [plan.dp_event().event.event for plan in (zeroed, replaced, half)]
        assert [event.noise_multiplier for event in events] == [0.5, 0.5, 1.0]


def test_adaptive_clipping_costs_noise_on_the_updates_and_no_privacy():
    plan = plans.adaptive()
    fixed = dataclasses.replace(plan, adaptive_clip=None)
    assert plan.mu == fixed.mu
    assert plan.count_stddev == 6500 / 20
    assert plan.update_noise_multiplier == pytest.approx((7.0**-2 - 650.0**-2) ** -0.5)
    assert plan.stddev == 5.0 * plan.update_noise_multiplier
    assert (fixed.update_noise_multiplier, fixed.count_stddev) == (7.0, None)


def test_rounding_inflates_the_updates_and_not_the_counts():
    # Both ratios of sensitivity to noise, squared and added, are at most that of the plan.
    settings = discretization.Discretization(10.0, 100, 5.0)
    plan = plans.adaptive(
        discretization=settings, adaptive_clip=accounting.AdaptiveClip(count_stddev=4.0)
    )
    of_mechanism = plan.sensitivity / plan.shift
    updates = of_mechanism * settings.inflated_norm / plan.clip_norm / plan.update_noise_multiplier
    counts = of_mechanism * 0.5 / plan.count_stddev
    assert updates**2 + counts**2 <= plan.mu**2


def test_estimators_change_the_denominator_and_not_the_guarantee():
    plan = plans.production()
    fixed, clipped = (
        dataclasses.replace(plan, estimator=accounting.Estimator(kind, 4000.0))
        for kind in ('fixed', 'clipped')
    )
    assert plan.mu == fixed.mu == clipped.mu
    # S / (q W), and 2 S / (q W_min) of [McMahan18], lemma 1.
    assert (plan.denominator, fixed.denominator, clipped.denominator) == (6500.0, 4000.0, 2000.0)
    assert fixed.sensitivity_is_exact and not clipped.sensitivity_is_exact


def test_a_clip_schedule_keeps_the_guarantee():
    plan = plans.adaptive(adaptive_clip=None, clip_schedule=((129, 3.0), (1153, 8.0)))
    assert plan.fresh_rounds == (129, 1153)
    assert plan.mu == dataclasses.replace(plan, clip_schedule=()).mu
    assert plan.with_participation(plan.participation.within(100)).fresh_rounds == ()
