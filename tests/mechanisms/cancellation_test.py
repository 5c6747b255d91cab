"""Parameters whose digits cancel, in exact arithmetic: no sensitivity is below the truth."""

import fractions
import math

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, mechanisms
from dpfl.mechanisms.sensitivities import pattern_sensitivity

_ROUNDS = 30
_NEAR = math.nextafter(0.9, 1.0)


def _column(mechanism, rounds=_ROUNDS):
    """First column of C in exact arithmetic; all blocks of a BLT are the first one."""
    if isinstance(mechanism, mechanisms.BandedInverse):
        taps = list(map(fractions.Fraction, mechanism.inverse_coefficients))
        column = [fractions.Fraction(1)]
        for i in range(1, rounds):
            column.append(-sum(tap * column[-j] for j, tap in enumerate(taps[1 : i + 1], 1)))
        return column
    decay, scale = (
        list(map(fractions.Fraction, np.atleast_2d(values)[0]))
        for values in (mechanism.decay, mechanism.scale)
    )
    return [fractions.Fraction(1)] + [
        sum(s * d**lag for s, d in zip(scale, decay, strict=True)) for lag in range(rounds - 1)
    ]


def _random_members(rng):
    """Members of each family whose terms are up to 10^14 times their sums."""
    size = 10.0 ** rng.uniform(0, 14)
    decay = np.clip(rng.uniform(0, 1) + np.array([0, rng.uniform(-1, 1) / size]), 0, 1)
    scale = size * np.array([1, -1 - rng.normal() / size])
    yield mechanisms.Blt(_ROUNDS, decay, scale)
    yield mechanisms.Blt(_ROUNDS, -decay, scale)
    yield mechanisms.BlockBlt(_ROUNDS, (), [decay], [scale], [1.0])
    yield mechanisms.BlockBlt(_ROUNDS, (9,), [decay, decay], [scale, scale], [1.0, 1.0])
    taps = np.poly([rng.uniform(0.5, 1)] * rng.integers(1, 9))
    yield mechanisms.BandedInverse(_ROUNDS, taps * rng.choice([1, -1]) ** np.arange(taps.size))


def _bounds(mechanism):
    """The squared norm of the first column by every way that the library has."""
    once = Participation(_ROUNDS, _ROUNDS)
    one_client = ParticipationLog([[0]] + [[]] * (_ROUNDS - 1))
    yield mechanism.sensitivity_bound(once)
    yield pattern_sensitivity.of_log(mechanism, one_client)
    if mechanism.extends:
        yield mechanisms.ColumnScaled(mechanism, [1.0], _ROUNDS).sensitivity_bound(once)
    restarted = mechanisms.Restarted(mechanism, (_ROUNDS - 1,), _ROUNDS)
    yield restarted.sensitivity_bound(Participation(_ROUNDS, 2, 1))


@pytest.mark.parametrize('cases', [30, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_no_sensitivity_is_below_the_truth(cases):
    rng = np.random.default_rng(cases)
    for _ in range(cases):
        for mechanism in _random_members(rng):
            squares = np.cumsum(np.square(_column(mechanism)))
            for bound, last in zip(_bounds(mechanism), (-1, -1, -1, -2), strict=True):
                assert bound.squared >= squares[last], mechanism


def test_decays_that_differ_by_one_unit_are_not_equal():
    mechanism = mechanisms.Blt(_ROUNDS, [_NEAR, 0.9], [1e16, -1e16])
    assert sum(entry**2 for entry in _column(mechanism)) > 9
    assert math.isinf(mechanism.sensitivity(Participation(_ROUNDS, _ROUNDS)))


def test_nothing_is_added_where_nothing_cancels():
    for mechanism in (
        mechanisms.Blt(_ROUNDS, [0.9, 0.0], [1e9, 1.0]),
        mechanisms.BlockBlt(_ROUNDS, (2,), [[0.9], [0.5]], [[0.1], [0.2]], [1.0, 2.0]),
        mechanisms.BandedInverse.square_root(_ROUNDS, 8),
        mechanisms.BandedToeplitz(_ROUNDS, [1.0, -0.5]),
    ):
        assert mechanism.column_error(_ROUNDS) == 0
    ordinary = mechanisms.BandedInverse(_ROUNDS, np.poly([0.9, 0.8, 0.7]))
    assert 0 < ordinary.column_error(_ROUNDS) < 1e-11
