"""Simulates devices with timers and availability: who takes part in which round, and for how long.

The code is in dpfl.cli.binaries.accounting.simulate_population.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('simulate_population')
