import dataclasses

import pytest

from dpfl.published.tables import losses, rows
from tests import paths

_PATH = paths.PUBLISHED


def _as_published(row: rows.Row) -> rows.Result:
    values = losses.parameters(row) if isinstance(row.published, str) else row.published
    return rows.Result(row, values, values, True if row.reproducible else None, row.note)


_RESULTS = [_as_published(row) for row in rows.load(_PATH)]


def test_every_row_is_in_the_text_once():
    lines = [line.strip() for line in rows.text(_RESULTS).splitlines()]
    for result in _RESULTS:
        found = [line for line in lines if line.startswith(f'{result.row.id}  ')]
        assert len(found) == 1
        assert ('  cannot' in found[0]) != result.row.reproducible


def test_every_row_is_on_the_page_once():
    lines = rows.markdown(_RESULTS).splitlines()
    for result in _RESULTS:
        name = result.row.id.replace('*', '\\*').replace('_', '\\_')
        assert sum(line.startswith(f'| {name} |') for line in lines) == 1
    headings = [line for line in lines if line.startswith('## ')]
    assert [heading.split()[2] for heading in headings] == [f'{source}:' for source in rows.SOURCES]
    for above, line, below in zip(lines, lines[1:], lines[2:], strict=False):
        if line.startswith('| ---'):
            assert above.count('|') == line.count('|') == below.count('|')


@pytest.mark.parametrize('form', [rows.text, rows.markdown])
def test_methods_and_reasons_are_there(form):
    page = form(_RESULTS).replace('\\', '')
    for result in _RESULTS:
        assert result.row.note in page
        for words in result.row.method.values():
            assert words in page


def test_numbers_have_the_published_digits():
    by_id = {result.row.id: result for result in _RESULTS}
    shown = {
        name: rows.text([by_id[name]]).split(name)[1].split()[0]
        for name in (
            '001-T1-K100000-C100-z1-T1000000',
            '004-T3 sim 3a',
            '000-text-MinS-bounds',
            '002-alpha1',
            '002-T4-pt-BR-16.1-BLT',
        )
    }
    assert list(shown.values()) == ['7.50', '9.99e+06', '153', '5.3', '0.0140']


def test_a_row_that_differs_stands_out():
    wrong = dataclasses.replace(_RESULTS[0], computed={'zcdp': 0.4852}, match=False)
    page = rows.text([wrong, _RESULTS[1]])
    assert '0.4852     NO' in page
    assert page.endswith(
        '2 rows: 1 match (1 to the digit), 1 differ, 0 cannot be reproduced for the reason in '
        'their note.'
    )


def test_rows_that_match_in_part_are_counted_apart():
    results = [
        rows.Result(row, {}, {}, True if row.reproducible else None, '')
        for row in rows.load(paths.PUBLISHED)
    ]
    assert rows.summary(results) == (
        '124 rows: 114 match (110 to the digit, 3 with one of two losses better than printed, 1 '
        'with an input that no document gives), 0 differ, 10 cannot be reproduced for the reason '
        'in their note.'
    )
