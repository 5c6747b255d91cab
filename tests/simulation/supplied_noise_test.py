"""Runs whose past noise is outside of TFF: interrupted or not, in memory or in a file."""

import dataclasses

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.simulation import checkpoint_folder, outputs, program
from tests import runs
from tests.simulation import toy_experiment

pytestmark = pytest.mark.tff

_ROUNDS = 5


def _experiment(name, **changes):
    place = mechanisms.NoiseStorage(name, 1e-9, 'for a test')
    return toy_experiment.experiment(
        rounds=_ROUNDS, checkpoint_every=2, noise_storage=place, **changes
    )


def _run(experiment, path):
    start = checkpoint_folder.latest(path / 'checkpoints', pytest.fail)
    return program.run_training(experiment, outputs.RunDirectory(path, resume=True), start)


@pytest.fixture(scope='module', name='finished')
def _finished(tmp_path_factory):
    """Directories of a run with the noise in memory, and of one with the noise in the state."""
    paths = {}
    for name in ('memory', 'state'):
        paths[name] = tmp_path_factory.mktemp(name)
        _run(_experiment(name), paths[name])
    return paths


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', ['memory', 'file'])
def test_a_run_that_crashed_ends_with_the_same_bits(finished, tmp_path, name):
    experiment = _experiment(name)
    asked = []

    def client_data(client):
        asked.append(client)
        if len(asked) > 9:
            raise KeyError('crash in round 4')
        return toy_experiment.data(client)

    with pytest.raises(KeyError, match='crash in round 4'):
        _run(dataclasses.replace(experiment, client_data=client_data), tmp_path)
    assert checkpoint_folder.latest(tmp_path / 'checkpoints', pytest.fail).rounds == 2
    _run(experiment, tmp_path)
    assert runs.differences(tmp_path, finished['memory']) == []
    unknown = {path.name for path in tmp_path.iterdir()} - {
        path.name for path in finished['memory'].iterdir()
    }
    assert not unknown


def test_checkpoints_have_none_of_the_noise(finished):
    sizes = {
        name: sum(
            np.size(leaf)
            for leaf in checkpoint_folder.latest(path / 'checkpoints', pytest.fail).state
        )
        for name, path in finished.items()
    }
    # The toy problem has two weights: a buffer of two numbers, against sizes and an empty row.
    assert sizes == {'memory': sizes['state'] - 2 + 3, 'state': sizes['state']}
