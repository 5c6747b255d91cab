"""The command lines of README, pages and docstrings: commands, flags, values and files exist."""

import ast
import functools
import itertools
import re
import shlex
import subprocess
import textwrap

import pytest

from dpfl import presets
from dpfl.cli import catalogue, main
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
_COMMANDS = {**catalogue.binaries(), **catalogue.studies()}
# Flags of absl, and of every command.
_COMMON = {'flagfile', 'help', 'helpfull', 'verbosity'}
# Flags of other programs that pages mention: pip, pytest, sha256sum, git, openssl, tests.faults.
_FOREIGN = {'check', 'no-deps', 'require-hashes', 'only-binary', 'upgrade', 'near_only'}
# What means a preset, and no file of one's own.
_PRESET = re.compile(r'configs/[a-z][\w.]*|[a-z]\w*(?:\.\w+)*(?<!\.flags)')
_PLACEHOLDER = re.compile(r'[A-Z][A-Z_0-9]*\b|\.\.\.|<|\$|\[')


def _lines(text):
    """The command lines of a page, without their continuations and comments."""
    blocks = [block for language, block in _BLOCK.findall(text) if language in ('', 'sh')]
    blocks += _INDENTED.findall(_BLOCK.sub('', text))
    for block in blocks:
        for line in re.sub(r'\\\n\s*', '', block).splitlines():
            yield line.partition(' # ')[0].strip()


def _exists(path):
    return _PLACEHOLDER.search(path) is not None or (paths.ROOT / path).is_file()


def _arguments(text):
    """The commands of a page, each with an argument; without what is for the reader to fill in."""
    for line in _lines(text):
        for part in re.split(r' (?:&&|\||;) ', line):
            match = _COMMAND.search(part)
            if match and match[1] not in main._OWN:
                name = main._ALIASES.get(match[1], match[1])
                # Without arguments, a command must exist all the same.
                for argument in [*shlex.split(match[2].rstrip('\\')), '--help']:
                    flag, _, value = argument.partition('=')
                    if flag.startswith('--') and not flag.startswith('--...'):
                        yield name, flag if _PLACEHOLDER.search(value) else argument


def _problems(texts):
    """Arguments of the commands of pages that are wrong, by page."""
    given = {page: [*_arguments(text)] for page, text in texts.items()}
    refused = command_flags.refused(itertools.chain(*given.values()))

    def is_wrong(name, argument):
        flag, _, value = argument[2:].partition('=')
        if flag == 'flagfile' and _PRESET.fullmatch(value) and presets.find(value) is None:
            return True
        return name not in _COMMANDS or flag not in _COMMON and (name, argument) in refused

    found = {page: [each for each in of_page if is_wrong(*each)] for page, of_page in given.items()}
    return {page: wrong for page, wrong in found.items() if wrong}


# Flags of a run in made-up pages, with those that are wrong.
_MADE_UP = {
    '--rounds=3 --mechanism=tree --noresume --flagfile=quickstart': [],
    '--rounds=ROUNDS --mechanism=MECHANISM --no_flag=FLAG ...': ['--no_flag'],
    '--rounds=0 --mechanism=no_such': ['--rounds=0', '--mechanism=no_such'],
    '--rounds=3.5 --no_such': ['--rounds=3.5', '--no_such'],
    '--flagfile=no_such': ['--flagfile=no_such'],
}


@pytest.mark.standard
def test_commands_of_pages_and_docstrings_exist_and_have_their_flags():
    texts = {page: (paths.ROOT / page).read_text() for page in _PAGES}
    # As in a list of Markdown, whose code is indented by four letters.
    for name, binary in _COMMANDS.items():
        about = ast.get_docstring(ast.parse(binary.path.read_text()))
        texts[name] = textwrap.indent(about, '  ')
    texts |= {flags: f'```sh\ndpfl train {flags}\n```\n' for flags in _MADE_UP}
    texts['indented'] = '    dpfl generate \\\n      --no_such\n'
    texts['no command'] = '```\ndpfl no_such\n```\n'
    assert _problems(texts) == {
        flags: [('train', each) for each in wrong] for flags, wrong in _MADE_UP.items() if wrong
    } | {'indented': [('generate', '--no_such')], 'no command': [('no_such', '--help')]}


def test_commands_have_one_form():
    for page in _PAGES:
        text = (paths.ROOT / page).read_text()
        assert (
            re.findall(r'python -m experiments\.(?!studies\.)\w+|\.venv/bin/dpfl [a-z]\w+ --', text)
            == []
        ), page


def test_shell_blocks_parse():
    for page in _PAGES:
        for kind, text in _BLOCK.findall((paths.ROOT / page).read_text()):
            if kind == 'sh':
                done = subprocess.run(['bash', '-n'], input=text, capture_output=True, text=True)
                assert done.returncode == 0, (text, done.stderr)


@pytest.mark.standard
def test_flags_and_files_that_pages_name_exist():
    known = {*_COMMON, *_FOREIGN, *_flags_of_scripts()}.union(*command_flags.helps().values())
    for page in _PAGES:
        text = (paths.ROOT / page).read_text()
        named = set(re.findall(r'`--([a-z][\w-]*)', text))
        named = {name for name in named if not {name, name.removeprefix('no')} & known}
        assert named == set(), page
        files = set(re.findall(r'(?<![\w/])((?:scripts|benchmarks|configs)/[\w/.]+\.\w+)\b', text))
        assert {name for name in files if not _exists(name)} == set(), page


@functools.cache
def _flags_of_scripts():
    """Flags of scripts and benchmarks."""
    found = set()
    for folder in ('scripts', 'benchmarks'):
        for path in (paths.ROOT / folder).rglob('*'):
            if path.suffix in ('.py', '.sh'):
                found |= set(re.findall(r"""['"(\s[]--([a-z][\w-]*)""", path.read_text()))
    return found
