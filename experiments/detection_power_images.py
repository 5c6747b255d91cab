"""Measures how small a share of faulty devices debug_images finds ([Augenstein20], section 6).

The code is in dpfl.cli.binaries.debugging.detection_power_images.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('detection_power_images')
