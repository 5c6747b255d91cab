"""The verdict on the noise of a plan, and what it says would do."""

import dataclasses

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.planning import feasibility
from tests.accounting import plans

_ACCOUNTANT = 'analytic_gaussian'
_ONCE = Participation(rounds=100, min_separation=100)
_PLAN = plans.independent(100, participation=_ONCE, clip_norm=0.5, clients_per_round=50)


@pytest.mark.parametrize(
    'dimension, feasible', [(10_000, 'yes'), (15_000, 'yes'), (40_000, 'doubtful'), (10**6, 'no')]
)
def test_the_noise_in_the_model_decides(dimension, feasible):
    found = feasibility.estimate(_PLAN, dimension, 1e-6, _ACCOUNTANT)
    assert found.feasible == feasible
    # Independent noise: that of a round is 2 / 50 in each of the entries.
    assert found.noise_to_signal == pytest.approx(0.04 * dimension**0.5)
    assert all(sentence.endswith('.') for sentence in found.advice)


def test_with_adaptive_clipping_it_is_the_noise_of_the_updates():
    # The noise of the counts is nearly used up: updates have ten times the noise multiplier.
    clip = accounting.AdaptiveClip(count_stddev=1 / 0.99**0.5)
    adaptive = dataclasses.replace(_PLAN, adaptive_clip=clip)
    louder = dataclasses.replace(_PLAN, noise_multiplier=20.0)
    assert feasibility.noise_in_model(adaptive, 9) == pytest.approx(
        feasibility.noise_in_model(louder, 9)
    )
    found, expected = (feasibility.estimate(plan, 1000) for plan in (adaptive, louder))
    assert found.feasible == expected.feasible == 'doubtful'
    assert found.noise_to_signal == pytest.approx(expected.noise_to_signal)


def test_rounds_of_the_mechanism_that_the_run_has_not_do_not_count():
    coefficients = 0.9 ** np.arange(50)
    whole, longer = (
        dataclasses.replace(_PLAN, mechanism=mechanisms.BandedToeplitz(rounds, coefficients))
        for rounds in (100, 400)
    )
    assert feasibility.noise_in_model(longer, 9) == feasibility.noise_in_model(whole, 9)
    assert feasibility.estimate(longer, 9) == feasibility.estimate(whole, 9)


@pytest.mark.parametrize('make', [mechanisms.BinaryTree, mechanisms.HonakerTree])
def test_noise_of_many_rounds_is_measured(make, monkeypatch):
    tree = make(500)
    computed = feasibility._round_error(tree, 400)
    monkeypatch.setattr(feasibility, '_MOST_DENSE_ROUNDS', 499)
    measured = feasibility._round_error(tree, 400)
    assert measured != computed and measured == pytest.approx(computed, rel=0.02)


def test_what_would_do_does():
    dimension, delta = 10**6, 1e-6
    _, would_do = feasibility.estimate(_PLAN, dimension, delta, _ACCOUNTANT).advice
    # The noise in the model is 2 / 50 * sqrt(100) * 1000 / 100 = 4, 8 times the limit.
    assert would_do.startswith('Any of these would do: 400 clients per round, with 8 times the')
    # A cohort of one cannot become 1.2, and so neither can its population.
    single = dataclasses.replace(_PLAN, clients_per_round=1)
    _, doubled = feasibility.estimate(single, 9, delta, _ACCOUNTANT).advice
    assert '2 clients per round, with 2 times the population' in doubled
    quieter = dataclasses.replace(_PLAN, noise_multiplier=0.25)
    assert f'epsilon {accounting.round_up(quieter.epsilon(delta, _ACCOUNTANT))};' in would_do
    for plan, size in (
        (dataclasses.replace(_PLAN, clients_per_round=400), dimension),
        (quieter, dimension),
        (_PLAN, 15_624),
    ):
        assert feasibility.estimate(plan, size).feasible == 'yes'


@pytest.mark.parametrize(
    'change, dimension, impossible',
    [(dict(noise_multiplier=500.0), 10, 'parameters'), (dict(noise='hardened'), 10**12, 'epsilon')],
)
def test_nothing_impossible_is_advised(change, dimension, impossible):
    plan = dataclasses.replace(_PLAN, **change)
    _, would_do = feasibility.estimate(plan, dimension, 1e-6, _ACCOUNTANT).advice
    assert 'clients per round' in would_do and impossible not in would_do


def test_without_a_dimension_or_noise():
    found = feasibility.estimate(_PLAN, None)
    assert (found.feasible, found.noise_to_signal) == ('doubtful', None)
    assert str(found).startswith('feasible: depends on the model. ')
    assert 'yes up to 15,625, doubtful up to 250,000, no above' in found.advice[0]
    hidden = dataclasses.replace(_PLAN, noise_multiplier=1001.0)
    assert feasibility.estimate(hidden, None).feasible == 'no'
    silent = dataclasses.replace(_PLAN, noise_multiplier=0.0)
    assert feasibility.estimate(silent, None).to_dict()['feasible'] == 'yes'
