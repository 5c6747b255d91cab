import json

import pytest

from tests import attacked_runs, forked_binaries

pytestmark = pytest.mark.tff


def test_a_run_is_attacked():
    run = attacked_runs.private()
    flags = [f'--run_dir={run.directory}', '--others=40']
    found = json.loads(
        forked_binaries.run('attack_membership', *flags, '--format=json', check=True).stdout
    )
    assert (found['members'], found['others'], found['members_are']) == (16, 40, 'took part')
    loss = found['attacks']['loss']
    assert [test['target_fpr'] for test in loss['tests']] == [0.001, 0.01, 0.1]
    assert not any(test['exceeds'] for test in (*loss['tests'], loss['best']))
    text = forked_binaries.run('attack_membership', *flags, check=True).stdout
    assert f'{loss["auc"]:.4g}' in text


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ([], '--run_dir: must be given'),
        (['--run_dir=nowhere'], '--run_dir=nowhere: must be the directory of a finished run'),
        (['--run_dir=nowhere', '--members=3'], '--members=3: must be'),
        (['--run_dir=nowhere', '--confidence=1'], '--confidence=1.0: must be'),
    ],
)
def test_bad_flags_give_one_line(given, message):
    done = forked_binaries.run('attack_membership', *given)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count('\n') == 1
