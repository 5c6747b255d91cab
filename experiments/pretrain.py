"""Trains a word model centrally on public text, for --warm_start of dpfl train.

The code is in dpfl.cli.binaries.training.pretrain.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('pretrain')
