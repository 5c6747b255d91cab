"""Runs that were killed end as if they had not been."""

import subprocess
import sys

import pytest

from tests import paths


@pytest.mark.tff
@pytest.mark.exhaustive
def test_killed_runs_end_as_if_they_had_not_been():
    """A sample of what scripts/kill_test.py does at length."""
    done = subprocess.run(
        [sys.executable, 'scripts/kill_test.py', '--runs=3', '--rounds=20', '--seed=5'],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith('3 runs, ') and last.endswith(' kills, 0 differ')
    assert int(last.split()[2]) >= 3
