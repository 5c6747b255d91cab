"""The cells of a study of power: what a diagnosis said, kept in files so that nothing is lost."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from dpfl import _files, _json, _storage
from dpfl.errors import ArgumentError, StorageError, shown

_CONFIGURATION = 'configuration.json'
_FOLDER = 'cells'
EPSILON, NOISE = 'epsilon', 'noise_multiplier'


@dataclasses.dataclass(frozen=True)
class Cell:
    """One diagnosis.

    Attributes:
      axis: What the level is, `EPSILON` or `NOISE`.
      level: Target epsilon or noise multiplier of the generators.
      seed: Seed of the cell.
      fault: Name of the fault; None for clean data.
      share: Share of the data that the fault affects; 0 for clean data.
      verdict: 'found', 'suspected', 'not seen' or 'cannot tell'.
      named: Names of the faults that the diagnosis named.
      named_alone: Names of the faults that are named without a reference.
      traits: Values of all traits, by name.
    """

    axis: str
    level: float
    seed: int
    fault: str | None
    share: float
    verdict: str
    named: tuple[str, ...]
    named_alone: tuple[str, ...]
    traits: Mapping[str, float | None]

    @property
    def name(self) -> str:
        """Name of the cell and of its file."""
        what = f'{self.fault}_{self.share:g}' if self.fault else 'clean'
        return f'{self.axis}_{self.level:g}_seed_{self.seed}_{what}'


class Cells:
    """The finished cells in the directory of a study.

    Args:
      directory: The directory; made if need be.
      configuration: What the cells depend on besides their own values, JSON values by name.

    Raises:
      ArgumentError: If the directory has cells of another configuration; it names the setting.
      StorageError: If a file cannot be read or written.
    """

    def __init__(self, directory: pathlib.Path, configuration: Mapping[str, Any]):
        self._folder = directory / _FOLDER
        with _storage.naming(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        now, path = json.loads(json.dumps(configuration)), directory / _CONFIGURATION
        if path.exists():
            before = _read(path)
            for name in sorted({*now, *before}):
                if now.get(name) != before.get(name):
                    value = now.get(name)
                    raise ArgumentError(
                        name, value, f'must be {before.get(name)}, as for the cells in {directory}'
                    )
        else:
            _write(path, now)

    def read(self, cell_name: str) -> Cell | None:
        """A finished cell; None if it is not finished.

        Raises:
          StorageError: If its file is damaged.
        """
        path = self._folder / f'{cell_name}.json'
        if not path.exists():
            return None
        try:
            values = _read(path)
            for name in ('named', 'named_alone'):
                values[name] = tuple(values[name])
            return Cell(**values)
        except (TypeError, KeyError) as error:
            raise StorageError(f'{path}: is damaged ({shown(error)})') from None

    def write(self, cell: Cell) -> None:
        """Keeps a finished cell."""
        _write(self._folder / f'{cell.name}.json', dataclasses.asdict(cell))


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        with _storage.naming(path):
            return dict(_json.loads(_files.read_bytes(path)))
    except (ValueError, TypeError) as error:
        raise StorageError(f'{path}: is damaged ({shown(error)})') from None


def _write(path: pathlib.Path, values: Mapping[str, Any]) -> None:
    data = (json.dumps(values, indent=1) + '\n').encode()
    _storage.write_atomically(path, lambda file: file.write(data))
