"""Compares words that are found privately with words that are counted without noise.

The code is in dpfl.cli.binaries.data.compare_vocabularies.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('compare_vocabularies')
