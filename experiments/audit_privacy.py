"""Audits the aggregator of a privacy plan alone: lower bounds by attacks, held against the claim.

The code is in dpfl.cli.binaries.auditing.audit_privacy.
"""

from dpfl.cli import launch

if __name__ == '__main__':
    launch.run('audit_privacy')
