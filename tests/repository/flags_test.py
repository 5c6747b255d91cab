"""Flags: each is defined in one place, by a setting or by the binary that has it."""

import ast
import collections

from dpfl.simulation import training
from tests import paths


def _defined():
    """Names of flags that are defined by `flags.DEFINE_...`, with the files that do so."""
    found = collections.defaultdict(list)
    for path in sorted((paths.ROOT / 'dpfl' / 'cli').rglob('*.py')):
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr.startswith('DEFINE_') and node.args:
                if isinstance(node.args[0], ast.Constant):
                    found[node.args[0].value].append(path.name)
    return found


def test_no_flag_is_defined_twice():
    assert {name: files for name, files in _defined().items() if len(files) > 1} == {}


def test_no_flag_of_a_binary_has_the_name_of_a_setting_of_runs():
    settings = {*training.TrainConfig().flat(), *training.GanConfig().flat()}
    assert settings & set(_defined()) == set()


def test_no_module_is_imported_anew():
    for path in sorted((paths.ROOT / 'dpfl' / 'cli').rglob('*.py')):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Delete) and 'sys.modules' in ast.unparse(node)), path


# Settings that are read as `getattr(settings, f'sweep_{name}')`.
_READ_BY_PREFIX = ('sweep_', 'tree_')


def _unread(sources):
    """Settings that no source reads, and flags that the source that defines them does not read."""
    settings, flags, read = set(), set(), set()
    for source in sources:
        defined, names = set(), set()
        for node in ast.walk(ast.parse(source)):
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
    sources = sorted((paths.ROOT / 'dpfl').rglob('*.py'))
    assert _unread(path.read_text() for path in sources) == set()


def test_settings_and_flags_that_nothing_reads_are_found():
    setting, flag = "class C:\n    a: int = setting(1, '')", "_B = flags.DEFINE_bool('b', True, '')"
    assert _unread([setting, flag, '_B.value']) == {'a', '_B'}
    assert _unread([setting, f'{flag}\n_B.value', 'config.a']) == set()
