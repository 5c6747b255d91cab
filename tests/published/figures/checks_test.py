import pytest

from dpfl.published.figures import checks
from dpfl.published.figures.drawn import Drawn
from dpfl.published.tables import rows

_STATEMENT = checks.Statement(
    '002/fig3/worse', 'section 1', 'It is worse.', {'ratio': 1}, {'ratio': 'above'}, True, 'A note.'
)
_SAID = {_STATEMENT.id: _STATEMENT}
_PUBLISHED = {row.id: row for row in rows.load(rows.PUBLISHED)}


def _checks(measured, name='002/fig3'):
    return checks.of_figure(name, Drawn([], 1, measured), _SAID, _PUBLISHED)


def test_a_statement_is_compared_and_reported():
    (check,) = _checks({'002/fig3/worse': {'ratio': 1.5, 'more': 2.0}})
    assert (check.published, check.computed) == ({'ratio': 1}, {'ratio': 1.5, 'more': 2.0})
    assert (check.match, check.place, check.note) == (True, 'section 1', 'A note.')
    (check,) = _checks({'002/fig3/worse': {'ratio': 0.5}})
    assert check.match is False
    (check,) = _checks({'000-T1-en-US*': {'zcdp': 24 / 98}}, '000/fig4')
    assert check.match is None and 'secure aggregation' in check.note


@pytest.mark.parametrize('computed, match', [(0.4796, True), (0.486, False)])
def test_a_row_of_the_tables_is_compared_in_the_printed_digits(computed, match):
    (check,) = _checks({'000-T1-de-DE': {'zcdp': computed}}, '000/fig4')
    assert (check.match, check.published, check.place) == (match, {'zcdp': 0.48}, 'Table 1 (NWP)')


@pytest.mark.parametrize(
    'measured, message',
    [
        ({}, '002/fig3/worse: is not of a figure'),
        ({'002/fig3/worse': {'other': 1.0}}, '002/fig3/worse: ratio: is not measured'),
        (
            {'002/fig3/worse': {'ratio': 2.0}, '002/fig3/new': {'a': 1.0}},
            '002/fig3/new: must be given',
        ),
    ],
)
def test_statements_and_numbers_belong_together(measured, message):
    with pytest.raises(ValueError, match=message):
        _checks(measured)


@pytest.mark.parametrize(
    'matches, match',
    [
        ([True, None], True),
        ([True, False, None], False),
        ([None], None),
        ([], None),
    ],
)
def test_a_figure_matches_if_nothing_differs(matches, match):
    found = [checks.Check('a', 'b', 'c', {}, {}, each, '') for each in matches]
    result = checks.Result('002/fig3', 'title', 'a.png', 'a.csv', 1.0, found)
    assert result.match is match and result.to_dict()['match'] is match
