"""Measures how far models have memorised secrets that were planted in the text of clients.

The code is in dpfl.cli.binaries.auditing.measure_exposure.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('measure_exposure')
