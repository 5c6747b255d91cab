"""Tests of truncated Poisson sampling against the densities of all samples of few clients."""

import collections
import functools
import itertools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import special, stats

from dpfl import accounting
from dpfl.accounting import events, own_events
from dpfl.accounting.losses import dominating_pairs
from tests import oracles
from tests.accounting import plans
from tests.sizes import standard

_GAUSSIAN = dp_accounting.GaussianDpEvent


def _cohorts(population, probability, cap):
    """Probability of each cohort, from the definition."""
    found = {}
    for chosen in itertools.product((0, 1), repeat=population):
        weight = math.prod(probability if part else 1 - probability for part in chosen)
        clients = [client for client, part in enumerate(chosen) if part]
        subsets = list(itertools.combinations(clients, min(cap, len(clients))))
        for subset in subsets:
            found[subset] = found.get(subset, 0.0) + weight / len(subsets)
    return found


def _curves_of(rounds, population, noise_multiplier):
    """delta(epsilon) of one or two rounds, for each choice of updates of +1 or -1.

    Each round is a probability of each cohort. Client 0 is zeroed out. Integrated by a grid in one
    or two dimensions.
    """
    x = np.linspace(-population - 9, population + 9, 4001 if len(rounds) == 1 else 601)
    x *= max(noise_multiplier, 1.0)
    cell = (x[1] - x[0]) ** len(rounds)
    # Only sums of updates matter: their number decides, not who they are of.
    for ones in range(population):
        others = (1.0,) * ones + (-1.0,) * (population - 1 - ones)
        densities = []
        for updates in ((1.0, *others), (0.0, *others)):
            density = np.ones(())
            for cohorts in rounds:
                law = collections.Counter()
                for cohort, weight in cohorts.items():
                    law[sum(updates[client] for client in cohort)] += weight
                parts = stats.norm.pdf(x, np.array([*law])[:, None], noise_multiplier)
                density = np.multiply.outer(density, np.array([*law.values()]) @ parts)
            densities.append(density)
        p, q = densities
        yield functools.partial(oracles.hockey_stick, p, q, cell=cell)


def _event(population, probability, cap, noise_multiplier, rounds=1):
    one = own_events.TruncatedPoissonDpEvent(
        population, probability, cap, _GAUSSIAN(noise_multiplier)
    )
    return dp_accounting.SelfComposedDpEvent(one, rounds)


@pytest.mark.parametrize(
    'population, probability, cap, delta',
    [
        (5, 0.3, 2, 1e-2),
        (4, 0.6, 1, 1e-5),
        standard(6, 0.2, 3, 1e-5),
        standard(6, 0.2, 3, 1e-2),
    ],
)
def test_no_accountant_reports_less_than_the_exact_curve(population, probability, cap, delta):
    event = _event(population, probability, cap, 1.3)
    curves = list(_curves_of([_cohorts(population, probability, cap)], population, 1.3))
    for method in ('pld', 'rdp'):
        epsilon = accounting.epsilon_of_event(event, delta, method)
        assert max(curve(epsilon) for curve in curves) <= delta * (1 + 1e-6), method


def test_two_rounds_compose():
    epsilon = accounting.epsilon_of_event(_event(4, 0.3, 2, 2.0, rounds=2), 1e-3)
    rounds = [_cohorts(4, 0.3, 2)] * 2
    worst = max(curve(epsilon) for curve in _curves_of(rounds, 4, 2.0))
    assert 0 < worst <= 1e-3


@pytest.mark.parametrize('population, probability, cap', [(5, 0.3, 2), (6, 0.5, 5), (4, 0.6, 4)])
def test_probabilities_of_a_full_sample(population, probability, cap):
    full = placed = 0.0
    for others in itertools.product((0, 1), repeat=population - 1):
        weight = math.prod(probability if part else 1 - probability for part in others)
        if sum(others) >= cap:
            full += weight
            placed += weight * probability * cap / (sum(others) + 1)
    found = dominating_pairs.full_sample(population, probability, cap)
    assert found[0] == pytest.approx(full, rel=1e-8) and found[0] >= full
    assert not full or placed / full <= found[1] <= placed / full * (1 + 1e-8)


@pytest.mark.parametrize(
    'population, probability, cap',
    # P(R >= cap) has all digits and P(R > cap) none; neither has; one other client of two.
    [
        (200, 1e-12, 25),
        (400, 1e-12, 26),
        standard(10_000, 0.01, 1000),
        (3, 1e-200, 1),
        (3, 1e-200, 2),
    ],
)
def test_probabilities_that_no_float_holds_are_not_rounded_down(population, probability, cap):
    full, placed = dominating_pairs.full_sample(population, probability, cap)
    ranks = np.arange(cap, population)
    logs = stats.binom.logpmf(ranks, population - 1, probability)
    log_full = special.logsumexp(logs)
    log_placed = (
        special.logsumexp(logs - np.log(ranks + 1)) + math.log(probability * cap) - log_full
    )
    assert math.log(full) >= log_full - 1e-9
    assert math.log(placed) >= log_placed - 1e-9
    event = _event(population, probability, cap, 1.0)
    poisson = dp_accounting.PoissonSampledDpEvent(probability, _GAUSSIAN(1.0))
    for method in ('pld', 'rdp'):
        epsilon = accounting.epsilon_of_event(event, 1e-6, method)
        least = accounting.epsilon_of_event(poisson, 1e-6, method)
        assert least * (1 - 1e-9) - 1e-10 <= epsilon <= least * (1 + 1e-6) + 1e-10
    # Divergences of large orders notice events that no delta does.
    orders, found = events.renyi_divergences(event)
    moments = orders * (orders - 1) / 2
    assert (found * (orders - 1) >= log_full + log_placed + moments - 1e-6).all()


@pytest.mark.standard
def test_a_cap_that_is_never_reached_is_poisson_sampling():
    plain = plans.poisson_event(0.01, 1.0, 200)
    for cap, share in ((10_000, 0.0), (200, 1e-4), (160, 1e-2)):
        event = _event(10_000, 0.01, cap, 1.0, 200)
        for method in ('pld', 'rdp') if cap > 160 else ('pld',):
            least = accounting.epsilon_of_event(plain, 1e-6, method)
            epsilon = accounting.epsilon_of_event(event, 1e-6, method)
            assert least * (1 - 1e-9) <= epsilon <= least * (1 + share + 1e-6)
    caps = [
        accounting.epsilon_of_event(_event(10_000, 0.01, cap, 1.0, 200), 1e-6)
        for cap in (160, 140, 120, 110)
    ]
    assert caps == sorted(caps)


def test_the_event_of_a_plan():
    plan = plans.sampled('truncated_poisson')
    assert plan.dp_event() == _event(60, 0.05, 5, 4.0, 7)
    assert plans.sampled('poisson').epsilon(1e-5) < plan.epsilon(1e-5)


@pytest.mark.parametrize('is_fixed', [False, standard(True)])
def test_zeroed_out_clients_of_different_samples_compose_if_that_is_said(is_fixed):
    others, noise = _cohorts(4, 0.3, 4), 2.0
    other = dp_accounting.PoissonSampledDpEvent(0.3, _GAUSSIAN(noise))
    if is_fixed:
        # Its noise is in units of the distance of two updates.
        others = {cohort: 1 / 6 for cohort in itertools.combinations(range(4), 2)}
        other = dp_accounting.SampledWithoutReplacementDpEvent(4, 2, _GAUSSIAN(noise / 2))
    mixed = dp_accounting.ComposedDpEvent([_event(4, 0.3, 2, noise), other])
    for method in ('pld', 'rdp'):
        epsilon = accounting.epsilon_of_event(mixed, 1e-3, method, adjacency='zero_out')
        rounds = [_cohorts(4, 0.3, 2), others]
        worst = max(curve(epsilon) for curve in _curves_of(rounds, 4, noise))
        assert worst <= 1e-3
        assert method == 'rdp' or worst > 1e-5
