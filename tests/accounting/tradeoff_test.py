"""Trade-off curves against the closed form and against brute force over tests."""

import functools
import itertools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import optimize, stats

from dpfl import accounting
from dpfl.accounting import gaussian, tradeoff
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.tradeoff import Stretch
from tests.accounting import plans
from tests.sizes import standard

_poisson = plans.poisson_event


@pytest.mark.parametrize('mu', [0.0, 0.03, 0.7, 3.0, 8.0, 12.0])
def test_the_curve_of_a_gaussian_release(mu):
    found = tradeoff.of_mu(mu)
    for rate, true in found.points:
        # A test of the mean is the best one: it answers for x above a threshold.
        threshold = stats.norm.isf(rate)
        assert true == pytest.approx(stats.norm.sf(threshold - mu), rel=1e-9)
    assert found.advantage == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1, abs=1e-15)
    least = stats.norm.sf(mu / 2)
    assert found.error == pytest.approx(least, rel=1e-6) and found.error <= least


@pytest.mark.parametrize('noise, rounds', [(3.0, 4), (0.5, 10)])
def test_the_loss_distribution_of_everybody_is_close_to_the_closed_form(noise, rounds):
    exact = tradeoff.of_mu(math.sqrt(rounds) / noise)
    found = tradeoff.of_event(_poisson(1.0, noise, rounds))
    for (_, true), (_, bound) in zip(exact.points, found.points, strict=True):
        assert true <= bound <= true + 3e-6
    assert exact.advantage <= found.advantage <= exact.advantage + 3e-6


def _best_tests(p, q, rates):
    """True positive rates of the likelihood ratio test of P against Q on a grid of masses."""
    order = np.argsort(-p / np.maximum(q, 1e-300))
    return np.interp(rates, np.cumsum(q[order]), np.cumsum(p[order]))


@pytest.mark.parametrize('adjacency', ['zero_out', 'replace_one'])
@pytest.mark.parametrize('fixed_size', [False, True])
def test_no_test_of_one_round_is_better_than_the_curve(adjacency, fixed_size):
    q, noise = 0.2, 0.6
    x = np.linspace(-8, 9, 40001)

    def release(client, others):
        masses = (1 - q) * stats.norm.pdf(x, others, noise)
        masses += q * stats.norm.pdf(x, client, noise)
        return masses / masses.sum()

    others = -1.0 if fixed_size else 0.0
    runs = release(1.0, others), release(0.0 if adjacency == 'zero_out' else -1.0, others)
    if fixed_size:
        event = dp_accounting.SampledWithoutReplacementDpEvent(
            10, 2, dp_accounting.GaussianDpEvent(noise / 2)
        )
    else:
        shift = 1 if adjacency == 'zero_out' else 2
        event = _poisson(q, noise / shift, 1)
    found = tradeoff.of_event(event, Neighbours(adjacency))
    rates = np.array(tradeoff.FALSE_POSITIVE_RATES)
    best = np.maximum(_best_tests(*runs, rates), _best_tests(*runs[::-1], rates))
    bounds = np.array([true for _, true in found.points])
    assert (best <= bounds + 1e-4 * bounds).all()
    advantage = np.abs(runs[0] - runs[1]).sum() / 2
    assert advantage <= found.advantage * (1 + 1e-6)
    assert found.advantage == pytest.approx(advantage, rel=0.02)
    if not fixed_size:  # A symmetrised pair is worse than each of its orders.
        assert best == pytest.approx(bounds, rel=2e-2)


def test_a_loss_distribution_that_does_not_fit_gives_way_to_no_amplification():
    found = tradeoff.of_event(_poisson(0.5, 1e-3, 3))
    assert found.points == tradeoff.of_mu(math.sqrt(3) / 1e-3).points


def test_slack_raises_every_rate():
    event = dp_accounting.GaussianDpEvent(2.0)
    plain, slack = tradeoff.of_event(event), tradeoff.of_event(event, slack=1e-3)
    for (rate, true), (_, more) in zip(plain.points, slack.points, strict=True):
        # An event of probability x has at most e^slack x, and of e^slack x at most e^slack t.
        assert true * 1.001 <= more
        assert more == pytest.approx(
            math.exp(1e-3) * stats.norm.sf(stats.norm.isf(rate * math.exp(1e-3)) - 0.5), rel=1e-9
        )
    assert slack.advantage > plain.advantage


@pytest.mark.parametrize('sampling', ['none', 'poisson'])
def test_reports_state_the_curve(sampling):
    population = None if sampling == 'none' else 100
    plan = plans.independent(5, sampling=sampling, population=population)
    report = plans.report(plan, with_tradeoff=True)
    values = report.to_dict()
    if sampling == 'none':
        for point, (_, true) in zip(
            values['tradeoff'], tradeoff.of_mu(plan.mu).points, strict=True
        ):
            assert point['tpr'] == pytest.approx(true, rel=1e-9)
    assert 'Membership tests' in report.render()
    assert plans.read(report) == report
    without = plans.report(plan)
    assert 'tradeoff' not in without.to_dict() and 'Membership' not in without.render()


_WORDS = accounting.ReleaseBefore('a list of words', 5.0, 1.0, 2e-7)


@pytest.mark.parametrize(
    'changes, says',
    [
        ({}, '(exact, for the worst data)'),
        (dict(noise='hardened'), '(upper bounds)'),
        (dict(before=(_WORDS,)), '(upper bounds)'),
        (dict(earlier=(plans.independent(3),)), '(upper bounds)'),
        (dict(sampling='poisson', population=100), '(upper bounds)'),
    ],
)
def test_a_curve_is_called_exact_only_where_a_client_attains_it(changes, says):
    report = plans.report(plans.independent(5, **changes), with_tradeoff=True)
    assert says in report.render()


def test_guarantees_at_single_deltas_limit_a_curve():
    pure = tradeoff.limited(tradeoff.of_mu(math.inf), [(1.0, 0.0), (math.inf, 1e-6)])
    for rate, true in pure.points:
        expected = min(math.e * rate, 1 - (1 - rate) / math.e)
        assert true == pytest.approx(expected, rel=1e-8) and true >= expected
    assert pure.advantage == pytest.approx((math.e - 1) / (math.e + 1), rel=1e-8)
    # What follows from a curve does not limit it.
    curve = tradeoff.of_mu(1.0)
    deltas = (1e-6, 1e-3, 0.1)
    pairs = [(gaussian.epsilon_from_mu(1.0, delta), delta) for delta in deltas]
    assert tradeoff.limited(curve, pairs) == curve
    assert tradeoff.limited(curve, []) == curve


_WHOLE = (1e-9, 1 - 1e-6)


def _gaussian(mu):
    return functools.partial(tradeoff.of_mu, mu)


def _sampled(q, noise, rounds=1):
    return functools.partial(tradeoff.of_event, _poisson(q, noise, rounds), None, 0.0)


@pytest.mark.parametrize('mu, other', [(0.2, 0.21), (1.0, 3.0), (0.01, 9.0), (0.5, np.inf)])
def test_gaussian_curves_are_ordered_by_mu(mu, other):
    assert tradeoff.order(_gaussian(mu), _gaussian(other)) == (Stretch(*_WHOLE, 'first'),)
    assert tradeoff.order(_gaussian(other), _gaussian(mu)) == (Stretch(*_WHOLE, 'second'),)


def test_the_same_curve_is_lower_nowhere():
    for curve in (_gaussian(1.0), _gaussian(np.inf), _gaussian(0.0), _sampled(0.1, 1.0, 2)):
        assert tradeoff.order(curve, curve) == ()
    assert tradeoff.order(_gaussian(1.0), _gaussian(1.0005)) == ()


@pytest.mark.parametrize('q, noise, mu', [(0.1, 0.5, 0.3), standard(0.2, 1.0, 0.4)])
def test_samples_against_a_gaussian_release_cross_where_the_formulas_do(q, noise, mu):
    def above(rate):
        """One sampled release: reject above a threshold. Its curve is the upper of two orders."""
        threshold = stats.norm.isf(rate)
        sampled = (1 - q) * rate + q * stats.norm.sf(threshold - 1 / noise)
        return sampled - stats.norm.sf(threshold - mu)

    first = optimize.brentq(above, 1e-6, 0.3)
    # The curves are symmetric: the other crossing is the mirror image of this one.
    last = 1 - stats.norm.sf(stats.norm.isf(first) - mu)
    for order, lower in (((0, 1), ('second', 'first')), ((1, 0), ('first', 'second'))):
        curves = _sampled(q, noise), _gaussian(mu)
        found = tradeoff.order(curves[order[0]], curves[order[1]])
        assert [stretch.lower for stretch in found] == [lower[0], lower[1], lower[0]]
        assert found[0].end == pytest.approx(first, rel=2e-3)
        assert found[1].end == pytest.approx(last, rel=2e-3)
        assert (found[0].start, found[-1].end) == _WHOLE
        assert all(one.end == other.start for one, other in itertools.pairwise(found))
