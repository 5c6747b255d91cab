"""What is peculiar to BLTs and to their relatives with scaled columns."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import toeplitz
from dpfl.mechanisms.optimize import block_blt, cutting_planes, scaled_blt
from tests.sizes import standard

_STACKOVERFLOW = Participation(2052, 342, 6)


@pytest.mark.parametrize('buffers, rms_loss, max_loss', [(2, 11.15, 11.80), (5, 10.87, 11.40)])
def test_published_losses_of_designs_for_one_participation(buffers, rms_loss, max_loss):
    blt = mechanisms.optimize_blt(Participation(2052, 342, 1), buffers)
    assert blt.rms_loss(_STACKOVERFLOW) == pytest.approx(rms_loss, abs=0.01)
    assert blt.max_loss(_STACKOVERFLOW) == pytest.approx(max_loss, abs=0.01)


@pytest.mark.parametrize('cases', [3, standard(25)])
def test_coefficients_are_monotone_for_random_schemas(cases):
    rng = np.random.default_rng(cases)
    for _ in range(cases):
        rounds = int(np.exp(rng.uniform(0, 12)))
        separation = int(np.exp(rng.uniform(0, np.log(rounds + 1))))
        schema = Participation(rounds, separation, int(rng.integers(1, 20)))
        loss = ('max', 'rms')[int(rng.integers(2))]
        blt = mechanisms.optimize_blt(schema, int(rng.integers(1, 5)), loss, starts=2)
        assert blt.is_monotone() and blt.sensitivity_is_exact(schema)
        coefficients = blt.with_rounds(min(rounds, 5000)).coefficients()
        assert coefficients.min() >= 0 and np.diff(coefficients).max(initial=0) <= 1e-15


def test_useless_buffers_are_left_out():
    assert mechanisms.optimize_blt(Participation(20), 6).decay.size < 6


def test_where_no_scales_are_searched_it_is_the_blt():
    schema = Participation(300, 1)
    scaled, blt = mechanisms.optimize_scaled_blt(schema, 1), mechanisms.optimize_blt(schema, 1)
    np.testing.assert_array_equal(scaled.column_scales(), np.ones(300))
    assert scaled.max_loss(schema) == pytest.approx(blt.max_loss(schema), rel=1e-9)


def _columns(rates, weights, rounds):
    """L with the coefficients 1 and `sum_j weights_j (1 - rates_j)^(i-1)`."""
    lags = np.arange(rounds - 1)[:, None]
    return toeplitz.matrix(np.append(1.0, (1 - rates) ** lags @ weights))


def _dense_error(rates, weights, scale):
    """Mean squared error at the ends of cells of 3 rounds, weighted by their lengths."""
    rounds = scale.size
    prefix = toeplitz.matrix((1 - rates) ** np.arange(rounds)[:, None] @ weights)
    inverse = np.diff(prefix, axis=0, prepend=0) / scale[:, None]
    squared = (np.cumsum(inverse, axis=0) ** 2).sum(axis=1)
    ends = np.minimum(np.arange(3, rounds + 3, 3), rounds)
    return np.log(np.diff(ends, prepend=0) @ squared[ends - 1] / rounds)


def _dense_sensitivity(rates, weights, scale):
    """Squared norm of `C u` for participations in the rounds 0, 6 and 12, the first of cells."""
    columns = _columns(rates, weights, scale.size) * scale
    return np.log((columns[:, ::6].sum(axis=1) ** 2).sum())


@pytest.mark.parametrize('dense', [_dense_error, _dense_sensitivity])
def test_losses_in_closed_form_and_their_gradients_are_those_of_dense_matrices(dense):
    rounds, length = 17, 6  # The last cell and the last block are shorter.
    if dense is _dense_error:
        function = scaled_blt.PrefixErrors(rounds, 3, 2, 'rms')
    else:
        sums = cutting_planes.regular(Participation(rounds, length), length)
        function = scaled_blt.PairSums(sums, rounds, length)
    blocks = np.arange(rounds) // length
    point = np.array([0.02, 0.3, 0.7, *np.log([0.3, 0.2, 0.1]), 0.1, -0.2, 0.4])

    def value(x):
        return dense(x[:3], np.exp(x[3:6]), np.exp(x[6:])[blocks])

    function.log_scale = point[6:]
    found, by_weight, by_rate = function(point[:3], np.exp(point[3:6]))
    assert found == pytest.approx(value(point), rel=1e-12)
    steps = 1e-5 * np.eye(point.size)
    slopes = [(value(point + step) - value(point - step)) / 2e-5 for step in steps]
    gradient = np.concatenate([by_rate, by_weight, function.by_log_scale])
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-9)


@pytest.mark.standard
@pytest.mark.parametrize('loss, most', [('max', 0.97), ('rms', 0.99)])
def test_changing_blocks_are_better_than_scaled_columns(loss, most):
    schema, name = Participation(48, 8, 6), f'{loss}_loss'
    found = block_blt.optimize_block_blt(schema, 2, loss)
    scaled = mechanisms.optimize_scaled_blt(schema, 2, loss)
    assert isinstance(found.base, mechanisms.BlockBlt) and found.num_buffers() == 2
    assert getattr(found, name)(schema) < most * getattr(scaled, name)(schema)
    assert getattr(found, name)(schema) > mechanisms.loss_lower_bound(schema, loss=loss)


@pytest.mark.parametrize(
    'schema', [Participation(5000, 1000), Participation(600, 2), Participation(4000, 50)], ids=str
)
def test_large_schemas_are_left_to_scaled_blts(schema, monkeypatch):
    monkeypatch.setattr(block_blt, '_Search', None)
    blt = mechanisms.Blt(schema.rounds, [0.9], [0.1])
    scaled = mechanisms.ColumnScaled(blt, [1.0], schema.rounds)
    monkeypatch.setattr(block_blt, 'optimize_scaled_blt', lambda *_, **__: scaled)
    assert block_blt.optimize_block_blt(schema, 1) is scaled
