"""Runs with balls in bins and random allocation: trained, verified and continued."""

import functools

import pytest

from dpfl import Participation
from dpfl.accounting.sampling import monte_carlo
from dpfl.errors import ArgumentError
from dpfl.simulation import sampling
from dpfl.simulation.bin_sampling import BinSampler
from tests.simulation.training import sampled_runs

_CONFIG = sampled_runs.config('balls_in_bins', bands=5)
_plan = functools.partial(sampled_runs.plan, _CONFIG)


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)


@pytest.mark.tff
def test_a_run_is_verified_with_the_bins_of_its_log(tmp_path):
    sampler = BinSampler(5, 24, 4, 6, seed=_CONFIG.seed)
    report = sampled_runs.trained(_CONFIG, tmp_path / 'run', sampler)
    assert (report.plan.groups, report.plan.participation.min_separation) == (6, 6)
    assert report.guarantee.accountants == ('monte_carlo',)


def test_the_bins_of_a_configuration():
    assert _plan(groups=5).groups == 5
    assert _plan(population=27).groups == 6
    allocated = _plan(sampling='random_allocation', groups=6, rounds=14)
    assert allocated.participation == Participation(14, 1, 3)
    for plan in (_plan(), allocated):
        config = _CONFIG.with_values({'sampling': plan.sampling})
        sampler = config.sampling.sampler(plan.participation, 24, 0, plan.groups)
        sampling.check(sampler, plan)


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(groups=9), 'population=24: must be about 36, 9 groups of clients_per_round=4'),
        (dict(mechanism='tree', bands=None), 'cannot be a tree with sampling=balls_in_bins'),
        (dict(cohort_cap=9), 'cohort_cap=9: needs truncated_poisson'),
        (
            dict(noise_multiplier=None, target_epsilon=2.0, accountant='rdp'),
            'accountant=rdp: must be best with sampling=balls_in_bins',
        ),
    ],
)
def test_configurations_that_are_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        _plan(**changes)
