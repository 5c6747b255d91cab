import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from benchmarks.peers import family
from tests import paths

_ROOT = paths.ROOT
_SCRIPT = _ROOT / 'benchmarks' / 'simulation.py'

# Takes the place of the interpreter of a peer's environment.
_PEER = """#!{python}
import json, sys
if sys.argv[1] == '-c':
    print('pfl 0.6.0')
    sys.exit()
assert sys.argv[1:3] == ['-m', 'benchmarks.peers.simulate_with_pfl'], sys.argv
assert json.loads(sys.argv[3])['cell'] == '{cell}'
print('{{"ready": 2}}', flush=True)
for seconds, request in zip([0.5, 0.25], sys.stdin):
    answer = {{'seconds': seconds, 'cpu_seconds': 1, 'peak_bytes': 3e9}}
    print(json.dumps(answer), flush=True)
sys.exit('Error: tired')
"""


def _run(*flags, **environment):
    return subprocess.run(
        [sys.executable, str(_SCRIPT), *flags],
        env={**os.environ, **environment},
        cwd='/',
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _processes_with(variable):
    """Processes that have inherited an environment variable."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
        with contextlib.suppress(OSError):
            found += [path] if variable.encode() in path.read_bytes() else []
    return found


def test_help_names_every_contender():
    done = _run('--help')
    assert (done.returncode, done.stderr) == (0, '')
    for word in (
        'dpfl_lstm',
        'stock_iterator',
        'bare',
        'floor',
        '--rounds',
        '--contenders',
        '--peers',
        'flower',
        'fedjax_pmap',
    ):
        assert word in done.stdout


@pytest.mark.exhaustive
@pytest.mark.tff
def test_contenders_run_in_turn_and_leave_no_process():
    mark = f'{os.getpid()}-{time.monotonic_ns()}'
    flags = ('--tiny', '--only=S', '--contenders=dpfl,stock_cifg,bare', '--rounds=2')
    done = _run(*flags, DPFL_TEST_MARK=mark)
    assert (done.returncode, done.stderr) == (0, '')
    assert 'not run' not in done.stdout
    rows = re.findall(r'^  (dpfl|stock_cifg|bare) +([\d.]+) +([\d.]+)', done.stdout, re.MULTILINE)
    assert [name for name, *_ in rows] == ['dpfl', 'stock_cifg', 'bare']
    assert all(float(clients_per_second) > 0 for *_, clients_per_second in rows)
    assert not _processes_with(f'DPFL_TEST_MARK={mark}')


def _environment(folder, cell):
    """A cache with an environment in which the peer answers twice."""
    python = folder / 'dpfl' / 'peers' / 'pfl' / 'bin' / 'python'
    python.parent.mkdir(parents=True)
    python.write_text(_PEER.format(python=sys.executable, cell=cell))
    python.chmod(0o755)


@pytest.mark.parametrize(
    'contender, cell',
    [
        ('pfl', 'lstm'),
        ('pfl_projected', 'projected_lstm'),
    ],
)
def test_a_peer_runs_in_its_environment(tmp_path, contender, cell):
    _environment(tmp_path, cell)
    flags = ('--tiny', '--only=S', f'--contenders={contender}', '--rounds=2')
    done = _run(*flags, XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, '')
    assert f'{contender}: pfl 0.6.0' in done.stdout and 'not run' not in done.stdout
    # The median of half and a quarter of a second, for 3 clients.
    (row,) = re.findall(rf'^  {contender} +(0\.\d+) +([\d.]+) +1.00 +2.0 +3.00', done.stdout, re.M)
    assert row == ('0.375', '8.0')


def test_what_a_peer_dies_of_is_reported(tmp_path):
    _environment(tmp_path, 'lstm')
    flags = ('--tiny', '--only=S', '--contenders=pfl', '--rounds=3')
    done = _run(*flags, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0
    assert 'not run: pfl: Error: tired' in done.stdout


def test_a_peer_that_cannot_be_installed_is_reported(tmp_path):
    (tmp_path / 'dpfl').touch()  # Where the directory of its environment would be made.
    flags = ('--tiny', '--only=S', '--contenders=flower,fedjax', '--rounds=1')
    done = _run(*flags, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0
    lines = [line for line in done.stdout.splitlines() if 'not run' in line]
    assert [line.split(':')[1] for line in lines] == [' flower', ' fedjax']


def test_memory_is_that_of_all_descendants():
    keep = 'block = bytearray(60_000_000); print(1, flush=True); input()'
    command = ['sh', '-c', f'"{sys.executable}" -c "{keep}"; true']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert 60e6 < family.resident_bytes(process.pid) < 200e6
        assert family.peak_bytes(process.pid) >= family.resident_bytes(process.pid)
        process.stdin.close()


@pytest.mark.parametrize(
    'flag, message',
    [
        ('--only=L', '--only=L: must be among S, M'),
        ('--contenders=opacus', '--contenders=opacus: must be among dpfl, '),
        ('--rounds=0', '--rounds=0: must be at least 1'),
    ],
)
def test_bad_flags_are_refused(flag, message):
    done = _run(flag)
    assert done.returncode == 2
    assert message in done.stderr
