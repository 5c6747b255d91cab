"""Flags about the directory of a run: what the last line of a run that a signal ends says."""

import signal
import types

import pytest

from dpfl.cli.command import program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.output_flags import RunDirectoryConfig
from dpfl.runtime import signals
from dpfl.simulation import checkpoint


@pytest.mark.parametrize('name', ['train', 'train_gan'])
@pytest.mark.parametrize('error', [KeyboardInterrupt(), signals.Terminated(signal.SIGTERM)])
@pytest.mark.parametrize(('rounds', 'said'), [(1, '1 round is'), (3, '3 rounds are')])
def test_a_run_that_a_signal_ends_names_the_command_that_continues_it(
    monkeypatch, tmp_path, name, error, rounds, said
):
    saved = types.SimpleNamespace(rounds=rounds)
    monkeypatch.setattr(checkpoint, 'latest', lambda *arguments: saved)
    path = tmp_path / 'a run'
    config = RunDirectoryConfig(output_dir=str(path))
    with pytest.raises(type(error)) as end, output_flags.saying_what_is_saved(config, name):
        raise error
    command = program.command(name, f'--output_dir={path}', '--resume')
    assert f"{name} '--output_dir=" in command
    assert str(end.value) == f'{said} saved in {path}; this continues: {command}'


@pytest.mark.parametrize('error', [KeyboardInterrupt(), signals.Terminated(signal.SIGTERM)])
def test_a_run_that_has_saved_nothing_names_no_command(tmp_path, error):
    config = RunDirectoryConfig(output_dir=str(tmp_path))
    with pytest.raises(type(error)) as end, output_flags.saying_what_is_saved(config, 'train'):
        raise error
    assert end.value is error
