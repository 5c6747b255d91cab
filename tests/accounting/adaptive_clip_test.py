import dp_accounting
import mpmath
import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting import clipping
from tests.accounting import plans

_NOISES = [(7.0, 325.0), (7.0, 3.6), (0.54, 25.0), (1e-3, 1.0), (100.0, 50.001), (7.0, 1e9)]


@pytest.mark.parametrize('z, count_stddev', _NOISES)
def test_theorem_1_in_high_precision(z, count_stddev):
    with mpmath.workdps(50):
        exact = 1 / mpmath.sqrt(mpmath.mpf(z) ** -2 - (2 * mpmath.mpf(count_stddev)) ** -2)
        found = clipping.update_noise_multiplier(z, count_stddev)
        # Near 2 sigma_b = z the result depends on the last digits of its arguments.
        condition = float((exact / z) ** 2)
        assert abs(found / exact - 1) < 1e-15 * (4 + condition)


@pytest.mark.parametrize('z, count_stddev', _NOISES)
def test_both_releases_together_have_the_guarantee_of_z(z, count_stddev):
    tree = mechanisms.Restarted.every(mechanisms.BinaryTree(40), 7, 16)
    fields = dict(mechanism=tree, participation=Participation(40, 5, 6))
    noise = clipping.update_noise_multiplier(z, count_stddev)
    updates = plans.plan(noise_multiplier=noise, **fields)
    # Each client adds at most 1/2 to the sum of b_i - 1/2.
    counts = plans.plan(clip_norm=0.5, noise_multiplier=count_stddev / 0.5, **fields)
    assert counts.stddev == count_stddev
    whole = plans.plan(noise_multiplier=z, **fields)
    assert updates.mu**2 + counts.mu**2 == pytest.approx(whole.mu**2, rel=1e-12)
    both = dp_accounting.ComposedDpEvent([updates.dp_event(), counts.dp_event()])
    if whole.mu < 50:
        assert accounting.epsilon_of_event(both, 1e-6, 'analytic_gaussian') == pytest.approx(
            whole.epsilon(1e-6, 'analytic_gaussian'), rel=1e-9
        )


def test_a_client_shifts_both_sums_as_far_as_the_theorem_says():
    # One joint release, in units of its noise, for the worst client of a small case.
    matrix = mechanisms.BinaryTree(4, released='prefix_sums').strategy_matrix()
    z, count_stddev = 1.2, 1.5
    z_delta = clipping.update_noise_multiplier(z, count_stddev)
    update, shifted_bit = 1.0, 0.5
    both = np.concatenate([matrix * update / z_delta, matrix * shifted_bit / count_stddev])
    mu = np.linalg.norm(both @ np.ones(4))
    assert mu == pytest.approx(np.linalg.norm(matrix @ np.ones(4)) / z, rel=1e-14)


def test_no_noise_stays_no_noise():
    assert clipping.update_noise_multiplier(0.0, 1.0) == 0.0
