"""Columns times scales: special cases, and sizes of which brute force knows nothing."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.sensitivities import scaled_toeplitz


def test_scales_of_blocks_as_long_as_the_separation_are_exact_at_scale():
    # Every block can be used, so 0, b, 2b, .. is the worst pattern for scales like these.
    base = mechanisms.Blt(2052, [0.99, 0.9, 0.4], [0.02, 0.1, 0.2])
    mechanism = mechanisms.ColumnScaled(base, [1.0, 0.9, 0.95, 1.0, 1.1, 1.2], 2052, 342)
    released = mechanism.strategy_matrix()[:, ::342].sum(axis=1)
    bound = mechanism.sensitivity_bound(Participation(2052, 342, 6))
    assert bound.is_exact
    assert bound.squared == pytest.approx(released @ released, rel=1e-9)


def test_ten_thousand_rounds_are_bounded():
    schema = Participation(10_000, 400, 5)
    base = mechanisms.Blt(10_000, [0.999, 0.9, 0.4], [0.002, 0.1, 0.2])
    scale = np.exp(0.1 * np.sin(np.arange(250) / 30))
    mechanism = mechanisms.ColumnScaled(base, scale, 10_000, 40)
    bound = mechanism.sensitivity_bound(schema)
    assert np.isfinite(mechanism.squared_error()).all()
    regular = np.arange(0, 10_000, schema.min_separation)[: schema.count]
    attained = scaled_toeplitz.squared_norm(base.coefficients(), mechanism.column_scales(), regular)
    assert attained <= bound.squared <= scale.max() ** 2 / scale.min() ** 2 * attained


def test_the_last_scale_goes_on():
    mechanism = mechanisms.ColumnScaled(mechanisms.Blt(7, [0.5], [0.1]), [1.0, 2.0], 7, 3)
    np.testing.assert_array_equal(mechanism.column_scales(), [1, 1, 1, 2, 2, 2, 2])
    assert mechanism.with_rounds(2).with_rounds(7) == mechanism


def _scaled(scale, rounds=6, decay=0.5):
    return mechanisms.ColumnScaled(mechanisms.Blt(rounds, [decay], [0.3]), scale, rounds, 2)


def _blocks(scale, rounds=6):
    return mechanisms.BlockBlt(rounds, [4], [[0.9], [0.8]], [[0.2], [scale]], [1.0, 0.9])


@pytest.mark.parametrize(
    'mechanism, other, alike',
    [
        (_scaled([1.0, 0.8, 0.9]), _scaled([1.0, 0.8, 1.2], 9), 4),
        (_scaled([1.0, 0.8, 0.9]), _scaled([1.0, 0.8, 0.9], decay=0.4), 0),
        (_scaled([1.0]), mechanisms.Blt(6, [0.5], [0.3]), 0),
        (_blocks(0.1), _blocks(0.1, 20), 6),
        (_blocks(0.1), _blocks(0.2, 20), 4),
        (_blocks(0.1), mechanisms.Blt(6, [0.9], [0.2]), 0),
    ],
)
def test_a_run_goes_on_as_another_as_long_as_they_begin_alike(mechanism, other, alike):
    found = [rounds for rounds in range(1, 8) if mechanism.begins_like(other, rounds)]
    assert found == [*range(1, alike + 1)]
