"""Mechanisms that are optimised for the rest of a run: switched BLTs and continued bands."""

import functools

import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms.optimize import continued, switched_blt

_FIRST = mechanisms.Blt(8, [0.9, 0.4], [0.2, 0.3])

every_loss = pytest.mark.parametrize('loss', ['max', 'rms'])


@functools.cache
def _plan(loss='max'):
    return mechanisms.optimize_blt(Participation(64, 8), 2, loss)


@functools.cache
def _base():
    return mechanisms.optimize_banded(Participation(24, 6), 4)


@every_loss
@pytest.mark.parametrize('separation', [pytest.param(4, marks=pytest.mark.standard), 16])
def test_a_switch_is_better_than_going_on_and_than_a_restart(loss, separation):
    plan, schema = _plan(loss), Participation(64, separation)
    found = mechanisms.optimize_switch(plan, 32, schema, loss)
    rest = switched_blt._Rest(plan, 32, schema, loss)
    unchanged, restarted = rest.unchanged(), rest.restarted()
    assert rest.loss(unchanged) == pytest.approx(getattr(plan, f'{loss}_loss')(schema))
    assert rest.loss(found) < min(rest.loss(unchanged), rest.loss(restarted)) * 0.999
    assert found.begins_like(plan, 32)


@pytest.mark.parametrize('factor', [pytest.param(0.97, marks=pytest.mark.standard), 1.2])
def test_a_limit_of_the_sensitivity_is_kept_and_used(factor):
    plan, schema = _plan(), Participation(64, 16)
    limit = factor * plan.sensitivity(schema)
    found = mechanisms.optimize_switch(plan, 32, schema, max_sensitivity=limit)
    assert 0.9 * limit < found.sensitivity(schema) <= limit
    assert (found.max_error() < plan.max_error()) == (factor > 1)
    with pytest.raises(errors.ArgumentError, match='must be above .* that of the first 32 rounds'):
        mechanisms.optimize_switch(plan, 32, schema, max_sensitivity=0.5)


@every_loss
def test_a_continued_optimum_is_better_than_a_restart(loss):
    base, schema = _base(), Participation(48, 6)
    found = mechanisms.optimize_continued(base, schema, loss)
    restarted = mechanisms.Restarted(base, (24,), 48)
    value = getattr(found, f'{loss}_loss')(schema)
    assert value < 0.99 * getattr(restarted, f'{loss}_loss')(schema)
    assert found.sensitivity_is_exact(schema)
    shape = mechanisms.optimize_banded_toeplitz(schema, 4, loss='rms').coefficients
    tail = continued._Tail(base, shape, schema, loss)
    for link, gain in ((0.0, 1.0), (0.7, 0.6), (1.3, 1.2)):
        same = mechanisms.Continued(base, gain * shape, link, 48)
        expected = 2 * np.log(getattr(same, f'{loss}_loss')(schema))
        assert tail.log_loss(link, gain) == pytest.approx(expected, abs=1e-10)
        assert value <= np.exp(expected / 2)


def test_bad_arguments_are_named():
    schema, longer = Participation(8, 2), Participation(48, 6)
    identity = mechanisms.Identity(8)
    for optimize, arguments, message in (
        (mechanisms.optimize_switch, (_FIRST, 0, schema), 'at=0: must be an integer >= 1 and <= 7'),
        (mechanisms.optimize_switch, (_FIRST, 8, schema), 'at=8: must be an integer >= 1 and <= 7'),
        (mechanisms.optimize_switch, (identity, 3, schema), 'mechanism: must be a switched_blt'),
        (mechanisms.optimize_switch, (_FIRST, 3, schema, 'mean'), 'loss=mean: must be one of max'),
        (mechanisms.optimize_continued, (_base(), Participation(24, 6)), 'rounds=24: must be an'),
        (mechanisms.optimize_continued, (_base(), Participation(48, 3)), 'min_separation=3: must'),
        (mechanisms.optimize_continued, (identity, longer), 'base: must be a banded mechanism'),
        (mechanisms.optimize_continued, (_base(), longer, 'mean'), 'loss=mean: must be one of max'),
    ):
        with pytest.raises(errors.ArgumentError, match=message):
            optimize(*arguments)
