"""Tests of epsilon after each round of a run."""

import itertools
import math

import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.accounting import running
from dpfl.accounting.losses import loss_distribution
from dpfl.accounting.sampling import estimates

_DELTA = 1e-8
# tests/accounting/sampling/bins_report_test.py has the others, whose epsilon is estimated.
_SAMPLINGS = [name for name in accounting.SAMPLINGS if name not in estimates.SAMPLINGS]


def _plan(sampling='none', rounds=9, mechanism=None, noise='default', **fields):
    is_sampled = sampling != 'none'
    schema = Participation(rounds) if is_sampled else Participation(rounds, 4)
    if mechanism is None:
        mechanism = mechanisms.Identity(rounds) if is_sampled else mechanisms.BinaryTree(rounds)
    return accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=schema,
        clip_norm=1.0,
        clients_per_round=20,
        noise=noise,
        sampling=sampling,
        population=1000 if is_sampled else None,
        groups=3 if sampling == 'cyclic_poisson' else None,
        cohort_cap=50 if sampling == 'truncated_poisson' else None,
        **{'noise_multiplier': 2.0, **fields},
    )


def _cases():
    for sampling in _SAMPLINGS:
        for accountant in _plan(sampling).accountants:
            yield sampling, accountant


@pytest.mark.parametrize('noise', accounting.NOISES)
@pytest.mark.parametrize('sampling, accountant', _cases())
def test_every_accountant_with_every_sampling(sampling, accountant, noise):
    if sampling == 'truncated_poisson' and noise == 'hardened':
        return  # A plan refuses it.
    plan = _plan(sampling, noise=noise)
    epsilon = running.RunningEpsilon(plan, _DELTA, accountant)
    shown = [epsilon.after(t) for t in range(1, 10)]
    alone = [
        plan.with_participation(plan.participation.within(t)).epsilon(_DELTA, accountant)
        for t in range(1, 10)
    ]
    report = accounting.PrivacyReport.from_plan(plan, [_DELTA], accountant=accountant)
    assert shown[-1] == alone[-1] == report.guarantee.epsilons[0]
    assert shown == sorted(shown)
    is_exact = accountant not in ('pld', 'best') and noise == 'default'
    if sampling == 'cyclic_poisson':  # Each turn of three groups counts as a whole.
        shown, alone = shown[2::3], alone[2::3]
    for upper, own in zip(shown, alone, strict=True):
        # 'pld' without sampling may be below the grid's own value, never below the exact one.
        assert upper == own if is_exact else own * (1 - 1e-5) <= upper <= own * 1.001


def test_the_curve_of_correlated_noise_is_never_below_the_exact_one():
    plan = _plan(rounds=300, mechanism=mechanisms.Blt(300, [0.99, 0.5], [0.1, 0.2]))
    exact = running.RunningEpsilon(plan, _DELTA, 'analytic_gaussian')
    shown = running.RunningEpsilon(plan, _DELTA, 'pld')
    for t in range(1, 301, 13):
        assert exact.after(t) <= shown.after(t) <= exact.after(t) * (1 + 1e-6)


def test_accountants_that_give_different_numbers_are_told_apart():
    plan = _plan('poisson')
    shown = {name: running.RunningEpsilon(plan, _DELTA, name).after(8) for name in plan.accountants}
    assert shown['pld'] < 0.9 * shown['rdp'] < 0.9 * shown['moments']


@pytest.mark.parametrize('sampling', _SAMPLINGS)
@pytest.mark.parametrize('rounds', [1, 6])
def test_without_noise_there_is_no_guarantee(sampling, rounds):
    plan = _plan(sampling, noise_multiplier=0.0)
    assert running.RunningEpsilon(plan, _DELTA, 'rdp').after(rounds) == math.inf


@pytest.mark.parametrize('seen', ['pld', 'best'])
def test_a_long_run_composes_few_loss_distributions_that_are_upper_bounds(monkeypatch, seen):
    plan = _plan('poisson', rounds=2000, mechanism=mechanisms.Identity(2000))
    computed = []
    quick = lambda parts, delta, most, coarseness: (  # noqa: E731
        computed.append((parts[0][1], coarseness)) or 0.5 * most
    )
    monkeypatch.setattr(loss_distribution, 'epsilon', quick)
    epsilon = running.RunningEpsilon(plan, _DELTA, seen)
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


def test_a_long_run_with_correlated_noise_computes_one_loss_distribution(monkeypatch):
    plan = _plan(rounds=2000, mechanism=mechanisms.Blt(2000, [0.99, 0.5], [0.1, 0.2]))
    computed = []
    bound = accounting.gaussian.bound
    monkeypatch.setattr(
        accounting.gaussian,
        'bound',
        lambda *arguments: computed.append(arguments[2]) or bound(*arguments),
    )
    epsilon = running.RunningEpsilon(plan, _DELTA, 'pld')
    for t in range(1, 2001, 100):
        epsilon.after(t)
    assert computed.count('pld') == 1


def test_the_order_in_which_rounds_are_asked_for_does_not_matter():
    plan = _plan('poisson', rounds=200, mechanism=mechanisms.Identity(200))
    forward = running.RunningEpsilon(plan, _DELTA, 'best')
    values = [forward.after(t) for t in (150, 197, 198)]
    backward = running.RunningEpsilon(plan, _DELTA, 'best')
    assert [backward.after(t) for t in (198, 197, 150)] == values[::-1]


def test_bad_arguments():
    plan = _plan('without_replacement')
    with pytest.raises(errors.ArgumentError, match='accountant'):
        running.RunningEpsilon(plan, _DELTA, 'analytic_gaussian')
    with pytest.raises(errors.ArgumentError, match='delta'):
        running.RunningEpsilon(plan, 1.0, 'rdp')
    for rounds in (0, 10):
        with pytest.raises(errors.ArgumentError, match='rounds'):
            running.RunningEpsilon(plan, _DELTA, 'rdp').after(rounds)


def test_a_coarser_grid_gives_an_upper_bound_that_is_close():
    for count in (1, 300):
        parts = [((0.05, 1.0), count)]
        fine = loss_distribution.epsilon(parts, 1e-6, 9.0)
        coarse = loss_distribution.epsilon(parts, 1e-6, 9.0, 16.0)
        assert fine < coarse < fine * 1.001
