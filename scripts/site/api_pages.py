"""Pages about the Python interface: one for each package of dpfl, with all of its public names.

A page has what the package exports, and then its modules with the public names that are defined in
them and not exported by any package. mkdocstrings reads signatures and docstrings from the source.
"""

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Iterator
from typing import Any

from scripts.site import places

FOLDER = 'reference/api'
# The commands have pages of their own, by `command_pages`.
_COMMANDS = ('dpfl', 'cli')
_INDEX = """# Python interface

`import dpfl` and the packages below it. The names that a package exports are those meant for your
own code; each page has them first, and then the modules of the package with their other public
names. Names that begin with an underscore are internal. `dpfl.participation`, `dpfl.mechanisms`,
`dpfl.accounting`, `dpfl.strategies` and `dpfl.reporting` never load TensorFlow.

| package | what it holds |
|---|---|
"""


@dataclasses.dataclass(frozen=True)
class Module:
    """A public module.

    Attributes:
      name: full name.
      about: the first line of its docstring.
      exports: names of its `__all__` that are not modules; empty without one.
      defined: public functions, classes and constants that it defines.
      is_package: it is a folder.
    """

    name: str
    about: str
    exports: tuple[str, ...]
    defined: tuple[str, ...]
    is_package: bool

    @property
    def parent(self) -> str:
        """The package that it is in; a package is in itself."""
        return self.name if self.is_package else self.name.rpartition('.')[0]


@functools.cache
def modules() -> dict[str, Module]:
    """The public modules of dpfl by name, packages before what is in them."""
    folder = places.ROOT / 'dpfl'
    found = {}
    for path in sorted(folder.rglob('*.py'), key=lambda path: (path.parent, path.stem)):
        parts = path.relative_to(places.ROOT).with_suffix('').parts
        is_package = parts[-1] == '__init__'
        parts = parts[:-1] if is_package else parts
        if not any(part.startswith('_') for part in parts) and parts[:2] != _COMMANDS:
            found['.'.join(parts)] = _read(path, '.'.join(parts), is_package)
    return found


@functools.cache
def exported() -> dict[str, str]:
    """Full name in the exporting package, by full name at the definition."""
    found = {}
    for module in modules().values():
        for name, origin in _imports(module).items():
            if name in module.exports:
                found[origin] = f'{module.name}.{name}'
    return found


def public_names() -> list[str]:
    """Full names of everything public: modules, what packages export, and what modules define."""
    by_origin = exported()
    names = set(modules()) | set(by_origin.values())
    for module in modules().values():
        names |= {f'{module.name}.{name}' for name in module.defined}
    return sorted(names - (set(by_origin) - set(by_origin.values())))


def pages() -> dict[str, str]:
    """The text of each page by its place in docs/, the index first."""
    packages = [module for module in modules().values() if module.is_package]
    rows = [f'| [`{each.name}`]({each.name}.md) | {each.about} |' for each in packages]
    found = {f'{FOLDER}/index.md': _INDEX + '\n'.join(rows) + '\n'}
    found.update({f'{FOLDER}/{each.name}.md': _page(each) for each in packages})
    return found


def navigation() -> list[Any]:
    """The part of the navigation with these pages, packages within the packages of the top."""
    top: dict[str, list[str]] = {}
    for module in modules().values():
        if module.is_package:
            top.setdefault('.'.join(module.name.split('.')[:2]), []).append(module.name)
    entries: list[Any] = [f'{FOLDER}/index.md']
    for name, members in top.items():
        pages = [{each.removeprefix('dpfl.'): f'{FOLDER}/{each}.md'} for each in members]
        entries.append(pages[0] if len(pages) == 1 else {name.removeprefix('dpfl.'): pages})
    return entries


def _page(package: Module) -> str:
    parts = [f'# {package.name}', _directive(package.name, 2, _shown(package))]
    members = [
        each for each in modules().values() if not each.is_package and each.parent == package.name
    ]
    parts += [_directive(each.name, 2, _shown(each), is_headed=True) for each in members]
    return '\n\n'.join(parts) + '\n'


def _shown(module: Module) -> list[str]:
    """What a module exports, and what it defines and no other one exports."""
    by_origin = exported()
    own = [name for name in module.defined if f'{module.name}.{name}' not in by_origin]
    return [*module.exports, *(name for name in own if name not in module.exports)]


def _directive(name: str, level: int, members: list[str], is_headed: bool = False) -> str:
    shown = '[' + ', '.join(members) + ']' if members else 'false'
    options = {
        'members': shown,
        'heading_level': level,
        'show_root_heading': str(is_headed).lower(),
        'show_root_full_path': 'true',
    }
    lines = [f'::: {name}', '    options:']
    return '\n'.join(lines + [f'      {key}: {value}' for key, value in options.items()])


def _read(path: pathlib.Path, name: str, is_package: bool) -> Module:
    tree = ast.parse(path.read_text())
    exports: list[str] = []
    defined = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            if '__all__' in names:
                exports = ast.literal_eval(node.value)
            defined += names
    about = (ast.get_docstring(tree) or '').partition('\n')[0]
    public = tuple(each for each in defined if not each.startswith('_'))
    imported = {
        alias.asname or alias.name
        for node in _imported(tree)
        for alias in node.names
        if _is_module(f'{node.module}.{alias.name}')
    }
    shown = tuple(each for each in exports if each not in imported and not each.startswith('_'))
    return Module(name, about, shown, public, is_package)


def _imports(module: Module) -> dict[str, str]:
    """Where the names come from that a package imports."""
    path = places.ROOT.joinpath(*module.name.split('.'))
    path = path / '__init__.py' if module.is_package else path.with_suffix('.py')
    return {
        alias.asname or alias.name: f'{node.module}.{alias.name}'
        for node in _imported(ast.parse(path.read_text()))
        for alias in node.names
    }


def _imported(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """The imports from modules, also those for type checkers alone: others load them when asked."""
    for node in tree.body:
        for each in node.body if isinstance(node, ast.If) else [node]:
            if isinstance(each, ast.ImportFrom):
                yield each


def _is_module(name: str) -> bool:
    path = places.ROOT.joinpath(*name.split('.'))
    return path.with_suffix('.py').is_file() or path.is_dir()
