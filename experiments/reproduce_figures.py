"""Redraws the figures of the documents that need no training, and checks what is said of them.

The code is in dpfl.cli.binaries.accounting.reproduce_figures.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('reproduce_figures')
