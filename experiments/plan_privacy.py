"""Plans a private run before it starts, as in [Xu23], section 2.5.

The code is in dpfl.cli.binaries.accounting.plan_privacy.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('plan_privacy')
