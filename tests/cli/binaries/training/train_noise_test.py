"""The training binary with a BandMF whose past noise is larger than the memory limit."""

import json

import pytest

from dpfl import mechanisms
from tests import binaries, forked_binaries, runs


@pytest.mark.exhaustive
@pytest.mark.tff
def test_noise_beyond_the_memory_limit_is_in_a_file_and_a_killed_run_is_resumed(tmp_path):
    mechanisms.save(mechanisms.BandedToeplitz.fichtenberger(6, 6), tmp_path / 'bands.npz')
    finished, killed = tmp_path / 'finished', tmp_path / 'killed'
    flags = [
        '--flagfile=configs/quickstart.flags',
        '--mechanism=banded_toeplitz',
        f'--strategy={tmp_path}/bands.npz',
        '--population=60',
        '--clients_per_round=2',
        '--client_max_batches=1',
        '--eval_clients=2',
        '--noise_seed=1',
        '--rounds=6',
        '--min_separation=6',
        '--checkpoint_every=2',
        '--memory_limit=0.00001',
        '--format=json',
    ]

    done = forked_binaries.run('train', *flags, f'--output_dir={finished}', check=True)
    assert (
        'noise of past rounds: 52.9 kB, in a temporary file, since memory_limit is 1e-05'
        in done.stderr
    )
    assert json.loads(done.stdout)['noise_place'] == 'file'

    flags.append(f'--output_dir={killed}')
    runs.kill_after(3, killed, binaries.command('train', *flags))
    resumed = forked_binaries.run('train', *flags, '--resume', check=True)
    assert json.loads(resumed.stdout)['noise_place'] == 'file'
    assert runs.differences(killed, finished) == []
