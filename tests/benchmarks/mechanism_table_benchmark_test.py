import json

import pytest

from benchmarks import mechanism_table
from tests import paths

_FOLDER = paths.ROOT / 'benchmarks'
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
