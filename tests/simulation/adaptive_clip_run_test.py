"""A run with an adaptive clip norm: its course is on record, and survives a crash."""

import csv
import dataclasses
import itertools
import json
import shutil
import types

import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.records import verification
from dpfl.simulation import checkpoint_folder, outputs, program
from tests.simulation import toy_experiment

pytestmark = pytest.mark.tff

_ROUNDS = 6
_NAMES = ('clip_norm', 'clip_norm_estimate', 'clip_count', 'clip_restart')


class _CrashError(Exception):
    pass


@pytest.fixture(scope='module', name='runs')
def _runs(tmp_path_factory):
    """Experiment, directory of a run that crashed in round 4 and went on, one without a crash."""
    experiment = toy_experiment.experiment(
        rounds=_ROUNDS,
        plan_fields=dict(
            mechanism=mechanisms.Restarted(mechanisms.Blt(3, [0.9], [0.2]), (3,), _ROUNDS),
            participation=Participation(_ROUNDS, 2),
            clip_norm=0.05,
            noise_multiplier=1.0,
            adaptive_clip=accounting.AdaptiveClip(0.6, learning_rate=1.5, count_stddev=4.0),
        ),
        checkpoint_every=2,
    )
    path = tmp_path_factory.mktemp('run')
    real, rounds = experiment.process, itertools.count()

    def crash(*arguments):
        if next(rounds) == 3:
            raise _CrashError
        return real.next(*arguments)

    stub = types.SimpleNamespace(
        initialize=real.initialize, next=crash, get_model_weights=real.get_model_weights
    )
    with pytest.raises(_CrashError):
        crashing = dataclasses.replace(experiment, process=stub)
        program.run_training(crashing, outputs.RunDirectory(path))
    other = tmp_path_factory.mktemp('other') / 'run'
    program.run_training(experiment, outputs.RunDirectory(other))
    start = checkpoint_folder.latest(path / 'checkpoints', pytest.fail)
    assert start.rounds == 2
    program.run_training(experiment, outputs.RunDirectory(path, resume=True), start)
    return experiment, path, other


def _columns(path):
    with open(path / 'metrics.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in _NAMES}


def test_norms_estimates_and_restarts_are_those_of_the_algorithm(runs):
    experiment, path, _ = runs
    plan, found = experiment.plan, _columns(path)
    settings, fresh = plan.adaptive_clip, sorted(plan.fresh_rounds)
    sums = np.cumsum(found['clip_count'] / plan.clients_per_round)
    target = settings.target_quantile * np.arange(_ROUNDS)
    estimates = plan.clip_norm * np.exp(-settings.learning_rate * (sums - target))
    np.testing.assert_allclose(found['clip_norm_estimate'], estimates, rtol=1e-6)
    assert list(np.flatnonzero(found['clip_restart'])) == fresh == [3]
    np.testing.assert_array_equal(
        found['clip_norm'],
        [*[np.float32(plan.clip_norm)] * 3, *[found['clip_norm_estimate'][2]] * 3],
    )


def test_no_count_is_without_noise(runs):
    _, path, _ = runs
    counts = _columns(path)['clip_count']
    # Counts are multiples of one half; noise of standard deviation 4 is not.
    assert (np.abs(2 * counts - np.round(2 * counts)) > 1e-9).all()
    assert counts.std() > 1


def test_a_crash_leaves_the_same_bytes(runs):
    _, path, other = runs

    def without_seconds(directory):
        with open(directory / 'metrics.csv', newline='') as file:
            return [{**row, 'seconds': ''} for row in csv.DictReader(file)]

    assert without_seconds(path) == without_seconds(other)
    for name in ('privacy_report.json', 'privacy_report.md', 'model.npz'):
        assert (path / name).read_bytes() == (other / name).read_bytes(), name


def test_the_report_has_the_course_and_is_verified(runs, tmp_path):
    _, path, _ = runs
    found, report = _columns(path), json.loads((path / 'privacy_report.json').read_text())
    assert report['clip_course'] == {
        'norms': [[0, found['clip_norm'][0]], [3, found['clip_norm'][3]]],
        'estimate': found['clip_norm_estimate'][-1],
    }
    copy = shutil.copytree(path, tmp_path / 'copy')
    assert verification.verify(copy).differences == ()


def test_tensorboard_has_it(runs):
    _, path, _ = runs
    events = event_accumulator.EventAccumulator(str(path / 'tensorboard'))
    events.Reload()
    for name in _NAMES:
        assert [event.step for event in events.Tensors(name)] == list(range(1, _ROUNDS + 1))
