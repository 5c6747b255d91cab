"""Compares what two generators write, on one page ([Augenstein20], sections 4 to 6).

The code is in dpfl.cli.binaries.debugging.compare_generators.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('compare_generators')
