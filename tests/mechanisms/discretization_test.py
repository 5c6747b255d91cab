import dataclasses
import itertools
import math

import mpmath
import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.discretization import Discretization

_TINY = mpmath.mpf('1e-320')  # about the smallest float
_ALPHAS = (math.exp(-0.5), 0.01, 1e-30, 0.999)
_CASES = [
    Discretization(scale, dimension, clip_norm, alpha)
    for scale, dimension, clip_norm, alpha in itertools.product(
        (0.01, 37.5, 1e6), (2, 3, 100, 2_400_000), (0.03, 5.0), _ALPHAS
    )
]


def _exact_values(case):
    """Norms, bound and probability of the papers' formulas in 60 digits."""
    s, c, a = (mpmath.mpf(x) for x in (case.scale, case.clip_norm, case.alpha))
    d = mpmath.mpf(2) ** math.ceil(math.log2(case.dimension))
    k = mpmath.sqrt(2 * mpmath.log(1 / a))
    conditional = s**2 * c**2 + d / 4 + k * (s * c + mpmath.sqrt(d) / 2)
    always = (s * c + mpmath.sqrt(d)) ** 2
    linf = mpmath.ceil(2 * s * c * mpmath.log(d) / mpmath.sqrt(d))
    tail = 2 * d * mpmath.exp(-(linf**2) * d / (2 * s**2 * c**2))
    return mpmath.sqrt(conditional) / s, mpmath.sqrt(always) / s, linf, tail


def test_formulas_against_high_precision():
    for case in _CASES:
        with mpmath.workdps(60):
            conditional, always, linf, tail = _exact_values(case)
            assert float(abs(case.inflated_norm / min(conditional, always) - 1)) < 1e-14
            assert case.inflated_norm > case.clip_norm * (1 - 1e-15)
            assert case.linf_bound == int(linf)
            # The largest sum of all, shifted as clients send it, is one less.
            assert case.modulus(6500) == 2 * int(linf) * 6500 + 1
            assert case.bits_per_parameter(6500) == int(
                mpmath.ceil(mpmath.log(case.modulus(6500), 2))
            )
            assert case.clip_probability() >= min(tail, 1), case
            assert case.clip_probability() <= tail * (1 + mpmath.mpf('1e-8')) + _TINY, case
    # exp(-1e9) is no float, but it is not 0 either.
    assert Discretization(1e-3, 2**30, 1.0).clip_probability() > 0


def _rounded(x, draws, rng):
    low = np.floor(x)
    return low + (rng.random((draws, x.size)) < x - low)


@pytest.mark.parametrize('dimension, alpha', [(64, math.exp(-0.5)), (64, 0.05), (4, 1e-40)])
def test_rounding_meets_the_norm_often_enough_and_never_exceeds_the_other_bound(dimension, alpha):
    rng = np.random.default_rng(1)
    case = Discretization(3.0, dimension, 1.0, alpha)
    for direction in (np.ones(dimension), np.eye(dimension)[0], rng.normal(size=dimension)):
        x = direction / np.linalg.norm(direction) * case.scale * case.clip_norm
        norms = np.linalg.norm(_rounded(x, 20_000, rng), axis=1) / case.scale
        # Four standard deviations of the share of 20,000 draws.
        assert (norms <= case.inflated_norm * (1 + 1e-12)).mean() >= 1 - alpha - 4 * 0.5 / 141
        always = case.clip_norm + math.sqrt(dimension) / case.scale
        assert norms.max() < always
        assert case.inflated_norm < always or (norms <= case.inflated_norm).all()


@pytest.mark.parametrize(
    'bits, clients, dimension, clip_norm',
    [
        (16, 100, 1000, 1.0),
        (20, 6500, 2_400_000, 5.0),
        (2, 1, 2, 0.3),
        (14, 6500, 10**9, 1e-3),
        (62, 1, 17, 1e30),
        (62, 1, 17, 1e-30),
    ],
)
def test_planner_finds_the_largest_scale_that_fits(bits, clients, dimension, clip_norm):
    case = Discretization.for_bits(bits, clients, dimension, clip_norm)
    assert case.bits_per_parameter(clients) <= bits
    for longer in (math.nextafter(case.scale, math.inf), case.scale * (1 + 1e-6)):
        larger = dataclasses.replace(case, scale=longer)
        # One step more of the L-infinity bound takes the modulus past the budget.
        assert larger.linf_bound > case.linf_bound
        assert larger.modulus(clients) > 2**bits
    least = (2 * clients).bit_length()
    assert Discretization.for_bits(least, clients, dimension, clip_norm).linf_bound >= 1
    with pytest.raises(ValueError, match=f'must be at least {least} for'):
        Discretization.for_bits(least - 1, clients, dimension, clip_norm)


def test_rows_with_secure_aggregation_of_document_000():
    # Table 1: en-US* prints 0.25 and es-ES* 0.52, for C_inflated^2 / C^2 in [1.00042, 1.0088).
    squared = []
    for rounds, between, count in ((1360, 622, 2), (1750, 349, 4)):
        schema = Participation.from_rounds_between(rounds, between, count)
        squared.append(mechanisms.BinaryTree(rounds).sensitivity_bound(schema).squared)

    def matches(case):
        inflation = (case.inflated_norm / case.clip_norm) ** 2
        return [round(each * inflation / (2 * 7.0**2), 2) for each in squared] == [0.25, 0.52]

    cases = {bits: Discretization.for_bits(bits, 6500, 2_400_000, 5.0) for bits in range(14, 40)}
    assert [bits for bits, case in cases.items() if matches(case)] == [22, 23]
