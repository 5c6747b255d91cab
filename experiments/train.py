"""Trains a model by federated learning under a privacy plan, and reports the guarantee.

The code is in dpfl.cli.binaries.training.train.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('train')
