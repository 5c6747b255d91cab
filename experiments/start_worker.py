"""Starts a TFF worker on this host, for a run elsewhere with --workers. Ctrl-C or SIGTERM ends it.

The code is in dpfl.cli.binaries.training.start_worker.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('start_worker')
