"""Measures predictors that only count words: what a model of the same clients has to beat.

The code is in dpfl.cli.binaries.data.text_baselines.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('text_baselines')
