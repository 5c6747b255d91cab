"""--workers of experiments.train: refused, missing, and no part of what a run must keep."""

import socket

import pytest

from dpfl.simulation import worker
from tests import binaries

_START = 240


def _train(path, *arguments):
    return binaries.run(
        'train', '--flagfile=configs/quickstart.flags', '--rounds=2', '--min_separation=2',
        '--mechanism=tree', '--strategy=', '--clients_per_round=4', '--eval_clients=2',
        '--noise_seed=1', f'--output_dir={path}', *arguments, timeout=_START,
    )


def _listener():
    listener = socket.socket()
    listener.bind(('127.0.0.1', 0))
    return listener


def test_bad_addresses_are_refused_before_anything(tmp_path):
    done = _train(tmp_path / 'run', '--workers=localhost:8000,localhost')
    assert done.returncode == 2
    assert done.stderr == (
        'error: --workers=localhost: must be host:port, such as 10.0.0.7:8000\n'
    )
    assert not (tmp_path / 'run').exists()


@pytest.mark.tff
def test_a_missing_worker_is_one_line_and_the_run_goes_on_with_another(tmp_path):
    with _listener() as bound:
        address = f'127.0.0.1:{bound.getsockname()[1]}'
        done = _train(tmp_path / 'run', f'--workers={address}')
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f'error: worker {address} cannot be reached: Connection refused'

    with worker.Worker(_listener()) as elsewhere:
        elsewhere.await_ready(_START)
        done = _train(
            tmp_path / 'run', f'--workers={elsewhere.target}', '--resume', '--profile'
        )
    assert done.returncode == 0, done.stderr
    assert 'waiting for --workers' in done.stderr
    # A run that is done has nothing to do for workers, and is the same run without them.
    done = _train(tmp_path / 'run', '--resume')
    assert done.returncode == 0, done.stderr
    assert 'is finished' in done.stderr
