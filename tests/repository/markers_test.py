"""Every file of tests has a test that is not slow, so that scripts/test.sh checks some of it."""

import ast

import pytest

from tests import paths

_FILES = sorted((paths.ROOT / 'tests').rglob('*_test.py'))
# Files in which every test is slow, and why.
_SLOW_FILES = {
    'simulation/killed_runs_test.py': 'one test, of runs that are killed',
    'cli/binaries/training/train_noise_test.py': 'one test, of a run that is killed and resumed',
}


def _is_slow(decorated: ast.expr) -> bool:
    """Whether an expression is the marker, alone or in a list of markers."""
    each = decorated.elts if isinstance(decorated, ast.List) else [decorated]
    return 'pytest.mark.slow' in map(ast.unparse, each)


def _quick_tests(tree: ast.Module) -> list[str]:
    """Names of the tests of a module without the marker."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == 'pytestmark':
            if _is_slow(node.value):
                return []
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith('test_')
        and not any(map(_is_slow, node.decorator_list))
    ]


@pytest.mark.parametrize('path', _FILES, ids=lambda path: path.name)
def test_a_file_has_a_test_that_is_not_slow(path):
    is_listed = path.relative_to(paths.ROOT / 'tests').as_posix() in _SLOW_FILES
    assert is_listed != bool(_quick_tests(ast.parse(path.read_text())))


def test_files_that_are_listed_exist():
    assert [name for name in _SLOW_FILES if not (paths.ROOT / 'tests' / name).is_file()] == []


@pytest.mark.parametrize(
    'source, quick',
    [
        ('def test_a(): pass\ndef helper(): pass', ['test_a']),
        ('@pytest.mark.tff\n@pytest.mark.slow\ndef test_a(): pass', []),
        ('pytestmark = [pytest.mark.tff, pytest.mark.slow]\ndef test_a(): pass', []),
        ('pytestmark = pytest.mark.tff\ndef test_a(): pass', ['test_a']),
    ],
)
def test_slow_tests_are_found(source, quick):
    assert _quick_tests(ast.parse(source)) == quick
