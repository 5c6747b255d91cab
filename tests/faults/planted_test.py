"""The list of faults, and the command that plants them."""

import subprocess
import sys

import pytest

from tests import paths
from tests.faults import __main__ as command
from tests.faults import planted


@pytest.mark.parametrize('fault', planted.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_in_one_place(fault):
    assert (paths.ROOT / fault.path).read_text().count(fault.before) == 1
    assert fault.after != fault.before and fault.near
    for near in fault.near:
        file, _, test = near.partition('::')
        assert f'def {test}' in (paths.ROOT / file).read_text()


def test_faults_have_names_of_their_own():
    names = [fault.name for fault in planted.FAULTS]
    assert len({*names}) == len(names)


@pytest.mark.exhaustive
def test_quick_tests_notice_every_fault():
    listed = ['git', 'status', '--porcelain']
    before = subprocess.run(listed, cwd=paths.ROOT, capture_output=True, check=True).stdout
    done = subprocess.run(
        [sys.executable, '-m', 'tests.faults', '--near_only', '--jobs=2'],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
    )
    *rows, last = done.stdout.splitlines()
    count = len(planted.FAULTS)
    shown = done.stdout + done.stderr
    assert done.returncode == 0 and last == f'{count} of {count} faults noticed', shown
    for row, fault in zip(rows, planted.FAULTS, strict=True):
        assert row.startswith(fault.name)
    assert subprocess.run(listed, cwd=paths.ROOT, capture_output=True).stdout == before


@pytest.mark.exhaustive
def test_what_no_test_notices_is_an_exit_status(monkeypatch, capsys):
    name = 'reachable = -(-self.rounds // self.min_separation)'
    harmless = planted.Fault(
        'another comment',
        'dpfl/participation/schema.py',
        name,
        f'{name}  # Rounded up.',
        ('tests/participation/participation_test.py',),
    )
    monkeypatch.setattr(planted, 'FAULTS', (harmless,))
    monkeypatch.setattr(sys, 'argv', ['faults', '--near_only'])
    assert command.main() == 1
    shown = capsys.readouterr().out
    assert 'NOT NOTICED: all tests pass' in shown and '0 of 1 faults noticed' in shown
