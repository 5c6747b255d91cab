"""Optimises the parameters of a mechanism for a participation schema, and saves them.

The code is in dpfl.cli.binaries.accounting.optimize_strategy.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('optimize_strategy')
