"""Cells in files, and what made-up cells show on the page."""

import json

import pytest

from dpfl import errors
from experiments.studies.shared import detection
from experiments.studies.shared.detection import Cell, Cells

pytestmark = pytest.mark.standard


def _cell(epsilon, seed, fault, share, verdict, named=()):
    return Cell('epsilon', epsilon, seed, fault, share, verdict, named, (), {'length': 1.5})


def _cells():
    """Joined words are found from 10 % on with epsilon 8, and never with epsilon 1."""
    found = []
    for epsilon in (1.0, 8.0):
        for seed in range(6):
            verdict = {0: 'suspected', 1: 'not seen'}.get(seed, 'cannot tell')
            found.append(_cell(epsilon, seed, None, 0.0, verdict))
            for share in (0.01, 0.1, 1.0):
                is_found = epsilon == 8 and share >= 0.1
                named = ('joined_words',) if is_found else ()
                verdict = 'found' if is_found else 'not seen'
                found.append(_cell(epsilon, seed, 'joined_words', share, verdict, named))
    return found


def test_made_up_cells_have_the_share_between_them(tmp_path):
    weak, strong = detection.measure(_cells(), 0.8)
    assert (weak.level, strong.level) == (1, 8)
    assert [each.found for each in strong.trials] == [0, 0, 6, 6]
    assert [each.count for each in strong.noticed] == [6] * 4
    assert strong.noticed[0].found == 1 and weak.noticed[0].found == 1
    assert 0.01 < strong.fit.share < 0.1
    assert weak.fit.share is None and weak.smallest.startswith('above 100 % (')
    rows = detection.rows([weak, strong], 'epsilon')
    assert rows[1]['false alarms'] == '0 of 6 (0 to 46 %)'
    assert rows[1]['any alarm on clean data'].startswith('1 of 6')
    values = json.loads(detection.report(tmp_path, _cells(), 0.8, 'json'))
    assert len(values['cells']) == 48 and values['results'][1]['trials'][2]['named'] == 6
    text = (tmp_path / 'power.html').read_text()
    assert text.count('<svg') == 1 and 'joined words' in text and strong.smallest in text
    assert (tmp_path / 'power_joined_words.png').read_bytes().startswith(b'\x89PNG')


def test_cells_are_kept_and_other_settings_are_refused(tmp_path):
    kept, cell = Cells(tmp_path, {'rounds': 3}), _cells()[3]
    assert kept.read(cell.name) is None
    kept.write(cell)
    assert Cells(tmp_path, {'rounds': 3}).read(cell.name) == cell
    with pytest.raises(errors.ArgumentError, match='rounds=4: must be 3, as for the cells in'):
        Cells(tmp_path, {'rounds': 4})
    (tmp_path / 'cells' / f'{cell.name}.json').write_text('{"level": 1}')
    with pytest.raises(errors.StorageError, match='is damaged'):
        kept.read(cell.name)


def test_no_interval_goes_beyond_all_data():
    cells = [
        Cell('epsilon', 8.0, seed, fault, share, verdict, named)
        for seed in range(3)
        for fault, share, verdict, named in (
            (None, 0.0, 'not seen', ()),
            ('truncated', 0.3, 'suspected', ()),
            ('truncated', 1.0, 'found', ('truncated',)),
        )
    ]
    (found,) = detection.measure(cells, 0.8)
    assert found.fit.high > 1
    assert found.interval == '33 % to 100 %'
