"""Finds the groups and bands of cyclic Poisson sampling with the least error at an epsilon.

The code is in dpfl.cli.binaries.accounting.optimize_sampling.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('optimize_sampling')
