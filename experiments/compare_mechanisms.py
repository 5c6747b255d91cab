"""Compares losses of mechanisms over rounds, separations or participations: a table and a plot.

The code is in dpfl.cli.binaries.accounting.compare_mechanisms.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('compare_mechanisms')
