"""The binary that optimises a mechanism, for the models of SGD with a falling learning rate."""

import functools
import json

import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.planning import optimization
from dpfl.simulation.training.server_config import ScheduleConfig
from tests import forked_binaries

_run = functools.partial(forked_binaries.run, 'optimize_strategy')
_SCHEMA = Participation(24, 6, 4)
_COOLED = ScheduleConfig(server_schedule='linear', server_warmup_rounds=3)


@pytest.mark.parametrize('nesterov', [False, True])
def test_the_losses_are_those_of_the_workload(tmp_path, nesterov):
    found = optimization.optimize(
        'banded_toeplitz',
        _SCHEMA,
        tmp_path / 'cooled.npz',
        bands=4,
        momentum=0.8,
        nesterov=nesterov,
        schedule=_COOLED,
    )
    workload = mechanisms.workload.learning_rate_schedule(
        _COOLED.multipliers(24), 0.8, nesterov=nesterov
    )
    mechanism = mechanisms.load(tmp_path / 'cooled.npz')
    assert found['rms_loss'] == mechanism.rms_loss(_SCHEMA, workload)
    plain = mechanisms.optimize_banded_toeplitz(_SCHEMA, 4, 'rms')
    assert found['rms_loss'] < plain.rms_loss(_SCHEMA, workload)


def test_nesterov_needs_momentum(tmp_path):
    with pytest.raises(errors.ArgumentError, match='nesterov=True: needs momentum'):
        optimization.optimize('blt', _SCHEMA, tmp_path / 'blt.npz', nesterov=True)


def test_the_flags_arrive(tmp_path):
    flags = [
        '--mechanism=banded_toeplitz',
        '--rounds=24',
        '--min_separation=6',
        '--bands=3',
        '--momentum=0.5',
        '--server_schedule=cosine',
        '--server_final_rate=0.3',
        f'--output={tmp_path}/found.npz',
        '--format=json',
    ]
    done = _run(*flags)
    assert done.returncode == 0, done.stderr
    schedule = ScheduleConfig(server_schedule='cosine', server_final_rate=0.3)
    workload = schedule.workload_of_sgd(24, 0.5)
    expected = mechanisms.load(tmp_path / 'found.npz').rms_loss(Participation(24, 6), workload)
    assert json.loads(done.stdout)['rms_loss'] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    'flags, message',
    [
        (
            ['--server_cooldown_rounds=3'],
            '--server_cooldown_rounds=3: needs server_schedule=linear',
        ),
        (['--server_warmup_rounds=99'], '--server_warmup_rounds=99: must be <= 24, all rounds'),
        (['--nesterov'], '--nesterov=True: needs momentum'),
    ],
)
def test_bad_flags_are_one_line_and_status_2(flags, message, tmp_path):
    done = _run('--mechanism=blt', '--rounds=24', f'--output={tmp_path}/found.npz', *flags)
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
