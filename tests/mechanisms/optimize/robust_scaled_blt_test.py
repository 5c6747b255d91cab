import itertools

import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms.optimize import relative_loss, robust_scaled_blt, scaled_search

_SCHEMAS = [Participation(96, b, 4) for b in (6, 13, 24, 48)]
_FEW_ROUNDS = [Participation(12, 2, 3), Participation(12, 5), Participation(9, 3)]


@pytest.fixture(autouse=True)
def _cache_of_this_test(monkeypatch, tmp_path):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))


def _optimized(schemas=_SCHEMAS, loss='max', criterion='expected', weights=None):
    return mechanisms.optimize_robust_scaled_blt(schemas, weights, 2, loss, criterion)


def _relative(mechanism, schemas=_SCHEMAS, loss='max'):
    return mechanisms.relative_losses(mechanism, schemas, 2, loss)


def _largest_norm(mechanism, schema):
    """Sensitivity from all patterns; the entries of a monotone strategy are not negative."""
    matrix = mechanism.with_rounds(schema.rounds).strategy_matrix()
    n, b = schema.rounds, schema.min_separation
    return max(
        np.linalg.norm(matrix[:, list(pattern)].sum(axis=1))
        for k in range(1, schema.count + 1)
        for pattern in itertools.combinations(range(n), k)
        if (np.diff(pattern) >= b).all()
    )


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_no_blt_for_several_schemas_and_no_scaled_one_for_a_single_schema_is_better(loss):
    expected, worst = (_optimized(loss=loss, criterion=name) for name in relative_loss.CRITERIA)
    of_expected, of_worst = (_relative(one, loss=loss) for one in (expected, worst))
    assert of_expected.mean() <= of_worst.mean() and of_worst.max() <= of_expected.max()
    others = [mechanisms.optimize_scaled_blt(schema, 2, loss) for schema in _SCHEMAS]
    others += [
        mechanisms.optimize_robust_blt(_SCHEMAS, None, 2, loss, name)
        for name in relative_loss.CRITERIA
    ]
    for other in others:
        relative = _relative(other, loss=loss)
        assert of_expected.mean() < relative.mean()
        assert of_worst.max() < relative.max()
    assert worst.num_buffers() <= 2 and worst.base.is_monotone()


@pytest.mark.parametrize('criterion', relative_loss.CRITERIA)
def test_the_sensitivity_is_not_below_that_of_all_patterns(criterion):
    found = _optimized(_FEW_ROUNDS, criterion=criterion)
    assert found.rounds == 12 and found.scale.size > 1
    for schema in _FEW_ROUNDS:
        truth = _largest_norm(found, schema)
        proven = found.with_rounds(schema.rounds).sensitivity(schema)
        assert truth * (1 - 1e-12) <= proven <= truth * 1.01


def test_the_relative_losses_hold_the_sensitivity_of_all_patterns():
    found = _optimized(_FEW_ROUNDS, criterion='worst')
    for schema, relative in zip(_FEW_ROUNDS, _relative(found, _FEW_ROUNDS), strict=True):
        matrix = found.with_rounds(schema.rounds).strategy_matrix()
        decoder = np.tril(np.ones(matrix.shape)) @ np.linalg.inv(matrix)
        loss = np.linalg.norm(decoder, axis=1).max() * _largest_norm(found, schema)
        blt = mechanisms.optimize_blt(schema, 2)
        assert loss / blt.max_loss(schema) <= relative * (1 + 1e-9)


def test_one_schema_has_the_loss_of_the_plain_optimum():
    schema = Participation(96, 13, 4)
    plain = mechanisms.optimize_scaled_blt(schema, 2).max_loss(schema)
    for criterion in relative_loss.CRITERIA:
        found = _optimized([schema], criterion=criterion)
        assert found.max_loss(schema) == pytest.approx(plain, rel=1e-3)


def test_weights_move_the_expected_loss_and_not_the_worst():
    schemas = [_SCHEMAS[0], _SCHEMAS[3]]
    first, last = (_relative(_optimized(schemas, weights=w), schemas) for w in ([9, 1], [1, 9]))
    assert first[0] < last[0] and first[1] > last[1]
    worst = _optimized(schemas, criterion='worst')
    assert worst == _optimized([*schemas, _SCHEMAS[1]], criterion='worst', weights=[1, 9, 0])


@pytest.mark.parametrize('criterion', relative_loss.CRITERIA)
def test_rounds_may_differ(criterion):
    schemas = [Participation(40, 8), Participation(96, 12, 4), Participation(96, 24)]
    found = _optimized(schemas, criterion=criterion)
    assert found.rounds == 96
    blt = mechanisms.optimize_robust_blt(schemas, None, 2, 'max', criterion)
    reduce = np.mean if criterion == 'expected' else np.max
    assert reduce(_relative(found, schemas)) < reduce(_relative(blt, schemas))


@pytest.mark.parametrize('criterion', relative_loss.CRITERIA)
def test_the_objective_of_a_stage_and_its_gradient(criterion):
    goals = [
        scaled_search.Goal(Participation(20, 6, 2), 3.0, 0.2),
        scaled_search.Goal(Participation(31, 4), 5.0, 0.5),
        scaled_search.Goal(Participation(31, 9), 2.0, 0.3),
    ]
    stage = scaled_search._Stage(goals, 3, 'max', criterion)
    power = stage._power(7.0)
    rng = np.random.default_rng(0)
    coordinates, log_scale = rng.normal(scale=0.3, size=4), rng.normal(scale=0.2, size=11)
    objective = stage._objective(7.0, 4)
    point = np.append(coordinates, log_scale)
    value, gradient = objective(point)
    numeric = [
        (objective(point + step)[0] - objective(point - step)[0]) / 2e-6
        for step in 1e-6 * np.eye(point.size)
    ]
    np.testing.assert_allclose(gradient, numeric, atol=2e-6)
    parts = []
    for goal in goals:
        alone = scaled_search._Stage([goal._replace(weight=1.0)], 3, 'max', criterion)
        parts.append(alone._objective(7.0, 4)(point)[0])
    weights = np.array([goal.weight for goal in goals])
    mean = (weights @ np.exp(power / 2 * np.array(parts))) ** (2 / power)
    assert value == pytest.approx(np.log(mean))


def test_block_lengths_of_several_schemas():
    several = [Participation(2052, b, 6) for b in (86, 342, 1368)]
    assert scaled_search.block_lengths(several) == [256, 18]
    assert scaled_search.block_lengths([*several, Participation(100, 12)]) == [12]
    assert scaled_search.block_lengths([Participation(2000, b) for b in (1, 100)]) == []


def test_where_no_scales_are_searched_it_is_the_blt():
    schemas = [Participation(300, 1), Participation(300, 30)]
    found = mechanisms.optimize_robust_scaled_blt(schemas, None, 1)
    assert found.base == mechanisms.optimize_robust_blt(schemas, None, 1)
    np.testing.assert_array_equal(found.column_scales(), np.ones(300))


def test_a_second_call_reads_the_cache_and_progress_is_shown(monkeypatch, capsys):
    first = mechanisms.optimize_robust_scaled_blt(_FEW_ROUNDS, num_buffers=1, progress=True)
    shown = capsys.readouterr().err
    assert 'optimize_robust_scaled_blt: 12 scales: expected relative max loss' in shown
    monkeypatch.setattr(robust_scaled_blt, 'scaled_search', None)
    assert mechanisms.optimize_robust_scaled_blt(_FEW_ROUNDS, num_buffers=1) == first


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(schemas=[]), 'schemas: must be schemas, at least one'),
        (dict(weights=[1, 2]), r'weights=\[1.0, 2.0\]: must be 4 numbers >= 0'),
        (dict(loss='mean'), 'loss=mean: must be one of max, rms'),
        (dict(criterion='best'), 'criterion=best: must be one of expected, worst'),
        (dict(num_buffers=0), 'num_buffers=0: must be an integer >= 1'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(errors.ArgumentError, match=message):
        mechanisms.optimize_robust_scaled_blt(**{'schemas': _SCHEMAS, **arguments})
