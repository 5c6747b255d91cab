"""The commands by name, found in the folders of `dpfl/cli/binaries` without importing them."""

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Mapping

_FOLDER = pathlib.Path(__file__).with_name('binaries')


@dataclasses.dataclass(frozen=True)
class Binary:
    """A command.

    Attributes:
      name: such as `train`.
      group: its folder in `dpfl/cli/binaries`, such as `training`.
      path: its file.
    """

    name: str
    group: str
    path: pathlib.Path

    @property
    def module(self) -> str:
        """Full name of its module."""
        return f'{__package__}.binaries.{self.group}.{self.name}'

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        text = ast.get_docstring(ast.parse(self.path.read_text(encoding='utf-8'))) or ''
        return text.partition('\n')[0]


@functools.cache
def binaries() -> Mapping[str, Binary]:
    """All commands by name, group after group."""
    found = sorted(_FOLDER.glob('*/[!_]*.py'))
    return {path.stem: Binary(path.stem, path.parent.name, path) for path in found}
