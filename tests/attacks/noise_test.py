"""The attacks on noise and sums find nothing, and find what they look for where it is."""

import subprocess
import sys

import numpy as np
import pytest

from tests.attacks import colluders, noise_lattice, zero_updates


@pytest.mark.exhaustive
def test_steps_of_the_noise_tell_nobody():
    rng = np.random.default_rng(0)
    assert noise_lattice.count_right(noise_lattice.of_tensorflow, 20, rng) == 20
    for name, noise in (('independent', 'default'), ('blt', 'default'), ('tree', 'hardened')):
        release = noise_lattice.of_plan(noise_lattice.MECHANISMS[name](), noise)
        # 16 or more of 20 by chance: 0.6 %, but the noise is not seeded; 20 of 20: 10^-6.
        assert noise_lattice.count_right(release, 20, rng) < 20


@pytest.mark.parametrize('name', zero_updates.PLANS)
def test_a_zero_update_changes_nothing(name):
    assert not zero_updates.differs(zero_updates.PLANS[name])


@pytest.mark.standard
def test_colluders_move_float32_sums_alone():
    assert colluders.effect(colluders._float32_sum, np.float32) > 1.5
    assert colluders.effect(*colluders._sum_of('two shards')) <= 1


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
