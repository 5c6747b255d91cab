"""Reports the guarantee of a privacy plan without training, or that of a finished run.

The code is in dpfl.cli.binaries.accounting.report_privacy.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('report_privacy')
