"""Finds a bug in images that nobody may look at ([Augenstein20], section 6).

The code is in dpfl.cli.binaries.debugging.debug_images.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('debug_images')
