"""Releases before training: their composition with the rounds, against brute force."""

import dataclasses
import json
import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting import before_training, events, gaussian, tradeoff
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.selection import Selection
from dpfl.errors import ArgumentError

_WORDS = accounting.ReleaseBefore('a list of words', 6.0, math.sqrt(2), 2e-7)
_VALUE = accounting.ReleaseBefore('a value', 8.0, 1.25)
_PLAN = accounting.PrivacyPlan(
    mechanism=mechanisms.Blt(5, [0.9], [0.3]),
    participation=Participation(5, 2),
    clip_norm=1.0,
    noise_multiplier=4.0,
    clients_per_round=10,
)
_SAMPLED = accounting.PrivacyPlan(
    mechanism=mechanisms.Identity(30),
    participation=Participation(30),
    clip_norm=0.5,
    noise_multiplier=1.0,
    clients_per_round=10,
    sampling='poisson',
    population=1000,
)


def _with(plan, *before):
    return dataclasses.replace(plan, before=before)


def _divergence(mu, revealed, epsilon):
    """Delta at an epsilon of the pair: N(0, 1) and N(mu, 1), or by chance the answer itself.

    By sums over a fine grid, from the definition.
    """
    x = np.linspace(-12, 12 + mu, 400_001)
    p, q = stats.norm.pdf(x) * (1 - revealed), stats.norm.pdf(x - mu) * (1 - revealed)
    step = x[1] - x[0]
    return revealed + np.maximum(p - math.exp(epsilon) * q, 0).sum() * step


@pytest.mark.parametrize('before', [(_WORDS,), (_VALUE,), (_WORDS, _VALUE)])
@pytest.mark.parametrize('delta', [1e-6, 1e-3])
def test_epsilon_is_that_of_the_composed_pair(before, delta):
    plan = _with(_PLAN, *before)
    noises = [_PLAN.noise_multiplier / _PLAN.sensitivity, *(e.noise_multiplier for e in before)]
    mu = math.sqrt(sum(noise**-2 for noise in noises))
    assert plan.mu == pytest.approx(mu, rel=1e-12) and plan.mu >= mu * (1 - 1e-15)
    epsilon = plan.epsilon(delta, 'analytic_gaussian')
    revealed = sum(each.delta for each in before)
    assert _divergence(mu, revealed, epsilon) <= delta * (1 + 1e-6)
    assert _divergence(mu, revealed, epsilon * 0.999) > delta
    assert epsilon > _PLAN.epsilon(delta, 'analytic_gaussian')


def test_all_of_a_delta_may_be_spent():
    plan = _with(_PLAN, dataclasses.replace(_WORDS, delta=1e-6))
    assert math.isinf(plan.epsilon(1e-6)) and math.isinf(plan.epsilon(1e-7))
    assert plan.epsilon(1.1e-6) < math.inf
    report = accounting.PrivacyReport.from_plan(plan, [1e-6, 1e-5])
    assert report.guarantee.epsilons[0] is None and report.guarantee.epsilons[1] > 0


def test_sampling_does_not_amplify_what_was_released_before():
    plan = _with(_SAMPLED, _WORDS)
    one_event = dp_accounting.ComposedDpEvent(
        [_SAMPLED.dp_event(), dp_accounting.GaussianDpEvent(6.0)]
    )
    left = 1e-6 - _WORDS.delta
    for method in ('pld', 'rdp', 'moments', 'best'):
        expected = events.bound(one_event, left, method, neighbours=plan.neighbours).epsilon
        assert plan.epsilon(1e-6, method) == pytest.approx(expected, rel=1e-9)
    # A release of a sample would have cost next to nothing.
    sampled = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(6.0))
    less = dp_accounting.ComposedDpEvent([_SAMPLED.dp_event(), sampled])
    assert plan.epsilon(1e-6) > 1.05 * accounting.epsilon_of_event(less, 1e-6)


@pytest.mark.parametrize(
    'adjacency, group_size, expected',
    [('zero_out', 1, 1 / 8), ('replace_one', 1, 1.25 / 8), ('zero_out', 3, 3 / 8)],
)
def test_neighbours_move_a_release_as_far_as_they_can(adjacency, group_size, expected):
    assert _VALUE.mu(Neighbours(adjacency, group_size)) == expected
    alone = dataclasses.replace(_PLAN, adjacency=adjacency, group_size=group_size)
    assert _with(alone, _VALUE).mu == pytest.approx(math.hypot(alone.mu, expected), rel=1e-12)


def test_noise_is_calibrated_to_what_the_releases_leave():
    for plan, accountant in ((_PLAN, 'pld'), (_SAMPLED, 'rdp')):
        fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
        fields.pop('noise_multiplier')
        fields['before'] = (_WORDS, _VALUE)
        found = accounting.PrivacyPlan.calibrated(
            epsilon=2.0, delta=1e-6, accountant=accountant, **fields
        )
        assert 1.99 < found.epsilon(1e-6, accountant) <= 2.0
        fields['before'] = ()
        less = accounting.PrivacyPlan.calibrated(
            epsilon=2.0, delta=1e-6, accountant=accountant, **fields
        )
        assert found.noise_multiplier > less.noise_multiplier
    fields = {field.name: getattr(_PLAN, field.name) for field in dataclasses.fields(_PLAN)}
    fields |= {'before': (_WORDS,)}
    fields.pop('noise_multiplier')
    with pytest.raises(ArgumentError, match=r'above [\d.]+, that of the releases before training'):
        accounting.PrivacyPlan.calibrated(epsilon=0.1, delta=1e-6, **fields)
    with pytest.raises(ArgumentError, match='delta=1e-07: must be above 2e-07'):
        accounting.PrivacyPlan.calibrated(epsilon=1.0, delta=1e-7, **fields)


def test_earlier_runs_bring_their_releases_along():
    both = dataclasses.replace(_with(_PLAN, _VALUE), earlier=(_with(_PLAN, _WORDS),))
    parts = [_PLAN.mu, _PLAN.mu, 1 / 6, 1 / 8]
    assert both.mu == pytest.approx(math.hypot(*parts), rel=1e-12)
    assert both.delta_before == pytest.approx(_WORDS.delta) and both.delta_before >= _WORDS.delta
    expected = gaussian.epsilon_from_mu(both.mu, 1e-6 - both.delta_before)
    assert both.epsilon(1e-6) == pytest.approx(expected, rel=1e-9)


def test_a_log_of_a_broken_plan_counts_them_too():
    log = ParticipationLog([[0], [0], [1]])
    plan = _with(_PLAN, _WORDS)
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], log)
    alone = accounting.PrivacyReport.from_plan(_PLAN, [1e-6], log)
    assert report.basis == alone.basis == 'log'
    mu = math.hypot(alone.guarantee.mu, 1 / 6)
    assert report.guarantee.mu == pytest.approx(mu, rel=1e-9)
    expected = gaussian.epsilon_from_mu(mu, 1e-6 - _WORDS.delta)
    assert report.guarantee.epsilons[0] == pytest.approx(expected, rel=1e-6)
    composed = accounting.epsilon_of_event(report.dp_event(), 1e-6)
    assert composed == pytest.approx(report.guarantee.epsilons[0], rel=1e-6)


def test_the_report_states_them_and_is_read_back():
    plan = _with(_PLAN, _WORDS)
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], with_tradeoff=True)
    values = json.loads(report.to_json())
    assert values['plan']['before'] == [_WORDS.to_dict()]
    assert '2e-07-approximate' in values['statement'] and 'a list of words' in values['statement']
    assert any('does not amplify' in each for each in values['assumptions'])
    assert not any('for the vocabulary' in each for each in values['not_covered'])
    assert accounting.PrivacyReport.from_json(report.to_json()).plan == plan
    plain = accounting.PrivacyReport.from_plan(_PLAN, [1e-6])
    assert 'before' not in plain.to_dict()['plan'] and 'approximate' not in plain.render()
    with pytest.raises(ArgumentError, match='selected_from'):
        report.selected_from(Selection('geometric', 8.0))
    # A smaller epsilon than follows from the plan is refused.
    values['plan_guarantee']['epsilons'] = [_PLAN.epsilon(1e-6)]
    with pytest.raises(ValueError, match='not a privacy report'):
        accounting.PrivacyReport.from_json(json.dumps(values))


def test_the_tradeoff_curve_has_what_is_revealed():
    revealed = 0.1
    event = before_training.with_delta(dp_accounting.GaussianDpEvent(2.0), revealed)
    found = tradeoff.of_event(event, rates=(0.01, 0.3))
    for rate, true in found.points:
        # The best test: what is revealed, or else the likelihood ratio, as the definition says.
        inner = stats.norm.sf(stats.norm.isf(rate / (1 - revealed)) - 0.5)
        assert true == pytest.approx(revealed + (1 - revealed) * inner, rel=1e-9)
    assert found.advantage == pytest.approx(_divergence(0.5, revealed, 0.0), abs=1e-5)
    sure = before_training.with_delta(dp_accounting.GaussianDpEvent(2.0), 1.0 - 1e-17)
    assert tradeoff.of_event(sure).advantage == 1.0


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(noise='hardened'), 'noise=hardened: must be default with a list of words'),
        (dict(group_size=2), 'group_size=2: must be 1 with a list of words'),
    ],
)
def test_what_is_not_proven_is_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        dataclasses.replace(_with(_PLAN, _WORDS), **changes)


def test_an_estimated_guarantee_is_not_composed():
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(4),
        participation=Participation(4, 2),
        clip_norm=1.0,
        noise_multiplier=1.0,
        clients_per_round=5,
        sampling='balls_in_bins',
        population=10,
        groups=2,
    )
    with pytest.raises(ArgumentError, match='which cannot be composed with a value'):
        _with(plan, _VALUE)


@pytest.mark.parametrize(
    'changes', [dict(noise_multiplier=0.0), dict(replaced=2.5), dict(delta=1.0), dict(name='')]
)
def test_values_out_of_range_are_refused(changes):
    with pytest.raises(ArgumentError):
        dataclasses.replace(_VALUE, **changes)
