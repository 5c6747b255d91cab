"""The binaries that optimise and compare mechanisms, against calls of the library."""

import csv
import functools
import json

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, mechanisms
from dpfl.simulation.training.server_config import ScheduleConfig
from tests import forked_binaries

# Two processes may use other numbers of threads.
_about = functools.partial(pytest.approx, rel=1e-9)
_run = functools.partial(forked_binaries.run, 'optimize_strategy')
_SCHEMA = ('--rounds=60', '--min_separation=20', '--max_participations=3')
_OF_60 = Participation(60, 20, 3)
_BLT = mechanisms.Blt(48, [0.95, 0.6], [0.2, 0.2])
_PLANNED, _SEEN = Participation(48, 12, 4), Participation(48, 6, 8)


def _made(binary, *flags):
    done = forked_binaries.run(binary, *flags, '--format=json')
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    'flags',
    [
        ['--mechanism=blt', '--buffers=2'],
        pytest.param(['--mechanism=banded'], marks=pytest.mark.standard),
        pytest.param(
            ['--mechanism=banded_inverse', '--bands=6', '--momentum=0.9'],
            marks=pytest.mark.standard,
        ),
    ],
    ids=lambda flags: flags[0],
)
def test_an_optimised_strategy_goes_into_a_report(flags, tmp_path):
    output = tmp_path / 'strategy.npz'
    result = _made('optimize_strategy', *_SCHEMA, *flags, f'--output={output}')
    mechanism = mechanisms.load(output)
    assert mechanism.name == result['mechanism']
    assert mechanism.sensitivity(_OF_60) == _about(result['sensitivity'])
    assert mechanism.kernel().buffers == result['buffers']
    if '--momentum=0.9' not in flags:
        assert mechanism.max_loss(_OF_60) == pytest.approx(result['max_loss'])
    shown = _made(
        'report_privacy', *_SCHEMA, flags[0], f'--strategy={output}', '--noise_multiplier=5'
    )
    assert shown['sensitivity'] == _about(result['sensitivity'])


@pytest.mark.standard
def test_the_losses_are_those_of_the_workload(tmp_path):
    result = _made(
        'optimize_strategy',
        '--mechanism=banded_toeplitz',
        '--rounds=24',
        '--min_separation=6',
        '--bands=3',
        '--momentum=0.5',
        '--nesterov',
        '--server_schedule=cosine',
        '--server_final_rate=0.3',
        f'--output={tmp_path}/found.npz',
    )
    schedule = ScheduleConfig(server_schedule='cosine', server_final_rate=0.3)
    workload = mechanisms.workload.learning_rate_schedule(
        schedule.multipliers(24), 0.5, nesterov=True
    )
    schema = Participation(24, 6)
    expected = mechanisms.load(tmp_path / 'found.npz').rms_loss(schema, workload)
    assert result['rms_loss'] == pytest.approx(expected, rel=1e-12)
    plain = mechanisms.optimize_banded_toeplitz(schema, 3, 'rms')
    assert expected < plain.rms_loss(schema, workload)


@pytest.mark.standard
@pytest.mark.parametrize('name', ['blt', 'scaled_blt'])
def test_one_mechanism_for_several_separations(name, tmp_path):
    output = tmp_path / 'robust.npz'
    rows = _made(
        'optimize_strategy',
        f'--mechanism={name}',
        '--rounds=64',
        '--max_participations=3',
        '--separations=8,16,32',
        '--weights=1,2,1',
        '--criterion=worst',
        '--buffers=2',
        f'--output={output}',
    )
    schemas = [Participation(64, b, 3) for b in (8, 16, 32)]
    expected = mechanisms.relative_losses(mechanisms.load(output), schemas, 2)
    assert [row['relative_loss'] for row in rows] == pytest.approx(expected.tolist())
    assert [row['min_separation'] for row in rows] == [8, 16, 32]
    for row, schema in zip(rows, schemas, strict=True):
        assert row['max_loss'] == pytest.approx(mechanisms.load(output).max_loss(schema))


@pytest.mark.standard
def test_one_blt_for_the_schemas_of_logs(tmp_path):
    for name, cohorts in (('a', [[1], [2], [1], [2]]), ('b', [[1], [1], [2], [2]])):
        ParticipationLog(cohorts).save(tmp_path / f'{name}.npz')
    paths = ','.join(str(tmp_path / f'{name}.npz') for name in 'aba')
    rows = _made(
        'optimize_strategy', '--mechanism=blt', f'--logs={paths}', f'--output={tmp_path}/c.npz'
    )
    assert [row['min_separation'] for row in rows] == [2, 1]


def _switch(tmp_path, *more):
    mechanisms.save(_BLT, tmp_path / 'blt.npz')
    return (
        '--mechanism=switched_blt',
        f'--strategy={tmp_path}/blt.npz',
        f'--output={tmp_path}/found.npz',
        '--rounds=48',
        '--min_separation=6',
        '--max_participations=8',
        '--planned_min_separation=12',
        '--planned_max_participations=4',
        *more,
    )


@pytest.mark.standard
def test_a_switch_is_compared_with_going_on_and_with_a_restart(tmp_path):
    found = _made('optimize_strategy', *_switch(tmp_path, '--switch_round=20', '--loss=max'))
    made = mechanisms.load(tmp_path / 'found.npz')
    assert made.begins_like(_BLT, 20) and found['first_rounds'] == 20
    planned, unchanged, restarted, switched = found['compared']
    assert switched['max_loss'] == _about(made.max_loss(_SEEN))
    assert unchanged['max_loss'] == _about(_BLT.max_loss(_SEEN))
    assert planned['sensitivity'] == _about(_BLT.sensitivity(_PLANNED))
    assert (planned['min_separation'], planned['max_participations']) == (12, 4)
    assert switched['max_loss'] <= min(unchanged['max_loss'], restarted['max_loss'])
    best = mechanisms.optimize_blt(_SEEN.within(28), 2, 'max')
    decay, scale = (np.resize(each, 2) for each in (best.decay, best.scale))
    scale[best.scale.size :] = 0.0  # The best one may have fewer buffers.
    after = mechanisms.SwitchedBlt.after(_BLT, 20, decay, scale, carry=np.zeros((2, 2)))
    assert restarted['max_loss'] == pytest.approx(after.max_loss(_SEEN), rel=1e-9)
    for row in found['compared']:
        assert row['max_loss'] == pytest.approx(row['max_error'] * row['sensitivity'])


@pytest.mark.standard
def test_a_limit_of_the_sensitivity_keeps_the_epsilon_of_the_plan(tmp_path):
    free = _run(*_switch(tmp_path, '--switch_round=12'))
    assert free.returncode == 0 and 'rho is' in free.stdout, free.stderr
    assert mechanisms.load(tmp_path / 'found.npz').sensitivity(_SEEN) > _BLT.sensitivity(_PLANNED)
    flag = next(word for word in free.stdout.split() if word.startswith('--max_sens'))
    kept = _run(*_switch(tmp_path, '--switch_round=12', flag))
    assert 'the epsilon of the plan still holds' in kept.stdout, kept.stderr
    assert mechanisms.load(tmp_path / 'found.npz').sensitivity(_SEEN) <= _BLT.sensitivity(_PLANNED)
    late = _run(*_switch(tmp_path, '--switch_round=30'))
    assert 'The first 30 rounds alone are above the plan.' in late.stdout, late.stderr
    assert '--max_sensitivity' not in late.stdout


@pytest.mark.standard
def test_a_banded_matrix_goes_on(tmp_path):
    banded = mechanisms.optimize_banded(Participation(24, 6), bands=6)
    mechanisms.save(banded, tmp_path / 'banded.npz')
    found = _made(
        'optimize_strategy',
        '--mechanism=continued',
        f'--strategy={tmp_path}/banded.npz',
        f'--output={tmp_path}/found.npz',
        '--rounds=60',
        '--min_separation=6',
    )
    made, whole = mechanisms.load(tmp_path / 'found.npz'), Participation(60, 6)
    assert made.begins_like(banded, 24) and made.rounds == 60
    planned, restarted, continued = found['compared']
    assert planned['sensitivity'] == _about(banded.sensitivity(Participation(24, 6)))
    again = mechanisms.Restarted(banded, (24, 48), 60)
    assert restarted['max_loss'] == pytest.approx(again.max_loss(whole))
    assert continued['max_loss'] == _about(made.max_loss(whole))
    assert continued['max_loss'] < restarted['max_loss']


@pytest.mark.standard
def test_comparison_has_a_row_for_each_mechanism_and_value(tmp_path):
    plot = tmp_path / 'losses.png'
    made = _made(
        'compare_mechanisms',
        *_SCHEMA,
        '--vary=min_separation',
        '--values=10,20,30',
        '--mechanisms=tree,honaker_tree,full_honaker_tree,blt:2,best_blt:2,banded:20,blt_b100',
        '--relative_to=tree',
        '--noise_multiplier=3',
        f'--plot={plot}',
    )
    rows = {(row['mechanism'], row['min_separation']): row for row in made}
    assert len(rows) == 21
    tree = mechanisms.BinaryTree(60)
    assert rows['tree', 30]['max_loss'] == _about(tree.max_loss(Participation(60, 30, 3)))
    assert rows['tree', 30]['epsilon'] > 0
    for value in (10, 20, 30):
        best = rows['best_blt:2', value]['max_loss']
        assert best <= rows['blt:2', value]['max_loss'] * (1 + 1e-6)
        assert best < rows['full_honaker_tree', value]['max_loss']
    # Bands beyond the separation cost: the sensitivity is a bound there.
    assert rows['banded:20', 20]['exact'] and not rows['banded:20', 10]['exact']
    assert plot.stat().st_size > 5000


@pytest.mark.standard
def test_designs_of_several_schemas_in_one_command(tmp_path):
    data = tmp_path / 'rounds.csv'
    rounds = {
        # BandMF ends at the rounds that it was made for; a fresh one and a BLT go on.
        'blt:2@30/10': [30, 60, 90],
        'banded:10@30/10': [30],
        'banded:20': [30, 60],
        'best_banded:20': [30, 60, 90],
    }
    printed = _made(
        'compare_mechanisms',
        *_SCHEMA,
        '--values=30,60,90',
        '--loss=rms',
        f'--mechanisms={",".join(rounds)}',
        f'--data={data}',
    )
    with open(data, newline='') as file:
        written = list(csv.DictReader(file))
    assert [float(row['rms_loss']) for row in written] == [row['rms_loss'] for row in printed]
    for name, expected in rounds.items():
        assert [row['rounds'] for row in printed if row['mechanism'] == name] == expected
    loss = {(row['mechanism'], row['rounds']): row['rms_loss'] for row in printed}
    assert loss['best_banded:20', 30] < loss['banded:20', 30]
    short = mechanisms.optimize_blt(Participation(30, 10), 2, loss='rms').with_rounds(90)
    expected = short.rms_loss(Participation(90, 20, 3))
    assert loss['blt:2@30/10', 90] == pytest.approx(expected, rel=1e-6)
