import subprocess
import sys

import pytest

from tests import paths

_ROOT = paths.ROOT
_SCRIPT = _ROOT / 'benchmarks' / 'mechanisms.py'


def _run(*flags):
    return subprocess.run(
        [sys.executable, str(_SCRIPT), *flags],
        cwd='/',
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_help_names_every_part_and_flag():
    done = _run('--help')
    assert (done.returncode, done.stderr) == (0, '')
    for word in ('tree_large', 'blt_large', 'banded_toeplitz', '--peers', '--full', '--repeats'):
        assert word in done.stdout


@pytest.mark.exhaustive
def test_tree_has_the_value_of_tensorflow_privacy():
    done = _run('--tiny', '--only=tree', '--repeats=1')
    assert done.returncode == 0
    values = {
        cells[0]: float(cells[-1])
        for cells in map(str.split, done.stdout.splitlines())
        if cells and cells[0] in ('dpfl', 'tensorflow_privacy')
    }
    assert values == {'dpfl': 98, 'tensorflow_privacy': 98}
    assert 'values equal: yes' in done.stdout
    assert 'times faster' in done.stdout and 'not run' not in done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize('part', ['blt', 'banded', 'banded_toeplitz', 'banded_inverse'])
def test_optimisers_run_in_processes_of_their_own(part):
    done = _run('--tiny', f'--only={part}', '--repeats=1')
    assert done.returncode == 0
    assert 'peak GB' in done.stdout and 'not run' not in done.stdout


@pytest.mark.exhaustive
def test_what_cannot_run_is_reported_and_the_rest_runs(tmp_path, monkeypatch):
    (tmp_path / 'dpfl').touch()  # where the directory of the peer's environment would be made
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    done = _run('--tiny', '--only=banded,tree_large', '--repeats=1', '--peers')
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if 'not run' in line]
    assert line.startswith('not run: banded: jax_privacy')
    assert done.stdout.count('  dpfl ') == 2


@pytest.mark.parametrize('flag', ['--only=trees', '--repeats=0'])
def test_bad_flags_are_refused(flag):
    done = _run(flag)
    assert done.returncode == 2
    assert 'must be' in done.stderr.splitlines()[-1]
