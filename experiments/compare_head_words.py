"""Checks whether trained models predict frequent words too often ([McMahan18], table 3).

The code is in dpfl.cli.binaries.training.compare_head_words.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('compare_head_words')
