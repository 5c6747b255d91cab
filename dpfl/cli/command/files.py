"""Files that a binary writes: checked before its long work begins; plots, drawn at its end."""

import pathlib
from typing import TYPE_CHECKING

from dpfl.cli.command.command_line import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_writable(output: str | None, plot: str | None, data: str | None = None) -> None:
    """Checks the files of --output, --plot and --data.

    Raises:
      UsageError: If a directory does not exist, or matplotlib cannot write this kind of plot.
    """
    for name, path in (('output', output), ('plot', plot), ('data', data)):
        if path is not None and not pathlib.Path(path).parent.is_dir():
            raise UsageError(f'--{name}={path}: must be in a directory that exists')
    if plot is None:
        return
    from matplotlib.figure import Figure  # Takes a second to import.

    kinds = Figure().canvas.get_supported_filetypes()
    if pathlib.Path(plot).suffix[1:] not in kinds:
        raise UsageError(f'--plot={plot}: must end in one of {", ".join(sorted(kinds))}')


def save_plot(figure: 'Figure', path: str) -> None:
    """Writes the figure to the file of --plot.

    Raises:
      UsageError: If the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise UsageError(f'--plot={path}: {error}') from None
