"""The training binary with hardened noise: a killed run goes on, and what is refused."""

import json
import re

import pytest

from dpfl import accounting
from tests import binaries, forked_binaries, runs

_FLAGS = [
    '--flagfile=configs/quickstart.flags',
    '--noise=hardened',
    '--population=60',
    '--clients_per_round=2',
    '--client_max_batches=1',
    '--eval_clients=2',
    '--noise_seed=1',
    '--rounds=6',
    '--min_separation=6',
    '--checkpoint_every=2',
    '--format=json',
]


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_killed_run_is_resumed_with_the_same_bits(tmp_path):
    flags, place = ['--memory_limit=0'], 'file'
    finished, killed = tmp_path / 'finished', tmp_path / 'killed'
    done = forked_binaries.run('train', *_FLAGS, *flags, f'--output_dir={finished}', check=True)
    assert 'in a temporary file' in done.stderr and 'hardened' in done.stderr
    result = json.loads(done.stdout)
    assert result['noise_place'] == place

    report = accounting.PrivacyReport.from_json((finished / 'privacy_report.json').read_text())
    assert report.plan.noise == 'hardened'
    assert report.guarantee.epsilons == (result['epsilon'],)
    page = (finished / 'privacy_report.md').read_text()
    assert 'Hardened noise' in page and 'Attacks on timing' in page and 'simulation' in page

    command = binaries.command('train', *_FLAGS, *flags, f'--output_dir={killed}')
    runs.kill_after(3, killed, command)
    forked_binaries.run('train', *_FLAGS, *flags, f'--output_dir={killed}', '--resume', check=True)
    assert not runs.differences(killed, finished)
    changed = forked_binaries.run(
        'train', *_FLAGS, *flags, f'--output_dir={killed}', '--resume', '--noise=default'
    )
    assert changed.returncode == 2 and changed.stderr.startswith('error: --noise=default: must be')


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_run_without_a_seed_has_a_guarantee(tmp_path):
    flags = [flag for flag in _FLAGS if not flag.startswith('--noise_seed')]
    done = forked_binaries.run('train', *flags, f'--output_dir={tmp_path / "run"}', check=True)
    result = json.loads(done.stdout)
    assert result['epsilon'] <= 1 and result['noise_place'] == 'memory'
    report = accounting.PrivacyReport.from_json(
        (tmp_path / 'run' / 'privacy_report.json').read_text()
    )
    assert not report.noise_is_seeded
    assert 'simulation' not in (tmp_path / 'run' / 'privacy_report.md').read_text()


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--adaptive_clip'], 'adaptive_clip=.*: must be None with noise=hardened'),
        (['--estimator=clipped'], 'estimator=clipped: must be fixed with noise=hardened'),
        (['--noise=exact'], 'noise.*exact.*default'),
    ],
)
def test_what_does_not_go_with_it_is_refused_in_one_line(flags, message, tmp_path):
    done = forked_binaries.run('train', *_FLAGS, *flags, f'--output_dir={tmp_path / "run"}')
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) <= 2
    assert re.search(message, done.stderr)
    assert not (tmp_path / 'run').exists()
