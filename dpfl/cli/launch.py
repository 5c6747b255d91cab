"""Runs a command as the main program of this process."""

import runpy

from dpfl.cli import catalogue


def run(name: str) -> None:
    """Runs a command with the arguments of this process; returns when it does, or exits.

    Its module is the main one, so that its flags are those that --help shows.
    """
    runpy.run_module(catalogue.binaries()[name].module, run_name='__main__', alter_sys=True)
