"""Columns times scales: special cases, and sizes of which brute force knows nothing."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.sensitivities import scaled_toeplitz
from tests import oracles

_STACKOVERFLOW = Participation(2052, 342, 6)


def test_scales_that_do_not_increase_are_exact():
    rng = np.random.default_rng(2)
    base = mechanisms.Blt(8, [0.9, 0.4], [0.2, 0.3])
    for schema in oracles.small_schemas(8):
        scale = np.sort(rng.random(8) + 0.1)[::-1]
        mechanism = mechanisms.ColumnScaled(base, scale, 8, int(rng.integers(1, 4)))
        bound = mechanism.sensitivity_bound(schema)
        assert bound.is_exact
        regular = range(0, 8, schema.min_separation)[: schema.count]
        released = mechanism.strategy_matrix()[:, list(regular)].sum(axis=1)
        assert bound.squared == pytest.approx(released @ released)


def test_scales_of_blocks_as_long_as_the_separation_are_exact_at_scale():
    # Every block can be used, so 0, b, 2b, .. is the worst pattern for scales like these.
    base = mechanisms.Blt(2052, [0.99, 0.9, 0.4], [0.02, 0.1, 0.2])
    mechanism = mechanisms.ColumnScaled(base, [1.0, 0.9, 0.95, 1.0, 1.1, 1.2], 2052, 342)
    released = mechanism.strategy_matrix()[:, ::342].sum(axis=1)
    bound = mechanism.sensitivity_bound(_STACKOVERFLOW)
    assert bound.is_exact
    assert bound.squared == pytest.approx(released @ released, rel=1e-9)


@pytest.mark.parametrize(
    'schema',
    [
        Participation(10_000, 400, 5),
        pytest.param(Participation(10_000, 400), marks=pytest.mark.standard),
        pytest.param(Participation(10_000, 1, 30), marks=pytest.mark.standard),
    ],
    ids=str,
)
def test_ten_thousand_rounds_are_bounded(schema):
    base = mechanisms.Blt(10_000, [0.999, 0.9, 0.4], [0.002, 0.1, 0.2])
    scale = np.exp(0.1 * np.sin(np.arange(250) / 30))
    mechanism = mechanisms.ColumnScaled(base, scale, 10_000, 40)
    bound = mechanism.sensitivity_bound(schema)
    assert np.isfinite(mechanism.squared_error()).all()
    regular = np.arange(0, 10_000, schema.min_separation)[: schema.count]
    attained = scaled_toeplitz.squared_norm(base.coefficients(), mechanism.column_scales(), regular)
    assert attained <= bound.squared <= scale.max() ** 2 / scale.min() ** 2 * attained


def test_equal_scales_are_the_base():
    base = mechanisms.Blt(12, [0.9, 0.4], [0.2, 0.3])
    mechanism = mechanisms.ColumnScaled(base, [2.0], 12)
    np.testing.assert_allclose(mechanism.strategy_matrix(), 2 * base.strategy_matrix())
    for schema in oracles.small_schemas(12):
        assert mechanism.sensitivity_bound(schema).is_exact
        assert mechanism.max_loss(schema) == pytest.approx(base.max_loss(schema))


def test_normalized_columns_have_the_norm_of_the_first():
    schema = Participation(40, 10)
    base = mechanisms.optimize_banded_toeplitz(schema, 10, 'max')
    normalized = mechanisms.ColumnScaled.normalized(base)
    np.testing.assert_allclose(normalized.column_norms(), base.column_norms()[0])
    assert normalized.sensitivity_bound(schema).is_exact
    assert normalized.sensitivity(schema) == pytest.approx(base.sensitivity(schema))
    assert normalized.max_loss(schema) < 0.97 * base.max_loss(schema)


def test_the_last_scale_goes_on():
    mechanism = mechanisms.ColumnScaled(mechanisms.Identity(7), [1.0, 2.0], 7, 3)
    np.testing.assert_array_equal(mechanism.column_scales(), [1, 1, 1, 2, 2, 2, 2])
    np.testing.assert_array_equal(mechanism.with_rounds(2).column_scales(), [1, 1])
    assert mechanism.with_rounds(2).with_rounds(7) == mechanism


def test_a_run_can_go_on_if_only_later_scales_differ():
    def make(scale, rounds=6, decay=0.5):
        return mechanisms.ColumnScaled(mechanisms.Blt(rounds, [decay], [0.3]), scale, rounds, 2)

    short = make([1.0, 0.8, 0.9])
    assert short.begins_like(make([1.0, 0.8, 1.2], 9), 4)
    assert not short.begins_like(make([1.0, 0.8, 1.2], 9), 5)
    assert not short.begins_like(make([1.0, 0.8, 0.9], decay=0.4), 2)
    assert not short.begins_like(short.base, 2)
    assert not short.begins_like(short, 7)
