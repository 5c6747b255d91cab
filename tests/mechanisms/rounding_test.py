"""Sensitivities against exact rational arithmetic: not one is below the truth, by no digit.

Some parameters are such that digits cancel.
"""

import fractions
import math

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, mechanisms
from dpfl.mechanisms import rounding
from dpfl.mechanisms.sensitivities import pattern_sensitivity
from tests import oracles
from tests.sizes import exhaustive


def _random_mechanism(rng, rounds):
    def entries(*shape):
        return rng.uniform(0, 1, shape) * 10.0 ** rng.uniform(-200, 0, shape)

    scale, kind = 10.0 ** rng.uniform(-99, 99), rng.integers(4)
    if kind < 2:
        values = entries(int(rng.integers(1, rounds + 1)))
        values = np.sort(values)[::-1] if kind else values
        values[0] = rng.uniform(0.5, 1)
        base = mechanisms.BandedToeplitz(rounds, values * scale)
    elif kind == 2:
        matrix = np.tril(entries(rounds, rounds), -1) + np.diag(rng.uniform(0.1, 1, rounds))
        return mechanisms.Banded.from_matrix(matrix * scale, int(rng.integers(1, rounds + 1)))
    else:
        base = mechanisms.Blt(rounds, rng.random(2), entries(2) * rng.uniform(0, 1))
    if rng.random() < 0.3 and rounds > 1:
        return mechanisms.Restarted(base, [int(rng.integers(1, rounds))], rounds)
    return base


@pytest.mark.parametrize('cases', [100, exhaustive(400)])
def test_no_sensitivity_is_below_the_truth_by_any_digit(cases):
    rng = np.random.default_rng(15)
    for _ in range(cases):
        rounds = int(rng.integers(1, 8))
        mechanism = _random_mechanism(rng, rounds)
        schema = Participation(rounds, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        bound = mechanism.sensitivity_bound(schema)
        truth = oracles.exact_squared_sensitivity(mechanism.strategy_matrix(), schema)
        assert fractions.Fraction(bound.squared) >= truth, (mechanism, schema)
        assert fractions.Fraction(mechanism.sensitivity(schema)) ** 2 >= truth
        if bound.is_exact:
            assert bound.squared == pytest.approx(float(truth), rel=1e-11)


def test_a_sensitivity_of_many_rounds_is_not_below_a_long_sum():
    rounds = 3000
    mechanism = mechanisms.Blt(rounds, [0.9999, 0.9], [0.01, 0.2])
    for separation, count in ((1, 50), (7, 300), (100, 3)):
        schema = Participation(rounds, separation, count)
        coefficients = mechanism.coefficients()
        released = [
            math.fsum(coefficients[t - s * separation] for s in range(count) if t >= s * separation)
            for t in range(rounds)
        ]
        truth = math.fsum(fractions.Fraction(value) ** 2 for value in released)
        assert truth <= mechanism.sensitivity_bound(schema).squared <= truth * (1 + 1e-10)


def test_roots_and_quotients_are_rounded_up():
    rng = np.random.default_rng(3)
    for value, divisor in rng.uniform(0.1, 10, (500, 2)).tolist():
        root, quotient = rounding.root_up(value), rounding.quotient_up(value, divisor)
        assert fractions.Fraction(root) ** 2 >= fractions.Fraction(value)
        exact = fractions.Fraction(value) / fractions.Fraction(divisor)
        assert fractions.Fraction(quotient) >= exact
        assert root <= math.nextafter(math.sqrt(value), math.inf)
        assert quotient <= math.nextafter(value / divisor, math.inf)
    assert (rounding.root_up(4.0), rounding.root_up(0.0)) == (2.0, 0.0)
    assert (rounding.quotient_up(3.0, 2.0), rounding.quotient_up(1.0, 0.0)) == (1.5, math.inf)


_ROUNDS = 30


def _column(mechanism):
    """First column of C in exact arithmetic."""
    taps = list(map(fractions.Fraction, mechanism.inverse_coefficients))
    column = [fractions.Fraction(1)]
    for i in range(1, _ROUNDS):
        column.append(-sum(tap * column[-j] for j, tap in enumerate(taps[1 : i + 1], 1)))
    return column


def _random_member(rng):
    """A banded inverse whose terms may be far larger than their sums."""
    taps = np.poly([rng.uniform(0.5, 1)] * rng.integers(1, 9))
    return mechanisms.BandedInverse(_ROUNDS, taps * rng.choice([1, -1]) ** np.arange(taps.size))


def _bounds(mechanism):
    """The squared norm of the first column by every way that the library has."""
    once = Participation(_ROUNDS, _ROUNDS)
    one_client = ParticipationLog([[0]] + [[]] * (_ROUNDS - 1))
    yield mechanism.sensitivity_bound(once)
    yield pattern_sensitivity.of_log(mechanism, one_client)
    restarted = mechanisms.Restarted(mechanism, (_ROUNDS - 1,), _ROUNDS)
    yield restarted.sensitivity_bound(Participation(_ROUNDS, 2, 1))


@pytest.mark.parametrize('cases', [30, exhaustive(1000)])
def test_no_sensitivity_is_below_the_truth_where_digits_cancel(cases):
    rng = np.random.default_rng(cases)
    for _ in range(cases):
        mechanism = _random_member(rng)
        squares = np.cumsum(np.square(_column(mechanism)))
        for bound, last in zip(_bounds(mechanism), (-1, -1, -2), strict=True):
            assert bound.squared >= squares[last], mechanism


def test_nothing_is_added_where_nothing_cancels():
    for mechanism in (
        mechanisms.Blt(_ROUNDS, [0.9, 0.0], [1e9, 1.0]),
        mechanisms.BandedInverse.square_root(_ROUNDS, 8),
        mechanisms.BandedToeplitz(_ROUNDS, [1.0, -0.5]),
    ):
        assert mechanism.column_error(_ROUNDS) == 0
    ordinary = mechanisms.BandedInverse(_ROUNDS, np.poly([0.9, 0.8, 0.7]))
    assert 0 < ordinary.column_error(_ROUNDS) < 1e-11
