"""The training binary as its users meet it: results, one-line errors, and nothing left running."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from dpfl import ParticipationLog, accounting

_ROOT = pathlib.Path(__file__).parents[2]
_COMMAND = [sys.executable, '-m', 'experiments.train', '--flagfile=configs/quickstart.flags']
_SMALL = ['--population=60', '--clients_per_round=2', '--client_max_batches=1', '--eval_clients=2',
          '--noise_seed=1']


def _run(*flags, **kwargs):
    return subprocess.run(
        [*_COMMAND, *flags], cwd=_ROOT, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, **kwargs,
    )


def _worker_is_alive(pid: int) -> bool:
    try:
        return 'worker_binary' in pathlib.Path(f'/proc/{pid}/cmdline').read_text()
    except FileNotFoundError:
        return False


def _worker_of(parent: int) -> int:
    """Process id of the worker among the children of a process."""
    for children in pathlib.Path(f'/proc/{parent}/task').glob('*/children'):
        for child in children.read_text().split():
            if _worker_is_alive(int(child)):
                return int(child)
    raise AssertionError('no worker')


def _wait_for(condition, seconds: float):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, 'waited too long'
        time.sleep(0.05)


@pytest.mark.tff
def test_a_run_from_start_to_end(tmp_path):
    done = _run(*_SMALL, '--rounds=3', f'--output_dir={tmp_path}', '--format=json')
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result['rounds'] == 3
    assert 1 * (1 - 1e-5) <= result['epsilon'] <= 1
    assert '3/3' in done.stderr and 'accuracy=' in done.stderr and 'epsilon=' in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        'metrics.csv', 'privacy_report.json', 'privacy_report.md', 'participation.npz',
        'tensorboard', 'plots', 'flags.txt', 'model.npz',
    }
    report = accounting.PrivacyReport.from_json((tmp_path / 'privacy_report.json').read_text())
    assert report.guarantee.epsilons == (result['epsilon'],)
    assert report.noise_is_seeded
    assert ParticipationLog.load(tmp_path / 'participation.npz').rounds == 3

    again = _run(*_SMALL, '--rounds=3', f'--output_dir={tmp_path}')
    assert again.returncode == 2
    assert again.stderr.startswith(f'error: --output_dir={tmp_path}: must not hold an earlier run')
    repeated = _run(f'--flagfile={tmp_path}/flags.txt', f'--output_dir={tmp_path}/again')
    assert repeated.returncode == 0, repeated.stderr
    first, second = (
        (path / 'model.npz').read_bytes() for path in (tmp_path, tmp_path / 'again')
    )
    assert first == second  # The flags of a seeded run are all that it takes to repeat it.


@pytest.mark.tff
@pytest.mark.parametrize('number, status', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_round_3_ends_the_run_and_its_worker(number, status, tmp_path):
    process = subprocess.Popen(
        [*_COMMAND, *_SMALL, f'--output_dir={tmp_path}'], cwd=_ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    try:
        metrics = tmp_path / 'metrics.csv'
        _wait_for(lambda: metrics.exists() and metrics.read_text().count('\n') >= 3, 120)
        worker = _worker_of(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    ended = time.monotonic()
    assert process.returncode == status
    # Python prints one where a finalizer swallows the exception; the run raises it once more then.
    assert 'Traceback' not in errors or 'Exception ignored in' in errors
    _wait_for(lambda: not _worker_is_alive(worker), 2 - (time.monotonic() - ended))
    report = accounting.PrivacyReport.from_json((tmp_path / 'privacy_report.json').read_text())
    assert report.basis == 'plan'
    assert 2 <= report.observed.guarantee.rounds < 30


@pytest.mark.tff
def test_an_exception_leaves_no_worker(tmp_path):
    # The plot cannot be drawn where a file has the name of its folder: an error after round 1.
    code = (
        'import sys\n'
        'from dpfl.simulation import outputs\n'
        'from experiments import command_line, train\n'
        'import pathlib\n'
        'def fail(self, number, values):\n'
        '    import os\n'
        '    for task in pathlib.Path(f"/proc/{os.getpid()}/task").glob("*/children"):\n'
        '        print("children", task.read_text(), flush=True)\n'
        '    raise RuntimeError("the disk is gone")\n'
        'outputs.Metrics.release = fail\n'
        'command_line.run(train.main)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code, *_COMMAND[3:], *_SMALL, f'--output_dir={tmp_path}'],
        cwd=_ROOT, capture_output=True, text=True, check=False, timeout=120,
    )
    assert done.returncode == 1
    assert 'RuntimeError: the disk is gone' in done.stderr
    children = [int(pid) for line in done.stdout.splitlines() for pid in line.split()[1:]]
    assert children
    _wait_for(lambda: not any(map(_worker_is_alive, children)), 2)


@pytest.mark.parametrize('flags, message', [
    (['--target_epsilon='], '--target_epsilon=: must be a number'),
    (['--noise_multiplier=-1'], '--noise_multiplier=-1: must be a non-negative number'),
    (['--min_separation=0'], '--min_separation=0: must be an integer >= 1'),
    (['--rounds=abc'], '--rounds=abc: must be an integer'),
    (['--strategy=/nowhere/at.all'], '--strategy=/nowhere/at.all: must be a file or one of'),
    (['--noise_multiplier=1'], '--target_epsilon: goes without --noise_multiplier'),
    (['--target_epsilon=-2'], 'epsilon=-2.0: must be a finite number > 0'),
    (['--delta=0'], '--delta=0.0: must be a finite number > 0 and < 1'),
    (['--mechanism=none', '--strategy='], '--target_epsilon: mechanism=none has no noise'),
    (['--clip_norm=0'], '--clip_norm=0.0: must be a finite number > 0'),
])
def test_bad_flags_are_one_line_and_status_2(flags, message, tmp_path):
    done = _run(*flags, f'--output_dir={tmp_path}/run')
    assert done.returncode == 2
    assert done.stderr == f'error: {done.stderr[7:].strip()}\n'
    assert message in done.stderr
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('flags, message', [
    (['--population=100'], '--population=100: must be at least 3000 for clients_per_round'),
    (['--vocabulary_size=0'], '--vocabulary_size=0: must be'),
    (['--sentence_length=0'], '--sentence_length=0: must be'),
    (['--client_learning_rate=0'], '--client_learning_rate=0.0: must be > 0'),
    (['--client_batch_size=-1'], '--client_batch_size=-1: must be a positive integer'),
    (['--server_momentum=1'], '--server_momentum=1.0: must be >= 0 and < 1'),
    (['--eval_every=0'], '--eval_every=0: must be a positive integer'),
    (['--noise_seed=-1'], '--noise_seed=-1: must be a non-negative integer'),
    (['--output_dir={file}/run'], '/run: must be writable (Not a directory)'),
])
def test_flags_that_take_tensorflow_to_check_are_one_line_as_well(flags, message, tmp_path):
    (tmp_path / 'file').touch()
    flags = [flag.replace('{file}', str(tmp_path / 'file')) for flag in flags]
    done = _run(f'--output_dir={tmp_path}/run', *flags)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f'error: {done.stderr[7:].strip()}\n'
    assert message in done.stderr


@pytest.mark.parametrize(
    'preset', sorted((_ROOT / 'configs').glob('*.flags')), ids=lambda path: path.name
)
def test_presets_make_a_plan(preset):
    code = (
        'import sys\n'
        'from absl import flags\n'
        'from experiments import privacy_flags, train\n'
        'flags.FLAGS(sys.argv)\n'
        'plan = privacy_flags.plan(flags.FLAGS.mechanism, clip_norm=flags.FLAGS.clip_norm,\n'
        '                          clients_per_round=flags.FLAGS.clients_per_round)\n'
        'print(flags.FLAGS.mechanism, plan.rho)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code, f'--flagfile={preset}'], cwd=_ROOT, capture_output=True,
        text=True, check=True, env={**os.environ, 'PYTHONPATH': str(_ROOT)},
    )
    mechanism, rho = done.stdout.split()
    assert (float(rho) == float('inf')) == (mechanism == 'none')
