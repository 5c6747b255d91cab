"""A run that is copied, and continued twice with other data: no noise cancels."""

import shutil

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.simulation import program, run_directory
from tests.simulation import toy_experiment

pytestmark = [pytest.mark.tff, pytest.mark.standard]

_ROUNDS, _DONE, _NOISE = 3, 2, 100.0


def _experiment(place, noise, client_data=toy_experiment.data):
    storage = None if place is None else mechanisms.NoiseStorage(place, 1e-9, 'for a test')
    return toy_experiment.experiment(
        noise_multiplier=_NOISE,
        rounds=_ROUNDS,
        noise_seed=5,
        noise_storage=storage,
        client_data=client_data,
        checkpoint_every=1,
        plan_fields={'noise': noise},
    )


def _run(experiment, path):
    program.run_training(experiment, run_directory.RunDirectory(path, resume=True))
    with np.load(path / 'model.npz') as model:
        return np.concatenate([np.ravel(model[name]) for name in model])


@pytest.mark.parametrize(
    'place, noise', [(None, 'default'), ('memory', 'default'), ('memory', 'hardened')]
)
def test_the_models_differ_by_noise_and_the_same_data_give_the_same_model(tmp_path, place, noise):
    asked = []

    def until_the_last_round(client):
        asked.append(client)
        if len(asked) > 3 * _DONE:
            raise KeyError('stopped')
        return toy_experiment.data(client)

    with pytest.raises(KeyError, match='stopped'):
        _run(_experiment(place, noise, until_the_last_round), tmp_path / 'run')
    first = len(asked)
    copies = [shutil.copytree(tmp_path / 'run', tmp_path / name) for name in 'abc']
    changed = asked[first - 1]  # A client of the last round.

    def with_other_data(client):
        return toy_experiment.data(77 if client == changed else client)

    data = (toy_experiment.data, toy_experiment.data, with_other_data)
    models = [
        _run(_experiment(place, noise, each), path) for each, path in zip(data, copies, strict=True)
    ]
    np.testing.assert_array_equal(models[0], models[1])
    # One client moves the mean by two clip norms in three at most, and the server goes 0.8 of it.
    without_noise = 0.8 * 2 / 3
    # The difference has the noise of two releases: 38 in each of two weights. Both are below 6 with
    # a probability of 0.02 if it is drawn anew; this is one draw of each case.
    assert np.abs(models[0] - models[2]).max() > 6 > 10 * without_noise
