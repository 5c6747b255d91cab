"""The training binary as its users meet it: results, one-line errors, and nothing left running."""

import functools
import json
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from dpfl import ParticipationLog, accounting
from dpfl.cli.command import program
from dpfl.simulation import checkpoint
from tests import binaries, forked_binaries, runs

_QUICKSTART = '--flagfile=configs/quickstart.flags'
_SMALL = [
    '--population=60',
    '--clients_per_round=2',
    '--client_max_batches=1',
    '--eval_clients=2',
    '--noise_seed=1',
]
_command = functools.partial(binaries.command, 'train', _QUICKSTART)
_run = functools.partial(forked_binaries.run, 'train', _QUICKSTART)


def _wait_for(condition, seconds: float):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, 'waited too long'
        time.sleep(0.05)


def _contents(path: pathlib.Path) -> dict[pathlib.Path, bytes]:
    return {p: p.read_bytes() for p in path.rglob('*') if p.is_file()}


_SIX_ROUNDS = [
    *_SMALL,
    '--rounds=6',
    '--min_separation=6',
    '--checkpoint_every=2',
    '--accountant=analytic_gaussian',  # Calibration by 'pld' would take most of the time.
]


@pytest.fixture(scope='module', name='finished')
def _finished(tmp_path_factory):
    """The directory of a run that is done, and what it printed."""
    path = tmp_path_factory.mktemp('finished')
    done = _run(*_SIX_ROUNDS, f'--output_dir={path}', '--format=json')
    assert done.returncode == 0, done.stderr
    return path, done


@pytest.fixture(name='copied')
def _copied(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / 'copied')


@pytest.mark.tff
def test_a_run_from_start_to_end(finished):
    path, done = finished
    result = json.loads(done.stdout)
    assert result['rounds'] == 6
    assert 1 * (1 - 1e-5) <= result['epsilon'] <= 1
    assert (
        '6 of 6 rounds' in done.stderr and 'accuracy=' in done.stderr and 'epsilon=' in done.stderr
    )
    command = program.command('report', f'--run_dir={path}')
    assert done.stderr.count(f'the report so far, while it trains: {command}\n') == 1
    assert {p.name for p in path.iterdir()} == {
        'metrics.csv',
        'privacy_report.json',
        'privacy_report.md',
        'participation.npz',
        'tensorboard',
        'plots',
        'config.json',
        'flags.txt',
        'model.npz',
        'ledger.jsonl',
        'cohorts.bin',
        'checkpoints',
        'plan.json',
        'strategy.npz',
        'privacy_report.html',
        'SHA256SUMS',
        'saved_model',
    }
    assert len(list((path / 'checkpoints').glob('*.checkpoint'))) == 4  # And the first.
    report = accounting.PrivacyReport.from_json((path / 'privacy_report.json').read_text())
    assert report.guarantee.epsilons == (result['epsilon'],)
    assert report.noise_is_seeded
    assert ParticipationLog.load(path / 'participation.npz').rounds == 6

    again = _run(*_SIX_ROUNDS, f'--output_dir={path}')
    assert again.returncode == 2
    assert again.stderr.startswith(f'error: --output_dir={path}: must not hold an earlier run')


def _verify(path):
    return forked_binaries.run('report_privacy', f'--run_dir={path}', '--format=json')


@pytest.mark.standard
@pytest.mark.tff
def test_a_finished_run_is_verified_and_a_changed_byte_is_named(copied):
    done = _verify(copied)
    assert done.returncode == 0 and 'verified' in done.stderr
    assert json.loads(done.stdout) == json.loads((copied / 'privacy_report.json').read_text())
    for name in ('participation.npz', 'plan.json', 'strategy.npz', 'metrics.csv'):
        content = (copied / name).read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        (copied / name).write_bytes(changed)
        done = _verify(copied)
        assert done.returncode == 1 and done.stdout == ''
        assert f'error: {copied}: {name}: its SHA-256' in done.stderr
        assert 'Traceback' not in done.stderr
        (copied / name).write_bytes(content)


@pytest.mark.standard
@pytest.mark.tff
def test_a_finished_run_says_so_and_prints_its_result_again(finished, copied):
    before = _contents(copied)
    done = _run(
        *_SIX_ROUNDS,
        f'--output_dir={copied}',
        '--format=json',
        '--resume',
        '--checkpoint_every=5',
        '--keep_checkpoints=1',
    )
    assert done.returncode == 0
    assert done.stderr == f'{copied}: is finished, all 6 rounds are done\n'
    first, again = (json.loads(text) for text in (finished[1].stdout, done.stdout))
    assert again == {**{name: first[name] for name in again}, 'output_dir': str(copied)}
    assert {'rounds', 'loss', 'accuracy', 'epsilon', 'delta', 'rho'} <= set(again)
    # The directory has all settings of the run.
    alone = functools.partial(forked_binaries.run, 'train', f'--output_dir={copied}', '--resume')
    assert alone().stderr == f'{copied}: is finished, all 6 rounds are done\n'
    assert '--target_epsilon=1.0: cannot hold for more rounds' in alone('--rounds=7').stderr
    assert '--clip_norm=0.3: must be 0.2, as when the run began' in alone('--clip_norm=0.3').stderr
    assert _contents(copied) == before


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_run_that_was_killed_after_its_last_round_writes_what_is_missing(finished, copied):
    lines = (copied / 'ledger.jsonl').read_bytes().splitlines(keepends=True)
    assert b'"event": "ended"' in lines[-1]
    (copied / 'ledger.jsonl').write_bytes(b''.join(lines[:-1]))
    (copied / 'model.npz').unlink()
    (copied / 'SHA256SUMS').unlink()
    shutil.rmtree(copied / 'saved_model')
    done = _run(*_SIX_ROUNDS, f'--output_dir={copied}', '--resume')
    assert done.returncode == 0, done.stderr
    assert runs.differences(copied, finished[0]) == []
    assert 'saved_model/saved_model.pb' in (copied / 'SHA256SUMS').read_text()
    assert _verify(copied).returncode == 0


@pytest.mark.standard
@pytest.mark.tff
@pytest.mark.parametrize(
    'changed, message',
    [
        (['--noise_seed=2'], '--noise_seed=2: must be 1, as when the run began'),
        (['--overwrite'], '--resume: cannot be combined with --overwrite'),
    ],
)
def test_a_run_is_resumed_with_its_own_flags_only(copied, changed, message):
    before = _contents(copied)
    done = _run(*_SIX_ROUNDS, f'--output_dir={copied}', '--resume', *changed)
    assert done.returncode == 2
    assert done.stderr == f'error: {done.stderr[7:].strip()}\n'
    assert message in done.stderr
    assert _contents(copied) == before


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_killed_run_with_a_damaged_checkpoint_ends_as_if_it_had_not_been(finished, tmp_path):
    flags = [*_SIX_ROUNDS, f'--output_dir={tmp_path}']
    process = subprocess.Popen(
        _command(*flags),
        cwd=binaries.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for((tmp_path / 'checkpoints' / '00000002.checkpoint').exists, 600)
    finally:
        process.kill()
        process.wait()
    *_, older, last = sorted((tmp_path / 'checkpoints').glob('*.checkpoint'))
    last.write_bytes(last.read_bytes()[:-1] + b'?')
    done = _run(*flags, '--resume')
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(
        f'refused: {last}: is damaged or incomplete\n'
        f'{last.parent}: going back to that of round {int(older.stem)}\n'
    )
    assert runs.differences(tmp_path, finished[0]) == []


def _can_mount() -> bool:
    command = ['unshare', '-rm', 'sh', '-c', 'mount -t tmpfs -o size=16k tmpfs /mnt']
    return not subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.skipif(not _can_mount(), reason='needs a small file system of its own')
def test_a_run_on_a_full_disk_can_be_resumed_when_there_is_space(finished, tmp_path):
    command = ' '.join(_command(*_SIX_ROUNDS, '--output_dir=/mnt/run'))
    script = (
        'mount -t tmpfs -o size=190k tmpfs /mnt\n'  # Two checkpoints and a half.
        f'{command} 2> {tmp_path}/errors; echo $? > {tmp_path}/status\n'
        'mount -o remount,size=10m /mnt\n'
        f'{command} --resume 2> {tmp_path}/output && cp -r /mnt/run {tmp_path}\n'
    )
    done = subprocess.run(
        ['unshare', '-rm', 'sh', '-c', script],
        cwd=binaries.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (tmp_path / 'output').read_text()
    assert (tmp_path / 'status').read_text() == '1\n'
    errors = (tmp_path / 'errors').read_text()
    assert 'Traceback' not in errors
    assert re.fullmatch(
        r'error: round [45]: /mnt/run/(checkpoints/0000000\d\.checkpoint|metrics\.csv): '
        'No space left on device',
        errors.splitlines()[-1],
    ), errors
    assert runs.differences(tmp_path / 'run', finished[0]) == []


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize('number, status', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_round_3_ends_the_run_and_loses_no_round(number, status, tmp_path):
    process = subprocess.Popen(
        _command(*_SMALL, f'--output_dir={tmp_path}'),
        cwd=binaries.ROOT,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        metrics = tmp_path / 'metrics.csv'
        _wait_for(lambda: metrics.exists() and metrics.read_text().count('\n') >= 3, 600)
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == status
    # Python prints one where a finalizer swallows the exception; the run raises it once more then.
    assert 'Traceback' not in errors or 'Exception ignored in' in errors
    command = program.command('train', f'--output_dir={tmp_path}', '--resume')
    assert f'saved in {tmp_path}; this continues: {command}' in errors
    report = accounting.PrivacyReport.from_json((tmp_path / 'privacy_report.json').read_text())
    assert report.basis == 'plan'
    assert 2 <= report.observed.rounds < 30
    # Saved at the end, though no checkpoint was due; the round in progress is repeated.
    saved = checkpoint.latest(tmp_path / 'checkpoints', pytest.fail)
    assert saved.rounds in (report.observed.rounds - 1, report.observed.rounds)
