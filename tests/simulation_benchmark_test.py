import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

_ROOT = pathlib.Path(__file__).parents[1]
_SCRIPT = _ROOT / 'benchmarks' / 'simulation.py'


def _run(*flags, **environment):
    return subprocess.run(
        [sys.executable, str(_SCRIPT), *flags], env={**os.environ, **environment},
        cwd='/', capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


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
    for word in ('dpfl_lstm', 'stock_iterator', 'bare', 'floor', '--rounds', '--contenders'):
        assert word in done.stdout


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


@pytest.mark.parametrize('flag, message', [
    ('--only=L', '--only=L: must be among S, M'),
    ('--contenders=flower', '--contenders=flower: must be among dpfl, '),
    ('--rounds=0', '--rounds=0: must be at least 1'),
])
def test_bad_flags_are_refused(flag, message):
    done = _run(flag)
    assert done.returncode == 2
    assert message in done.stderr
