"""Runs a job of a study, a training or a preparation, as a library call."""

import pathlib
from collections.abc import Mapping
from typing import Any

from dpfl._setting_texts import with_texts
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError
from dpfl.planning import optimization
from dpfl.simulation.training import PretrainConfig, TrainConfig, pretrain, train
from dpfl.simulation.training.privacy_config import MechanismConfig, ParticipationConfig
from dpfl.simulation.training.sampling_config import participation, required
from dpfl.simulation.training.server_config import ScheduleConfig

Texts = Mapping[str, str]
# Flags about where a result goes and how it is printed.
_OF_THE_BINARY = ('format', 'output', 'output_dir', 'resume')
_OPTIMIZATION = {'buffers': int, 'loss': str, 'momentum': float}
_SCHEDULE = tuple(ScheduleConfig().flat())


def run(binary: str, flags: Texts) -> dict[str, Any]:
    """Runs a job and returns what its binary would print.

    Args:
      binary: Name of the command.
      flags: Flags of the binary by name, as text.

    Raises:
      ArgumentError: If a flag is unknown, or its value is not allowed.
      RunError: If a file cannot be read or written, or a run cannot be continued.
    """
    jobs = {'train': _train, 'pretrain': _pretrain, 'optimize_strategy': _optimize_strategy}
    if binary not in jobs:
        raise ArgumentError('binary', binary, f'must be one of {", ".join(jobs)}')
    return jobs[binary](flags)


def train_config(flags: Texts) -> TrainConfig:
    """The configuration of a run from its flags as text."""
    return with_texts(TrainConfig(), _without(flags, _OF_THE_BINARY))


def _train(flags: Texts) -> dict[str, Any]:
    lines = sorted(f'--{name}={value}' for name, value in flags.items() if name != 'resume')
    result = train(
        train_config(flags),
        flags['output_dir'],
        resume=True,
        files={archive.FLAGS: ''.join(f'{line}\n' for line in lines)},
    )
    return result.summary()


def _pretrain(flags: Texts) -> dict[str, Any]:
    config = with_texts(PretrainConfig(), _without(flags, _OF_THE_BINARY))
    return pretrain(config, flags['output']).summary()


def _optimize_strategy(flags: Texts) -> dict[str, Any]:
    own = {name: kind(flags[name]) for name, kind in _OPTIMIZATION.items() if name in flags}
    scheduled = {name: flags[name] for name in _SCHEDULE if name in flags}
    rest = _without(flags, (*_OF_THE_BINARY, *_OPTIMIZATION, *_SCHEDULE))
    names: tuple[str, ...] = ('mechanism', 'bands')
    of_mechanism = {name: rest[name] for name in names if name in rest}
    mechanism = with_texts(MechanismConfig(), of_mechanism)
    schema = with_texts(ParticipationConfig(), _without(rest, tuple(of_mechanism)))
    return optimization.optimize(
        str(required(mechanism, 'mechanism')),
        participation(schema),
        pathlib.Path(flags['output']),
        bands=mechanism.bands,
        schedule=with_texts(ScheduleConfig(), scheduled),
        **own,
    )


def _without(flags: Texts, names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in flags.items() if name not in names}
