"""Inspects text that nobody may look at, by what private generators write ([Augenstein20]).

The code is in dpfl.cli.binaries.debugging.debug_text.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('debug_text')
