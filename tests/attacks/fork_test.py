"""Noise does not repeat in forked processes."""

import subprocess
import sys

import pytest


@pytest.mark.exhaustive
def test_noise_does_not_repeat_in_forked_processes():
    done = subprocess.run(
        [sys.executable, '-m', 'tests.attacks.fork'],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout.split(' in ')[0]) == (0, 'nothing found')
