"""Makes a data set of clients from messages: commits of git, mailboxes, or texts in JSON Lines.

The code is in dpfl.cli.binaries.data.make_dataset.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('make_dataset')
