"""Runs with balls in bins and random allocation: trained, verified and continued."""

import csv

import pytest

from dpfl import Participation, ParticipationLog
from dpfl.accounting.records import verification
from dpfl.accounting.sampling import monte_carlo
from dpfl.errors import ArgumentError
from dpfl.simulation import sampling
from dpfl.simulation.training import train
from dpfl.simulation.training.plan import build_plan
from experiments.flags import recorded_flags
from tests.simulation.training import small_config

_CONFIG = small_config.GAUSSIAN.with_values(
    {
        'mechanism': 'fichtenberger_toeplitz',
        'bands': 5,
        'sampling': 'balls_in_bins',
        'min_separation': 1,
        'rounds': 5,
        'population': 24,
        'noise_multiplier': 2.0,
        'client_update': 'fedsgd',
    }
)


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)


def _plan(population=24, **changes):
    config = _CONFIG.with_values(changes)
    return build_plan(
        config.privacy, config.sampling, population=lambda: population, dimension=lambda: 1
    )


@pytest.mark.tff
def test_a_run_is_verified_with_the_bins_of_its_log(tmp_path):
    path = tmp_path / 'run'
    result = train(_CONFIG, path, progress=False)
    plan = result.report.plan
    assert (plan.groups, plan.participation.min_separation, plan.clients_per_round) == (6, 6, 4)
    assert result.report.basis == 'plan'
    assert result.report.guarantee.accountants == ('monte_carlo',)
    with open(path / 'metrics.csv', newline='') as file:
        shown = [float(row['epsilon']) for row in csv.DictReader(file)]
    assert shown == sorted(shown) and shown[-1] == result.report.guarantee.epsilons[0]
    found = verification.verify(path)
    assert found.differences == () and recorded_flags.differences(path, found.report) == []
    log = ParticipationLog.load(path / 'participation.npz')
    sampler = sampling.BinSampler(5, 24, 4, 6, seed=_CONFIG.seed)
    assert log == ParticipationLog(map(sampler.cohort, range(5)))


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
