"""A study of the power of image diagnoses: one seed from start to end, and one-line errors."""

import functools
import json

import pytest

from tests import forked_binaries

_FLAGS = [
    '--flagfile=configs/detection_power_images.flags',
    '--model=tiny',
    '--rounds=2',
    '--population=6',
    '--clients_per_round=2',
    '--primary_model=tiny',
    '--primary_clients=3',
    '--primary_steps=2',
    '--samples=40',
    '--eval_clients=1',
    '--seeds=1',
    '--inject_shares=1',
]
_run = functools.partial(forked_binaries.run, 'detection_power_images', *_FLAGS)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_seed_from_start_to_end(tmp_path):
    done = _run(f'--output_dir={tmp_path}', '--format=json')
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert values['axis'] == 'noise_multiplier'
    names = [(each['fault'], each['share'], each['level']) for each in values['cells']]
    assert names == [(None, 0.0, 0.01), ('inverted', 1.0, 0.01)]
    assert 'inverted' in values['cells'][0]['traits']
    assert (tmp_path / 'power_inverted.png').is_file()
    again = _run(f'--output_dir={tmp_path}', '--format=json')
    assert json.loads(again.stdout) == values and 'rounds' not in again.stderr


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--inject='], '--inject=: must name at least one fault'),
        (['--inject_shares=0.1,2'], '--inject_shares=2.0: must be'),
        (['--noise_multipliers=1,1'], '--noise_multipliers=1,1: must be different values'),
        (['--primary_model=runs/mine', '--primary_steps=2500'], '--primary_model=runs/mine: must'),
    ],
)
def test_bad_flags_are_one_line(flags, message, tmp_path):
    done = _run(*flags, f'--output_dir={tmp_path}')
    assert done.returncode == 2 and done.stdout == ''
    assert done.stderr.startswith(f'error: {message}'), done.stderr
    assert len(done.stderr.splitlines()) == 1
