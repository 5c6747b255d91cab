"""Runs a command as the main program of this process."""

import runpy
import sys

from dpfl.cli import catalogue
from dpfl.cli.command import missing


def run(name: str) -> None:
    """Runs a command with the arguments of this process; returns when it does, or exits.

    Its module is the main one, so that its flags are those that --help shows.
    """
    try:
        runpy.run_module(catalogue.binaries()[name].module, run_name='__main__', alter_sys=True)
    except ModuleNotFoundError as error:
        message = missing.explained(error, name)
        if message is None:
            raise
        print(f'error: {message}', file=sys.stderr)
        sys.exit(missing.STATUS)
