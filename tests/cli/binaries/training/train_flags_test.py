"""The presets of the training binaries make plans."""

import os
import subprocess
import sys

import pytest

from dpfl.cli import catalogue
from tests import binaries

_CONFIGS = binaries.ROOT / 'configs'


# How each binary that trains under a privacy plan reads its presets.
_READ = {
    'train': '[train._CONFIG.read()]',
    'debug_text': '[debug_text._STUDY.read().train_config(debug_text._CONFIG.read(), kind)'
    ' for kind in debug_text.KINDS]',
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    'preset',
    # presets_test.py has those of the papers; tests of detection_power and of the binaries for
    # images have theirs, which leave the noise open or have plans of GANs.
    sorted(
        set(_CONFIGS.glob('*.flags'))
        - set(_CONFIGS.glob('*.00?.*.flags'))
        - set(_CONFIGS.glob('*images*.flags'))
        - set(_CONFIGS.glob('detection_power*.flags'))
    ),
    ids=lambda path: path.name,
)
def test_presets_make_a_plan(preset):
    binary = 'debug_text' if 'debug' in preset.stem else 'train'
    module = catalogue.binaries()[binary].module
    code = (
        'import sys\n'
        'from absl import flags\n'
        f'from {module.rpartition(".")[0]} import {binary}\n'
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
