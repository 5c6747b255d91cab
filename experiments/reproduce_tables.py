"""Recomputes every published privacy and loss number, and compares the results.

The code is in dpfl.cli.binaries.accounting.reproduce_tables.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('reproduce_tables')
