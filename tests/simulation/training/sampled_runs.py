"""Tiny runs with amplification by sampling, and what must hold of each."""

import csv
import pathlib

from dpfl import ParticipationLog, accounting
from dpfl.simulation import verification
from dpfl.simulation.sampling import Sampler
from dpfl.simulation.training import TrainConfig, train
from dpfl.simulation.training.plan import build_plan
from tests.simulation.training import small_config

ROUNDS, POPULATION, CLIENTS = 5, 24, 4


def config(sampling: str, bands: int) -> TrainConfig:
    """A run with banded noise."""
    return small_config.GAUSSIAN.with_values(
        {
            'mechanism': 'fichtenberger_toeplitz',
            'bands': bands,
            'sampling': sampling,
            'min_separation': 1,
            'rounds': ROUNDS,
            'population': POPULATION,
            'noise_multiplier': 2.0,
            'client_update': 'fedsgd',
        }
    )


def plan(base: TrainConfig, population: int = POPULATION, **changes) -> accounting.PrivacyPlan:
    """The plan of a configuration with other settings."""
    changed = base.with_values(changes)
    return build_plan(
        changed.privacy, changed.sampling, population=lambda: population, dimension=lambda: 1
    )


def trained(base: TrainConfig, path: pathlib.Path, sampler: Sampler) -> accounting.PrivacyReport:
    """The report of a run, which is verified, and has the sampler's cohorts in its log."""
    report = train(base, path, progress=False).report
    assert report.basis == 'plan' and report.plan.clients_per_round == CLIENTS
    with open(path / 'metrics.csv', newline='') as file:
        shown = [float(row['epsilon']) for row in csv.DictReader(file)]
    assert shown == sorted(shown) and shown[-1] == report.guarantee.epsilons[0]
    assert_verified(path)
    log = ParticipationLog.load(path / 'participation.npz')
    assert log == ParticipationLog(map(sampler.cohort, range(ROUNDS)))
    return report


def assert_verified(path: pathlib.Path) -> None:
    """Asserts that the records of a run directory agree."""
    assert verification.verify(path).differences == ()
