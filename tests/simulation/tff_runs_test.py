"""Whole runs of a process of TFF: a run learns, adapts its clip norm, and is copied."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.records import verification
from tests import runs
from tests.simulation import toy_experiment

pytestmark = [pytest.mark.tff, pytest.mark.usefixtures('undrawn')]


def _model(experiment, path):
    """The weights of the model of a run as one vector."""
    toy_experiment.run(experiment, path)
    with np.load(path / 'model.npz') as model:
        return np.concatenate([np.ravel(model[name]) for name in model])


@pytest.mark.standard
def test_a_run_learns(tmp_path):
    weights = _model(toy_experiment.experiment(), tmp_path)
    np.testing.assert_allclose(weights, toy_experiment.TARGET, atol=0.1)
    assert float(runs.metrics(tmp_path)[-1]['loss']) < 0.05


@pytest.mark.standard
def test_the_course_of_an_adaptive_clip_norm_is_that_of_the_algorithm(tmp_path):
    rounds = 6
    experiment = toy_experiment.experiment(
        rounds=rounds,
        plan_fields=dict(
            mechanism=mechanisms.Restarted(mechanisms.Blt(3, [0.9], [0.2]), (3,), rounds),
            participation=Participation(rounds, 2),
            clip_norm=0.05,
            noise_multiplier=1.0,
            adaptive_clip=accounting.AdaptiveClip(0.6, learning_rate=1.5, count_stddev=4.0),
        ),
    )
    toy_experiment.run(experiment, tmp_path)
    rows = runs.metrics(tmp_path)
    names = ('clip_norm', 'clip_norm_estimate', 'clip_count', 'clip_restart')
    norms, estimates, counts, restarts = (
        np.array([float(row[name]) for row in rows]) for name in names
    )
    plan = experiment.plan
    settings = plan.adaptive_clip
    sums = np.cumsum(counts / plan.clients_per_round)
    exponents = settings.learning_rate * (settings.target_quantile * np.arange(rounds) - sums)
    np.testing.assert_allclose(estimates, plan.clip_norm * np.exp(exponents), rtol=1e-6)
    assert list(np.flatnonzero(restarts)) == sorted(plan.fresh_rounds) == [3]
    np.testing.assert_array_equal(norms, [np.float32(plan.clip_norm)] * 3 + [estimates[2]] * 3)
    # Counts are multiples of one half; noise of standard deviation 4 is not.
    assert (np.abs(2 * counts - np.round(2 * counts)) > 1e-9).all() and counts.std() > 1

    report = json.loads((tmp_path / 'privacy_report.json').read_text())
    course = {'norms': [[0, norms[0]], [3, norms[3]]], 'estimate': estimates[-1]}
    assert report['clip_course'] == course
    assert verification.verify(tmp_path).differences == ()


_DONE = 2


def _experiment(place, noise):
    storage = None if place is None else mechanisms.NoiseStorage(place, 1e-9, 'for a test')
    return toy_experiment.experiment(
        noise_multiplier=100.0,
        rounds=_DONE + 1,
        noise_storage=storage,
        checkpoint_every=1,
        plan_fields={'noise': noise},
    )


@pytest.mark.parametrize(
    'place, noise',
    [
        pytest.param(None, 'default', marks=pytest.mark.standard),
        pytest.param('memory', 'default', marks=pytest.mark.exhaustive),
        pytest.param('memory', 'hardened', marks=pytest.mark.standard),
    ],
)
def test_a_run_that_is_copied_and_continued_with_other_data_has_other_noise(tmp_path, place, noise):
    """Else noise would cancel in their difference. The same data give the same model."""

    def stop():
        raise KeyError('stopped')

    experiment = _experiment(place, noise)
    with pytest.raises(KeyError, match='stopped'):
        toy_experiment.run(toy_experiment.failing(experiment, _DONE, stop), tmp_path / 'run')
    changed = experiment.sampler.cohort(_DONE)[0]

    def with_other_data(client):
        return toy_experiment.data(77 if client == changed else client)

    other = dataclasses.replace(experiment, client_data=with_other_data)
    models = [
        _model(each, shutil.copytree(tmp_path / 'run', tmp_path / name))
        for name, each in (('a', experiment), ('b', experiment), ('c', other))
    ]
    np.testing.assert_array_equal(models[0], models[1])
    # One client moves the mean by two clip norms in three at most, and the server goes 0.8 of it.
    without_noise = 0.8 * 2 / 3
    # The difference has the noise of two releases: 38 in each of two weights. Both are below 6 with
    # a probability of 0.02 if it is drawn anew; this is one draw of each case.
    assert np.abs(models[0] - models[2]).max() > 6 > 10 * without_noise
