"""Arguments, JSON and flagfiles that cannot be shown or computed with are refused in one line."""

import json
import math
import os
import pathlib

import pytest

from dpfl import Participation, _json, _validate, mechanisms
from dpfl.cli.command import command_line
from dpfl.simulation import population
from tests.attacks.hostile.refusals import refused, within_seconds


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


def test_no_number_of_rounds_runs_for_ever():
    for call in (mechanisms.Identity, Participation, lambda n: population.simulate(None, n)):
        assert '<= 4194304' in refused(lambda call=call: call(2**31))


@pytest.mark.parametrize(
    'make',
    [
        lambda path: path.write_bytes(b'--rounds=\xff'),
        lambda path: path.write_text(f'--flagfile={path}.missing'),
        lambda path: path.write_bytes(b'--\n--flagfile=/dev/zero'),
        lambda path: path.symlink_to('/dev/zero'),
        os.mkfifo,
        pathlib.Path.mkdir,
    ],
)
def test_flagfiles_are_one_line(make, tmp_path, capsys):
    make(tmp_path / 'a.flags')
    with within_seconds(10), pytest.raises(SystemExit) as caught:
        command_line._parse(['program', f'--flagfile={tmp_path / "a.flags"}'])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith('error: --flagfile=') and error.count('\n') == 1


def test_a_message_with_control_characters_is_one_printable_line(capsys):
    with pytest.raises(SystemExit):
        command_line._fail('--a=\x1b[2J\n\ud800: must be b', 2)
    assert capsys.readouterr().err == 'error: --a=\\x1b[2J \\ud800: must be b\n'
