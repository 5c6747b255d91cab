import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import toeplitz, workload
from dpfl.mechanisms.optimize import blt_loss, scaled_cuts, scaled_loss, scaled_search
from dpfl.mechanisms.sensitivities.scaled_toeplitz import PairTable

_STACKOVERFLOW = Participation(2052, 342, 6)
_SMALL = (
    Participation(40, 10),
    Participation(40, 7, 3),
    Participation(30, 30),
    Participation(30, 2, 4),
    Participation(20),
    Participation(5, 2),
    Participation(1),
)


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', '')


def _loss(mechanism, schema, loss, a=None):
    return getattr(mechanism, f'{loss}_loss')(schema, a)


def _numeric_gradient(function, x, step=1e-6):
    return np.array(
        [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(x.size)]
    )


def _check_gradients(function, rates, weights):
    """Compares all three gradients with differences; the first rate may be 0."""

    def value(rates, log_weights, log_scale):
        function.log_scale = log_scale
        return function(rates, np.exp(log_weights))[0]

    log_weights, log_scale = np.log(weights), function.log_scale
    _, by_weight, by_rate = function(rates, weights)
    by_scale = function.by_log_scale
    numeric = _numeric_gradient(lambda x: value(rates, x, log_scale), log_weights)
    np.testing.assert_allclose(by_weight, numeric, atol=1e-6)
    numeric = _numeric_gradient(lambda x: value(x, log_weights, log_scale), rates)
    np.testing.assert_allclose(by_rate[1:], numeric[1:], atol=1e-6)
    numeric = _numeric_gradient(lambda x: value(rates, log_weights, x), log_scale)
    np.testing.assert_allclose(by_scale, numeric, atol=1e-6)


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize('rounds, length, cells', [(24, 2, 3), (23, 2, 3), (9, 9, 1), (7, 1, 2)])
def test_errors_and_their_gradients(loss, rounds, length, cells):
    rates, weights = np.array([0.0, 0.05, 0.4]), np.array([0.3, 0.2, 0.5])
    errors = scaled_loss.PrefixErrors(rounds, length, cells, loss)
    errors.sharpness = 7.0
    errors.log_scale = np.random.default_rng(0).normal(scale=0.3, size=errors.log_scale.size)
    scale = np.exp(np.repeat(errors.log_scale, length * cells)[:rounds])
    prefix = toeplitz.matrix(weights @ (1 - rates)[:, None] ** np.arange(rounds))
    decoder = np.cumsum(np.diff(prefix, axis=0, prepend=0.0) / scale[:, None], axis=0)
    ends = np.minimum(np.arange(length, rounds + length, length), rounds)
    squared = (decoder**2).sum(axis=1)[ends - 1]
    shares = np.diff(ends, prepend=0) / rounds
    expected = np.log(shares @ squared) if loss == 'rms' else np.log((squared**7).sum()) / 7
    assert errors(rates, weights)[0] == pytest.approx(expected, abs=1e-12)
    _check_gradients(errors, rates, weights)


@pytest.mark.parametrize('schemas', [1, 2])
def test_sums_of_pairs_and_their_gradients(schemas):
    rounds, length = 23, 5
    sums = [
        scaled_loss.PairSum(*map(np.array, ([0, 0, 1, 2], [0, 1, 1, 3], [0, 4, 0, 5])), np.ones(4)),
        scaled_loss.PairSum(*map(np.array, ([1, 1], [1, 3], [0, 9], [1.0, 2.0]))),
    ]
    function = scaled_loss.PairSums(
        [sums] if schemas == 1 else [[sums[0]] * 2, sums], rounds, length
    )
    function.sharpness, function.power = 3.0, 5.0
    function.log_weights = np.log([0.3, 0.7])[:schemas] if schemas > 1 else np.zeros(1)
    function.log_scale = np.random.default_rng(0).normal(scale=0.3, size=5)
    rates, weights = np.array([0.0, 0.05, 0.4]), np.array([0.1, 0.2, 0.25])
    c = np.append(1.0, weights @ (1 - rates)[:, None] ** np.arange(2 * rounds))
    scale = np.exp(function.log_scale)

    def correlation(block, lag):
        terms = rounds - max(block * length, lag)
        return c[:terms] @ c[lag : lag + terms]

    values = [
        sum(
            weight * scale[i] * scale[j] * correlation(j, lag)
            for i, j, lag, weight in zip(*vars(one).values(), strict=True)
        )
        for one in sums
    ]
    expected = np.log((np.array(values) ** 3).sum()) / 3
    if schemas == 2:
        smooth = np.array([2 * values[0] ** 3, values[0] ** 3 + values[1] ** 3]) ** (1 / 3)
        expected = 2 / 5 * np.log([0.3, 0.7] @ smooth**2.5)
    assert function(rates, weights)[0] == pytest.approx(expected, abs=1e-12)
    _check_gradients(function, rates, weights)


@pytest.mark.parametrize('schema', _SMALL, ids=str)
@pytest.mark.parametrize('length', [1, 2, 5])
def test_cuts_add_up_to_the_bound(schema, length):
    rounds = schema.rounds
    rates, weights = np.array([0.05, 0.4]), np.array([0.2, 0.3])
    c = mechanisms.Blt(rounds, 1 - rates, weights).coefficients()
    blocks = np.arange(rounds) // length
    log_scale = 0.1 * np.sin(np.arange(blocks[-1] + 1))
    table = PairTable(c, np.exp(log_scale)[blocks], length, schema, monotone=True)
    cuts = scaled_cuts.Cuts(table, schema)
    bounds = [bound.squared for bound in table.bounds()]
    assert cuts.largest == pytest.approx(bounds[1], rel=1e-12)
    sums = scaled_loss.PairSums([cuts.above(cuts.largest * (1 - 1e-9), 9)], rounds, length)
    sums.sharpness, sums.log_scale = 1e6, log_scale
    assert np.exp(sums(rates, weights)[0]) == pytest.approx(cuts.largest, rel=1e-4)


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize('schema', _SMALL, ids=str)
def test_it_is_never_worse_than_a_blt(loss, schema):
    scaled = mechanisms.optimize_scaled_blt(schema, 2, loss)
    blt = mechanisms.optimize_blt(schema, 2, loss)
    assert _loss(scaled, schema, loss) <= _loss(blt, schema, loss) * (1 + 1e-12)
    assert scaled.num_buffers() <= 2 and scaled.rounds == schema.rounds
    assert scaled == mechanisms.optimize_scaled_blt(schema, 2, loss)


@pytest.mark.parametrize('loss, most', [('max', 9.93), ('rms', 9.0)])
def test_losses_with_four_buffers_at_the_published_schema(loss, most):
    scaled = mechanisms.optimize_scaled_blt(_STACKOVERFLOW, 4, loss)
    assert _loss(scaled, _STACKOVERFLOW, loss) <= most
    assert scaled.num_buffers() <= 4


def test_other_workloads_and_many_participations():
    schema = Participation(40, 10)
    momentum = workload.momentum(40, 0.8)
    scaled = mechanisms.optimize_scaled_blt(schema, 2, workload=momentum)
    blt = mechanisms.optimize_blt(schema, 2, workload=momentum)
    assert _loss(scaled, schema, 'max', momentum) <= _loss(blt, schema, 'max', momentum) * (
        1 + 1e-12
    )
    many = mechanisms.optimize_scaled_blt(Participation(300, 1), 1)
    np.testing.assert_array_equal(many.column_scales(), np.ones(300))


def test_block_lengths_divide_the_separation_where_they_can():
    assert scaled_search.block_lengths([_STACKOVERFLOW]) == [342, 18]
    assert scaled_search.block_lengths([Participation(1)]) == [1]
    for schema in (*_SMALL, Participation(2000, 97), Participation(10_000, 400)):
        for length in scaled_search.block_lengths([schema]):
            assert 1 <= length <= schema.rounds
            assert -(-schema.rounds // length) <= 128
    assert scaled_search.block_lengths([Participation(2000, 10)]) == [10]
    assert scaled_search.block_lengths([Participation(2000, 1, 20)]) == [250, 63]
    assert scaled_search.block_lengths([Participation(2000, 1)]) == []


def test_progress_and_bad_arguments(capsys):
    mechanisms.optimize_scaled_blt(Participation(12, 4), 1, progress=True)
    assert 'optimize_scaled_blt: not scaled: max loss' in capsys.readouterr().err
    with pytest.raises(ValueError, match='num_buffers=0'):
        mechanisms.optimize_scaled_blt(_STACKOVERFLOW, 0)
    with pytest.raises(ValueError, match='loss=mean'):
        mechanisms.optimize_scaled_blt(_STACKOVERFLOW, loss='mean')


def test_a_second_call_reads_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    schema = Participation(12, 4)
    first = mechanisms.optimize_scaled_blt(schema, 2)
    monkeypatch.setattr(scaled_search, 'search', None)
    assert mechanisms.optimize_scaled_blt(schema, 2) == first


def test_the_coordinates_of_a_blt_are_near_it():
    blt = mechanisms.optimize_blt(_STACKOVERFLOW)
    log_rates = blt_loss.log_rates_of(scaled_search._coordinates(blt))
    rates, scale = blt_loss.parameters(log_rates)
    near = mechanisms.Blt(2052, 1 - rates, scale)
    assert near.max_loss(_STACKOVERFLOW) == pytest.approx(blt.max_loss(_STACKOVERFLOW), rel=1e-3)
