"""Noise for a target: met from below by every kind of plan, or refused."""

import dataclasses

import pytest

from dpfl import accounting
from tests.accounting import plans
from tests.sizes import standard

_DELTA = 1e-6
_BEFORE = (
    accounting.ReleaseBefore('a list of words', 6.0, 2**0.5, 2e-7),
    accounting.ReleaseBefore('a value', 8.0, 1.25),
)
_TREE = plans.production()
_BLT = plans.plan()
_EARLIER = dataclasses.replace(_BLT, noise_multiplier=9.0)
_POISSON, _FIXED_SIZE = (
    plans.independent(30, sampling=sampling, population=1000, noise_multiplier=1.0)
    for sampling in ('poisson', 'without_replacement')
)
_ADAPTIVE = plans.adaptive()
# Counts with noise 1, so that the noise multiplier must stay below 2.
_COUNTED = dataclasses.replace(
    _POISSON, clients_per_round=20, adaptive_clip=accounting.AdaptiveClip()
)


@pytest.mark.parametrize(
    'plan, accountant, epsilon',
    [
        (_TREE, 'rdp', 0.1),
        (_TREE, 'rdp', 8.0),
        (_TREE, 'analytic_gaussian', 0.1),
        (_TREE, 'analytic_gaussian', 8.0),
        (_TREE, 'moments', 1.0),
        standard(_TREE, 'pld', 1.0),
        (_POISSON, 'rdp', 1.5),
        standard(_POISSON, 'pld', 2.0),
        (_FIXED_SIZE, 'moments', 1.5),
        (plans.sampled('cyclic_poisson'), 'rdp', 1.5),
        (_ADAPTIVE, 'analytic_gaussian', 8.0),
        (_COUNTED, 'rdp', 1.5),
    ],
)
def test_the_target_is_met_from_below(plan, accountant, epsilon):
    reached = plans.calibrated(plan, epsilon, accountant).epsilon(_DELTA, accountant)
    assert epsilon * (1 - 1e-5) <= reached <= epsilon


def test_the_smallest_target_is_met():
    for accountant in ('analytic_gaussian', 'rdp'):
        mu = accounting.mu_from_epsilon(5e-324, _DELTA, accountant)
        assert mu > 1e-7 and accounting.epsilon_from_mu(mu, _DELTA, accountant) <= 5e-324


@pytest.mark.parametrize(
    'plan, others, accountant, most',
    [
        (_BLT, dict(before=_BEFORE), 'analytic_gaussian', 9.0),
        (_POISSON, dict(before=_BEFORE), 'rdp', 9.0),
        (_BLT, dict(earlier=(_EARLIER,)), 'rdp', 9.0),
        # Hardened noise needs hardly more.
        (_BLT, dict(noise='hardened'), 'analytic_gaussian', 1 + 1e-4),
        (_POISSON, dict(noise='hardened'), 'rdp', 1 + 1e-4),
    ],
)
def test_more_noise_is_found_for_what_else_a_guarantee_counts(plan, others, accountant, most):
    found, alone = (plans.calibrated(plan, 2.0, accountant, **each) for each in (others, {}))
    assert 1.99 < found.epsilon(_DELTA, accountant) <= 2.0
    assert 1 < found.noise_multiplier / alone.noise_multiplier < most


@pytest.mark.parametrize('more', [1e-3, 1e-5])
@pytest.mark.parametrize('others', [dict(before=_BEFORE), dict(earlier=(_EARLIER,))])
def test_a_target_just_above_what_other_releases_take_is_met_in_few_steps(
    others, more, monkeypatch
):
    alone = dataclasses.replace(_BLT, noise_multiplier=1e25, **others)
    target = alone.epsilon(_DELTA, 'analytic_gaussian') * (1 + more)
    tried, epsilon = [], accounting.PrivacyPlan.epsilon
    with monkeypatch.context() as patch:
        patch.setattr(
            accounting.PrivacyPlan, 'epsilon', lambda *args: tried.append(0) or epsilon(*args)
        )
        found = plans.calibrated(_BLT, target, 'analytic_gaussian', **others)
    assert target * (1 - 1e-9) < found.epsilon(_DELTA, 'analytic_gaussian') <= target
    assert len(tried) < 300


@pytest.mark.parametrize(
    'arguments, changes, message',
    [
        ((_POISSON, 0.01, 'moments', 1e-10), {}, 'epsilon=0.01: must be at least'),
        ((_POISSON, 0.01, 'rdp', 1e-10), {}, 'epsilon=0.01: must be at least'),
        ((_ADAPTIVE, 0.5), dict(clients_per_round=10), 'count_stddev=0.5: must be > '),
        ((_TREE, 1e-12), dict(noise='hardened'), 'must be above .* with noise=hardened'),
        ((_BLT, 0.1), dict(before=_BEFORE), r'above [\d.]+, that of the releases before training'),
        ((_BLT, 1.0, 'rdp', 1e-7), dict(before=_BEFORE), 'delta=1e-07: must be above 2e-07'),
        (
            (_BLT, _EARLIER.epsilon(_DELTA, 'analytic_gaussian') * 0.9),
            dict(earlier=(_EARLIER,)),
            f'above {_EARLIER.epsilon(_DELTA, "analytic_gaussian"):.4g}, that of the earlier runs',
        ),
    ],
)
def test_a_target_that_no_noise_meets_is_refused(arguments, changes, message):
    with pytest.raises(ValueError, match=message):
        plans.calibrated(*arguments, **changes)


@pytest.mark.parametrize('accountant, least', [('moments', 0.7196), ('rdp', 0.01476)])
def test_the_least_epsilon_of_an_accountant_is_named(accountant, least):
    with pytest.raises(ValueError, match=f'epsilon=0.01: must be at least {least}, the least that'):
        accounting.mu_from_epsilon(0.01, 1e-10, accountant)
