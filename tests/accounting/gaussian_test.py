import math

import mpmath
import pytest
from scipy import stats

from dpfl import accounting
from dpfl.accounting import gaussian, gaussian_curve


def _exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang 2018, theorem 8, with 60 digits."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )


@pytest.mark.parametrize('mu', [1e-3, 0.05, 0.5, 1.27, 3.0, 20.0])
@pytest.mark.parametrize('delta', [1e-15, 1e-10, 1e-5, 0.1])
def test_no_method_is_below_the_exact_epsilon(mu, delta):
    exact = accounting.epsilon_from_mu(mu, delta, 'analytic_gaussian')
    if exact > 0:
        assert _exact_delta(mu, exact) <= delta * (1 + 1e-9)
        assert _exact_delta(mu, exact * (1 - 1e-8)) > delta
    else:
        assert _exact_delta(mu, 0) <= delta
    grid_and_tails = 1e-4 if delta >= 1e-10 else 0.02
    by_pld = accounting.epsilon_from_mu(mu, delta, 'pld')
    assert exact <= by_pld <= exact + grid_and_tails * max(1, exact)
    assert exact <= accounting.epsilon_from_mu(mu, delta, 'rdp')


def test_delta_is_the_hockey_stick_divergence():
    # By integration of the two densities, independent of the closed form.
    mu, epsilon = 1.3, 2.0
    threshold = epsilon / mu + mu / 2
    integral = stats.norm.sf(threshold - mu) - math.exp(epsilon) * stats.norm.sf(threshold)
    assert math.exp(gaussian_curve.log_delta(mu, epsilon)) == pytest.approx(integral, rel=1e-12)


def test_known_value_of_document_002_section_3_2():
    assert accounting.epsilon_from_mu(1.0, 1e-7) == pytest.approx(5.3493, abs=1e-4)


def test_extreme_noise():
    for method in accounting.ACCOUNTANTS:
        assert accounting.epsilon_from_mu(0.0, 1e-10, method) == 0.0
        assert accounting.epsilon_from_mu(math.inf, 1e-10, method) == math.inf
    assert accounting.epsilon_from_mu(100.0, 1e-10) > 5000


def test_rho_and_mu_agree():
    assert accounting.mu_from_rho(0.5) == 1.0
    assert accounting.epsilon_from_rho(0.5, 1e-6) == accounting.epsilon_from_mu(1.0, 1e-6)


@pytest.mark.parametrize(
    'call, message',
    [
        (lambda: accounting.epsilon_from_mu(1, 0), 'delta=0: must be a finite number > 0 and < 1'),
        (lambda: accounting.epsilon_from_mu(1, 1), 'delta=1: '),
        (lambda: accounting.epsilon_from_mu(1, float('nan')), 'delta=nan: '),
        (lambda: accounting.epsilon_from_mu(-1, 0.1), 'mu=-1: '),
        (lambda: accounting.epsilon_from_mu(float('nan'), 0.1), 'mu=nan: '),
        (lambda: accounting.epsilon_from_rho(-1, 0.1), 'rho=-1: '),
        (lambda: accounting.epsilon_from_mu(1, 0.1, 'guess'), 'method=guess: must be one of pld'),
        (lambda: accounting.mu_from_epsilon(0, 0.1), 'epsilon=0: '),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize('mu, delta', [(1e-6, 1e-300), (1.0, 1e-16), (1e6, 1e-10), (3e4, 0.5)])
def test_where_the_privacy_loss_distribution_has_no_value_the_exact_one_is_given(mu, delta):
    found = gaussian.bound(mu, delta, 'pld')
    exact = accounting.epsilon_from_mu(mu, delta, 'analytic_gaussian')
    assert math.isfinite(found.epsilon) and found.epsilon >= exact
    if mu >= 1:
        assert found == (exact, 'analytic_gaussian')


@pytest.mark.parametrize('method', accounting.ACCOUNTANTS)
def test_every_accountant_is_finite_and_valid_over_wide_ranges(method):
    for mu in (1e-15, 1e-9, 1e-3, 0.3, 10.0, 1e3, 1e5, 1e20, 1e100):
        for delta in (1e-300, 1e-100, 1e-16, 1e-9, 0.1, 0.9, 1 - 1e-12):
            found = gaussian.bound(mu, delta, method)
            assert math.isfinite(found.epsilon)
            assert found.epsilon >= gaussian_curve.epsilon(mu, delta)
            assert found.accountant in accounting.ACCOUNTANTS and found.accountant != 'best'


def test_the_best_accountant_is_named_and_is_the_least():
    for mu, delta in ((0.3, 1e-5), (5.0, 1e-20)):
        best = gaussian.bound(mu, delta, 'best')
        assert best.accountant == 'analytic_gaussian'
        assert best.epsilon == min(
            accounting.epsilon_from_mu(mu, delta, method) for method in accounting.ACCOUNTANTS
        )


def test_without_a_finite_square_there_is_no_guarantee():
    for method in accounting.ACCOUNTANTS:
        assert accounting.epsilon_from_mu(1e200, 1e-6, method) == math.inf
