"""The command lines of README, pages and docstrings: commands, flags, values and files exist."""

import functools
import math
import re
import shlex
import subprocess
import textwrap

import pytest

from dpfl import presets
from dpfl.cli import main
from tests import paths
from tests.repository import command_flags

_PAGES = sorted(
    path.relative_to(paths.ROOT).as_posix()
    for path in [*paths.ROOT.glob('*.md'), *paths.ROOT.glob('docs/**/*.md')]
    if path.name != 'CHANGELOG.md'
)
_BLOCK = re.compile(r'^ *```(\w*)\n(.*?)^ *```', re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r'(?:^ {4}(?! ).*\n(?: {4}.*\n)*)', re.MULTILINE)
_COMMAND = re.compile(
    r'(?:python -m experiments\.(?=studies\.)|(?<![\w/.-])dpfl )((?:studies\.)?\w+)((?: .*)?)$'
)
# Flags of absl, and of every command.
_COMMON = {'flagfile', 'help', 'helpfull', 'verbosity'}
# Flags of other programs that pages mention: pip, pytest, sha256sum, git, openssl, tests.faults.
_FOREIGN = {'check', 'no-deps', 'require-hashes', 'only-binary', 'upgrade', 'near_only'}
# What means a preset, and no file of one's own.
_PRESET = re.compile(r'configs/[a-z][\w.]*|[a-z]\w*(?:\.\w+)*(?<!\.flags)')
_PLACEHOLDER = re.compile(r'[A-Z][A-Z_0-9]*\b|\.\.\.|<|\$|\[')


@functools.cache
def _commands():
    return {
        command['name']: {flag['name']: flag for flag in command['flags']}
        for command in command_flags.read_apart()
    }


def _lines(text):
    """The command lines of a page, without their continuations and comments."""
    blocks = [block for language, block in _BLOCK.findall(text) if language in ('', 'sh')]
    blocks += _INDENTED.findall(_BLOCK.sub('', text))
    for block in blocks:
        for line in re.sub(r'\\\n\s*', '', block).splitlines():
            yield line.partition(' # ')[0].strip()


def _wrong(name, arguments):
    """What is wrong with the arguments of a command; nothing for placeholders."""
    if name in main._OWN:
        return []
    name = main._ALIASES.get(name, name)
    flags = _commands().get(name)
    if flags is None:
        return [f'{name}: no such command']
    found = []
    for argument in arguments:
        if not argument.startswith('--') or argument.startswith('--...'):
            continue
        flag, mark, value = argument[2:].partition('=')
        known = flags.get(flag) or flags.get(flag.removeprefix('no'))
        if known is None and flag not in _COMMON:
            found.append(f'{name}: no flag --{flag}')
        elif flag == 'flagfile' and _PRESET.fullmatch(value) and presets.find(value) is None:
            found.append(f'{name}: no preset {value}')
        elif known is not None and mark and not _is_value(known, value):
            found.append(f'{name}: {argument} is not {known["kind"]}')
    return found


def _exists(path):
    return _PLACEHOLDER.search(path) is not None or (paths.ROOT / path).is_file()


def _is_value(flag, value):
    if _PLACEHOLDER.search(value):
        return True
    if flag['choices']:
        return value in flag['choices']
    kind = flag['kind'].split()[0]
    if kind not in ('integer', 'number'):
        return True
    try:
        number = int(value) if kind == 'integer' else float(value)
    except ValueError:
        return False
    bounds = re.findall(r'([≥>≤<]) (\S+)', flag['kind'])
    compare = {
        '≥': lambda a, b: a >= b,
        '>': lambda a, b: a > b,
        '≤': lambda a, b: a <= b,
        '<': lambda a, b: a < b,
    }
    return not math.isnan(number) and all(compare[sign](number, float(b)) for sign, b in bounds)


def _problems(text):
    found = []
    for line in _lines(text):
        for part in re.split(r' (?:&&|\||;) ', line):
            match = _COMMAND.search(part)
            if match:
                arguments = shlex.split(match[2].rstrip('\\'))
                found += _wrong(match[1], arguments)
    return found


@pytest.mark.standard
def test_commands_of_pages_and_docstrings_exist_and_have_their_flags():
    texts = {page: (paths.ROOT / page).read_text() for page in _PAGES}
    # As in a list of Markdown, whose code is indented by four letters.
    abouts = {
        each['name']: textwrap.indent(each['about'], '  ') for each in command_flags.read_apart()
    }
    wrong = {name: found for name, text in (texts | abouts).items() if (found := _problems(text))}
    assert wrong == {}


def test_commands_have_one_form():
    for page in _PAGES:
        text = (paths.ROOT / page).read_text()
        assert (
            re.findall(r'python -m experiments\.(?!studies\.)\w+|\.venv/bin/dpfl [a-z]\w+ --', text)
            == []
        ), page


@pytest.mark.standard
def test_what_is_wrong_is_found():
    block = '```sh\ndpfl train --rounds={} --mechanism={}\n```\n'
    assert _problems(block.format(3, 'tree')) == []
    assert _problems(block.format('ROUNDS', 'MECHANISM')) == []
    assert len(_problems(block.format(0, 'no_such'))) == 2
    assert len(_problems(block.format('3.5', 'tree --no_such --noresume'))) == 2
    assert _problems('```\ndpfl train --flagfile=quickstart --rounds=3\n```\n') == []
    assert _problems('```\ndpfl train --flagfile=no_such\n```\n') == ['train: no preset no_such']
    assert _problems('    dpfl generate \\\n      --no_such\n') != []


def test_shell_blocks_parse():
    for page in _PAGES:
        for kind, text in _BLOCK.findall((paths.ROOT / page).read_text()):
            if kind == 'sh':
                done = subprocess.run(['bash', '-n'], input=text, capture_output=True, text=True)
                assert done.returncode == 0, (text, done.stderr)


@pytest.mark.standard
def test_flags_and_files_that_pages_name_exist():
    known = {*_COMMON, *_FOREIGN, *_flags_of_scripts()}.union(*_commands().values())
    for page in _PAGES:
        text = (paths.ROOT / page).read_text()
        named = set(re.findall(r'`--([a-z][\w-]*)', text))
        named = {name for name in named if not {name, name.removeprefix('no')} & known}
        assert named == set(), page
        files = set(re.findall(r'(?<![\w/])((?:scripts|benchmarks|configs)/[\w/.]+\.\w+)\b', text))
        assert {name for name in files if not _exists(name)} == set(), page


def test_tests_that_pages_name_exist():
    """Sharp edges and the threat model say which test holds each promise."""
    for page in _PAGES:
        named = re.findall(r'(tests/[\w/]+\.py)(?:::(\w+))?', (paths.ROOT / page).read_text())
        for path, test in named:
            assert (paths.ROOT / path).is_file(), (page, path)
            assert f'def {test}(' in (paths.ROOT / path).read_text() or not test, (page, test)


@functools.cache
def _flags_of_scripts():
    """Flags of scripts and benchmarks."""
    found = set()
    for folder in ('scripts', 'benchmarks'):
        for path in (paths.ROOT / folder).rglob('*'):
            if path.suffix in ('.py', '.sh'):
                found |= set(re.findall(r"""['"(\s[]--([a-z][\w-]*)""", path.read_text()))
    return found
