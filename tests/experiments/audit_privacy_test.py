"""The command that audits a mechanism: its values as JSON, and every feature."""

import subprocess
import sys

import pytest

from tests import forked_binaries, paths

pytestmark = [pytest.mark.tff, pytest.mark.standard]

_AUDITED = (
    '--mechanism=blt --blt_decay=0.9,0.4 --blt_scale=0.2,0.3 --rounds=6 --min_separation=2 '
    '--noise_multiplier=1 --delta=1e-6 --trials=512 --seed=1'
).split()


def test_an_audit_is_printed_as_json():
    found = forked_binaries.printed('audit_privacy', *_AUDITED, '--resume_after=3')
    assert 0.5 * found['mu_claimed'] < found['mu_lower'] < found['mu_claimed']
    assert 0 < found['epsilon_lower'] < found['epsilon_of_mu_lower'] < found['epsilon_claimed']
    assert (found['trials'], found['confidence'], found['resume_after']) == (512, 0.95, 3)
    assert any('simulation' in each for each in found['assumptions'])


def test_flags_are_checked_before_tensorflow_is_loaded():
    code = (
        'import sys; from dpfl.cli import catalogue\n'
        'catalogue.binaries()["audit_privacy"].define()\n'
        'sys.exit("tensorflow" in sys.modules)'
    )
    assert subprocess.run([sys.executable, '-c', code], cwd=paths.ROOT, check=False).returncode == 0
