"""Ray: what is no address, the tests of rounds on it, and its faults."""

import concurrent.futures
import contextlib
import re
import subprocess
import sys
import tempfile

import pytest

from dpfl.errors import ArgumentError
from dpfl.runtime import contexts
from tests import paths

# The tests of rounds take a minute and a half on a quiet machine.
_ROUNDS_SECONDS, _ATTEMPTS = 900, 2


@pytest.mark.standard
def test_no_other_module_loads_ray():
    code = 'import sys; from dpfl.runtime import contexts; sys.exit("ray" in sys.modules)'
    subprocess.run([sys.executable, '-c', code], check=True, cwd=paths.ROOT)


@pytest.mark.parametrize('address', ['', 'here', 'ray://a:1', 'a:', 'a:70000', ':1'])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ArgumentError, match=f'ray={address}: must be local, auto or host:port'):
        with contexts.ray_runtime(address):
            pass


def test_its_absence_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    with pytest.raises(contexts.RayError, match=r"Ray is not installed: pip install 'dpfl\[ray\]'"):
        with contexts.ray_runtime('local'):
            pass


@pytest.mark.standard
def test_rounds_on_ray():
    """The tests of `rounds_on_ray`, in a process that Ray may end.

    Ray ends the process that uses it when its own raylet ends, without a message. An attempt
    without pytest's last line says nothing about our rounds.
    """
    for _ in range(_ATTEMPTS):
        output = _output_of_rounds()
        if re.search(r' in \d[^\n]*\n*\Z', output):
            break
    assert re.search(r'\n=+ \d+ passed in ', output), output[-4000:]


def _output_of_rounds() -> str:
    command = [sys.executable, '-m', 'pytest', '-v', 'tests/runtime/rounds_on_ray.py']
    with tempfile.TemporaryFile() as output:  # A pipe would stay open in Ray's processes.
        process = subprocess.Popen(
            command,
            cwd=paths.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        with process, contextlib.suppress(subprocess.TimeoutExpired):
            try:
                process.wait(_ROUNDS_SECONDS)
            finally:
                process.kill()
        output.seek(0)
        return output.read().decode(errors='replace')


def _check_faults(last, *arguments):
    done = subprocess.run(
        [sys.executable, 'scripts/ray_faults.py', *arguments],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=7200,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.rstrip().endswith(last)


@pytest.mark.exhaustive
def test_faults_cost_time_only():
    """Side by side, since both wait most of the time."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ends = pool.submit(_check_faults, '5 faults, 0 wrong, 0 processes left', '--ends')
        _check_faults('17 faults, 0 wrong, 0 processes left')
        ends.result()


@pytest.mark.exhaustive
def test_random_kills_cost_time_only():
    _check_faults('0 differ, 0 end or hang, 0 leave a process', '--kills=3', '--seed=2')
