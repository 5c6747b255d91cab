"""The training binary as its users meet it: results, one-line errors, and what a signal leaves."""

import functools
import json
import shutil
import signal

import pytest

from dpfl import ParticipationLog, accounting
from dpfl.cli.command import program
from dpfl.simulation import checkpoint, run_directory
from tests import binaries, forked_binaries, runs

pytestmark = pytest.mark.tff

_SMALL = (
    '--flagfile=configs/quickstart.flags --population=60 --clients_per_round=2 '
    '--client_max_batches=1 --eval_clients=2'
).split()
_SEEDED = (*_SMALL, '--noise_seed=1')
# Calibration by 'pld' would take most of the time.
_SIX_ROUNDS = '--rounds=6 --min_separation=6 --checkpoint_every=2 --accountant=analytic_gaussian'
_SIX_ROUNDS = (*_SEEDED, *_SIX_ROUNDS.split())
_run = functools.partial(forked_binaries.run, 'train')


def _report(path) -> accounting.PrivacyReport:
    return accounting.PrivacyReport.from_json((path / 'privacy_report.json').read_text())


@pytest.fixture(scope='module', name='finished')
def _finished(tmp_path_factory):
    """The directory of a run that is done, and what it printed."""
    path = tmp_path_factory.mktemp('finished')
    return path, _run(*_SIX_ROUNDS, f'--output_dir={path}', '--format=json', check=True)


def test_a_run_from_start_to_end(finished):
    path, done = finished
    result = json.loads(done.stdout)
    assert result['rounds'] == 6
    assert 1 * (1 - 1e-5) <= result['epsilon'] <= 1
    assert all(words in done.stderr for words in ('6 of 6 rounds', 'accuracy=', 'epsilon='))
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
    report = _report(path)
    assert report.guarantee.epsilons == (result['epsilon'],) and report.noise_is_seeded
    assert ParticipationLog.load(path / 'participation.npz').rounds == 6

    again = _run(*_SIX_ROUNDS, f'--output_dir={path}')
    assert again.returncode == 2
    assert again.stderr.startswith(f'error: --output_dir={path}: must not hold an earlier run')


@pytest.mark.standard
def test_a_finished_run_says_so_and_prints_its_result_again(finished, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / 'copied')
    before = runs.contents(path)
    more = ('--checkpoint_every=5', '--keep_checkpoints=1', '--format=json')
    done = _run(*_SIX_ROUNDS, f'--output_dir={path}', '--resume', *more, check=True)
    assert done.stderr == f'{path}: is finished, all 6 rounds are done\n'
    first, again = (json.loads(text) for text in (finished[1].stdout, done.stdout))
    assert again == {**{name: first[name] for name in again}, 'output_dir': str(path)}
    assert {'rounds', 'loss', 'accuracy', 'epsilon', 'delta', 'rho'} <= set(again)
    # The directory has all settings of the run.
    alone = functools.partial(_run, f'--output_dir={path}', '--resume')
    assert alone().stderr == f'{path}: is finished, all 6 rounds are done\n'
    assert '--target_epsilon=1.0: cannot hold for more rounds' in alone('--rounds=7').stderr
    assert '--clip_norm=0.3: must be 0.2, as when the run began' in alone('--clip_norm=0.3').stderr
    assert runs.contents(path) == before
    noise = json.loads((path / 'plan.json').read_text())['noise_multiplier']
    # Another way to say how much noise there is takes the place of the recorded one.
    assert alone('--rounds=7', f'--noise_multiplier={noise}').returncode == 0
    assert run_directory.verify(path).differences == ()


@pytest.mark.exhaustive
@pytest.mark.parametrize('number, status', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_round_3_ends_the_run_and_loses_no_round(number, status, tmp_path):
    begin = binaries.command('train', *_SEEDED, f'--output_dir={tmp_path}')
    run = binaries.Process(tmp_path, begin)
    run.wait_for_rounds(3)
    run.process.send_signal(number)
    ended, lines = run.end()
    assert ended == status
    errors = '\n'.join(lines)
    # Python prints one where a finalizer swallows the exception; the run raises it once more then.
    assert 'Traceback' not in errors or 'Exception ignored in' in errors
    command = program.command('train', f'--output_dir={tmp_path}', '--resume')
    assert f'saved in {tmp_path}; this continues: {command}' in errors
    report = _report(tmp_path)
    assert report.basis == 'plan'
    assert 2 <= report.observed.rounds < 30
    # Saved at the end, though no checkpoint was due; the round in progress is repeated.
    saved = checkpoint.latest(tmp_path / 'checkpoints', pytest.fail)
    assert saved.rounds in (report.observed.rounds - 1, report.observed.rounds)
