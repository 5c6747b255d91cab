"""Every benchmark's command runs, at a size of no interest."""

import os
import re
import subprocess
import sys

import pytest

from benchmarks import simulation
from benchmarks.peers import environments, family
from tests import paths

# Takes the place of the interpreter of a peer's environment.
_PEER = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import json, sys
assert sys.argv[1:3] == ['-m', 'benchmarks.peers.simulate_with_flower'], sys.argv
assert json.loads(sys.argv[3])['clients'] == 3
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
        ('memory', ['--rounds=39'], '--rounds=39: must be at least 40'),
        ('mechanism_table', ['--only=trees'], 'must be'),
        ('simulation', ['--only=L'], '--only=L: must be among S, M'),
        ('simulation', ['--contenders=opacus'], '--contenders=opacus: must be among dpfl, '),
    ],
)
def test_bad_flags_are_refused(name, flags, message):
    done = _run(name, *flags)
    assert done.returncode == 2 and message in done.stderr


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_tiny_run_is_watched():
    done = _run('memory', '--tiny', '--rounds=40')
    assert done.returncode == 0, done.stderr
    shown = r'(?s)^ +30 +\d+$.*^growth -?\d+ MB; target less than 50 MB'
    assert re.search(shown, done.stdout, re.MULTILINE)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_contenders_run_in_turn():
    flags = ('--tiny', '--only=S', '--contenders=dpfl,stock,bare', '--rounds=2')
    done = _run('simulation', *flags)
    assert done.returncode == 0, done.stderr
    assert 'not run' not in done.stdout
    rows = re.findall(r'^  (dpfl|stock|bare) +([\d.]+) +([\d.]+)', done.stdout, re.MULTILINE)
    assert [name for name, *_ in rows] == ['dpfl', 'stock', 'bare']
    assert all(float(clients_per_second) > 0 for *_, clients_per_second in rows)


@pytest.mark.standard
def test_a_peer_runs_in_its_environment(tmp_path):
    python = tmp_path / 'dpfl' / 'peers' / 'flower' / 'bin' / 'python'
    python.parent.mkdir(parents=True)
    python.write_text(_PEER.format(python=sys.executable))
    python.chmod(0o755)
    installed = python.parents[1] / environments.INSTALLED
    installed.write_text('\n'.join(simulation.PEERS['flower']))
    flags = ('--tiny', '--only=S', '--contenders=flower')
    done = _run('simulation', *flags, '--rounds=2', XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert 'flower: flwr[simulation]==1.41.0' in done.stdout and 'not run' not in done.stdout
    # The median of half and a quarter of a second, for 3 clients.
    (row,) = re.findall(r'^  flower +(0\.\d+) +([\d.]+) +1.00 +2.0 +3.00', done.stdout, re.M)
    assert row == ('0.375', '8.0')
    # It answers twice.
    done = _run('simulation', *flags, '--rounds=3', XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0
    assert 'not run: flower: Error: tired' in done.stdout


def test_memory_is_that_of_all_descendants():
    keep = 'block = bytearray(60_000_000); print(1, flush=True); input()'
    command = ['sh', '-c', f'"{sys.executable}" -c "{keep}"; true']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert 60e6 < family.resident_bytes(process.pid) < 200e6
        assert family.peak_bytes(process.pid) >= family.resident_bytes(process.pid)
        process.stdin.close()
