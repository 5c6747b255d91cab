"""The flags of the training binary: what is refused, in one line, and the presets."""

import functools
import os
import subprocess
import sys

import pytest

from tests import binaries, forked_binaries

_CONFIGS = binaries.ROOT / 'configs'
_QUICKSTART = '--flagfile=configs/quickstart.flags'
_forked = functools.partial(forked_binaries.run, 'train', _QUICKSTART)


@pytest.mark.standard
@pytest.mark.parametrize(
    'flags, message',
    [
        (['--target_epsilon='], '--target_epsilon=: must be a number'),
        (['--noise_multiplier=-1'], '--noise_multiplier=-1.0: must be a finite number >= 0'),
        (['--min_separation=0'], '--min_separation=0: must be an integer >= 1'),
        (['--rounds=abc'], '--rounds=abc: must be an integer'),
        (['--strategy=/nowhere/at.all'], '--strategy=/nowhere/at.all: must be a file or one of'),
        (
            ['--noise_multiplier=1', '--target_epsilon=1'],
            '--target_epsilon=1.0: cannot be combined with noise_multiplier',
        ),
        (['--target_epsilon=-2'], 'epsilon=-2.0: must be a finite number > 0'),
        (['--delta=0'], '--delta=0.0: must be a finite number > 0 and < 1'),
        (['--delta=0.02'], '--delta=0.02: must be <= 0.01; allow_large_delta accepts more'),
        (['--noise_multiplier=1e160'], '--noise_multiplier=1e+160: must be 0 (no noise) or within'),
        (['--clip_norm=1e308'], '--clip_norm=1e+308: must be a finite number >= 1e-30 and <= 1e+'),
        (
            ['--mechanism=none', '--strategy=', '--target_epsilon=1'],
            '--target_epsilon=1.0: mechanism=none has no noise',
        ),
        (['--clip_norm=0'], '--clip_norm=0.0: must be a finite number > 0'),
        (['--example_cap=0'], '--example_cap=0.0: must be a finite number > 0'),
        (['--cohort_weight=-1'], '--cohort_weight=-1.0: must be a finite number > 0'),
        (
            ['--clip_each_batch', '--client_update=fedsgd'],
            '--clip_each_batch=True: must be False for client_update=fedsgd',
        ),
        (
            ['--client_update=fedsgd', '--client_max_batches=2'],
            '--client_max_batches=2: must not be given for client_update=fedsgd',
        ),
        (
            ['--client_update=fedsgd', '--client_epochs=2'],
            '--client_epochs=2: must be 1 for client_update=fedsgd',
        ),
        (
            ['--example_cap=9', '--client_epochs=2'],
            '--client_max_batches=2: must not be given with example_cap and client_epochs=2',
        ),
        (['--adaptive_clip'], ': must be >= 130 for adaptive_clip, whose clip norm first changes'),
        (
            ['--clip_each_batch', '--adaptive_clip'],
            '--clip_each_batch=True: must be False with adaptive_clip',
        ),
        (
            ['--example_cap=9', '--estimator=clipped', '--noise=hardened'],
            '--noise=hardened: must be default with estimator=clipped',
        ),
        (
            ['--task=emnist', '--model=cnn', '--packing=windows'],
            '--packing=windows: task=emnist has no text',
        ),
        (['--client_min_tokens=-1'], '--client_min_tokens=-1: must be'),
        (['--match=rmse'], '--match=rmse: must be QUANTITY:MECHANISM,NOISE_MULTIPLIER@ROUND or'),
        (
            ['--match=rho:1', '--target_epsilon=1'],
            '--match=rho:1: cannot be combined with target_epsilon',
        ),
    ],
)
def test_bad_flags_are_one_line_and_status_2(flags, message, tmp_path):
    done = _forked(*flags, f'--output_dir={tmp_path}/run')
    assert done.returncode == 2
    *dropped, error = done.stderr.splitlines()
    assert all(' of the preset: dropped, since --' in line for line in dropped)
    assert error.startswith('error: ') and message in error
    assert not (tmp_path / 'run').exists()


@pytest.mark.standard
@pytest.mark.parametrize(
    'flags, message',
    [
        (['--population=100'], '--population=100: must be at least 3000 for clients_per_round'),
        (['--vocabulary_size=0'], '--vocabulary_size=0: must be'),
        (['--sentence_length=0'], '--sentence_length=0: must be'),
        (['--client_learning_rate=0'], '--client_learning_rate=0.0: must be a finite number > 0'),
        (['--client_batch_size=-1'], '--client_batch_size=-1: must be an integer >= 1'),
        (['--server_momentum=1'], '--server_momentum=1.0: must be a finite number >= 0 and < 1'),
        (['--eval_every=0'], '--eval_every=0: must be an integer >= 1'),
        (['--noise_seed=-1'], '--noise_seed=-1: must be an integer >= 0'),
        (['--output_dir={file}/run'], '/run: must be writable (Not a directory)'),
    ],
)
def test_flags_that_take_tensorflow_to_check_are_one_line_as_well(flags, message, tmp_path):
    (tmp_path / 'file').touch()
    flags = [flag.replace('{file}', str(tmp_path / 'file')) for flag in flags]
    done = _forked(f'--output_dir={tmp_path}/run', *flags)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f'error: {done.stderr[7:].strip()}\n'
    assert message in done.stderr


# How each binary that trains under a privacy plan reads its presets.
_READ = {
    'train': '[train._CONFIG.read()]',
    'debug_text': '[debug_text._STUDY.read().train_config(debug_text._CONFIG.read(), kind)'
    ' for kind in debug_text.KINDS]',
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    'preset',
    # presets_test.py has those of the papers; the tests of the commands for images
    # have theirs, which leave the noise open or have plans of GANs.
    sorted(
        set(_CONFIGS.glob('*.flags'))
        - set(_CONFIGS.glob('*.00?.*.flags'))
        - set(_CONFIGS.glob('*images*.flags'))
    ),
    ids=lambda path: path.name,
)
def test_presets_make_a_plan(preset):
    binary = 'debug_text' if 'debug' in preset.stem else 'train'
    code = (
        'import sys\n'
        'from absl import flags\n'
        f'from experiments import {binary}\n'
        'from dpfl.simulation.training.plan import build_plan\n'
        'flags.FLAGS(sys.argv)\n'
        f'for config in {_READ[binary]}:\n'
        '    plan = build_plan(config.privacy, config.sampling, population=None, dimension=None)\n'
        '    print(config.privacy.mechanism, plan.rho)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code, f'--flagfile={preset}'],
        cwd=binaries.ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, 'PYTHONPATH': str(binaries.ROOT)},
    )
    assert done.stdout
    for line in done.stdout.splitlines():
        mechanism, rho = line.split()
        assert (float(rho) == float('inf')) == (mechanism == 'none')
