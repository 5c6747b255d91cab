"""Makes a public copy of a finished run that contains only what the guarantee covers.

The code is in dpfl.cli.binaries.training.export_run.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('export_run')
