"""Extrapolates a finished run: the guarantee of its plan with larger populations and cohorts.

The code is in dpfl.cli.binaries.accounting.extrapolate_privacy.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('extrapolate_privacy')
