"""The guarantee of noise from clients against exact divergences, by summing densities."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import special, stats

from dpfl import Participation, mechanisms
from dpfl.aggregators.integers.distributed_noise import DistributedNoise
from dpfl.mechanisms.discretization import Discretization
from tests.aggregators import rounds

_SETTINGS = Discretization(scale=20.0, dimension=5, clip_norm=0.5)


def plan_of(number=6, clients=4, **changes):
    """A plan of `number` rounds."""
    return rounds.plan(
        mechanisms.Identity(number), clients, **{'discretization': _SETTINGS, **changes}
    )


def log_skellam(variance):
    """Log probabilities exp(-v) I_n(v) of a Skellam variable, where floats hold them."""
    reach = np.arange(-2000, 2001)
    densities = special.ive(np.abs(reach), variance)
    return np.log(densities[densities > 1e-280])


def log_discrete_gaussian(variance, support):
    weights = -(support**2) / (2 * variance)
    return weights - special.logsumexp(weights)


def log_sum_of_discrete_gaussians(stddev, shares, support):
    one = np.exp(log_discrete_gaussian(stddev**2, support))
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one, 'same')
    return np.log(np.maximum(total, 1e-300))


def _divergence(log_p, shift, order):
    """Renyi divergence of a distribution on a window of integers and its shift, exactly."""
    p, q = log_p[shift:], log_p[: len(log_p) - shift]
    return special.logsumexp(order * p + (1 - order) * q) / (order - 1)


@dataclasses.dataclass(frozen=True)
class _Moved(DistributedNoise):
    """The bound for a client that moves the sum by given norms."""

    l2: float = 1.0
    l1: float = 1.0
    l2_sensitivity = property(lambda self: self.l2)
    l1_sensitivity = property(lambda self: self.l1)


def _bound(kind, local_stddev, shares, moves):
    # stddev times scale over the root of the shares is the local deviation.
    settings = Discretization(1.0, max(2, len(moves)), 1.0)
    plan = plan_of(
        discretization=settings,
        clip_norm=1.0,
        clients=shares,
        noise_multiplier=local_stddev * math.sqrt(shares),
    )
    moves = np.abs(moves)
    return _Moved(plan, kind, l2=float(np.linalg.norm(moves)), l1=float(moves.sum()))


@pytest.mark.parametrize('variance', [0.7, 3.0, 40.0, 900.0])
@pytest.mark.parametrize('moves', [[1], [2], [7], [1, 1, 1, 1], [3, 1, 0, 2]], ids=str)
def test_no_skellam_divergence_exceeds_the_bound(variance, moves):
    noise = _bound('skellam', math.sqrt(variance / 3), 3, moves)
    assert noise.variance == pytest.approx(variance)
    log_p = log_skellam(variance)
    for order in (2, 3, 5, 17):
        exact = sum(_divergence(log_p, move, order) for move in moves)
        bound = noise.round_divergence(order)
        assert exact <= bound * (1 + 1e-9)
        if variance >= 900:
            assert bound < exact * 1.2


@pytest.mark.parametrize('stddev', [1, 2, 3])
@pytest.mark.parametrize('shares', [2, 3, 8])
def test_no_divergence_of_sums_of_discrete_gaussians_exceeds_the_bound(stddev, shares):
    support = np.arange(-120, 121)
    log_p = log_sum_of_discrete_gaussians(stddev, shares, support)
    inside = slice(60, 181)
    for moves in ([1], [4], [1, 2, 1]):
        noise = _bound('discrete_gaussian', stddev, shares, moves)
        assert noise.variance == shares * stddev**2
        for order in (2, 3):
            exact = sum(_divergence(log_p[inside], move, order) for move in moves)
            assert exact <= noise.round_divergence(order) * (1 + 1e-6)
    # tau bounds the ratio of the densities, where these are numbers at all.
    nearest = log_discrete_gaussian(shares * stddev**2, support)
    middle = slice(120 - 4 * stddev, 121 + 4 * stddev)
    distance = np.abs(log_p - nearest)[middle].max()
    assert distance <= noise.closeness + 1e-12
    if stddev == 1:
        assert distance > 1e-7


def test_gaussian_is_the_limit_of_fine_integers():
    # With a fine scale neither rounding nor integers matter: the accountant of the plan agrees.
    settings = Discretization(1e6, 50, 0.5)
    plan = plan_of(
        discretization=settings,
        clients=4,
        number=20,
        participation=Participation(20, 5),
        noise_multiplier=3.0,
    )
    expected = plan.epsilon(1e-6, 'rdp')
    for kind in ('skellam', 'discrete_gaussian'):
        assert DistributedNoise(plan, kind).epsilon(1e-6) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize('kind', ['skellam', 'discrete_gaussian'])
def test_it_is_never_less_than_that_of_continuous_noise(kind):
    # The rounded-up deviation of a discrete Gaussian is more noise; at equal noise it is not less.
    for scale in (2.0, 20.0, 300.0):
        plan = plan_of(discretization=dataclasses.replace(_SETTINGS, scale=scale))
        noise = DistributedNoise(plan, kind)
        equal = noise.variance**0.5 / scale / plan.clip_norm
        plain = dataclasses.replace(plan, noise_multiplier=equal)
        assert noise.epsilon(1e-6) >= plain.epsilon(1e-6, 'analytic_gaussian')


def test_the_share_is_the_noise_over_the_root_of_the_clients():
    # Not divided by their number: the variances add up.
    noise = DistributedNoise(plan_of(clients=100))
    assert noise.local_stddev == pytest.approx(0.5 * 2.0 * 20.0 / 10)
    assert noise.variance == pytest.approx((0.5 * 2.0 * 20.0) ** 2)
    fewer = DistributedNoise(plan_of(clients=100), min_clients=25)
    assert fewer.local_stddev == pytest.approx(2 * noise.local_stddev)
    assert fewer.epsilon(1e-6) == pytest.approx(noise.epsilon(1e-6))
    rounded = DistributedNoise(plan_of(clients=90), 'discrete_gaussian')
    assert rounded.local_stddev == 3.0  # Of 2.1.


def test_the_guarantee_counts_participations_adjacency_and_inflation():
    def divergence(**changes):
        plan = plan_of(**changes)
        return DistributedNoise(plan).round_divergence(2), plan

    one, plan = divergence()
    inflated = plan.discretization.inflated_norm / plan.clip_norm
    assert one > inflated**2 * 2 / (2 * 2.0**2)
    assert divergence(adjacency='replace_one')[0] == pytest.approx(4 * one, rel=1e-2)
    few = plan_of(number=12, participation=Participation(12, 6))
    many = plan_of(number=12)
    assert DistributedNoise(few).epsilon(1e-6) < DistributedNoise(many).epsilon(1e-6)
    assert DistributedNoise(few).epsilon(1e-6) == pytest.approx(
        DistributedNoise(plan_of(number=2)).epsilon(1e-6)
    )


def test_without_noise_there_is_no_guarantee():
    assert DistributedNoise(plan_of(noise_multiplier=0.0)).epsilon(1e-6) == math.inf
    assert DistributedNoise(
        plan_of(noise_multiplier=0.0), 'discrete_gaussian'
    ).modulus == _SETTINGS.modulus(4)


@pytest.mark.parametrize('kind', ['skellam', 'discrete_gaussian'])
@pytest.mark.parametrize('scale', [1.0, 20.0, 1e5])
def test_sums_stay_within_the_modulus(kind, scale):
    plan = plan_of(discretization=dataclasses.replace(_SETTINGS, scale=scale), noise_multiplier=0.3)
    noise = DistributedNoise(plan, kind)
    room = (noise.modulus - plan.discretization.modulus(4)) // 2
    variance = 4 * noise.local_stddev**2
    tail = (
        stats.skellam.sf(room, variance / 2, variance / 2)
        if scale < 1e4 and kind == 'skellam'
        else stats.norm.sf(room / variance**0.5)
    )
    assert tail * 2 * 8 * 6 <= 2.0**-40
    # And the bound is not much larger than needed.
    assert room <= 1.3 * (variance**0.5 * 9) + 30
    assert noise.bits_per_parameter == math.ceil(math.log2(noise.modulus))
