"""Rows of the data files: malformed ones, rounding, and how they are shown."""

import collections
import dataclasses
import decimal
import math

import numpy as np
import pytest

from dpfl import accounting
from dpfl.published.tables import calculations, rows

_ROWS = rows.load()


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
    result = rows.Result(row, row.published, {'zcdp': float('inf'), 'x': [1, float('nan')]}, False)
    assert result.to_dict()['computed'] == {'zcdp': None, 'x': [1.0, None]}


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


def test_what_is_not_finite_agrees_with_nothing_unless_it_is_not_compared():
    assert rows.agrees(9.64, 9.33, 2, 'not compared')
    for value in (math.nan, math.inf, -math.inf):
        for convention in (*_MODES, 'at most'):
            assert not rows.agrees(value, 1.0, 2, convention)


def _as_published(row: rows.Row) -> rows.Result:
    values = calculations.parameters(row) if isinstance(row.published, str) else row.published
    return rows.Result(row, values, values, True if row.reproducible else None)


_RESULTS = [_as_published(row) for row in _ROWS]


def test_every_row_is_there_once_with_its_methods_and_reasons():
    page = rows.text(_RESULTS)
    lines = [line.strip() for line in page.splitlines()]
    for result in _RESULTS:
        row = result.row
        (found,) = [line for line in lines if line.startswith(f'{row.id}  ')]
        assert ('  cannot' in found) != row.reproducible
        assert row.note in page and all(words in page for words in row.method.values())


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
    results = [rows.Result(row, {}, {}, True if row.reproducible else None) for row in _ROWS]
    assert rows.summary(results) == (
        '124 rows: 114 match (110 to the digit, 3 with one of two losses better than printed, 1 '
        'with an input that no document gives), 0 differ, 10 cannot be reproduced for the reason '
        'in their note.'
    )
