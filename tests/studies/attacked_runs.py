"""Two finished runs with secrets, which the tests of attacks share; each is trained once."""

import atexit
import functools
import shutil
import tempfile

from dpfl.simulation import training
from experiments.studies.shared import finished_run, planting
from tests.simulation.training import small_config

_SECRETS = planting.PlantingConfig(secrets=2, secret_words=2, secret_choices=16)
# Eight clients, all of them in every round, without noise and clip: the model remembers them.
_OVERFIT = small_config.GAUSSIAN.with_values(
    {
        'mechanism': 'none',
        'noise_multiplier': None,
        'clip_norm': 1000.0,
        'model': 'tiny',
        'rounds': 25,
        'population': 8,
        'clients_per_round': 8,
        'min_separation': 1,
        'client_epochs': 5,
        'client_learning_rate': 0.3,
        'eval_every': 25,
        'checkpoint_every': 25,
        'seed': 5,
    }
)
_PRIVATE = small_config.GAUSSIAN.with_values({'seed': 5})


@functools.cache
def overfit() -> finished_run.FinishedRun:
    """A run without noise and clip that has seen its eight clients 25 times."""
    return _run(_OVERFIT, secret_copies=(10,), secret_holders=(0, 2))


@functools.cache
def private() -> finished_run.FinishedRun:
    """A run of four rounds with a guarantee; each of its sixteen clients takes part once."""
    return _run(_PRIVATE, secret_copies=(1, 3), secret_holders=(0, 1, 2))


def _run(config: training.TrainConfig, **secrets: tuple) -> finished_run.FinishedRun:
    folder = tempfile.mkdtemp(prefix='attacked_run_')
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    planting.train(config, _SECRETS.with_values(secrets), folder, progress=False)
    return finished_run.open_run(folder)
