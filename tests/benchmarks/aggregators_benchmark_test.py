"""The benchmark of the aggregators runs, at a size of no interest."""

import re
import subprocess
import sys

import pytest

from tests import paths

_ROOT = paths.ROOT
_SCRIPT = _ROOT / 'benchmarks' / 'aggregators.py'


def _run(*flags):
    return subprocess.run(
        [sys.executable, str(_SCRIPT), *flags],
        cwd='/',
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_help_names_every_contender():
    done = _run('--help')
    assert (done.returncode, done.stderr) == (0, '')
    for word in (
        'banded_inverse',
        'distributed',
        'stock_ddp',
        'jax_blt',
        '--pairs',
        '--peers',
    ):
        assert word in done.stdout


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize('name', ['blt', 'hardened_blt'])
def test_a_contender_is_measured(name):
    done = _run('--tiny', '--sizes=0.1M', f'--contenders={name}', '--pairs=1')
    assert (done.returncode, done.stderr) == (0, '')
    assert 'not run' not in done.stdout
    ((seconds, peak),) = re.findall(rf'^  {name} +([\d.]+) .* ([\d.]+)$', done.stdout, re.MULTILINE)
    assert float(seconds) > 0 and float(peak) > 0


@pytest.mark.parametrize(
    'flag, message',
    [
        ('--sizes=1M', '--sizes=1M: must be among 0.1M, 2.4M, 6.4M'),
        ('--contenders=opacus', '--contenders=opacus: must be among gaussian, '),
        ('--pairs=0', '--pairs=0: must be at least 1'),
    ],
)
def test_bad_flags_are_refused(flag, message):
    done = _run(flag)
    assert done.returncode == 2
    assert message in done.stderr
