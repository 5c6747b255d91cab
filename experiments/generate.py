"""Prints text that a language model generates: sentences or, for a character model, words.

The code is in dpfl.cli.binaries.training.generate.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('generate')
