"""`test_metrics.json`: what was measured on the test clients of a run, once, on its final model."""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpfl import _files, _json, errors
from dpfl.accounting.records import archive

if TYPE_CHECKING:
    from dpfl.simulation import outputs

_NAMES = ['rounds', 'metrics']


def write(directory: 'outputs.RunDirectory', rounds: int, metrics: Mapping[str, float]) -> None:
    """Writes the file.

    Args:
      directory: the directory of the run.
      rounds: number of rounds that the model was trained for.
      metrics: by name; what is not finite is written as null.

    Raises:
      StorageError: if it cannot be written.
    """
    finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    values = {'rounds': rounds, 'metrics': finite}
    directory.write_text(archive.TEST, json.dumps(values, indent=2, allow_nan=False) + '\n')


def read(directory: pathlib.Path) -> dict[str, float]:
    """The metrics in the file, NaN for null; none if there is no file.

    Raises:
      StorageError: if it cannot be read, or is not such a file.
    """
    path = directory / archive.TEST
    if not path.exists():
        return {}
    try:
        values = _json.loads(_files.read_bytes(path))
        _json.refuse_unknown(_json.checked_object('values', values), _NAMES, 'test metrics')
        found = _json.checked_object('metrics', values['metrics'])
        return {name: math.nan if value is None else float(value) for name, value in found.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.StorageError(f'{path}: {errors.shown(error)}') from None
