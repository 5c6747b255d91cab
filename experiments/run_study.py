"""Runs a study: many trainings that differ in a few flags, a table and a figure of the results.

The code is in dpfl.cli.binaries.training.run_study.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('run_study')
