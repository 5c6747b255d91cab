"""Rows of the data files: malformed ones, rounding, and how they are shown."""

import collections
import dataclasses
import decimal
import json
import math

import numpy as np
import pytest

from dpfl import accounting
from dpfl.published.figures import checks
from dpfl.published.tables import calculations, rows
from tests import paths

_ROWS = rows.load(paths.PUBLISHED)


def test_every_number_of_the_five_documents_has_a_row_with_its_digits_and_its_accountant():
    sources = collections.Counter(row.source for row in _ROWS)
    assert sources == {'000': 23, '001': 51, '002': 33, '003': 1, '004': 16}
    assert sum(row.reproducible for row in _ROWS) == 114
    for row in _ROWS:
        assert row.id.startswith(row.source) and row.method_text
        for name, decimals in row.decimals.items():
            value = row.published[name]
            assert rows.printed(value, decimals, 'nearest') == pytest.approx(value, rel=1e-12)
        if 'eps' in row.method:
            assert row.method['eps'].split(' ')[0] in accounting.ACCOUNTANTS


def test_result_as_json_has_no_number_that_is_not_finite():
    row = dataclasses.replace(_ROWS[0], published={'zcdp': 1.0}, decimals={'zcdp': 2})
    result = rows.Result(
        row, row.published, {'zcdp': float('inf'), 'x': [1, float('nan')]}, False, ''
    )
    assert result.to_dict()['computed'] == {'zcdp': None, 'x': [1.0, None]}


def _load(path, text):
    path.write_text(text)
    return checks.load(path) if 'statement' in path.name else rows.load(path)


@pytest.mark.parametrize(
    'kind, change, message',
    [
        ('row', {'source': '005'}, 'source=005: must be one of 000, 001'),
        ('row', {'inputs': [1]}, r'inputs=\[1\]: must be an object'),
        ('row', {'inputs': {'rounds': None}}, 'rounds=None: must be a finite number'),
        ('row', {'inputs': {'populations': {'a': 'many'}}}, 'a=many: must be a finite number'),
        ('row', {'published': 3}, 'published=3: must be an object or words'),
        ('row', {'rounding': 5}, 'rounding=5: must be an object or words'),
        ('row', {'table': 3}, 'table=3: must be words'),
        ('row', {'published': {'zcdp': 'about 1'}}, 'zcdp=about 1: must be a finite number'),
        ('row', {'published': {'zcdp': float('nan')}}, 'zcdp=nan: must be a finite number'),
        ('row', {'published': {'rho': 0.48}}, 'decimals: must have the names of published'),
        ('row', {'decimals': {'zcdp': 1.5}}, 'decimals=1.5: must be an integer'),
        ('row', {'rounding': 'sideways'}, 'rounding=sideways: must be one of nearest'),
        ('row', {'rounding': {'eps': 'up'}}, 'rounding=None: must be one of nearest'),
        ('row', {'rounding': 'not compared'}, 'rounding: must compare at least one number'),
        ('row', {'reproducible': 'yes'}, 'reproducible=yes: must be true or false'),
        ('row', {'reproducible': False}, 'note: must say why'),
        ('row', {'surprise': 1}, 'must have the fields assumed, decimals'),
        ('row', {'note': ...}, 'must have the fields assumed'),
        ('statement', {'comparison': {'ratio': 'near'}}, 'comparison=near: must be one of above'),
        ('statement', {'comparison': {}}, 'must have the names of published'),
        ('statement', {'published': {}, 'comparison': {}}, 'at least one'),
        ('statement', {'published': {'ratio': 'one'}}, 'ratio'),
        ('statement', {'published': 1}, 'published=1: must be an object'),
        ('statement', {'says': 5}, 'says=5: must be words'),
        ('statement', {'reproducible': 'yes'}, 'must be true or false'),
        ('statement', {'reproducible': False}, 'note: must say why'),
    ],
)
def test_malformed_entries_are_refused(kind, change, message, tmp_path):
    source = paths.PUBLISHED if kind == 'row' else checks.PUBLISHED
    entry = json.loads(source.read_text())[0]
    if kind == 'statement':
        entry |= {'published': {'ratio': 1}, 'comparison': {'ratio': 'above'}, 'note': ''}
    entry |= change
    entries = [{name: value for name, value in entry.items() if value is not ...}]
    with pytest.raises(ValueError, match=f'^{kind} {entry["id"]}: .*{message}'):
        _load(tmp_path / f'{kind}.json', json.dumps(entries))


@pytest.mark.parametrize(
    'text, message',
    [
        ('', 'cannot be read'),
        ('{}', 'must be a list of rows'),
        ('[]', 'must be a list of rows'),
        ('[7]', 'row 1: must be an object with an id'),
        ('[{"id": 3}]', 'row 1: must be an object with an id'),
        (json.dumps([dataclasses.asdict(_ROWS[0])] * 2), 'row 2: must be an object with an id'),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        _load(tmp_path / 'rows.json', text)


_MODES = {
    'nearest': decimal.ROUND_HALF_EVEN,
    'up': decimal.ROUND_CEILING,
    'down': decimal.ROUND_FLOOR,
}


@pytest.mark.parametrize('convention', _MODES)
@pytest.mark.parametrize('decimals', [-4, 0, 2, 11])
def test_prints_as_decimal_arithmetic_does(convention, decimals):
    rng = np.random.default_rng(decimals + 10)
    for value in rng.uniform(0.5, 3000, 50) * 10.0**-decimals:
        exact = decimal.Decimal(value).scaleb(decimals).quantize(1, _MODES[convention])
        wanted = float(exact.scaleb(-decimals))
        assert rows.printed(value, decimals, convention) == wanted
        assert rows.agrees(value, wanted, decimals, convention)
        for off in (wanted - 10.0**-decimals, wanted + 10.0**-decimals):
            assert not rows.agrees(value, off, decimals, convention)
        # What is printed already stays, and so does what misses it by the last bit.
        for near in (wanted, math.nextafter(wanted, math.inf)):
            assert rows.agrees(near, wanted, decimals, convention)


def test_at_most_is_one_sided_and_what_is_not_finite_agrees_with_nothing():
    assert rows.agrees(10.7514, 10.79, 2, 'at most')
    assert rows.agrees(10.79, 10.79, 2, 'at most')
    assert not rows.agrees(10.7901, 10.79, 2, 'at most')
    assert not rows.agrees(10.67, 10.79, 2, 'at most')
    assert rows.agrees(9.64, 9.33, 2, 'not compared')
    for value in (math.nan, math.inf, -math.inf):
        for convention in (*_MODES, 'at most'):
            assert not rows.agrees(value, 1.0, 2, convention)


def _as_published(row: rows.Row) -> rows.Result:
    values = calculations.parameters(row) if isinstance(row.published, str) else row.published
    return rows.Result(row, values, values, True if row.reproducible else None, row.note)


_RESULTS = [_as_published(row) for row in _ROWS]


@pytest.mark.parametrize('form', [rows.text, rows.markdown])
def test_every_row_is_there_once_with_its_methods_and_reasons(form):
    page = form(_RESULTS).replace('\\', '')
    lines = [line.strip() for line in page.splitlines()]
    for result in _RESULTS:
        row = result.row
        beginning = f'{row.id}  ' if form is rows.text else f'| {row.id} |'
        (found,) = [line for line in lines if line.startswith(beginning)]
        assert form is rows.markdown or ('  cannot' in found) != row.reproducible
        assert row.note in page and all(words in page for words in row.method.values())


def test_the_page_has_a_table_for_each_document():
    lines = rows.markdown(_RESULTS).splitlines()
    headings = [line for line in lines if line.startswith('## ')]
    assert [heading.split()[2] for heading in headings] == [f'{source}:' for source in rows.SOURCES]
    for above, line, below in zip(lines, lines[1:], lines[2:], strict=False):
        if line.startswith('| ---'):
            assert above.count('|') == line.count('|') == below.count('|')


def test_numbers_have_the_published_digits():
    by_id = {result.row.id: result for result in _RESULTS}
    for name, shown in (
        ('001-T1-K100000-C100-z1-T1000000', '7.50'),
        ('004-T3 sim 3a', '9.99e+06'),
        ('000-text-MinS-bounds', '153'),
        ('002-alpha1', '5.3'),
        ('002-T4-pt-BR-16.1-BLT', '0.0140'),
    ):
        assert rows.text([by_id[name]]).split(name)[1].split()[0] == shown


def test_a_row_that_differs_stands_out():
    wrong = dataclasses.replace(_RESULTS[0], computed={'zcdp': 0.4852}, match=False)
    page = rows.text([wrong, _RESULTS[1]])
    assert '0.4852     NO' in page
    assert page.endswith(
        '2 rows: 1 match (1 to the digit), 1 differ, 0 cannot be reproduced for the reason in '
        'their note.'
    )


def test_rows_that_match_in_part_are_counted_apart():
    results = [rows.Result(row, {}, {}, True if row.reproducible else None, '') for row in _ROWS]
    assert rows.summary(results) == (
        '124 rows: 114 match (110 to the digit, 3 with one of two losses better than printed, 1 '
        'with an input that no document gives), 0 differ, 10 cannot be reproduced for the reason '
        'in their note.'
    )
