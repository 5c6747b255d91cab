"""Hostile JSON: duplicate keys, deep nesting, numbers that are too large."""

import json
import math

import pytest

from dpfl import _json
from tests.attacks.hostile.refusals import refused


@pytest.mark.parametrize(
    'text, message',
    [
        ('NaN', 'has NaN'),
        ('[-Infinity]', 'has -Infinity'),
        ('{"a": 1, "a": 2}', "has the key 'a' twice"),
        ('1' + '0' * 400, 'integer of 401 digits'),
        ('[' * 500 + ']' * 500, 'nested more than 64 deep'),
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
