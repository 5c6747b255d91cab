"""The training binary as its users meet it: results, one-line errors, and nothing left running."""

import functools
import json
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from dpfl import ParticipationLog, accounting
from dpfl.cli.command import program
from dpfl.simulation import checkpoint, run_directory
from tests import binaries, forked_binaries

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
    return path, _run(*_SIX_ROUNDS, f'--output_dir={path}', '--format=json', check=True)


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
    assert (path / 'plots' / 'training.png').stat().st_size > 5000
    assert len(list((path / 'checkpoints').glob('*.checkpoint'))) == 4  # And the first.
    report = accounting.PrivacyReport.from_json((path / 'privacy_report.json').read_text())
    assert report.guarantee.epsilons == (result['epsilon'],)
    assert report.noise_is_seeded
    assert ParticipationLog.load(path / 'participation.npz').rounds == 6

    again = _run(*_SIX_ROUNDS, f'--output_dir={path}')
    assert again.returncode == 2
    assert again.stderr.startswith(f'error: --output_dir={path}: must not hold an earlier run')


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
    noise = json.loads((copied / 'plan.json').read_text())['noise_multiplier']
    # Another way to say how much noise there is takes the place of the recorded one.
    assert alone('--rounds=7', f'--noise_multiplier={noise}').returncode == 0
    assert run_directory.verify(copied).differences == ()


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
