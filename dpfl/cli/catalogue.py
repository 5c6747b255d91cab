"""The commands by name, found without importing them.

A command is a file in `experiments`. The wheel has the same files in `dpfl/experiments`.
"""

import ast
import dataclasses
import functools
import pathlib
import runpy
from collections.abc import Mapping
from typing import Any

_INSTALLED = pathlib.Path(__file__).parents[1] / 'experiments'
FOLDER = _INSTALLED if _INSTALLED.is_dir() else pathlib.Path(__file__).parents[2] / 'experiments'
# Groups in the order in which they are listed. The first needs no TensorFlow.
TITLES = {
    'accounting': 'Guarantees and mechanisms, without TensorFlow',
    'training': 'Training',
    'data': 'Data sets',
    'debugging': 'Data that nobody may look at',
    'auditing': 'Attacks',
}
_GROUPS = {
    'accounting': (
        'compare_mechanisms',
        'optimize_strategy',
        'plan_privacy',
        'report_privacy',
        'reproduce_figures',
        'reproduce_tables',
        'simulate_population',
    ),
    'training': (
        'export_run',
        'generate',
        'pretrain',
        'train',
        'train_gan',
    ),
    'data': ('sample_text', 'suggest'),
    'debugging': (
        'debug_images',
        'debug_text',
    ),
    'auditing': ('audit_privacy',),
}


@dataclasses.dataclass(frozen=True)
class Binary:
    """A command.

    Attributes:
      name: such as `train`, or `studies.run_study`.
      group: key of `TITLES`, or `studies`.
    """

    name: str
    group: str

    @property
    def path(self) -> pathlib.Path:
        """Its file."""
        return FOLDER / f'{self.name.replace(".", "/")}.py'

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        text = ast.get_docstring(ast.parse(self.path.read_text(encoding='utf-8'))) or ''
        return text.partition('\n')[0]

    def run(self) -> None:
        """Runs the file as the main program of this process, with its arguments.

        By its path: the directory in which the user works may have an `experiments` of its own.
        """
        runpy.run_path(str(self.path), run_name='__main__')

    def define(self) -> Mapping[str, Any]:
        """Defines the flags of the command, of a module with its name; its names with values.

        Call it once in a process, unless the flags are removed again.
        """
        return runpy.run_path(str(self.path), run_name=self.name)


@functools.cache
def binaries() -> Mapping[str, Binary]:
    """All commands by name, group after group."""
    return {name: Binary(name, group) for group, names in _GROUPS.items() for name in names}


@functools.cache
def studies() -> Mapping[str, Binary]:
    """The scripts of `experiments/studies` by name; a wheel has none."""
    names = [f'studies.{path.stem}' for path in sorted(FOLDER.glob('studies/[!_]*.py'))]
    return {name: Binary(name, 'studies') for name in names}
