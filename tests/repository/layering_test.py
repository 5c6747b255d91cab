"""Modules of dpfl: imports point down, pure layers load no TensorFlow, every setting is read."""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys

from dpfl.cli import catalogue
from tests import paths

_PACKAGE = paths.ROOT / 'dpfl'
_COMMANDS = paths.ROOT / 'experiments'

# Lowest first. Parts of one layer do not import each other unless they stand in the same entry.
_LAYERS = (
    ('errors',),
    ('presets',),
    ('_validate', '_files', '_storage'),
    ('_json',),
    ('_cache', '_npz', '_parquet', '_progress', '_random', '_settings', 'runtime'),
    ('_setting_texts',),
    ('participation',),
    ('mechanisms',),
    ('accounting', 'strategies'),
    ('planning',),
    ('aggregators', 'tasks', 'reporting'),
    ('learning', 'auditing'),
    ('simulation',),
    ('published', 'debugging'),
    ('cli',),
    ('__main__', 'experiments'),
)
_RANKS = {part: rank for rank, layer in enumerate(_LAYERS) for part in layer}
_HEAVY = {'tensorflow', 'tensorflow_federated', 'tensorflow_privacy'}
_PURE = {part for layer in _LAYERS[:10] for part in layer} - {'runtime'} | {'', 'reporting'}


@functools.cache
def _sources() -> dict[pathlib.Path, str]:
    files = [*sorted(_PACKAGE.rglob('*.py')), *sorted(_COMMANDS.rglob('*.py'))]
    return {path: path.read_text() for path in files}


@functools.cache
def _trees() -> dict[pathlib.Path, ast.Module]:
    return {path: ast.parse(source) for path, source in _sources().items()}


def _part(path: pathlib.Path) -> str:
    if _COMMANDS in path.parents:
        return 'experiments'
    name = path.relative_to(_PACKAGE).parts[0].removesuffix('.py')
    return '' if name == '__init__' else name


def _imports(path: pathlib.Path):
    """Full names of all modules that a file imports, also inside functions."""
    for node in ast.walk(_trees()[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: relative import'
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


def _is_allowed(part: str, name: str) -> bool:
    """Whether a file of this part of the package may import this name."""
    top, *rest = name.split('.')
    if top == 'experiments' and part != 'experiments' or top in _HEAVY and part in _PURE:
        return False
    if name.startswith('absl.flags') and part not in ('cli', 'experiments'):
        return False
    if top != 'dpfl' or not part or not rest:
        return True
    if rest[0] in ('Participation', 'ParticipationLog', '__version__'):
        return _RANKS['participation'] < _RANKS[part]
    return rest[0] == part or _RANKS[rest[0]] < _RANKS[part]


def test_imports_point_down_and_only_commands_read_flags():
    wrong = [
        f'{path} imports {name}'
        for path in _trees()
        for name in _imports(path)
        if not _is_allowed(_part(path), name)
    ]
    assert wrong == []


# Each command is imported in a fork, for two of them may define the same flag.
_LOADED = """
import importlib, os, sys
import dpfl.mechanisms, dpfl.accounting, dpfl.reporting.privacy_page
assert not {'dp_accounting', 'scipy.stats'} & set(sys.modules)
import dpfl.cli.flags.settings_flags, dpfl.cli.results.plan_answer
import dpfl.published.tables.calculations
import dpfl.tasks.text.synthetic_text
from dpfl.simulation.training import TrainConfig
TrainConfig.from_dict({})
for name in ['dpfl', *sys.argv[1:]]:
    if os.fork() == 0:
        importlib.import_module(name)
        heavy = [found for found in sys.modules if found.startswith('tensorflow')]
        os.write(1, f'{name}: {heavy}\\n'.encode() if heavy else b'')
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


def _loaded(body: list[ast.stmt]):
    """Full names of what is imported while a module is loaded, without types."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f'{node.module}.{alias.name}' for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) != 'TYPE_CHECKING':
            yield from _loaded([*node.body, *node.orelse])


@functools.cache
def _modules() -> dict[str, ast.Module]:
    """Modules of the package by their full names."""
    named = {}
    for path, tree in _trees().items():
        if _PACKAGE in path.parents:
            parts = ('dpfl', *path.relative_to(_PACKAGE).with_suffix('').parts)
            named['.'.join(parts).removesuffix('.__init__')] = tree
    return named


def _listed(door: ast.Module, name: str) -> list[str]:
    """What a room's door lists under a name."""
    values = (node.value for node in door.body if ast.unparse(node).startswith(f'{name} = '))
    return [each for value in values for each in ast.literal_eval(value)]


def test_other_rooms_enter_by_the_door():
    """They import the names of a room's `__all__`, and the modules that its FOR_ROOMS lists."""
    rooms = [f'dpfl.{door.parent.name}' for door in _PACKAGE.glob('*/__init__.py')]
    doors = {room: _modules()[room] for room in rooms}
    used = {name: set() for name in doors}
    past = []
    for path in _trees():
        for name in _imports(path):
            module = name
            while module not in _modules() and module:
                module = module.rpartition('.')[0]
            door = '.'.join(module.split('.')[:2])
            if door == f'dpfl.{_part(path)}' or door not in doors:
                continue
            if module != door:
                used[door].add(module.removeprefix(f'{door}.'))
            elif name != door:
                own = name.removeprefix(f'{door}.')
                past += [] if own in _listed(doors[door], '__all__') else [f'{path}: {name}']
    assert past == []
    assert {name: sorted(modules) for name, modules in used.items() if modules} == {
        name: listed for name, door in doors.items() if (listed := _listed(door, 'FOR_ROOMS'))
    }


def test_no_module_loads_itself():
    """Such a circle works or fails by the order in which a program imports."""
    modules = _modules()
    sorter = graphlib.TopologicalSorter()
    for name, tree in modules.items():
        loaded = {each for each in _loaded(tree.body) if each in modules}
        # A package that is being loaded does not wait for itself.
        sorter.add(name, *(each for each in loaded if not f'{name}.'.startswith(f'{each}.')))
    sorter.prepare()  # Raises CycleError.


def test_what_is_pure_does_not_load_tensorflow():
    binaries = catalogue.binaries().values()
    names = [f'experiments.{each.name}' for each in binaries if each.group == 'accounting']
    assert len(names) > 5
    done = subprocess.run(
        [sys.executable, '-c', _LOADED, *names],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ''), done.stderr


def test_files_are_of_a_size_that_is_read_at_once():
    sizes = {path: source.count('\n') for path, source in _sources().items()}
    assert max(sizes.values()) <= 600, max(sizes, key=sizes.get)


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
    every = [each for each in ast.iter_child_nodes(function.args) if isinstance(each, ast.arg)]
    missing = [each.arg for each in every if each.annotation is None]
    missing = [name for name in missing if name not in ('self', 'cls')]
    return missing + ([] if function.returns is not None else ['return'])


def test_public_functions_are_annotated():
    missing = {
        f'{path}: {function.name}': names
        for path, tree in _trees().items()
        for function in _public_functions(tree)
        if (names := _unannotated(function))
    }
    assert missing == {}


# Settings that are read as `getattr(settings, f'sweep_{name}')`, or as a mechanism's parameters.
_READ_BY_PREFIX = ('sweep_', 'tree_', 'blt_')


def _unread(trees):
    """Settings that no source reads, and flags that the source that defines them does not read."""
    settings, flags, read = set(), set(), set()
    for tree in trees:
        defined, names = set(), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
                if ast.unparse(node.value.func) == 'setting':
                    settings.add(node.target.id)
            elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(
                'flags.DEFINE_'
            ):
                defined.add(node.targets[0].id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                names.add(node.id)
        flags |= defined - names
    return flags | {name for name in settings - read if not name.startswith(_READ_BY_PREFIX)}


def test_every_setting_and_every_flag_is_read():
    assert _unread(_trees().values()) == set()
