"""Runs with b-min-sep sampling: trained, verified and continued."""

import functools

import numpy as np
import pytest

from dpfl import ParticipationLog
from dpfl.accounting.sampling import monte_carlo
from dpfl.errors import ArgumentError
from dpfl.simulation.min_sep_sampling import MinSepSampler
from dpfl.simulation.training import train
from tests.simulation.training import sampled_runs

_CONFIG = sampled_runs.config('b_min_sep', bands=3)
_plan = functools.partial(sampled_runs.plan, _CONFIG)


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)


@pytest.mark.tff
@pytest.mark.exhaustive
def test_a_run_is_verified_and_goes_on_as_it_would_have(tmp_path):
    path = tmp_path / 'run'
    report = sampled_runs.trained(_CONFIG, path, MinSepSampler(5, 24, 4, 3, seed=_CONFIG.seed))
    assert (report.plan.groups, report.plan.participation.min_separation) == (3, 3)
    assert report.guarantee.accountants == ('monte_carlo',)
    longer = train(_CONFIG.with_values({'rounds': 7}), path, resume=True, progress=False)
    assert longer.report.basis == 'plan' and longer.report.plan.groups == 3
    sampled_runs.assert_verified(path)
    log = ParticipationLog.load(path / 'participation.npz')
    sampler = MinSepSampler(7, 24, 4, 3, seed=_CONFIG.seed)
    for t in range(7):
        np.testing.assert_array_equal(np.sort(log.cohort(t)), np.sort(sampler.cohort(t)))


def test_the_separation_of_a_configuration():
    plan = _plan()
    assert (plan.groups, plan.participation.min_separation) == (3, 3)
    assert _plan(groups=5).participation.min_separation == 5
    sampler = _CONFIG.sampling.sampler(plan.participation, 24, 0, plan.groups)
    assert sampler == MinSepSampler(5, 24, 4, 3)
    found = _plan(noise_multiplier=None, target_epsilon=2.0, delta=1e-4)
    assert 1.8 < found.epsilon(1e-4, 'best') <= 2


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(groups=2), 'groups=2: must be at least 3, the bands of the strategy'),
        (dict(groups=7), 'population=24: must be at least 28, 7 groups of clients_per_round=4'),
        (dict(mechanism='tree', bands=None), 'mechanism=tree: cannot be a tree'),
    ],
)
def test_configurations_that_are_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        _plan(**changes)
