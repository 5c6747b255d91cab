import functools
import itertools

import dp_accounting
import numpy as np
import pytest
from scipy import optimize, stats

from dpfl.accounting import curve_order, tradeoff
from dpfl.accounting.curve_order import Stretch
from dpfl.accounting.tradeoff import Tradeoff

_WHOLE = (1e-9, 1 - 1e-6)


def _gaussian(mu):
    return functools.partial(tradeoff.of_mu, mu)


def _sampled(q, noise, rounds=1):
    one = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(noise))
    return functools.partial(
        tradeoff.of_event, dp_accounting.SelfComposedDpEvent(one, rounds), None, 0.0
    )


def _of(function):
    return lambda rates: Tradeoff(tuple((rate, function(rate)) for rate in rates), 1.0)


@pytest.mark.parametrize('mu, other', [(0.2, 0.21), (1.0, 3.0), (0.01, 9.0), (0.5, np.inf)])
def test_gaussian_curves_are_ordered_by_mu(mu, other):
    assert curve_order.order(_gaussian(mu), _gaussian(other)) == (Stretch(*_WHOLE, 'first'),)
    assert curve_order.order(_gaussian(other), _gaussian(mu)) == (Stretch(*_WHOLE, 'second'),)


def test_the_same_curve_is_lower_nowhere():
    for curve in (_gaussian(1.0), _gaussian(np.inf), _gaussian(0.0), _sampled(0.1, 1.0, 2)):
        assert curve_order.order(curve, curve) == ()
    assert curve_order.order(_gaussian(1.0), _gaussian(1.0005)) == ()


def test_more_noise_of_samples_is_lower():
    found = curve_order.order(_sampled(0.1, 1.0, 2), _sampled(0.1, 1.1, 2))
    assert found == (Stretch(*_WHOLE, 'second'),)


def test_curves_that_cross_once():
    # With probability 0.05 everything is revealed, against a release with mu = 1.
    found = curve_order.order(_of(lambda rate: 0.05 + 0.95 * rate), _gaussian(1.0))
    place = optimize.brentq(
        lambda x: 0.05 + 0.95 * x - stats.norm.sf(stats.norm.isf(x) - 1), 1e-6, 0.1
    )
    assert [stretch.lower for stretch in found[:2]] == ['second', 'first']
    assert found[0].end == found[1].start == pytest.approx(place, rel=2e-3)


@pytest.mark.parametrize('q, noise, mu', [(0.1, 0.5, 0.3), (0.2, 1.0, 0.4)])
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
        found = curve_order.order(curves[order[0]], curves[order[1]])
        assert [stretch.lower for stretch in found] == [lower[0], lower[1], lower[0]]
        assert found[0].end == pytest.approx(first, rel=2e-3)
        assert found[1].end == pytest.approx(last, rel=2e-3)
        assert (found[0].start, found[-1].end) == _WHOLE
        assert all(one.end == other.start for one, other in itertools.pairwise(found))
