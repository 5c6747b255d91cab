"""Canaries take part as the clients of each sampling do."""

import functools

import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.auditing import canaries
from dpfl.simulation import sampling
from dpfl.simulation.training.sampling_config import SamplingConfig

_ROUNDS, _CLIENTS, _POPULATION, _GROUPS = 12, 5, 60, 4
_BANDED = mechanisms.BandedToeplitz(_ROUNDS, (1.0, 0.5, 0.25))
_SAMPLINGS = {
    'poisson': (mechanisms.Identity(_ROUNDS), Participation(_ROUNDS), {}),
    'truncated_poisson': (
        mechanisms.Identity(_ROUNDS),
        Participation(_ROUNDS),
        {'cohort_cap': 5},
    ),
    'without_replacement': (mechanisms.Identity(_ROUNDS), Participation(_ROUNDS), {}),
    'cyclic_poisson': (_BANDED, Participation(_ROUNDS, _GROUPS), {'groups': _GROUPS}),
    'balls_in_bins': (_BANDED, Participation(_ROUNDS, _GROUPS), {'groups': _GROUPS}),
    'random_allocation': (_BANDED, Participation(_ROUNDS, 1, 3), {'groups': _GROUPS}),
    'b_min_sep': (_BANDED, Participation(_ROUNDS, _GROUPS), {'groups': _GROUPS}),
}


def _clients(name: str) -> int:
    """Cohort size: with bins every client takes part once in four rounds."""
    is_bins = name in ('balls_in_bins', 'random_allocation')
    return _POPULATION // _GROUPS if is_bins else _CLIENTS


def _plan(name: str) -> accounting.PrivacyPlan:
    mechanism, participation, values = _SAMPLINGS[name]
    return accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=participation,
        clip_norm=1.0,
        noise_multiplier=2.0,
        clients_per_round=_clients(name),
        sampling=name,
        population=_POPULATION,
        **values,
    )


def _samplers(name: str, plan: accounting.PrivacyPlan):
    config = SamplingConfig(
        sampling=name,
        rounds=_ROUNDS,
        clients_per_round=_clients(name),
        population=_POPULATION,
        cohort_cap=plan.cohort_cap,
    )
    return lambda seed: config.sampler(plan.participation, _POPULATION, seed, plan.groups)


@functools.cache
def _design(name: str, count: int = 6000, seed: int = 0) -> canaries.CanaryDesign:
    plan = _plan(name)
    samplers = _samplers(name, plan)
    sampling.check(samplers(0), plan)
    return canaries.design(plan, count, seed, 100, samplers)


@pytest.mark.parametrize('name', _SAMPLINGS)
def test_canaries_take_part_as_clients_do(name):
    found, plan = _design(name), _plan(name)
    assert found.pattern is None
    assert all(plan.participation.admits(np.flatnonzero(row)) for row in found.rounds[:200])
    shares = np.stack([found.rounds[found.group == g].mean(axis=0) for g in np.unique(found.group)])
    rate = _clients(name) / _POPULATION
    if name == 'truncated_poisson':
        # Cohorts above the cap lose clients.
        assert 0.7 * rate < shares.mean() < 0.95 * rate
    elif name == 'cyclic_poisson':
        turns = np.arange(_ROUNDS) % _GROUPS == np.arange(_GROUPS)[:, None]
        assert (shares[~turns] == 0).all()
        # 1,500 canaries in each group: outside of these ends with probability below 1e-6.
        assert np.abs(shares[turns] - rate * _GROUPS).max() < 0.07
    else:
        # 6,000 canaries: outside of these ends with probability below 1e-6.
        assert np.abs(shares - rate).max() < 0.035
    if name == 'balls_in_bins':
        assert (found.rounds.sum(axis=1) == _ROUNDS // _GROUPS).all()


@pytest.mark.parametrize('name', _SAMPLINGS)
def test_weights_are_those_of_the_optimal_test_for_the_mean_of_the_rounds(name):
    found, plan = _design(name), _plan(name)
    strategy = plan.mechanism.strategy_matrix()
    for g, weights in enumerate(found.weights):
        # Noise C^-1 z in the weighted sum of releases has variance 1.
        assert np.linalg.norm(np.linalg.solve(strategy.T, weights)) == pytest.approx(1.0)
        turns = np.ones(_ROUNDS)
        if name == 'cyclic_poisson':
            turns = np.arange(_ROUNDS) % _GROUPS == g
        longest = np.linalg.norm(strategy @ turns)
        assert weights @ turns == pytest.approx(longest)
    assert np.array_equal(found.effects[1::2], np.zeros_like(found.effects[1::2]))


def test_rounds_are_a_function_of_the_seed():
    name = 'cyclic_poisson'
    assert np.array_equal(_design(name, 40).rounds, _design.__wrapped__(name, 40).rounds)
    assert not np.array_equal(_design(name, 40).rounds, _design(name, 40, 1).rounds)
    # More canaries than clients: they are clients of several samplers.
    assert np.unique(_design('poisson', 400).rounds, axis=0).shape[0] > 60


def test_samplings_need_samplers():
    with pytest.raises(errors.ArgumentError, match='samplers=None: must be given for poisson'):
        canaries.design(_plan('poisson'), 10, 0, 100)
