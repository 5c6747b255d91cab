"""Has images of a private generator labelled, trains a model on them, and measures it.

The code is in dpfl.cli.binaries.debugging.label_images.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('label_images')
