"""The binary that optimises a mechanism, for the models of SGD with a falling learning rate."""

import functools
import json

import pytest

from dpfl import Participation, ParticipationLog, errors, mechanisms
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


@pytest.mark.parametrize('name', ['blt', 'scaled_blt'])
def test_one_mechanism_for_several_separations(name, tmp_path):
    output = tmp_path / 'robust.npz'
    done = _run(
        f'--mechanism={name}',
        '--rounds=64',
        '--max_participations=3',
        '--separations=8,16,32',
        '--weights=1,2,1',
        '--criterion=worst',
        '--buffers=2',
        f'--output={output}',
        '--format=json',
    )
    assert done.returncode == 0, done.stderr
    schemas = [Participation(64, b, 3) for b in (8, 16, 32)]
    expected = mechanisms.relative_losses(mechanisms.load(output), schemas, 2)
    rows = json.loads(done.stdout)
    assert [row['relative_loss'] for row in rows] == pytest.approx(expected.tolist())
    assert [row['min_separation'] for row in rows] == [8, 16, 32]
    for row, schema in zip(rows, schemas, strict=True):
        assert row['max_loss'] == pytest.approx(mechanisms.load(output).max_loss(schema))
        blt = mechanisms.optimize_blt(schema, 2)
        assert row['blt_max_loss'] == pytest.approx(blt.max_loss(schema))


def test_one_blt_for_the_schemas_of_logs(tmp_path):
    for name, cohorts in (('a', [[1], [2], [1], [2]]), ('b', [[1], [1], [2], [2]])):
        ParticipationLog(cohorts).save(tmp_path / f'{name}.npz')
    paths = ','.join(str(tmp_path / f'{name}.npz') for name in 'aba')
    done = _run('--mechanism=blt', f'--logs={paths}', f'--output={tmp_path}/c.npz', '--format=json')
    assert done.returncode == 0, done.stderr
    assert [row['min_separation'] for row in json.loads(done.stdout)] == [2, 1]


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--separations=8,x'], '--separations=8,x: must be comma-separated integers'),
        (['--separations=8', '--logs=a.npz'], '--logs=a.npz: cannot be combined with separations'),
        (['--separations=8', '--momentum=0.5'], '--momentum: needs a single schema'),
        (
            ['--separations=8', '--mechanism=banded'],
            '--mechanism=banded: must be blt or scaled_blt',
        ),
        (['--separations=8,9', '--weights=1'], 'must be 2 numbers >= 0'),
        (['--weights=1'], 'needs separations'),
    ],
)
def test_bad_schemas_are_one_line_and_status_2(flags, message, tmp_path):
    done = _run('--mechanism=blt', '--rounds=24', f'--output={tmp_path}/found.npz', *flags)
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
