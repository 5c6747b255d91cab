import json

import pytest

from benchmarks import mechanism_table
from dpfl.mechanisms import registry
from tests import paths

_FOLDER = paths.ROOT / 'docs' / 'benchmarks'
_ROWS = json.loads((_FOLDER / 'mechanism_table.json').read_text())['rows']


def test_the_page_is_made_of_the_data():
    assert (_FOLDER / 'mechanism_table.md').read_text() == mechanism_table.page(_ROWS)


def test_no_loss_is_below_the_bound():
    bounds = {
        (*row['schema'], row['loss']): row['value']
        for row in _ROWS
        if row['name'] == 'bound' and 'value' in row
    }
    compared = 0
    for row in _ROWS:
        for loss in ('max', 'rms'):
            bound = bounds.get((*row['schema'], loss))
            if bound and f'{loss}_loss' in row:
                compared += 1
                assert bound <= row[f'{loss}_loss']
    assert compared > 50


@pytest.mark.parametrize('name', ('bound', 'blt', 'free_banded', 'banded_inverse'))
def test_a_row_is_measured(name):
    row = {'schema': [24, 6, 4], 'package': 'dpfl', 'name': name, 'size': 4, 'loss': 'rms'}
    found = mechanism_table.measure(row)
    assert found['seconds'] > 0
    if name == 'bound':
        assert found['value'] == pytest.approx(3.9127, rel=1e-3)
        return
    assert found['max_loss'] > found['rms_loss'] > 3.91
    assert found['copies'] <= 4
    assert found['draws'] == (4 if name == 'banded_inverse' else 1)


def test_every_optimised_mechanism_has_a_label_and_sizes():
    schema = (100, 10, 10)
    for name in registry.OPTIMIZED:
        optimizer = registry.ENTRIES[name].optimizer
        assert optimizer is not None
        sizes = mechanism_table._sizes(name, optimizer, schema)
        assert sizes
        assert f'`{name}`, {sizes[0]} ' in mechanism_table._label('dpfl', name, sizes[0])


def test_what_is_not_run_is_named_on_the_page():
    row = {'schema': [100, 10, 10], 'package': 'dpfl', 'name': 'blt', 'size': 2, 'loss': 'max'}
    text = mechanism_table.page([{**row, 'not_run': 'given up after 9 s'}])
    assert '- `blt`, 2 buffers (max): given up after 9 s' in text
    assert 'Lower bounds: not computed.' in text
