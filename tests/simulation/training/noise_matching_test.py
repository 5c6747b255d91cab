"""Noise that matches another mechanism, against decoders and plans that are written out."""

import dataclasses
import math

import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.simulation.training import noise_matching
from tests.accounting import plans

_SCHEMA = Participation(24, 6, 3)
_BLT = mechanisms.Blt(24, [0.9, 0.4], [0.2, 0.3])
_TREE = mechanisms.HonakerTree(24)


def _plan(mechanism=_BLT, schema=_SCHEMA, noise_multiplier=0.0, **fields):
    fields |= dict(mechanism=mechanism, participation=schema, clients_per_round=10)
    return plans.plan(noise_multiplier=noise_multiplier, **fields)


def _matched(plan, *arguments):
    noise = noise_matching.noise_multiplier(plan, *arguments)
    return dataclasses.replace(plan, noise_multiplier=noise)


def _stddevs(mechanism):
    """Standard deviations of the prefix sums after each round for unit noise, densely."""
    sums = np.tri(24) @ np.linalg.inv(mechanism.strategy_matrix())
    return np.linalg.norm(sums, axis=1)


@pytest.mark.parametrize('rounds', [1, 13, 24])
def test_the_noise_of_prefix_sums_is_that_of_the_other_mechanism(rounds):
    for quantity, summary in (
        ('rmse', lambda each: math.sqrt((each[:rounds] ** 2).mean())),
        ('prefix_noise', lambda each: each[rounds - 1]),
    ):
        other = _TREE.with_rounds(rounds)
        value = noise_matching.reference_value(_plan(), other, 7.0, quantity, rounds)
        wanted = 7 * summary(_stddevs(_TREE))
        assert value == pytest.approx(wanted, rel=1e-9)
        own = noise_matching.noise_multiplier(_plan(), value, quantity, rounds)
        assert own * summary(_stddevs(_BLT)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    'rounds, fields', [(1, {}), (13, {'adjacency': 'replace_one'}), (24, {'noise': 'hardened'})]
)
def test_rho_is_that_of_the_other_mechanism_and_never_above(rounds, fields):
    silent = _plan(**fields)
    value = noise_matching.reference_value(silent, _TREE.with_rounds(rounds), 7.0, 'rho', rounds)
    stopped = Participation(rounds, 6, 3)
    other = _plan(_TREE.with_rounds(rounds), stopped, noise_multiplier=7.0, **fields)
    assert value == other.rho
    plan = _matched(silent, value, 'rho', rounds)
    reached = plan.with_participation(stopped).rho
    assert reached <= value and reached == pytest.approx(value, rel=1e-6)


_FIRST = plans.plan(noise_multiplier=1.0)


@pytest.mark.parametrize(
    'fields, quantity, rounds, name',
    [
        (dict(adaptive_clip=accounting.AdaptiveClip(0.5)), 'rmse', 6, 'adaptive_clip'),
        (dict(clip_schedule=((3, 0.1),)), 'rmse', 6, 'clip_schedule'),
        (dict(estimator=accounting.Estimator('clipped')), 'rmse', 6, 'estimator'),
        (plans.fields(plans.sampled('without_replacement')), 'rho', 6, 'sampling'),
        # No noise of this run makes up for what was released before: a search would not end.
        (dict(earlier=(_FIRST,)), 'rho', 6, 'earlier'),
        (dict(before=(accounting.ReleaseBefore('words', 9.0),)), 'rho', 6, 'before'),
        (dict(), 'rmse', 7, 'rounds'),
    ],
)
def test_noise_that_no_match_can_give_is_refused(fields, quantity, rounds, name):
    plan = plans.plan(**{'mechanism': mechanisms.Identity(6), 'noise_multiplier': 0.0, **fields})
    with pytest.raises(errors.ArgumentError) as refused:
        noise_matching.noise_multiplier(plan, 0.2, quantity, rounds)
    assert refused.value.name == name
