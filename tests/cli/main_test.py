"""The program `dpfl`: its list of commands, its errors, completion in a shell."""

import os
import shutil
import subprocess
import sys

import pytest

import dpfl
from dpfl import presets
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
        (['completion', 'fish'], 'completion: needs one of bash, zsh'),
        (['lock'], 'lock: is gone; install_tff installs what it printed'),
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


@pytest.fixture(scope='module', name='complete')
def _complete(tmp_path_factory):
    """What bash proposes for a line."""
    if shutil.which('bash') is None:
        pytest.skip('no bash')
    folder = tmp_path_factory.mktemp('bin')
    (folder / 'dpfl').write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpfl "$@"\n')
    (folder / 'dpfl').chmod(0o755)
    (folder / 'own.flags').touch()
    script = _dpfl('completion', 'bash').stdout

    environment = os.environ | {
        'PATH': f'{folder}:{os.environ["PATH"]}',
        'PYTHONPATH': str(paths.ROOT),
    }

    def complete(line):
        # As bash splits a line into words: also before and after each `=`.
        words = line.replace('=', ' = ').split() + ([''] if line.endswith((' ', '=')) else [])
        quoted = ' '.join(f"'{word}'" for word in words)
        code = (
            f'{script}\nCOMP_WORDBREAKS=$\' \\t\\n"=\'\nCOMP_LINE="{line}"\n'
            f'COMP_POINT={len(line)}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n'
            '_dpfl 2>/dev/null\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        command = ['bash', '-c', code]
        return subprocess.check_output(command, cwd=folder, env=environment, text=True).split()

    return complete


@pytest.mark.standard
@pytest.mark.parametrize(
    'line, proposed',
    [
        ('dpfl tra', ['train', 'train_gan']),
        ('dpfl rep', ['report_privacy', 'reproduce_figures', 'reproduce_tables', 'report']),
        ('dpfl train --flagfile=synthetic_text.b', ['synthetic_text.blt']),
        ('dpfl train --strategy=blt_b1', ['blt_b100', 'blt_b1000']),
        ('dpfl report --delt', ['--delta=']),
        ('dpfl report --format=j', ['json']),
        ('dpfl report --output=ow', ['own.flags']),
    ],
)
def test_bash_completes(complete, line, proposed):
    assert complete(line) == proposed


@pytest.mark.standard
def test_bash_proposes_every_preset_and_command(complete):
    assert set(presets.names()) <= set(complete('dpfl train --flagfile='))
    assert set(catalogue.binaries()) <= set(complete('dpfl '))


@pytest.mark.standard
def test_the_script_for_zsh_has_what_that_for_bash_has():
    script = _dpfl('completion', 'zsh').stdout
    assert script.startswith('#compdef dpfl\n') and '@' not in script.replace('$@', '')
    for name in (*catalogue.binaries(), *presets.names()):
        assert name in script
    if shutil.which('zsh') is not None:
        subprocess.run(['zsh', '-n'], input=script, text=True, check=True)
