"""Public functions say the types of what they take and return; the package is marked as typed."""

import ast

import pytest

from tests import paths

_FILES = sorted([*(paths.ROOT / 'dpfl').rglob('*.py'), *(paths.ROOT / 'experiments').rglob('*.py')])


def _public_functions(tree: ast.Module):
    """Functions of a module and methods of its classes that are not private."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        if isinstance(node, ast.ClassDef) and node.name.startswith('_'):
            continue
        for member in members:
            if isinstance(member, ast.FunctionDef) and not member.name.startswith('_'):
                yield member


def _unannotated(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    missing = [
        one.arg for one in every if one.annotation is None and one.arg not in ('self', 'cls')
    ]
    return missing + ([] if function.returns is not None else ['return'])


@pytest.mark.parametrize('path', _FILES, ids=lambda path: str(path.relative_to(paths.ROOT)))
def test_public_functions_are_annotated(path):
    tree = ast.parse(path.read_text())
    missing = {
        f'{function.name} (line {function.lineno})': names
        for function in _public_functions(tree)
        if (names := _unannotated(function))
    }
    assert missing == {}


def test_a_missing_annotation_is_found():
    tree = ast.parse('def f(a, *, b: int): pass\nclass A:\n    def g(self) -> int: pass\n')
    f, g = _public_functions(tree)
    assert _unannotated(f) == ['a', 'return'] and _unannotated(g) == []


def test_the_package_says_that_it_is_typed():
    assert (paths.ROOT / 'dpfl' / 'py.typed').is_file()
