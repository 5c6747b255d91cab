"""Runs of Python 3.11, TensorFlow 2.14 and NumPy 1.25 are verified, and go on.

`earlier_stack.tar.gz` has two directories that `train` left on that stack: a finished run of four
rounds, and the same one ended by a signal after two. Its checkpoint has all released rounds: one
that was released and is lost cannot be computed again on another stack, and the run ends instead.
The pages of the finished run have the words of today (`report --write_pages` with the Matplotlib
of that stack).
"""

import json
import tarfile

import pytest

from dpfl.accounting.records import archive
from dpfl.simulation import run_journal
from tests import forked_binaries, paths

pytestmark = [pytest.mark.tff, pytest.mark.standard]


@pytest.fixture(name='runs')
def _runs(tmp_path):
    with tarfile.open(paths.ROOT / 'tests/simulation/earlier_stack.tar.gz') as packed:
        # Python before 3.11.4 has no filters.
        how = {'filter': 'data'} if hasattr(tarfile, 'data_filter') else {}
        packed.extractall(tmp_path, **how)
    return tmp_path


def _verified(path):
    flags = (f'--run_dir={path}', '--format=json')
    done = forked_binaries.run('report_privacy', *flags, check=True)
    return json.loads(done.stdout), done.stderr


def test_a_finished_run_is_verified(runs):
    stated = json.loads((runs / 'finished' / archive.REPORT).read_text())
    report, said = _verified(runs / 'finished')
    assert report['epsilon'] == pytest.approx(0.9027, abs=1e-4)
    assert report['remarks'] == stated['remarks']
    assert 'privacy_report.html: figures that Matplotlib 3.10.9 drew are judged by' in said


def test_a_run_goes_on_and_says_that_the_stack_has_changed(runs):
    path = runs / 'interrupted'
    done = forked_binaries.run('train', '--resume', f'--output_dir={path}', check=True)
    stack = run_journal.stack()
    assert (
        f'the run goes on with {stack}, and was computed with an earlier TensorFlow' in done.stderr
    )
    report, _ = _verified(path)
    assert report['epsilon'] == pytest.approx(0.9027, abs=1e-4)
    (remark,) = (each for each in report['remarks'] if 'was computed with' in each)
    assert remark.startswith(f'From round 3 on the run was computed with {stack}, before with an')
    # Once is enough.
    again = forked_binaries.run('train', '--resume', f'--output_dir={path}')
    assert again.returncode == 0 and 'goes on with' not in again.stderr, again.stderr
