"""A binary that needs no TensorFlow, whose command lines run in this process.

One binary per process, since their flags share names.
"""

import contextlib
import importlib
import io
import json
import os
import pathlib
import sys

from absl import flags
from absl.testing import flagsaver

from tests.attacks.hostile.campaign import require


class RefusedError(Exception):
    """The command line was refused, in one line."""


class Command:
    """One binary. It must end with status 0, 1 or 2, and print at most one line of error.

    Attributes:
      module: of the binary.
    """

    def __init__(self, binary: str):
        from dpfl.cli.command import command_line

        self._call = command_line.run
        self.module = importlib.import_module(f'experiments.{binary}')
        sys.argv[0] = str(pathlib.Path(self.module.__file__))
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            flags.FLAGS([sys.argv[0]])
        self._saved = flagsaver.save_flag_values(flags.FLAGS)

    def run(self, folder: pathlib.Path, given: list[str]) -> None:
        """Runs a command line in a folder, which gets what it prints as `printed` and `said`."""
        flagsaver.restore_flag_values(self._saved, flags.FLAGS)
        # The flags now share the saved values, and would change them.
        self._saved = flagsaver.save_flag_values(flags.FLAGS)
        status, before, directory = None, sys.argv, os.getcwd()
        sys.argv = [before[0], *given]
        os.chdir(folder)  # A mutated --output is a file there.
        try:
            # Files instead of `StringIO`, because binaries need their descriptors.
            with (
                open('printed', 'w', errors='backslashreplace') as out,
                open('said', 'w', errors='backslashreplace') as err,
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                try:
                    self._call(self.module.main)
                except SystemExit as end:
                    status = end.code or 0
        finally:
            sys.argv = before
            os.chdir(directory)
        printed, said = ((folder / name).read_text() for name in ('printed', 'said'))
        errors = [line for line in said.replace('\r', '\n').splitlines() if 'error' in line.lower()]
        if status == 2:
            last = said.strip().splitlines()[-1:]
            require(last == errors and last[0].startswith('error: '), f'status 2: {last, errors}')
            require(last[0].isprintable(), f'status 2: {last}')
            raise RefusedError(last[0])
        require(status in (0, 1), f'status {status}: {errors[:1]}')
        if status == 0 and flags.FLAGS['format'].value == 'json':
            json.loads(printed)
