import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.optimize import block_blt, block_cuts, block_loss
from dpfl.mechanisms.optimize.block_blt import optimize_block_blt
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from tests import oracles

_SEGMENTS, _CELLS = np.array([0, 7, 8, 15]), np.array([0, 3, 7, 8, 10, 15, 16, 20])
_LAYOUT = block_loss.Layout(23, _SEGMENTS, _CELLS)


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', '')


def _random_logs(seed):
    rng = np.random.default_rng(seed)
    return block_loss.Blocks(
        np.log(rng.uniform(0.02, 0.7, (4, 2))),
        np.log(rng.uniform(0.05, 0.4, (4, 2))),
        0.3 * rng.normal(size=4),
        0.3 * rng.normal(size=8),
    )


def _blocks(logs):
    return block_loss.Blocks(*map(np.exp, logs))


def _matrix(blocks):
    carry = np.tile(np.eye(2), (3, 1, 1))
    base = mechanisms.SwitchedBlt(
        23, _SEGMENTS[1:].tolist(), 1 - blocks.rate, blocks.scale, blocks.gain, carry
    )
    return base.strategy_matrix() * blocks.column_scale[_LAYOUT.of_rounds(_CELLS)]


def _check_gradient(function, gradient, logs, step=1e-6):
    for part, slopes in enumerate(gradient):
        for place in np.ndindex(slopes.shape):
            values = []
            for sign in (step, -step):
                moved = [each.copy() for each in logs]
                moved[part][place] += sign
                values.append(function(block_loss.Blocks(*map(np.exp, moved))))
            numeric = (values[0] - values[1]) / (2 * step)
            assert slopes[place] == pytest.approx(numeric, abs=1e-7, rel=1e-6)


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_errors_and_their_gradients(loss):
    logs = _random_logs(0)
    errors = block_loss.PrefixErrors(_LAYOUT, loss)
    errors.sharpness = 5.0
    value, gradient = errors(_blocks(logs))
    squared = (np.cumsum(np.linalg.inv(_matrix(_blocks(logs))), axis=0) ** 2).sum(axis=1)
    expected = np.log(squared.mean()) if loss == 'rms' else np.log((squared**5).sum()) / 5
    assert value == pytest.approx(expected, abs=1e-12)
    _check_gradient(lambda blocks: errors(blocks)[0], gradient, logs)


def test_products_of_columns_and_their_gradients():
    logs, rounds = _random_logs(1), np.array([0, 2, 6, 7, 8, 14, 15, 21, 22])
    columns = block_loss.Columns(_LAYOUT, rounds, _blocks(logs))
    matrix = _matrix(_blocks(logs))
    expected = np.triu(matrix.T @ matrix)[np.ix_(rounds, rounds)]
    np.testing.assert_allclose(columns.products, expected, rtol=1e-12, atol=1e-14)
    weights = np.triu(np.random.default_rng(2).normal(size=(9, 9)))
    _check_gradient(
        lambda blocks: (weights * block_loss.Columns(_LAYOUT, rounds, blocks).products).sum(),
        columns.gradient(weights),
        logs,
    )


@pytest.mark.parametrize('separation, count', [(3, 4), (2, 6), (5, 2), (12, 1)])
def test_cuts_are_the_sums_of_the_bound(separation, count):
    rng = np.random.default_rng(3)
    matrix = np.tril(rng.random((12, 12)))
    products, schema = matrix.T @ matrix, Participation(12, separation, count)
    found = block_cuts.cuts(np.triu(products), schema)
    values = [(one.weight * products[one.early, one.late]).sum() for one in found.above(0.0, 100)]
    assert max(values) == pytest.approx(found.largest)
    truth = oracles.squared_sensitivity(matrix, schema)
    assert found.largest >= truth * (1 - 1e-12)
    # It is one of the bounds that `upper_bound` takes the least of.
    assert found.largest >= matrix_sensitivity.upper_bound(products, schema).squared * (1 - 1e-12)


@pytest.mark.parametrize('rounds', [1, 2, 7, 40, 97])
@pytest.mark.parametrize('separation', [1, 2, 5, 13, 40])
def test_rounds_that_are_looked_at_are_as_far_apart_as_their_numbers(rounds, separation):
    schema = Participation(rounds, separation)
    layout, looked_at, by_number = block_blt.layout_of(schema)
    assert set(layout.segments) <= set(layout.cells) <= set(looked_at)
    assert layout.cells[0] == layout.segments[0] == 0 and looked_at[-1] < rounds
    assert by_number.rounds == looked_at.size and by_number.count == schema.count
    apart = np.subtract.outer(looked_at, looked_at) >= separation
    numbers = np.arange(looked_at.size)
    same = np.subtract.outer(numbers, numbers) >= by_number.min_separation
    np.testing.assert_array_equal(apart, same)


@pytest.mark.parametrize('loss, most', [('max', 0.97), ('rms', 0.99)])
def test_changing_blocks_are_better_than_scaled_columns(loss, most):
    schema = Participation(48, 8, 6)
    found = optimize_block_blt(schema, 2, loss)
    scaled = mechanisms.optimize_scaled_blt(schema, 2, loss)
    assert isinstance(found.base, mechanisms.SwitchedBlt) and found.num_buffers() == 2
    name = f'{loss}_loss'
    assert getattr(found, name)(schema) < most * getattr(scaled, name)(schema)
    assert getattr(found, name)(schema) > mechanisms.loss_lower_bound(schema, loss=loss)


@pytest.mark.exhaustive
@pytest.mark.parametrize('buffers, loss, most', [(2, 'max', 9.54), (4, 'rms', 8.85)])
def test_losses_of_the_paper_setting(buffers, loss, most):
    schema = Participation(2052, 342, 6)
    found = optimize_block_blt(schema, buffers, loss)
    assert getattr(found, f'{loss}_loss')(schema) < most


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize(
    'schema',
    [Participation(12, 4, 3), Participation(10, 3), Participation(9, 9), Participation(8, 1, 3)]
    + [Participation(1), Participation(2, 1)],
    ids=str,
)
def test_small_results_are_proven_and_never_worse_than_scaled_blts(schema, loss):
    found = optimize_block_blt(schema, 1, loss)
    truth = oracles.squared_sensitivity(found.strategy_matrix(), schema)
    bound = found.sensitivity_bound(schema)
    assert bound.squared >= truth * (1 - 1e-12)
    assert not bound.is_exact or bound.squared == pytest.approx(truth, rel=1e-10)
    scaled = mechanisms.optimize_scaled_blt(schema, 1, loss)
    name = f'{loss}_loss'
    assert getattr(found, name)(schema) <= getattr(scaled, name)(schema) * (1 + 1e-12)


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_other_workloads(loss):
    schema, workload = Participation(12, 4, 3), mechanisms.workload.momentum(12, 0.8)
    found = optimize_block_blt(schema, 1, loss, workload=workload)
    scaled = mechanisms.optimize_scaled_blt(schema, 1, loss, workload=workload)
    name = f'{loss}_loss'
    assert getattr(found, name)(schema, workload) <= getattr(scaled, name)(schema, workload)


def test_a_result_is_kept_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    schema = Participation(12, 4, 3)
    first = optimize_block_blt(schema, 1)
    assert len(list(tmp_path.glob('optimize_block_blt-*'))) == 1
    monkeypatch.setattr(block_blt, '_Search', None)
    assert optimize_block_blt(schema, 1) == first


@pytest.mark.parametrize(
    'schema', [Participation(5000, 1000), Participation(600, 2), Participation(4000, 50)], ids=str
)
def test_large_schemas_are_left_to_scaled_blts(schema, monkeypatch):
    monkeypatch.setattr(block_blt, '_Search', None)
    scaled = mechanisms.ColumnScaled(
        mechanisms.Blt(schema.rounds, [0.9], [0.1]), [1.0], schema.rounds
    )
    monkeypatch.setattr(block_blt, 'optimize_scaled_blt', lambda *_, **__: scaled)
    assert optimize_block_blt(schema, 1) is scaled


def test_progress_and_bad_arguments(capsys):
    optimize_block_blt(Participation(12, 4, 3), 1, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith('optimize_block_blt: one block: max loss ')
    assert lines[-1].startswith('optimize_block_blt: blocks: max loss ')
    for arguments, message in (((0,), 'num_buffers=0'), ((1, 'mean'), 'loss=mean')):
        with pytest.raises(ValueError, match=message):
            optimize_block_blt(Participation(12, 4, 3), *arguments)
