"""Hostile command lines and flagfiles are refused in one line."""

import os
import subprocess
import sys

import pytest

from dpfl import Participation, mechanisms
from dpfl.cli.command import command_line
from dpfl.simulation import population
from tests import paths
from tests.attacks.hostile.refusals import refused, within_seconds


def test_no_number_of_rounds_runs_for_ever():
    for call in (mechanisms.Identity, Participation, lambda n: population.simulate(None, n)):
        assert '<= 4194304' in refused(lambda call=call: call(2**31))


@pytest.mark.parametrize(
    'content',
    [
        b'--rounds=\xff',
        '--flagfile={}',
        b'--\n--flagfile=/dev/zero',
        'fifo',
        'directory',
        '/dev/zero',
    ],
)
def test_flagfiles_are_one_line(content, tmp_path, monkeypatch, capsys):
    path = tmp_path / 'a.flags'
    if content == 'fifo':
        os.mkfifo(path)
    elif content == 'directory':
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content.startswith('/'):
        path.symlink_to(content)
    else:
        path.write_text(content.format(tmp_path / 'missing'))
    with within_seconds(10), pytest.raises(SystemExit) as caught:
        command_line._parse(['program', f'--flagfile={path}'])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith('error: --flagfile=') and error.count('\n') == 1


def test_a_message_with_control_characters_is_one_printable_line(capsys):
    with pytest.raises(SystemExit):
        command_line._fail('--a=\x1b[2J\n\ud800: must be b', 2)
    error = capsys.readouterr().err
    assert error == 'error: --a=\\x1b[2J \\ud800: must be b\n'


@pytest.mark.standard
def test_mutated_command_lines_are_one_line(tmp_path):
    # A process of its own: binaries have flags of the same names.
    code = (
        'import pathlib\n'
        'from tests.attacks.hostile import campaign, commands\n'
        f'target = commands.Commands(pathlib.Path({str(tmp_path / "files")!r}), "report_privacy")\n'
        'outcomes = campaign.run(target, 15, range(60))\n'
        'print(outcomes.findings, sum(outcomes.counts.values()), flush=True)\n'
        'import os\n'
        'os._exit(0)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, 'PYTHONPATH': str(paths.ROOT)},
    )
    assert done.stdout.splitlines()[-1] == '{} 60', done.stdout
