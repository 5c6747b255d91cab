"""Every file of tests has one that is not exhaustive, so that each change checks some of it."""

import ast

import pytest

from tests import paths

_FILES = sorted((paths.ROOT / 'tests').rglob('*_test.py'))
# Files in which every test is exhaustive, and why.
_EXHAUSTIVE_FILES = {
    'simulation/killed_runs_test.py': 'one test, of runs that are killed',
}
# Whole runs of a binary. `cli/bad_flags_test.py` starts every binary.
_OF_BINARIES = 'cli/binaries/'


def _is_exhaustive(decorated: ast.expr) -> bool:
    """Whether an expression is the marker, alone or in a list of markers."""
    each = decorated.elts if isinstance(decorated, ast.List) else [decorated]
    return 'pytest.mark.exhaustive' in map(ast.unparse, each)


def _standard_tests(tree: ast.Module) -> list[str]:
    """Names of the tests of a module without the marker."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == 'pytestmark':
            if _is_exhaustive(node.value):
                return []
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith('test_')
        and not any(map(_is_exhaustive, node.decorator_list))
    ]


@pytest.mark.parametrize('path', _FILES, ids=lambda path: path.name)
def test_a_file_has_a_test_that_is_not_exhaustive(path):
    name = path.relative_to(paths.ROOT / 'tests').as_posix()
    found = bool(_standard_tests(ast.parse(path.read_text())))
    assert found != (name in _EXHAUSTIVE_FILES) or name.startswith(_OF_BINARIES)


def test_files_that_are_listed_exist():
    assert [name for name in _EXHAUSTIVE_FILES if not (paths.ROOT / 'tests' / name).is_file()] == []


@pytest.mark.parametrize(
    'source, quick',
    [
        ('def test_a(): pass\ndef helper(): pass', ['test_a']),
        ('@pytest.mark.tff\n@pytest.mark.exhaustive\ndef test_a(): pass', []),
        ('pytestmark = [pytest.mark.tff, pytest.mark.exhaustive]\ndef test_a(): pass', []),
        ('pytestmark = pytest.mark.tff\ndef test_a(): pass', ['test_a']),
    ],
)
def test_exhaustive_tests_are_found(source, quick):
    assert _standard_tests(ast.parse(source)) == quick
