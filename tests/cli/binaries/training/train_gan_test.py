"""The binary that trains GANs as its users meet it: results, a kill, and one-line errors."""

import functools
import json
import shutil
import signal
import subprocess
import time

import pytest

from dpfl import accounting
from dpfl.simulation import verification
from tests import binaries, forked_binaries, runs
from tests.repository import threat_model

_SMALL = [
    '--model=tiny',
    '--rounds=3',
    '--population=40',
    '--clients_per_round=2',
    '--client_max_batches=1',
    '--client_batch_size=4',
    '--eval_clients=1',
    '--eval_every=3',
    '--sampling=without_replacement',
    '--adjacency=replace_one_half_shift',
    '--delta=1e-3',
    '--noise_multiplier=0.5',
    '--noise_seed=1',
    '--checkpoint_every=1',
    '--select_examples=ink>0.05',
]
_run = functools.partial(forked_binaries.run, 'train_gan')


@pytest.fixture(scope='module', name='finished')
def _finished(tmp_path_factory):
    path = tmp_path_factory.mktemp('finished')
    done = _run(
        *_SMALL, f'--output_dir={path}', '--scale=10', '--scaled_population=4000', '--format=json'
    )
    assert done.returncode == 0, done.stderr
    return path, done


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_run_from_start_to_end(finished):
    path, done = finished
    result = json.loads(done.stdout)
    assert (
        '3 of 3 rounds' in done.stderr and 'accuracy=' in done.stderr and 'epsilon=' in done.stderr
    )
    report = accounting.PrivacyReport.from_json((path / 'privacy_report.json').read_text())
    assert report.guarantee.epsilons == (result['epsilon'],) and report.noise_is_seeded
    assert any('images with ink>0.05 only' in each for each in report.remarks)
    assert result['scaled_epsilon'] < result['epsilon'] and result['scaled_delta'] == 0.01 / 4000
    names = {file.name for file in path.iterdir()}
    assert {'generator', 'gan_report.md', 'model.npz', 'checkpoints', 'SHA256SUMS'} <= names
    assert 'gan_report.md' in (path / 'SHA256SUMS').read_text()
    # And is the verdict of experiments.report_privacy; the folders are listed, too.
    assert 'generator/saved_model.pb' in (path / 'SHA256SUMS').read_text()
    assert verification.verify(path).differences == ()
    assert threat_model.shared_by_mistake(path) == []
    page = (path / 'gan_report.md').read_text()
    assert 'post-processing' in page and 'scaled up' in page


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_killed_run_ends_with_the_same_generator(finished, tmp_path):
    path = tmp_path / 'killed'
    flags = [*_SMALL, f'--output_dir={path}', '--scale=10', '--scaled_population=4000']
    with subprocess.Popen(
        binaries.command('train_gan', *flags),
        cwd=binaries.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        deadline = time.monotonic() + 300
        while not (path / 'checkpoints' / '00000001.checkpoint').exists():
            assert child.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    assert not (path / 'model.npz').exists()
    done = _run(*flags, '--resume')
    assert done.returncode == 0, done.stderr
    assert runs.differences(path, finished[0]) == []
    page = 'gan_report.md'
    assert (path / page).read_bytes() == (finished[0] / page).read_bytes()


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_finished_run_gets_back_what_is_made_of_it(finished, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / 'copied')
    shutil.rmtree(path / 'generator')
    (path / 'gan_report.md').unlink()
    done = _run(*_SMALL, f'--output_dir={path}', '--resume')
    assert done.returncode == 0, done.stderr
    assert 'is finished, all 3 rounds are done' in done.stderr
    assert (path / 'generator' / 'saved_model.pb').exists()
    # The larger run is asked for anew each time.
    assert 'scaled up' not in (path / 'gan_report.md').read_text()


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--model=huge'], '--model=huge: must be one of small, dcgan, tiny'),
        (['--population=1'], '--population=1: must be an integer >= 2'),
        (['--population=0'], '--population=0: must be an integer >= 1'),
        (['--scale=2'], '--scale=2.0: needs scaled_population'),
        (['--scale=0.3', '--scaled_population=9'], '--scale=0.3: must make whole cohorts of 2'),
        (['--scale=2', '--scaled_population=3'], '--scaled_population=3: must be an integer >= 4'),
        (['--generator_steps=-1'], '--generator_steps=-1: must be'),
        (['--delta=2'], '--delta=2.0: must be a finite number'),
    ],
)
def test_bad_flags_are_one_line(flags, message, tmp_path):
    done = _run(*_SMALL, f'--output_dir={tmp_path}', *flags)
    assert done.returncode == 2
    assert done.stderr.startswith(f'error: {message}') and done.stderr.count('\n') == 1
    assert not list(tmp_path.iterdir())
