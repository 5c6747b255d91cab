"""Writes what a study of power has shown."""

import functools
import json
import pathlib
from collections.abc import Sequence
from typing import BinaryIO

from dpfl import _storage
from dpfl.reporting import plain_text
from experiments.studies.power import measured, page
from experiments.studies.power.cells import Cell


def write(directory: pathlib.Path, cells: Sequence[Cell], power: float, form: str) -> str:
    """Writes page, numbers and figures; returns what the binary prints.

    Args:
      directory: Directory of the study.
      cells: All of its cells.
      power: The power asked for.
      form: 'text' or 'json'.

    Raises:
      StorageError: If a file cannot be written.
    """
    found = measured.of_cells(cells, power)
    values = json.dumps(found.to_dict())
    files = {
        'power.html': page.render(found).encode(),
        'power.json': values.encode(),
        **{f'power_{each}.png': page.png(found, each) for each in found.faults},
    }
    for name, data in files.items():
        _storage.write_atomically(directory / name, functools.partial(_write, data))
    if form == 'json':
        return values
    return f'{plain_text.columns(found.rows())}\n\n{directory / "power.html"}'


def _write(data: bytes, file: BinaryIO) -> None:
    file.write(data)
