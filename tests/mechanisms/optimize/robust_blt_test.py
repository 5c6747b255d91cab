import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms.optimize import blt_loss, relative_loss, robust_blt
from dpfl.mechanisms.optimize.relative_loss import relative_losses
from dpfl.mechanisms.optimize.robust_blt import optimize_robust_blt

_SCHEMAS = [Participation(256, b, 4) for b in (16, 32, 64, 128)]


@pytest.fixture(autouse=True)
def _cache_of_this_test(monkeypatch, tmp_path):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))


def _combined(schemas, loss, power):
    singles = [mechanisms.optimize_blt(schema, 2, loss) for schema in schemas]
    chances = {schema: 1 / len(schemas) for schema in schemas}
    combined = robust_blt._Relative(chances, singles, loss)
    combined.power = power
    return combined


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize('last_is_free', [False, True])
@pytest.mark.parametrize('power', [1.0, 50.0])
def test_the_objective_is_the_power_mean_and_its_gradient_is_right(loss, last_is_free, power):
    schemas = [*_SCHEMAS[:2], Participation(100, 100)]
    combined = _combined(schemas, loss, power)
    coordinates = np.random.default_rng(1).normal(scale=0.4, size=4)
    value, gradient = combined(coordinates, 1e-3, last_is_free)
    numeric = [
        (
            combined(coordinates + step, 1e-3, last_is_free)[0]
            - combined(coordinates - step, 1e-3, last_is_free)[0]
        )
        / 2e-6
        for step in 1e-6 * np.eye(4)
    ]
    np.testing.assert_allclose(gradient, numeric, atol=2e-6)
    rate, scale = blt_loss.parameters(blt_loss.log_rates_of(coordinates, last_is_free))
    relative = relative_losses(mechanisms.Blt(256, 1 - rate, scale), schemas, 2, loss)
    expected = (relative**power).mean() ** (1 / power)
    assert combined(coordinates, 0.0, last_is_free)[0] == pytest.approx(2 * np.log(expected))
    assert np.isfinite(value)


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_no_single_design_is_better(loss):
    expected = optimize_robust_blt(_SCHEMAS, None, 2, loss)
    worst = optimize_robust_blt(_SCHEMAS, None, 2, loss, 'worst')
    singles = [mechanisms.optimize_blt(schema, 2, loss) for schema in _SCHEMAS]
    of_expected, of_worst = (relative_losses(m, _SCHEMAS, 2, loss) for m in (expected, worst))
    assert of_expected.mean() <= of_worst.mean() and of_worst.max() <= of_expected.max()
    for single in singles:
        relative = relative_losses(single, _SCHEMAS, 2, loss)
        assert of_expected.mean() < relative.mean()
        assert of_worst.max() < relative.max()
    assert expected.is_monotone() and worst.is_monotone()


def test_the_worst_relative_losses_are_equal_and_no_step_lowers_them():
    worst = optimize_robust_blt(_SCHEMAS, None, 2, 'max', 'worst')
    relative = relative_losses(worst, _SCHEMAS, 2)
    active = relative > relative.max() - 1e-6
    assert active.sum() >= 2
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = mechanisms.Blt(
            256,
            1 - (1 - worst.decay) * np.exp(rng.normal(scale=0.02, size=worst.decay.size)),
            worst.scale * np.exp(rng.normal(scale=0.02, size=worst.scale.size)),
        )
        if other.is_monotone():
            assert relative_losses(other, _SCHEMAS, 2).max() >= relative.max() - 1e-7


def test_one_schema_is_the_plain_optimum():
    schema = Participation(256, 32, 4)
    plain = mechanisms.optimize_blt(schema, 2)
    for criterion in relative_loss.CRITERIA:
        found = optimize_robust_blt([schema], None, 2, 'max', criterion)
        assert found.max_loss(schema) == pytest.approx(plain.max_loss(schema), rel=1e-7)


def test_weights_count_and_equal_schemas_count_together():
    few = optimize_robust_blt(_SCHEMAS[:2], [3, 1], 2)
    again = optimize_robust_blt([*_SCHEMAS[:2], _SCHEMAS[0], _SCHEMAS[3]], [2, 1, 1, 0], 2)
    assert few == again
    towards = optimize_robust_blt(_SCHEMAS[:2], [1, 3], 2)
    first, second = (relative_losses(m, _SCHEMAS[:2], 2) for m in (few, towards))
    assert first[0] < second[0] and first[1] > second[1]


def test_rounds_may_differ():
    schemas = [Participation(100, 20), Participation(400, 20)]
    found = optimize_robust_blt(schemas, num_buffers=2)
    assert found.rounds == 400
    assert relative_losses(found, schemas, 2).max() < 1.05


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
    with pytest.raises(errors.ArgumentError, match=message):
        optimize_robust_blt(**{'schemas': _SCHEMAS, **arguments})
