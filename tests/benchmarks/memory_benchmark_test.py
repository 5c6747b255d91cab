"""The benchmark of a long run's memory runs, at a size of no interest."""

import re
import subprocess
import sys

import pytest

from tests import paths

_SCRIPT = paths.ROOT / 'benchmarks' / 'memory.py'


def _run(*flags):
    return subprocess.run(
        [sys.executable, str(_SCRIPT), *flags],
        cwd='/',
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_run_is_watched_to_its_end():
    done = _run('--tiny', '--rounds=40', '--sampling=poisson')
    assert (done.returncode, done.stderr) == (0, '')
    rows = re.findall(r'^poisson +(\d+) +(\d+)$', done.stdout, re.MULTILINE)
    assert [int(number) for number, _ in rows] == [8, 16, 20, 24, 30]
    assert all(300 < int(megabytes) < 5000 for _, megabytes in rows)
    growth = int(rows[-1][1]) - int(rows[2][1])
    (told,) = re.findall(r'^poisson: growth (-?\d+) MB; target less than 50 MB', done.stdout, re.M)
    assert abs(int(told) - growth) <= 1


@pytest.mark.parametrize(
    'flag, message',
    [
        ('--sampling=timer', '--sampling=timer: must be among min_separation, poisson'),
        ('--rounds=39', '--rounds=39: must be at least 40'),
    ],
)
def test_bad_flags_are_refused(flag, message):
    done = _run(flag)
    assert done.returncode == 2
    assert message in done.stderr
