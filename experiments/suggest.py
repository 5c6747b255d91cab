"""Proposes the flags of a run with your own text: looks at the data, and gives a reason for each.

The code is in dpfl.cli.binaries.data.suggest.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('suggest')
