"""The program `dpfl`: its list of commands, its errors."""

import os
import subprocess
import sys

import pytest

import dpfl
from dpfl.cli import catalogue
from tests import paths


def _python(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=paths.ROOT,
        **kwargs,
    )


def _dpfl(*arguments):
    return _python('-m', 'dpfl', *arguments)


@pytest.mark.parametrize('arguments', [[], ['--help']])
def test_all_commands_are_listed_with_what_they_do(arguments):
    done = _dpfl(*arguments)
    assert done.returncode == 0 and done.stderr == ''
    for binary in catalogue.binaries().values():
        assert f'  {binary.name} ' in done.stdout and binary.summary in done.stdout
        assert binary.summary.endswith('.')


def test_the_list_imports_nothing_heavy():
    code = (
        'import sys\n'
        'from dpfl.cli import main\n'
        'main._overview()\n'
        'heavy = {"numpy", "absl", "scipy", "tensorflow"}\n'
        'print(sorted(heavy & set(sys.modules)))\n'
    )
    done = _python('-c', code)
    assert (done.stdout, done.stderr) == ('[]\n', '')


def test_linear_algebra_of_a_command_has_one_thread_unless_told_otherwise():
    code = (
        'import os, sys; from dpfl.cli import catalogue, main\n'
        'shown = lambda _: print("numpy" in sys.modules, os.environ["OPENBLAS_NUM_THREADS"])\n'
        'catalogue.Binary.run, sys.argv = shown, ["dpfl", "train"]\n'
        'main.main()\n'
    )
    others = {name: value for name, value in os.environ.items() if 'OPENBLAS' not in name}
    for given, threads in ({}, '1'), ({'OPENBLAS_NUM_THREADS': '3'}, '3'):
        assert _python('-c', code, env=others | given).stdout == f'False {threads}\n'


def test_every_file_of_experiments_is_in_the_catalogue():
    names = {path.stem for path in catalogue.FOLDER.glob('[!_]*.py')}
    assert names == set(catalogue.binaries())


def test_help_of_a_command():
    done = _dpfl('help', 'report')
    assert done.stdout.startswith(catalogue.binaries()['report_privacy'].summary)


def test_version():
    assert _dpfl('--version').stdout == f'dpfl {dpfl.__version__}\n'


@pytest.mark.standard
@pytest.mark.parametrize(
    'arguments, message',
    [
        (['trian'], 'trian: is not a command; the nearest is train; dpfl --help lists them'),
        (['--flagfile=x'], '--flagfile=x: is not a command; dpfl --help lists them'),
        (['a\nb'], 'a b: is not a command; dpfl --help lists them'),
        (
            ['report', '--run_did=x'],
            "Unknown command line flag 'run_did'; the nearest is --run_dir\n",
        ),
        (['report', '--qqqqqq=1'], "Unknown command line flag 'qqqqqq'; --help lists them\n"),
    ],
)
def test_what_is_unknown_gives_one_line(arguments, message):
    done = _dpfl(*arguments)
    assert done.returncode == 2 and done.stdout == ''
    assert done.stderr.startswith(f'error: {message}') and done.stderr.count('\n') == 1
