"""--workers of experiments.train: refused, missing, and no part of what a run must keep."""

import socket
import subprocess

import pytest

from dpfl.runtime.workers import service, tokens
from tests import forked_binaries

_START = 240


def _train(path, *arguments):
    return forked_binaries.run(
        'train',
        '--flagfile=configs/quickstart.flags',
        '--rounds=2',
        '--min_separation=2',
        '--mechanism=tree',
        '--strategy=',
        '--clients_per_round=4',
        '--eval_clients=2',
        '--noise_seed=1',
        f'--output_dir={path}',
        *arguments,
    )


def _listener():
    listener = socket.socket()
    listener.bind(('127.0.0.1', 0))
    return listener


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.skipif(
    subprocess.run(['unshare', '-rn', 'true'], capture_output=True, check=False).returncode != 0,
    reason='no network namespaces here',
)
def test_a_wrong_token_is_one_line_and_the_run_goes_on_with_the_right_one(tmp_path):
    for name in ('right', 'wrong'):
        tokens.make(tmp_path / name)
    token = tokens.read(tmp_path / 'right')
    with service.Worker(_listener(), require_isolation=True, token=token) as elsewhere:
        elsewhere.await_ready(_START)
        arguments = (tmp_path / 'run', f'--workers={elsewhere.target}')
        for flags, reason in [
            (
                ['--worker_token_file=' + str(tmp_path / 'wrong')],
                'cannot be reached: it has another token',
            ),
            (['--resume'], 'asks for a token, and none was given for it'),
        ]:
            done = _train(*arguments, *flags)
            assert done.returncode == 1
            assert done.stderr.splitlines()[-1] == f'error: worker {elsewhere.target} {reason}'
            assert 'Traceback' not in done.stderr
        done = _train(*arguments, f'--worker_token_file={tmp_path}/right', '--resume')
    assert done.returncode == 0, done.stderr
    written = [path for path in (tmp_path / 'run').rglob('*') if path.is_file()]
    assert not [path for path in written if token.hex().encode() in path.read_bytes()]


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_missing_worker_is_one_line_and_the_run_goes_on_with_another(tmp_path):
    with _listener() as bound:
        address = f'127.0.0.1:{bound.getsockname()[1]}'
        done = _train(tmp_path / 'run', f'--workers={address}')
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f'error: worker {address} cannot be reached: Connection refused'

    with service.Worker(_listener()) as elsewhere:
        elsewhere.await_ready(_START)
        done = _train(tmp_path / 'run', f'--workers={elsewhere.target}', '--resume', '--profile')
    assert done.returncode == 0, done.stderr
    assert 'waiting for --workers' in done.stderr
    # A run that is done has nothing to do for workers, and is the same run without them.
    done = _train(tmp_path / 'run', '--resume')
    assert done.returncode == 0, done.stderr
    assert 'is finished' in done.stderr
