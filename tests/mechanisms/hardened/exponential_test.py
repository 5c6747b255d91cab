"""Error bounds of exp(-x), against 100 digits."""

import fractions
import itertools

import mpmath
import numpy as np
import pytest

from dpfl.mechanisms.hardened import discrete_gaussian


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(400):
        yield


def _exact(x: fractions.Fraction):
    return mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)


def test_in_float64_it_keeps_its_bound():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            [0.0, 2.0**-40, 1.0, discrete_gaussian.MOST_EXPONENT],
            rng.uniform(0, discrete_gaussian.MOST_EXPONENT, 1000),
        ]
    )
    found = discrete_gaussian.negative_exp(x)
    errors = [
        abs(mpmath.mpf(value) / _exact(fractions.Fraction(at)) - 1)
        for value, at in zip(found.tolist(), x.tolist(), strict=True)
    ]
    assert max(errors) <= discrete_gaussian.ERROR
    assert max(errors) > discrete_gaussian.ERROR / 2**12  # Not a bound of anything else.


_ARGUMENTS = [
    fractions.Fraction(0),
    fractions.Fraction(1, 10**30),
    fractions.Fraction(1, 3),
    fractions.Fraction(355, 113),
    fractions.Fraction(2**80 + 1, 2**75),
    fractions.Fraction(499),
    fractions.Fraction(10**6),
]


def test_in_integers_it_is_enclosed():
    rng = np.random.default_rng(1)
    cases = list(itertools.product(_ARGUMENTS, [1, 8, 62, 126, 700]))
    for _ in range(200):
        x = fractions.Fraction(int(rng.integers(0, 2**62)), int(rng.integers(2**52, 2**62)))
        cases.append((x, int(rng.integers(1, 300))))
    for x, bits in cases:
        lower, upper = discrete_gaussian.negative_exp_bounds(x, bits)
        assert 0 <= lower < upper <= lower + 2
        assert lower <= _exact(x) * 2**bits <= upper
