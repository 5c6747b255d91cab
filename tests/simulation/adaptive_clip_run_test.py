"""A run with an adaptive clip norm: its course is that of the algorithm, and on record."""

import csv
import json

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.records import verification
from dpfl.simulation import program, run_directory
from tests.simulation import toy_experiment

pytestmark = [pytest.mark.tff, pytest.mark.standard]

_ROUNDS = 6
_NAMES = ('clip_norm', 'clip_norm_estimate', 'clip_count', 'clip_restart')


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    """The plan, the directory of its run, and columns of the metrics."""
    experiment = toy_experiment.experiment(
        rounds=_ROUNDS,
        plan_fields=dict(
            mechanism=mechanisms.Restarted(mechanisms.Blt(3, [0.9], [0.2]), (3,), _ROUNDS),
            participation=Participation(_ROUNDS, 2),
            clip_norm=0.05,
            noise_multiplier=1.0,
            adaptive_clip=accounting.AdaptiveClip(0.6, learning_rate=1.5, count_stddev=4.0),
        ),
    )
    path = tmp_path_factory.mktemp('run')
    program.run_training(experiment, run_directory.RunDirectory(path))
    with open(path / 'metrics.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([float(row[name]) for row in rows]) for name in _NAMES}
    return experiment.plan, path, columns


def test_norms_estimates_and_restarts_are_those_of_the_algorithm(run):
    plan, _, found = run
    settings = plan.adaptive_clip
    sums = np.cumsum(found['clip_count'] / plan.clients_per_round)
    target = settings.target_quantile * np.arange(_ROUNDS)
    estimates = plan.clip_norm * np.exp(-settings.learning_rate * (sums - target))
    np.testing.assert_allclose(found['clip_norm_estimate'], estimates, rtol=1e-6)
    assert list(np.flatnonzero(found['clip_restart'])) == sorted(plan.fresh_rounds) == [3]
    np.testing.assert_array_equal(
        found['clip_norm'],
        [*[np.float32(plan.clip_norm)] * 3, *[found['clip_norm_estimate'][2]] * 3],
    )


def test_no_count_is_without_noise(run):
    counts = run[2]['clip_count']
    # Counts are multiples of one half; noise of standard deviation 4 is not.
    assert (np.abs(2 * counts - np.round(2 * counts)) > 1e-9).all()
    assert counts.std() > 1


def test_the_report_has_the_course_and_is_verified(run):
    _, path, found = run
    report = json.loads((path / 'privacy_report.json').read_text())
    assert report['clip_course'] == {
        'norms': [[0, found['clip_norm'][0]], [3, found['clip_norm'][3]]],
        'estimate': found['clip_norm_estimate'][-1],
    }
    assert verification.verify(path).differences == ()
