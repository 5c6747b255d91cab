"""Attacks the membership of clients in a finished run; compares with what its guarantee allows.

The code is in dpfl.cli.binaries.auditing.attack_membership.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('attack_membership')
