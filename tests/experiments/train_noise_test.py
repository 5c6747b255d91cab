"""The training binary with a BandMF whose past noise is larger than the memory limit."""

import json
import pathlib
import subprocess
import sys

import pytest

from dpfl import mechanisms

_ROOT = pathlib.Path(__file__).parents[2]
_COMMAND = [sys.executable, '-m', 'experiments.train', '--flagfile=configs/quickstart.flags']


@pytest.mark.tff
def test_noise_beyond_the_memory_limit_is_in_a_file_and_a_killed_run_is_resumed(tmp_path):
    mechanisms.save(mechanisms.BandedToeplitz.fichtenberger(6, 6), tmp_path / 'bands.npz')
    finished, killed = tmp_path / 'finished', tmp_path / 'killed'

    def command(path):
        return [
            *_COMMAND, '--mechanism=banded_toeplitz', f'--strategy={tmp_path}/bands.npz',
            '--population=60', '--clients_per_round=2', '--client_max_batches=1',
            '--eval_clients=2', '--noise_seed=1', '--rounds=6', '--min_separation=6',
            '--checkpoint_every=2', '--memory_limit=0.00001', f'--output_dir={path}',
            '--format=json',
        ]

    done = subprocess.run(
        command(finished), cwd=_ROOT, capture_output=True, text=True, check=True,
        stdin=subprocess.DEVNULL,
    )
    assert 'noise: file, 5.29e-05 GB: more than 1e-05 GB of memory' in done.stderr
    assert json.loads(done.stdout)['noise_place'] == 'file'

    with subprocess.Popen(
        command(killed), cwd=_ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        stdin=subprocess.DEVNULL,
    ) as process:
        for line in process.stderr:  # Lines of the bar end with a carriage return.
            if '3/6' in line:
                process.kill()
    resumed = subprocess.run(
        [*command(killed), '--resume'], cwd=_ROOT, capture_output=True, text=True, check=True,
        stdin=subprocess.DEVNULL,
    )
    assert json.loads(resumed.stdout)['noise_place'] == 'file'
    for name in ('model.npz', 'ledger.jsonl', 'privacy_report.json'):
        assert (killed / name).read_bytes() == (finished / name).read_bytes(), name
