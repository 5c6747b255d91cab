"""BLTs whose parameters change from block to block, against the BLT that they generalise."""

import numpy as np
import pytest

from dpfl import errors, mechanisms
from dpfl.mechanisms import registry
from tests import oracles

_FIRST = mechanisms.Blt(8, [0.9, 0.4], [0.2, 0.3])


def _blocks(starts, decay, scale, gain, rounds=8):
    """The first block is that of `_FIRST`."""
    return mechanisms.BlockBlt(
        rounds, starts, [_FIRST.decay, *decay], [_FIRST.scale, *scale], [1.0, *gain]
    )


def test_entries_are_products_of_decays():
    decay, scale, gain = [[0.5], [0.25], [0.75]], [[0.5], [0.25], [0.125]], [1.0, 2.0, 4.0]
    matrix = mechanisms.BlockBlt(5, [2, 3], decay, scale, gain).strategy_matrix()
    np.testing.assert_array_equal(matrix[2], [2 * 0.25 * 0.5, 2 * 0.25, 2.0, 0.0, 0.0])
    np.testing.assert_array_equal(matrix[4, :2], [0.5 * 0.5 * 0.25 * 0.75, 0.5 * 0.25 * 0.75])


def test_entries_that_fall_are_exact():
    falling = _blocks([3], [[0.8, 0.3]], [[0.2, 0.1]], [0.9])
    matrix = falling.strategy_matrix()
    for j in range(8):
        assert (np.diff(matrix[j:, j]) <= 0).all()
        assert (np.diff(np.diagonal(matrix, -j)) <= 0).all()
    assert all(falling.sensitivity_is_exact(schema) for schema in oracles.small_schemas(8))


def test_a_run_goes_on_with_the_last_block():
    blocks = _blocks([3], [[0.8, 0.3]], [[0.2, 0.1]], [0.9])
    longer = blocks.with_rounds(20)
    assert longer.begins_like(blocks, 8) and not longer.begins_like(_FIRST, 3)
    other = _blocks([3], [[0.8, 0.3]], [[0.2, 0.2]], [0.9], rounds=20)
    assert other.begins_like(blocks, 3) and not other.begins_like(blocks, 4)


@pytest.mark.parametrize('name', registry.REMOVED)
def test_files_of_designs_that_went_name_the_version_that_reads_them(name):
    values = {'mechanism': name, 'rounds': 8}
    for each in (values, {'mechanism': 'column_scaled', 'base': values, 'scale': [1.0]}):
        with pytest.raises(errors.ArgumentError, match=f'is a {name} mechanism, which commit '):
            mechanisms.from_dict(each)
