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
