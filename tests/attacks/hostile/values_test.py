"""Arguments and JSON that cannot be shown or computed with are refused in one line."""

import json
import math

import pytest

from dpfl import _json, _validate, mechanisms
from tests.attacks.hostile.refusals import refused


def test_values_that_cannot_be_shown_are_one_line():
    for value in (10**5000, 'a\nb', '\x1b[2J', '\ud800', 'x' * 10_000, [[0] * 999] * 99):
        for call in (
            lambda v=value: _validate.integer('a', v, minimum=0, maximum=1),
            lambda v=value: _validate.choice('a', v, ('b',)),
            lambda v=value: _validate.number('a', v, maximum=-1),
        ):
            assert len(refused(call)) < 2500


def test_only_numbers_are_numbers():
    for value in (['1', '2'], [True], [1j], [10**400], [[1], [2, 3]], 'abc', None, [None]):
        refused(lambda value=value: _validate.vector('a', value))
    assert _validate.vector('a', [1, 2.5]).tolist() == [1.0, 2.5]
    refused(lambda: _validate.number('a', 10**400))


def test_mechanisms_of_any_values_are_refused_in_one_line():
    deep: dict = {'mechanism': 'tree', 'rounds': 3}
    for _ in range(500):
        deep = {'mechanism': 'restarted', 'base': deep, 'starts': [], 'rounds': 3}
    for values in (
        [],
        None,
        'tree',
        {'mechanism': ['tree']},
        {'mechanism': {}},
        deep,
        {'mechanism': 'tree', 'a\nb': 1},
        {'mechanism': 'tree', 'rounds': 10**12},
        {'mechanism': 'full_honaker_tree', 'rounds': 3, 'completed': 'no'},
        {'mechanism': 'banded', 'diagonals': [['1']]},
        {'mechanism': 'banded', 'diagonals': [[1e155]]},
        {'mechanism': 'blt', 'rounds': 6, 'decay': [0.9], 'scale': [4e159]},
        {'mechanism': 'banded_toeplitz', 'rounds': 6, 'coefficients': [1e200]},
        {'mechanism': 'restarted', 'base': 3, 'starts': [], 'rounds': 3},
        {
            'mechanism': 'restarted',
            'base': {'mechanism': 'tree', 'rounds': 3},
            'starts': [float('inf')],
            'rounds': 3,
        },
        {'mechanism': 'blt', 'rounds': 3, 'decay': [0.5] * 2000, 'scale': [0.1] * 2000},
    ):
        refused(lambda values=values: mechanisms.from_dict(values))


@pytest.mark.parametrize(
    'text, message',
    [
        ('NaN', 'has NaN'),
        ('[-Infinity]', 'has -Infinity'),
        ('{"a": 1, "a": 2}', "has the key 'a' twice"),
        ('1' + '0' * 400, 'integer of 401 digits'),
        ('[' * 9000 + ']' * 9000, 'nested more than 64 deep'),
        ('"\\ud800"', 'surrogates'),
        ('{"a": ' * 70 + '1' + '}' * 70, 'nested more than 64 deep'),
        ('', 'Expecting value'),
    ],
)
def test_what_is_no_json_or_breaks_later_is_refused(text, message):
    assert message in refused(lambda: _json.loads(text))


def test_json_is_read_as_python_reads_it():
    values = {'a': [1, -2.5, 'é\n', None, True, {'b': []}], 'c': 10**39}
    assert _json.loads(json.dumps(values)) == values
    assert _json.loads(json.dumps(values).encode()) == values
    assert math.isnan(_json.loads('[NaN]', allow_nan=True)[0])
    assert _json.loads('"\\ud83d\\ude00"') == '😀'
