import json
import math

import pytest

from dpfl.published.figures import catalogue, checks

_SAID = checks.load(checks.PUBLISHED)
_ENTRY = {
    'id': '002/fig3/worse',
    'place': 'section 1',
    'says': 'It is worse.',
    'published': {'ratio': 1},
    'comparison': {'ratio': 'above'},
    'reproducible': True,
    'note': '',
}


def _statement(**changes):
    return checks.Statement(**{**_ENTRY, **changes})


def test_every_statement_is_of_a_figure():
    names = {recipe.name for recipe in catalogue.RECIPES}
    assert {statement.figure for statement in _SAID.values()} <= names
    assert len(names) == len(catalogue.RECIPES)
    assert all(each.place and each.says.endswith('.') for each in _SAID.values())


@pytest.mark.parametrize(
    'comparison, agreeing, differing',
    [
        ('above', [1.1], [1.0, 0.9]),
        ('below', [0.9], [1.0, 1.1]),
        ('at least', [1.0, 1.1], [0.9]),
        ('at most', [1.0, 0.9], [1.1]),
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


def test_what_cannot_be_compared_neither_holds_nor_fails():
    statement = _statement(reproducible=False, note='Inputs are missing.')
    assert statement.holds({'ratio': 0.5}) is None
    assert statement.holds({'ratio': 5.0}) is None


@pytest.mark.parametrize(
    'change, message',
    [
        ({'comparison': {'ratio': 'near'}}, 'comparison=near: must be one of above'),
        ({'comparison': {}}, 'must have the names of published'),
        ({'published': {}, 'comparison': {}}, 'at least one'),
        ({'published': {'ratio': 'one'}}, 'ratio'),
        ({'published': 1}, 'published=1: must be an object'),
        ({'says': 5}, 'says=5: must be words'),
        ({'reproducible': 'yes'}, 'must be true or false'),
        ({'reproducible': False}, 'note: must say why'),
        ({'more': 1}, 'must have the fields'),
    ],
)
def test_malformed_statements_are_refused(tmp_path, change, message):
    path = tmp_path / 'statements.json'
    path.write_text(json.dumps([{**_ENTRY, **change}]))
    with pytest.raises(ValueError, match=f'^statement 002/fig3/worse: .*{message}'):
        checks.load(path)
