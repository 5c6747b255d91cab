"""Measures how small a share of damaged text debug_text finds ([Augenstein20], section 5).

The code is in dpfl.cli.binaries.debugging.detection_power.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('detection_power')
