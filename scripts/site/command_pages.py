"""Pages about the commands: what each does, an example, and its flags.

`scripts.site.read_flags` finds the flags, in a process of its own.
"""

import itertools
import json
import re
import subprocess
import sys
import textwrap
from typing import Any

from scripts.site import places

FOLDER = 'reference/commands'
_COMMAND = re.compile(r' +(python|ssh|dpfl) ')
_FLAG = re.compile(r'(?<![\w`-])(--[a-z]\w+(?:=[\w./<>*-]*[\w>*])?)')
_TITLES = {
    'training': 'Training',
    'accounting': 'Accounting',
    'auditing': 'Auditing',
    'data': 'Data',
    'debugging': 'Debugging',
    'studies': 'Studies',
}
_INDEX = """# Commands

Each command is a program: `.venv/bin/python -m experiments.NAME` in a checkout, `dpfl NAME` where
the package is installed. Its page has what it does, examples, and all of its flags with type,
bounds and default. The pages are made from the definitions of the flags, which the programs also
check values against. Studies are not installed: only a checkout has them, under
`experiments/studies`.

- A bad flag gives one line, `error: --flag=value: what is allowed`, and exit status 2. A failure of
  the machine gives one line and exit status 1, Ctrl-C one line and 130.
- `--flagfile=FILE` reads flags from a file, one per line. Flags after it change them.
- `--noFLAG` sets a flag of type true or false to false. A list is comma-separated.
- `--help` prints the page of a command, `--helpfull` also the flags of libraries.
"""
# Defaults that depend on the machine.
_OF_THE_MACHINE = {('studies.run_study', 'jobs'): 'the number of processor cores'}


def read() -> list[dict[str, Any]]:
    """The commands with their flags; see `read_flags.Command`."""
    done = subprocess.run(
        [sys.executable, '-m', 'scripts.site.read_flags'],
        cwd=places.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def pages(commands: list[dict[str, Any]]) -> dict[str, str]:
    """The text of each page by its place in docs/, the index first."""
    found = {f'{FOLDER}/index.md': index(commands)}
    found.update({f'{FOLDER}/{command["name"]}.md': page(command) for command in commands})
    return found


def navigation(commands: list[dict[str, Any]]) -> list[Any]:
    """The part of the navigation with these pages."""
    groups = [
        {title: [{each['name']: f'{FOLDER}/{each["name"]}.md'} for each in members]}
        for title, members in _grouped(commands)
    ]
    return [f'{FOLDER}/index.md', *groups]


def index(commands: list[dict[str, Any]]) -> str:
    """The page that lists the commands."""
    parts = [_INDEX]
    for title, members in _grouped(commands):
        parts += [f'## {title}', '| command | what it does |\n|---|---|']
        rows = [f'| [`{each["name"]}`]({each["name"]}.md) | {_summary(each)} |' for each in members]
        parts[-1] += '\n' + '\n'.join(rows)
    return '\n\n'.join(parts) + '\n'


def page(command: dict[str, Any]) -> str:
    """The page of a command."""
    parts = [f'# {command["name"]}', about(command['about']), '## Flags']
    for group, members in itertools.groupby(command['flags'], lambda flag: flag['group']):
        parts.append(f'### {group}')
        parts += [_flag(command['name'], flag) for flag in members]
    return '\n\n'.join(parts) + '\n'


def about(docstring: str) -> str:
    """The docstring of a command as Markdown: its command lines become blocks of code."""
    parts: list[str] = []
    for block in docstring.split('\n\n'):
        head, mark, code = block.rpartition(':\n  ')
        if _COMMAND.match(block):
            head, code = '', block
        elif not mark or not _COMMAND.match(f'  {code}'):
            head, code = block, ''
        parts += [_prose(f'{head}:' if mark and code else head)] if head else []
        parts += [_code_block(code)] if code else []
    return '\n\n'.join(parts)


def _code_block(text: str) -> str:
    """Command lines as a block of code; those that Python joined are broken again."""
    code = re.sub(r'(?<=\S) {3,}(?=--|\w)', ' \\\n', text.strip())
    code = re.sub(r'\\\n *', '\\\n    ', textwrap.dedent(f'  {code}'))
    code = re.sub(r'^python -m', '.venv/bin/python -m', code, flags=re.MULTILINE)
    return f'```sh\n{code}\n```'


def _prose(text: str) -> str:
    """Prose as Markdown: flags are code, and lists stand apart."""
    text = re.sub(r'\n(?=- )', '\n\n', text, count=1)
    text = re.sub(r'(\n- [^\n]*(?:\n {2}[^\n]*)*)\n(?![- \n])', r'\1\n\n', text)
    return _FLAG.sub(r'`\1`', text)


def _flag(command: str, flag: dict[str, Any]) -> str:
    name, default = flag['name'], flag['default']
    kind = 'one of ' + ', '.join(f'`{each}`' for each in flag['choices'])
    kind = kind if flag['choices'] else flag['kind']
    if (command, name) in _OF_THE_MACHINE:
        default = _OF_THE_MACHINE[command, name]
    elif default is not None:
        default = f'`{default}`' if default else 'empty'
    default = 'no default' if default is None else f'default {default}'
    help = textwrap.indent(_escaped(flag['help']), '    ').removeprefix('    ')
    return f'`--{name}`{{ #{name} }} <small>{kind}; {default}</small>\n:   {help}'


def _escaped(text: str) -> str:
    """Help as Markdown: other flags are code, nothing is a tag or emphasis."""
    text = re.sub(r'([<*])', r'\\\1', text)
    return re.sub(r'(?<![\w`-])(--[a-z]\w*)', r'`\1`', text)


def _summary(command: dict[str, Any]) -> str:
    return command['about'].splitlines()[0]


def _grouped(commands: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    names = [name for name in _TITLES if any(each['group'] == name for each in commands)]
    names += sorted({each['group'] for each in commands} - set(names))
    return [
        (_TITLES.get(name, name.capitalize()), [each for each in commands if each['group'] == name])
        for name in names
    ]
