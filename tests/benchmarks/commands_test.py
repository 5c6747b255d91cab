"""Every benchmark's command runs, at a size of no interest."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from benchmarks import reading
from benchmarks.peers import family
from dpfl.participation import imported
from tests import paths

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


def _run(name, *flags, **environment):
    script = paths.ROOT / 'benchmarks' / f'{name}.py'
    return subprocess.run(
        [sys.executable, str(script), *flags],
        env={**os.environ, **environment},
        cwd='/',
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.standard
@pytest.mark.parametrize(
    'name, flags, message',
    [
        ('aggregators', ['--sizes=1M'], '--sizes=1M: must be among 0.1M, 2.4M, 6.4M'),
        ('aggregators', ['--pairs=0'], '--pairs=0: must be at least 1'),
        ('memory', ['--sampling=timer'], '--sampling=timer: must be among min_separation, poisson'),
        ('memory', ['--rounds=39'], '--rounds=39: must be at least 40'),
        ('mechanisms', ['--only=trees'], 'must be'),
        ('simulation', ['--only=L'], '--only=L: must be among S, M'),
        ('simulation', ['--contenders=opacus'], '--contenders=opacus: must be among dpfl, '),
    ],
)
def test_bad_flags_are_refused(name, flags, message):
    done = _run(name, *flags)
    assert done.returncode == 2 and message in done.stderr


# Flags, and what the output has.
_TINY = {
    'tree_of_mechanisms': (
        ('mechanisms', '--tiny', '--only=tree', '--repeats=1'),
        r'(?s)  dpfl .* 98$.*  tensorflow_privacy .* 98$.*values equal: yes',
    ),
    'optimizers_of_mechanisms': (
        ('mechanisms', '--tiny', '--only=blt,banded_toeplitz,banded_inverse', '--repeats=1'),
        r'peak GB',
    ),
    'aggregators': (
        ('aggregators', '--tiny', '--sizes=0.1M', '--contenders=blt,hardened_blt', '--pairs=1'),
        r'(?s)^  blt +[\d.]+ .* [\d.]+$.*^  hardened_blt +[\d.]+ ',
    ),
    'memory': (
        ('memory', '--tiny', '--rounds=40', '--sampling=poisson'),
        r'(?s)^poisson +30 +\d+$.*^poisson: growth -?\d+ MB; target less than 50 MB',
    ),
}


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize('name', _TINY)
def test_a_tiny_size_is_measured(name):
    (benchmark, *flags), shown = _TINY[name]
    done = _run(benchmark, *flags)
    assert done.returncode == 0, done.stderr
    assert 'not run' not in done.stdout
    assert re.search(shown, done.stdout, re.MULTILINE)


def _processes_with(variable):
    """Processes that have inherited an environment variable."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
        with contextlib.suppress(OSError):
            found += [path] if variable.encode() in path.read_bytes() else []
    return found


@pytest.mark.exhaustive
@pytest.mark.tff
def test_contenders_run_in_turn_and_leave_no_process():
    mark = f'{os.getpid()}-{time.monotonic_ns()}'
    flags = ('--tiny', '--only=S', '--contenders=dpfl,stock_cifg,bare', '--rounds=2')
    done = _run('simulation', *flags, DPFL_TEST_MARK=mark)
    assert done.returncode == 0, done.stderr
    assert 'not run' not in done.stdout
    rows = re.findall(r'^  (dpfl|stock_cifg|bare) +([\d.]+) +([\d.]+)', done.stdout, re.MULTILINE)
    assert [name for name, *_ in rows] == ['dpfl', 'stock_cifg', 'bare']
    assert all(float(clients_per_second) > 0 for *_, clients_per_second in rows)
    assert not _processes_with(f'DPFL_TEST_MARK={mark}')


@pytest.mark.standard
@pytest.mark.parametrize('contender, cell', [('pfl', 'lstm'), ('pfl_projected', 'projected_lstm')])
def test_a_peer_runs_in_its_environment(tmp_path, contender, cell):
    python = tmp_path / 'dpfl' / 'peers' / 'pfl' / 'bin' / 'python'
    python.parent.mkdir(parents=True)
    python.write_text(_PEER.format(python=sys.executable, cell=cell))
    python.chmod(0o755)
    flags = ('--tiny', '--only=S', f'--contenders={contender}')
    done = _run('simulation', *flags, '--rounds=2', XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f'{contender}: pfl 0.6.0' in done.stdout and 'not run' not in done.stdout
    # The median of half and a quarter of a second, for 3 clients.
    (row,) = re.findall(rf'^  {contender} +(0\.\d+) +([\d.]+) +1.00 +2.0 +3.00', done.stdout, re.M)
    assert row == ('0.375', '8.0')
    # It answers twice.
    done = _run('simulation', *flags, '--rounds=3', XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0
    assert f'not run: {contender}: Error: tired' in done.stdout


@pytest.mark.exhaustive
def test_what_cannot_be_installed_is_reported_and_the_rest_runs(tmp_path):
    (tmp_path / 'dpfl').touch()  # Where the directory of its environment would be made.
    for name, flags, missing in (
        ('simulation', ('--only=S', '--contenders=flower,fedjax', '--rounds=1'), 'flower fedjax'),
        ('mechanisms', ('--only=banded,tree_large', '--repeats=1', '--peers'), 'banded'),
    ):
        done = _run(name, '--tiny', *flags, XDG_CACHE_HOME=str(tmp_path))
        assert done.returncode == 0
        lines = [line for line in done.stdout.splitlines() if 'not run' in line]
        assert [line.split(':')[1].strip() for line in lines] == missing.split()
    assert done.stdout.count('  dpfl ') == 2


def test_memory_is_that_of_all_descendants():
    keep = 'block = bytearray(60_000_000); print(1, flush=True); input()'
    command = ['sh', '-c', f'"{sys.executable}" -c "{keep}"; true']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert 60e6 < family.resident_bytes(process.pid) < 200e6
        assert family.peak_bytes(process.pid) >= family.resident_bytes(process.pid)
        process.stdin.close()


def test_the_log_of_the_reading_benchmark_is_one_that_can_be_read(tmp_path):
    path = tmp_path / 'log.csv'
    reading._write_log(path, 2500)
    found = imported.read_log(path)
    assert found.log.cohort_sizes.tolist() == [1000, 1000, 500]


@pytest.mark.exhaustive
def test_a_log_and_a_history_are_read(tmp_path):
    def git(*arguments):
        subprocess.run(('git', '-C', str(tmp_path), *arguments), check=True, capture_output=True)

    author = ('-c', 'user.name=a', '-c', 'user.email=a@example.org')
    git('init')
    for text in ('first words', 'more words'):
        git(*author, 'commit', '--allow-empty', '-m', text)
    done = _run('reading', '--rows=2500', f'--repository={tmp_path}')
    lines = done.stdout.splitlines()
    assert re.match(r'git history: 2 commits; [\d,]+ commits a second \(', lines[0])
    assert re.match(r'CSV log, 3\d bytes a row: 2,500 rows; [\d,]+ rows a second \(', lines[1])
