"""A file imports its own layer and lower ones only, and the pure layers never load TensorFlow."""

import ast
import pathlib
import subprocess
import sys

import pytest

from dpfl.cli import catalogue
from tests import paths

_ROOT = paths.ROOT

# Lowest first. Parts of one layer do not import each other unless they stand in the same entry.
_LAYERS = (
    ('errors',),
    ('presets',),
    ('_validate', '_files', '_json', '_storage'),
    ('_npz', '_progress', '_random', '_settings', 'runtime'),
    ('_setting_texts',),
    ('participation',),
    ('mechanisms',),
    ('accounting', 'strategies'),
    ('aggregators', 'tasks', 'reporting'),
    ('learning', 'auditing', 'debugging'),
    ('simulation',),
    ('published', 'planning', 'inspection'),
    ('studies',),
    ('cli',),
    ('__main__',),
)
_HEAVY = {'tensorflow', 'tensorflow_federated', 'tensorflow_privacy'}
_PURE = {
    '',
    'errors',
    'presets',
    '_validate',
    '_files',
    '_json',
    '_npz',
    '_progress',
    '_random',
    '_settings',
    '_setting_texts',
    '_storage',
    'participation',
    'mechanisms',
    'accounting',
    'strategies',
    'reporting',
}


def _modules():
    return sorted((_ROOT / 'dpfl').rglob('*.py'))


def _part(path: pathlib.Path) -> str:
    name = path.relative_to(_ROOT / 'dpfl').parts[0].removesuffix('.py')
    return '' if name == '__init__' else name


def _imports(path: pathlib.Path):
    """Full names of all modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: relative import'
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


def _rank(part: str) -> int:
    return next(i for i, layer in enumerate(_LAYERS) if part in layer)


def test_every_part_of_the_package_has_a_layer():
    parts = {_part(path) for path in _modules()} - {''}
    assert parts <= {part for layer in _LAYERS for part in layer}


@pytest.mark.parametrize('path', _modules(), ids=lambda p: str(p.relative_to(_ROOT)))
def test_imports_point_down(path):
    part = _part(path)
    for name in _imports(path):
        top, *rest = name.split('.')
        assert top != 'experiments', f'{path} imports {name}'
        if part in _PURE:
            assert top not in _HEAVY, f'{path} imports {name}'
        if top == 'dpfl' and part and rest:
            lower = rest[0]
            if lower in ('Participation', 'ParticipationLog', '__version__'):
                lower = 'participation'
            assert lower == part or _rank(lower) < _rank(part), f'{path} imports {name}'


@pytest.mark.parametrize('path', _modules(), ids=lambda p: str(p.relative_to(_ROOT)))
def test_only_commands_read_flags(path):
    read = [name for name in _imports(path) if name.startswith('absl.flags')]
    assert _part(path) == 'cli' or read == []


@pytest.mark.parametrize(
    'names',
    [
        'dpfl.mechanisms, dpfl.accounting, dpfl.reporting.privacy_page',
        *(
            binary.module
            for binary in catalogue.binaries().values()
            if binary.group == 'accounting'
        ),
    ],
)
def test_what_is_pure_does_not_load_tensorflow(names):
    code = (
        f'import sys, dpfl, {names}\n'
        'print(sorted(m for m in sys.modules if m.split(".")[0].startswith("tensorflow")))'
    )
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == '[]'


def test_files_are_small():
    sizes = {path: len(path.read_text().splitlines()) for path in _modules()}
    assert max(sizes.values()) <= 450, max(sizes, key=sizes.get)
    assert sorted(sizes.values())[len(sizes) // 2] <= 200
