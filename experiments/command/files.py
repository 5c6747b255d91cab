"""Checks that results can be written, before the long work of a binary begins."""

import pathlib

from experiments.command.command_line import UsageError


def check_writable(output: str | None, plot: str | None) -> None:
    """Checks the files of --output and --plot.

    Raises:
      UsageError: If a directory does not exist, or matplotlib cannot write this kind of plot.
    """
    for name, path in (('output', output), ('plot', plot)):
        if path is not None and not pathlib.Path(path).parent.is_dir():
            raise UsageError(f'--{name}={path}: must be in a directory that exists')
    if plot is None:
        return
    from matplotlib.figure import Figure  # Takes a second to import.

    kinds = Figure().canvas.get_supported_filetypes()
    if pathlib.Path(plot).suffix[1:] not in kinds:
        raise UsageError(f'--plot={plot}: must end in one of {", ".join(sorted(kinds))}')
