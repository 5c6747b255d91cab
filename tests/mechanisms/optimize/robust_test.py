"""Optima for several schemas: BLTs, and BLTs with scaled columns."""

import functools

import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms.optimize import cache, relative_loss
from tests import oracles

_SCHEMAS = tuple(Participation(96, b, 4) for b in (6, 13, 24, 48))
_FEW_ROUNDS = (Participation(12, 2, 3), Participation(12, 5), Participation(9, 3))
_OPTIMIZERS = {
    'blt': (mechanisms.optimize_robust_blt, mechanisms.optimize_blt),
    'scaled_blt': (mechanisms.optimize_robust_scaled_blt, mechanisms.optimize_scaled_blt),
}

every_optimizer = pytest.mark.parametrize(
    'name', ['blt', pytest.param('scaled_blt', marks=pytest.mark.standard)]
)
every_criterion = pytest.mark.parametrize(
    'criterion', ['expected', pytest.param('worst', marks=pytest.mark.standard)]
)


@pytest.fixture(scope='module', name='kept')
def _kept(tmp_path_factory):
    return tmp_path_factory.mktemp('kept')


@pytest.fixture(autouse=True)
def _blts_for_one_schema_are_optimized_once(monkeypatch, kept):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(kept))


@functools.cache
def _optimized(name, schemas=_SCHEMAS, loss='max', criterion='expected', weights=None):
    return _OPTIMIZERS[name][0](list(schemas), weights, 2, loss, criterion)


def _relative(mechanism, schemas=_SCHEMAS, loss='max'):
    return mechanisms.relative_losses(mechanism, list(schemas), 2, loss)


@every_optimizer
@pytest.mark.parametrize('loss', ['max', pytest.param('rms', marks=pytest.mark.exhaustive)])
def test_no_design_for_one_schema_is_better(name, loss):
    expected, worst = (_optimized(name, loss=loss, criterion=c) for c in relative_loss.CRITERIA)
    of_expected, of_worst = _relative(expected, loss=loss), _relative(worst, loss=loss)
    assert of_expected.mean() <= of_worst.mean() and of_worst.max() <= of_expected.max()
    others = [_OPTIMIZERS[name][1](schema, 2, loss) for schema in _SCHEMAS]
    if name == 'scaled_blt':
        others += [_optimized('blt', loss=loss, criterion=c) for c in relative_loss.CRITERIA]
    for other in others:
        relative = _relative(other, loss=loss)
        assert of_expected.mean() < relative.mean()
        assert of_worst.max() < relative.max()
    assert worst.num_buffers() <= 2 and getattr(worst, 'base', worst).is_monotone()


def test_the_worst_relative_losses_are_equal_and_no_step_lowers_them():
    worst = _optimized('blt', criterion='worst')
    relative = _relative(worst)
    assert (relative > relative.max() - 1e-6).sum() >= 2
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = mechanisms.Blt(
            96,
            1 - (1 - worst.decay) * np.exp(rng.normal(scale=0.02, size=worst.decay.size)),
            worst.scale * np.exp(rng.normal(scale=0.02, size=worst.scale.size)),
        )
        if other.is_monotone():
            assert _relative(other).max() >= relative.max() - 1e-7


@every_criterion
@pytest.mark.parametrize('name', _OPTIMIZERS)
def test_losses_are_not_below_those_of_all_patterns(name, criterion):
    found = _optimized(name, _FEW_ROUNDS, criterion=criterion)
    assert found.rounds == 12  # The most of the schemas.
    for schema, relative in zip(_FEW_ROUNDS, _relative(found, _FEW_ROUNDS), strict=True):
        shorter = found.with_rounds(schema.rounds)
        matrix = shorter.strategy_matrix()
        truth = np.sqrt(oracles.squared_sensitivity(matrix, schema))
        assert truth * (1 - 1e-12) <= shorter.sensitivity(schema) <= truth * 1.01
        decoder = np.tril(np.ones(matrix.shape)) @ np.linalg.inv(matrix)
        loss = np.linalg.norm(decoder, axis=1).max() * truth
        blt = mechanisms.optimize_blt(schema, 2)
        assert loss / blt.max_loss(schema) <= relative * (1 + 1e-9)


@every_criterion
@every_optimizer
def test_one_schema_has_the_loss_of_the_plain_optimum(name, criterion):
    schema = _SCHEMAS[1]
    plain = _OPTIMIZERS[name][1](schema, 2).max_loss(schema)
    found = _optimized(name, (schema,), criterion=criterion)
    assert found.max_loss(schema) == pytest.approx(plain, rel=1e-3)


@every_optimizer
def test_weights_move_the_expected_loss_and_not_the_worst(name):
    schemas = (_SCHEMAS[0], _SCHEMAS[3])
    first, last = (
        _relative(_optimized(name, schemas, weights=weights), schemas)
        for weights in ((9, 1), (1, 9))
    )
    assert first[0] < last[0] and first[1] > last[1]
    worst = _optimized(name, schemas, criterion='worst')
    same = _optimized(name, (*schemas, _SCHEMAS[1]), criterion='worst', weights=(1, 9, 0))
    assert worst == same
    # Equal schemas count together.
    twice = (*schemas, schemas[0], _SCHEMAS[1])
    again = _optimized(name, twice, weights=(4, 1, 5, 0))
    assert again == _optimized(name, schemas, weights=(9, 1))


def test_where_no_scales_are_searched_it_is_the_blt():
    schemas = (Participation(300, 1), Participation(300, 30))
    found = _optimized('scaled_blt', schemas)
    assert found.base == _optimized('blt', schemas)
    np.testing.assert_array_equal(found.column_scales(), np.ones(300))


@every_optimizer
def test_a_second_call_reads_the_cache_and_progress_is_shown(name, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    optimize = _OPTIMIZERS[name][0]
    first = optimize(_FEW_ROUNDS, num_buffers=1, progress=True)
    assert 'relative max loss' in capsys.readouterr().err
    written = []
    monkeypatch.setattr(cache, '_write', lambda path, *_: written.append(path))
    assert optimize(_FEW_ROUNDS, num_buffers=1) == first
    assert not written


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(schemas=[]), 'schemas: must be schemas, at least one'),
        (dict(schemas=[3]), 'schemas: must be schemas, at least one'),
        (dict(weights=[1, 2]), r'weights=\[1.0, 2.0\]: must be 4 numbers >= 0'),
        (dict(weights=[0, 0, 0, 0]), 'weights=.* with a positive sum'),
        (dict(weights=[1, 1, 1, -1]), 'weights=.*: must be 4 numbers >= 0'),
        (dict(loss='mean'), 'loss=mean: must be one of max, rms'),
        (dict(criterion='best'), 'criterion=best: must be one of expected, worst'),
        (dict(num_buffers=0), 'num_buffers=0: must be an integer >= 1'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    for optimize, _ in _OPTIMIZERS.values():
        with pytest.raises(errors.ArgumentError, match=message):
            optimize(**{'schemas': list(_SCHEMAS), **arguments})
