"""Runs that take seconds: configurations, which tests change with `with_values`, and results."""

import atexit
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from dpfl import _setting_texts
from dpfl.reporting import privacy_page
from dpfl.simulation import run_journal
from dpfl.simulation.training import (
    EvaluationConfig,
    PrivacyConfig,
    SamplingConfig,
    TaskConfig,
    TextConfig,
    TrainConfig,
    TrainResult,
    train,
)

# Four rounds of four clients, with the noise of a BLT.
BLT = TrainConfig(
    task=TaskConfig(model='micro', text=TextConfig(vocabulary_size=40, sentence_length=6)),
    privacy=PrivacyConfig(
        mechanism='blt',
        blt_decay=(0.9, 0.5),
        blt_scale=(0.1, 0.2),
        noise_multiplier=3.0,
        clip_norm=0.3,
        delta=1e-3,
    ),
    sampling=SamplingConfig(rounds=4, population=16, clients_per_round=4, min_separation=4),
    evaluation=EvaluationConfig(eval_every=2, eval_clients=4),
    noise_seed=5,
)
# Changes for other mechanisms, which have no buffers.
NO_BUFFERS = {'blt_decay': None, 'blt_scale': None}
TREE = {'mechanism': 'tree', **NO_BUFFERS}
# The same with independent noise.
GAUSSIAN = BLT.with_values({'mechanism': 'gaussian', **NO_BUFFERS})
# Changes for a run that finds its words privately; its data are to be given.
PRIVATE_WORDS = {
    'task': 'user_text',
    'vocabulary': 'private',
    'vocabulary_epsilon': 30.0,
    'vocabulary_words_per_client': 20,
    'vocabulary_size': 12,
    'population': None,
}


@functools.cache
def folder() -> pathlib.Path:
    """A folder of this process, for runs that several tests read."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='small_runs_'))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def finished(config: TrainConfig = BLT) -> TrainResult:
    """The result of a run, which is made once a process; its directory is only read."""
    # Where a module draws nothing, the pages of its runs have no figures.
    return _finished(config, privacy_page._figures)


@functools.cache
def _finished(config: TrainConfig, figures: Callable) -> TrainResult:
    del figures
    return train(config, tempfile.mkdtemp(dir=folder()), progress=False)


def flags(config: TrainConfig = BLT) -> list[str]:
    """The flags of a configuration that are not left at their defaults."""
    defaults = TrainConfig().flat()
    changed = {name: value for name, value in config.flat().items() if value != defaults[name]}
    return _setting_texts.flags(changed)


def copied_when_killed(
    config: TrainConfig, path: pathlib.Path, copy: pathlib.Path, rounds: int, **options: Any
) -> TrainResult:
    """Trains, and keeps a copy of what SIGKILL leaves of the run when so many rounds have begun."""
    begin = run_journal.RunJournal.begin

    def copying(self, event, cohort):
        begin(self, event, cohort)
        if event.round == rounds - 1:
            # Temporary files may vanish while they are copied.
            shutil.copytree(path, copy, ignore=shutil.ignore_patterns('*.partial'))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_journal.RunJournal, 'begin', copying)
        return train(config, path, **options)


def copied(path: pathlib.Path, config: TrainConfig = BLT) -> pathlib.Path:
    """A copy of the directory of a finished run."""
    return shutil.copytree(finished(config).directory, path)
