"""The program `dpfl`: lists the commands, and runs one of them. Imports no command to list them."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import dpfl
from dpfl import errors
from dpfl.cli import catalogue
from dpfl.cli.command import program
from dpfl.runtime import signals

# Other names of commands.
_ALIASES = {'report': 'report_privacy'}
_BAD_USAGE = 2


def main() -> None:
    """Runs the command that the first argument names, with the others."""
    signals.begin_program()
    try:
        _main()
    except (KeyboardInterrupt, signals.Terminated) as error:  # While a command is imported.
        signals.end_program(error)


def _main() -> None:
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == 'help' and arguments[1] in _names():
        arguments = [arguments[1], '--help']
        sys.argv[1:] = arguments
    name = arguments[0] if arguments else '--help'
    if name in ('--help', '-h', '-help', '--helpfull', 'help'):
        _print(_overview())
    elif name == '--version':
        _print(f'dpfl {dpfl.__version__}')
    elif name in _OWN:
        _print(_OWN[name](arguments[1:]))
    else:
        name = _ALIASES.get(name, name)
        if name not in catalogue.binaries():
            _refuse(f'{name}: is not a command{_nearest(name)}; dpfl --help lists them')
        del sys.argv[0]
        # Read when NumPy is loaded. The matrices here are small: threads gain little, and where the
        # cores are busy they wait for each other, so that seconds become minutes.
        os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
        _run(catalogue.binaries()[name])


def _run(binary: catalogue.Binary) -> None:
    try:
        binary.run()
    except ModuleNotFoundError as error:
        message = program.explain_missing(error, binary.name)
        if message is None:
            raise
        _refuse(message)


def _overview() -> str:
    lines = [
        dpfl.__doc__.partition('\n')[0],
        '',
        'Usage: dpfl COMMAND [--flagfile=PRESET] [--flag=value ...]; dpfl COMMAND --help has more.',
    ]
    width = max(map(len, catalogue.binaries()))
    for group, title in catalogue.TITLES.items():
        lines += ['', f'{title}:']
        lines += [
            f'  {binary.name:<{width}}  {binary.summary}'
            for binary in catalogue.binaries().values()
            if binary.group == group
        ]
    lines += ['', 'More:']
    more = {
        **{alias: f'Short for {name}.' for alias, name in _ALIASES.items()},
        'install_tff': 'Installs TensorFlow Federated here, and what it needs; --dry_run, --gpu.',
        '--version': 'Prints the version.',
    }
    lines += [f'  {name:<{width}}  {text}' for name, text in more.items()]
    return '\n'.join(lines)


def _install_tff(arguments: Sequence[str]) -> str:
    from dpfl.cli import install_tff  # It imports modules that start processes.

    return install_tff.run(arguments, _refuse)


_OWN: Mapping[str, Callable[[Sequence[str]], str]] = {'install_tff': _install_tff}


def _names() -> tuple[str, ...]:
    return (*catalogue.binaries(), *_ALIASES, *_OWN)


def _nearest(name: str) -> str:
    near = errors.nearest(name, _names())
    return f'; the nearest is {near}' if near else ''


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `dpfl --help | head`
        sys.stdout = None
        sys.exit(1)


def _refuse(message: str) -> NoReturn:
    shown = errors.shown(message)
    print(f'error: {shown}', file=sys.stderr)
    sys.exit(_BAD_USAGE)
