"""Epsilon after each round of a run; sampling/conformance_test.py has every accountant."""

import itertools

import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting import running
from dpfl.accounting.losses import loss_distribution
from tests.accounting import plans

_DELTA = 1e-8


def _blt(rounds):
    mechanism = mechanisms.Blt(rounds, [0.99, 0.5], [0.1, 0.2])
    return plans.plan(mechanism=mechanism, participation=Participation(rounds, 4))


def _poisson(rounds):
    return plans.independent(rounds, sampling='poisson', population=500)


def test_the_curve_of_correlated_noise_is_never_below_the_exact_one(monkeypatch):
    """It takes one loss distribution for all rounds."""
    computed, bound = [], accounting.gaussian.bound

    def counted(*arguments):
        computed.append(arguments[2])
        return bound(*arguments)

    exact = running.RunningEpsilon(_blt(100), _DELTA, 'analytic_gaussian')
    expected = [exact.after(t) for t in range(1, 101, 11)]
    monkeypatch.setattr(accounting.gaussian, 'bound', counted)
    shown = running.RunningEpsilon(_blt(100), _DELTA, 'pld')
    for t, epsilon in zip(range(1, 101, 11), expected, strict=True):
        assert epsilon <= shown.after(t) <= epsilon * (1 + 1e-6)
    assert computed.count('pld') == 1


@pytest.mark.parametrize('accountant', ['analytic_gaussian', 'pld'])
def test_no_round_has_more_than_the_whole_run(accountant):
    # The bound of the sensitivity is smaller for six rounds than for five.
    diagonals = [[0.5, 0, 0, 0], [0.78, 1.28, 0, 0], [0.51, -1.57, -1.05, 0]]
    diagonals += [
        [0.81, 0.98, 0.44, -0.36],
        [1.46, -1.17, -1.81, 0.08],
        [0.96, -1.05, -0.51, -0.95],
    ]
    mechanism = mechanisms.Banded(diagonals)
    plan = plans.plan(mechanism=mechanism, participation=Participation(6, 1, 4))
    assert plan.with_participation(Participation(5, 1, 4)).sensitivity > plan.sensitivity
    epsilon = running.RunningEpsilon(plan, _DELTA, accountant)
    assert epsilon.after(5) == epsilon.after(6) == plan.epsilon(_DELTA, accountant)


@pytest.mark.standard
def test_a_long_run_composes_few_loss_distributions_that_are_upper_bounds(monkeypatch):
    computed = []

    def quick(parts, delta, most, coarseness):
        computed.append((parts[0][1], coarseness))
        return 0.5 * most

    monkeypatch.setattr(loss_distribution, 'epsilon', quick)
    epsilon = running.RunningEpsilon(_poisson(2000), _DELTA, 'best')
    shown = [epsilon.after(t) for t in range(1, 2001)]
    assert shown == sorted(shown)
    assert len(computed) < 330  # A sixth of the rounds, on a grid that takes about 10 ms.
    assert [each for each in computed if each[1] == 1.0] == [(2000, 1.0)]
    knots = [count for count, coarseness in computed if coarseness > 1]
    assert knots == sorted(knots)
    assert all(
        later - earlier <= max(1, later / 60)
        for earlier, later in itertools.pairwise([*knots, 2000])
    )


def test_the_order_in_which_rounds_are_asked_for_does_not_matter():
    forward = running.RunningEpsilon(_poisson(200), _DELTA, 'best')
    values = [forward.after(t) for t in (150, 197, 198)]
    backward = running.RunningEpsilon(_poisson(200), _DELTA, 'best')
    assert [backward.after(t) for t in (198, 197, 150)] == values[::-1]


def test_a_coarser_grid_gives_an_upper_bound_that_is_close():
    for count in (1, 100):
        parts = [((0.05, 1.0), count)]
        fine = loss_distribution.epsilon(parts, 1e-6, 9.0)
        coarse = loss_distribution.epsilon(parts, 1e-6, 9.0, 16.0)
        assert fine < coarse < fine * 1.001
