"""The training binary with past noise in a file: what it says, and a killed run goes on."""

import json

import pytest

from dpfl import accounting, mechanisms
from tests import binaries, forked_binaries, runs

_FLAGS = (
    '--flagfile=configs/quickstart.flags --population=60 --clients_per_round=2 '
    '--client_max_batches=1 --eval_clients=2 --noise_seed=1 --rounds=6 --min_separation=6 '
    '--checkpoint_every=2 --format=json'
).split()


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize(
    'flags, said',
    [
        (['--noise=hardened', '--memory_limit=0'], 'in a temporary file'),
        (
            ['--mechanism=banded_toeplitz', '--strategy={}/bands.npz', '--memory_limit=0.00001'],
            'noise of past rounds: 52.9 kB, in a temporary file, since memory_limit is 1e-05',
        ),
    ],
)
def test_a_killed_run_is_resumed_with_the_same_bits(flags, said, tmp_path):
    mechanisms.save(mechanisms.BandedToeplitz.fichtenberger(6, 6), tmp_path / 'bands.npz')
    flags = [*_FLAGS, *(flag.format(tmp_path) for flag in flags)]
    finished, killed = tmp_path / 'finished', tmp_path / 'killed'
    done = forked_binaries.run('train', *flags, f'--output_dir={finished}', check=True)
    assert said in done.stderr
    result = json.loads(done.stdout)
    assert result['noise_place'] == 'file'
    report = accounting.PrivacyReport.from_json((finished / 'privacy_report.json').read_text())
    assert report.guarantee.epsilons == (result['epsilon'],)

    flags.append(f'--output_dir={killed}')
    runs.kill_after(3, killed, binaries.command('train', *flags))
    resumed = forked_binaries.run('train', *flags, '--resume', check=True)
    assert json.loads(resumed.stdout)['noise_place'] == 'file'
    assert runs.differences(killed, finished) == []


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_run_with_hardened_noise_and_without_a_seed_has_a_guarantee(tmp_path):
    flags = [flag for flag in _FLAGS if not flag.startswith('--noise_seed')]
    directory = f'--output_dir={tmp_path / "run"}'
    done = forked_binaries.run('train', *flags, '--noise=hardened', directory, check=True)
    result = json.loads(done.stdout)
    assert result['epsilon'] <= 1 and result['noise_place'] == 'memory'
    report = accounting.PrivacyReport.from_json(
        (tmp_path / 'run' / 'privacy_report.json').read_text()
    )
    assert report.plan.noise == 'hardened' and not report.noise_is_seeded
    page = (tmp_path / 'run' / 'privacy_report.md').read_text()
    assert 'Attacks on timing' in page and 'simulation' not in page
