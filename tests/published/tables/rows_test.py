import collections
import dataclasses
import json

import pytest

from dpfl import accounting
from dpfl.published.tables import rows
from tests import paths

_PATH = paths.PUBLISHED
_ROWS = rows.load(_PATH)


def _edited(tmp_path, edit):
    """A data file with the first row edited."""
    entries = json.loads(_PATH.read_text())[:2]
    edit(entries[0])
    path = tmp_path / 'edited.json'
    path.write_text(json.dumps(entries))
    return path


def test_every_number_of_the_five_documents_has_a_row():
    sources = collections.Counter(row.source for row in _ROWS)
    assert sources == {'000': 23, '001': 51, '002': 33, '003': 1, '004': 16}
    assert sum(row.reproducible for row in _ROWS) == 114
    assert all(row.id.startswith(row.source) for row in _ROWS)


def test_published_numbers_have_the_decimals_that_are_stated():
    for row in _ROWS:
        for name, decimals in row.decimals.items():
            value = row.published[name]
            assert rows.printed(value, decimals, 'nearest') == pytest.approx(value, rel=1e-12)


def test_methods_of_epsilon_begin_with_an_accountant():
    for row in _ROWS:
        if 'eps' in row.method:
            assert row.method['eps'].split(' ')[0] in accounting.ACCOUNTANTS
        assert row.method_text


def test_result_as_json_has_no_number_that_is_not_finite():
    row = dataclasses.replace(_ROWS[0], published={'zcdp': 1.0}, decimals={'zcdp': 2})
    result = rows.Result(
        row, row.published, {'zcdp': float('inf'), 'x': [1, float('nan')]}, False, ''
    )
    assert result.to_dict()['computed'] == {'zcdp': None, 'x': [1.0, None]}


@pytest.mark.parametrize(
    'change, message',
    [
        ({'source': '005'}, 'source=005: must be one of 000, 001'),
        ({'inputs': [1]}, r'inputs=\[1\]: must be an object'),
        ({'inputs': {'rounds': None}}, 'rounds=None: must be a finite number'),
        ({'inputs': {'populations': {'a': 'many'}}}, 'a=many: must be a finite number'),
        ({'published': 3}, 'published=3: must be an object or words'),
        ({'published': {'zcdp': 'about 1'}}, 'zcdp=about 1: must be a finite number'),
        ({'published': {'zcdp': float('nan')}}, 'zcdp=nan: must be a finite number'),
        ({'published': {'rho': 0.48}}, 'decimals: must have the names of published'),
        ({'published': {}, 'decimals': {}}, 'decimals: must have the names of published'),
        ({'decimals': {'zcdp': 1.5}}, 'decimals=1.5: must be an integer'),
        ({'rounding': 'sideways'}, 'rounding=sideways: must be one of nearest'),
        ({'rounding': {'eps': 'up'}}, 'rounding=None: must be one of nearest'),
        ({'reproducible': 'yes'}, 'reproducible=yes: must be true or false'),
        ({'reproducible': False}, 'note: must say why'),
        ({'surprise': 1}, 'must have the fields assumed, decimals'),
    ],
)
def test_malformed_rows_are_refused(tmp_path, change, message):
    path = _edited(tmp_path, lambda entry: entry.update(change))
    with pytest.raises(ValueError, match=f'^row {_ROWS[0].id}: {message}'):
        rows.load(path)


def test_missing_fields_and_ids_twice_are_refused(tmp_path):
    for edit, message in (
        (lambda entry: entry.pop('note'), 'must have the fields'),
        (lambda entry: entry.update(id=_ROWS[1].id), 'row 2: must be an object with an id of its'),
    ):
        with pytest.raises(ValueError, match=message):
            rows.load(_edited(tmp_path, edit))
    with pytest.raises(ValueError, match='cannot be read'):
        rows.load(tmp_path / 'absent.json')


@pytest.mark.parametrize(
    'text, message',
    [
        ('', 'cannot be read'),
        ('{}', 'must be a list of rows'),
        ('[]', 'must be a list of rows'),
        ('[7]', 'row 1: must be an object with an id'),
        ('[{"id": 3}]', 'row 1: must be an object with an id'),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, text, message):
    path = tmp_path / 'file.json'
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        rows.load(path)
