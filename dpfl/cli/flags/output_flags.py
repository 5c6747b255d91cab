"""Settings of the input and output of binaries; several binaries have them as flags."""

import csv
import dataclasses
import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError

FORMATS = ('text', 'json')
_FORMS = ('.csv', '.json')


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatConfig(Settings):
    """How a result is printed."""

    format: str = setting(
        'text', 'Format of the result, which is printed at the end.', choices=FORMATS
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDirectoryConfig(Settings):
    """The directory of a run, and what happens to an earlier run in it."""

    output_dir: str | None = setting(None, 'Directory of the run.')
    overwrite: bool = setting(False, 'Replace an earlier run in that directory.')
    resume: bool = setting(
        False,
        'Continue the run in that directory, which must have the same flags. The result is the '
        'same as without an interruption. If there is no run yet, start one.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DryRunConfig(Settings):
    """Whether a run is only estimated."""

    dry_run: bool = setting(
        False,
        'Print what the run would cost on this machine, in time and memory, with its size and its '
        'guarantee, and write nothing; --output_dir need not be given. A few clients are trained '
        'to measure it.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDirConfig(Settings):
    """A finished run to read."""

    run_dir: str | None = setting(None, 'Directory of a finished run.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotConfig(Settings):
    """The file of a plot."""

    plot: str | None = setting(None, 'File to draw the plot in.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Settings):
    """The file of the numbers of a plot."""

    data: str | None = setting(
        None, 'File to write the rows of the table and the plot to: .csv or .json.'
    )

    def check(self) -> None:
        """The name of the file says its form."""
        if self.data is not None and pathlib.Path(self.data).suffix not in _FORMS:
            raise ArgumentError('data', self.data, f'must end in {" or ".join(_FORMS)}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputConfig(Settings):
    """The file of a result."""

    output: str | None = setting(None, 'File to write the result to.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedConfig(Settings):
    """The seed of everything random."""

    seed: int = setting(0, 'Seed of everything random.', minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig(Settings):
    """A quantity to vary, and its values."""

    vary: str | None = setting(None, 'Quantity to vary.')
    values: tuple[str, ...] | None = setting(
        None, 'Values of the quantity, comma-separated.', needs='vary'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig(Settings):
    """Which of many results are made."""

    only: str = setting('', 'Only results whose name begins with this text.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatementsConfig(Settings):
    """What is compared with the numbers of figures."""

    statements: str | None = setting(
        None,
        'Data file with what the documents say about their figures; by default the file in '
        'dpfl/published/figures.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig(Settings):
    """The loss of a mechanism."""

    loss: str = setting(
        'max',
        'Loss to plot: largest or root mean square noise of the prefix sums.',
        choices=('max', 'rms'),
    )


def write_rows(path: str | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows to the file of `DataConfig`, a column for each key; does nothing without a file.

    Raises:
      ArgumentError: If the file cannot be written.
    """
    if path is None:
        return
    text = io.StringIO(newline='')
    if pathlib.Path(path).suffix == '.json':
        text.write(json.dumps(rows, indent=1, allow_nan=False) + '\n')
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(text, names, lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows)
    try:
        pathlib.Path(path).write_text(text.getvalue(), newline='')
    except OSError as error:
        raise ArgumentError('data', path, str(error.strerror)) from None
