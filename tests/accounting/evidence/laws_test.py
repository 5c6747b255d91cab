"""Tails of integer laws, against sums of exact fractions and every outcome."""

import fractions
import itertools
import math

import numpy as np
import pytest

from dpfl.accounting.evidence import laws


def _binomial(trials, p):
    p = fractions.Fraction(p).limit_denominator(1000)
    return [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]


def _hypergeometric(population, marked, drawn):
    whole = math.comb(population, drawn)
    return [
        fractions.Fraction(math.comb(marked, k) * math.comb(population - marked, drawn - k), whole)
        for k in range(min(marked, drawn) + 1)
    ]


def _convolved(*tables):
    result = [fractions.Fraction(1)]
    for table in tables:
        longer = [fractions.Fraction(0)] * (len(result) + len(table) - 1)
        for (i, a), (j, b) in itertools.product(enumerate(result), enumerate(table)):
            longer[i + j] += a * b
        result = longer
    return result


def _check(bound, exact):
    """A bound is not below the exact tail, and as close above it as its rounding."""
    assert float(exact) <= bound <= min(1, float(exact) * (1 + 3e-9) + 1e-24)


@pytest.mark.parametrize(
    'law, table',
    [
        (laws.binomial(0, 0.3), [1]),
        (laws.binomial(5, 0.0), [1]),
        (laws.binomial(5, 1.0), [0] * 5 + [1]),
        (laws.binomial(40, 0.5), _binomial(40, 0.5)),
        (laws.binomial(200, 0.01), _binomial(200, 0.01)),
        (laws.binomial(200, 0.99), _binomial(200, 0.99)),
        (laws.hypergeometric(20, 15, 10), _hypergeometric(20, 15, 10)),
        (laws.hypergeometric(900, 90, 110), _hypergeometric(900, 90, 110)),
        (laws.hypergeometric(900, 0, 110), [1]),
        (laws.hypergeometric(7, 7, 3), [0, 0, 0, 1]),
        (
            laws.total([laws.binomial(30, 0.2), laws.hypergeometric(40, 9, 8)]),
            _convolved(_binomial(30, 0.2), _hypergeometric(40, 9, 8)),
        ),
        (laws.repeated(laws.binomial(9, 0.25), 7), _binomial(63, 0.25)),
        (laws.total([]), [1]),
    ],
)
def test_both_tails_are_exact_at_every_value(law, table):
    below = [fractions.Fraction(0), *itertools.accumulate(table)]
    for value in range(-1, len(table) + 1):
        _check(law.upper(value), 1 - below[min(max(0, value), len(table))])
        _check(law.lower(value), below[min(value + 1, len(table))])


def test_a_function_of_a_variable():
    squares = laws.binomial(6, 0.5).of(lambda k: (k - 3) ** 2)
    table = _binomial(6, 0.5)
    _check(squares.upper(4), 2 * (table[0] + table[1]))
    _check(squares.lower(0), table[3])


@pytest.mark.parametrize('trials, p, value', [(30, 0.1, 20), (200, 0.25, 20), (900, 0.5, 380)])
def test_binomial_tails(trials, p, value):
    table = _binomial(trials, p)
    _check(float(laws.binomial_upper(value, trials, p)), sum(table[value:]))
    _check(float(laws.binomial_lower(value, trials, p)), sum(table[: value + 1]))


def test_wide_laws_lose_no_mass_by_their_transforms():
    """A sum of wide binomials is binomial: 2^20 trials in parts, whose convolutions use FFTs."""
    parts = laws.repeated(laws.binomial(2**15, 0.5), 32)
    whole = laws.binomial(2**20, 0.5)
    for value in (2**19 - 2800, 2**19, 2**19 + 2800):
        assert whole.upper(value) <= parts.upper(value) * (1 + 1e-9)
        assert parts.upper(value) <= whole.upper(value) * (1 + 1e-9) + parts.lost
    assert parts.lost < 1e-10


@pytest.mark.parametrize('value', [880, 1000, 1130])
def test_chernoff_is_above_the_exact_tail_by_little(value, monkeypatch):
    parts = [(laws.binomial(500, 0.1), 20)]
    exact = laws.tails_of_total(value, parts)
    monkeypatch.setattr(laws, '_MOST_CELLS', 0)
    bounds = laws.tails_of_total(value, parts)
    for bound, tail in zip(bounds, exact, strict=True):
        assert tail <= bound <= min(1, 40 * tail)


def test_union_and_two_sides():
    assert laws.union(10, 0.2) == 1
    assert laws.union(10, 1e-9) == pytest.approx(1e-8, rel=1e-8)
    assert laws.two_sided((0.9, 0.8)) == 1
    assert laws.two_sided((1e-9, 1.0)) == 2e-9


def test_tails_are_monotone_beyond_the_cells():
    law = laws.binomial(10**10, 1e-3)
    uppers = [
        law.upper(value) for value in np.linspace(10**7 - 10**5, 10**7 + 10**5, 9).astype(int)
    ]
    assert uppers == sorted(uppers, reverse=True) and uppers[0] == 1 and uppers[-1] < 1e-24


@pytest.mark.parametrize('level', [1e-3, 1e-7])
def test_the_critical_value_is_the_first_below_the_level(level):
    value = laws.critical(level, [(laws.binomial(50, 0.3), 4)])
    assert laws.binomial_upper(value, 200, 0.3) <= level < laws.binomial_upper(value - 1, 200, 0.3)
