"""Statements about figures: how they are compared and reported; data that is kept."""

import math

import pytest

from dpfl.published.figures import checks
from dpfl.published.figures.drawn import Drawn
from dpfl.published.tables import rows

_SAID = checks.load()
_ROWS = {row.id: row for row in rows.load()}


def _statement(published=None, comparison=None, **changes):
    values = dict(place='section 1', says='It is worse.', reproducible=True, note='A note.')
    return rows.Row(
        id='002/fig3/worse',
        published=published or {'ratio': 1},
        comparison=comparison or {'ratio': 'above'},
        **{**values, **changes},
    )


def test_every_statement_is_of_a_figure():
    names = {recipe.name for recipe in checks.RECIPES}
    assert {statement.figure for statement in _SAID.values()} <= names
    assert len(names) == len(checks.RECIPES)
    assert all(each.place and each.says.endswith('.') for each in _SAID.values())


@pytest.mark.parametrize(
    'comparison, agreeing, differing',
    [
        ('above', [1.1], [1.0, 0.9]),
        ('below', [0.9], [1.0, 1.1]),
        ('at least', [1.0, 1.1], [0.9]),
        ('at most', [1.0, 0.991], [1.0001, 0.98]),
        ('about', [1.0, 1.019, 0.981], [1.03, 0.97]),
        ('equal', [1.0], [1.001]),
    ],
)
def test_comparisons(comparison, agreeing, differing):
    statement = _statement(comparison={'ratio': comparison})
    assert all(statement.holds({'ratio': value}) is True for value in agreeing)
    assert all(statement.holds({'ratio': value}) is False for value in [*differing, math.nan])
    assert statement.holds({'ratio': math.inf}) is False


def test_all_numbers_have_to_agree_and_more_may_be_computed():
    statement = _statement(published={'a': 1, 'b': 2}, comparison={'a': 'above', 'b': 'below'})
    assert statement.holds({'a': 2, 'b': 1, 'c': 5}) is True
    assert statement.holds({'a': 2, 'b': 2}) is False
    with pytest.raises(KeyError):
        statement.holds({'a': 2})
    assert _statement(reproducible=False).holds({'ratio': 0.5}) is None


def _checks(measured, name='002/fig3'):
    return checks.of_figure(name, Drawn([], 1, measured), {'002/fig3/worse': _statement()}, _ROWS)


def test_a_statement_is_compared_and_reported():
    (check,) = _checks({'002/fig3/worse': {'ratio': 1.5, 'more': 2.0}})
    assert (check.published, check.computed) == ({'ratio': 1}, {'ratio': 1.5, 'more': 2.0})
    assert (check.match, check.row.place, check.row.note) == (True, 'section 1', 'A note.')
    (check,) = _checks({'002/fig3/worse': {'ratio': 0.5}})
    assert check.match is False


def test_a_row_of_the_tables_is_compared_in_the_printed_digits():
    for computed, match in ((0.4796, True), (0.486, False)):
        (check,) = _checks({'000-T1-de-DE': {'zcdp': computed}}, '000/fig4')
        assert check.match == match
    assert (check.published, check.row.place) == ({'zcdp': 0.48}, 'Table 1 (NWP)')
    (check,) = _checks({'000-T1-en-US*': {'zcdp': 24 / 98}}, '000/fig4')
    assert check.match is None and 'secure aggregation' in check.row.note


def test_statements_and_numbers_belong_together():
    with pytest.raises(ValueError, match='002/fig3/worse: is not of a figure'):
        _checks({})
    for measured in ({'002/fig3/worse': {'other': 1.0}}, {'002/fig3/new': {'a': 1.0}}):
        with pytest.raises((KeyError, ValueError)):
            _checks(measured)


def test_a_figure_matches_if_nothing_differs():
    for matches, match in (
        ([True, None], True),
        ([True, False, None], False),
        ([None], None),
        ([], None),
    ):
        found = [rows.Result(_statement(), {}, {}, each) for each in matches]
        result = checks.Result('002/fig3', 'title', 'a.png', 'a.csv', 1.0, found)
        assert result.match is match and result.to_dict()['match'] is match
