"""Trains an image generator by DP-FedAvg-GAN under a privacy plan ([Augenstein20], algorithm 1).

The code is in dpfl.cli.binaries.training.train_gan.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('train_gan')
