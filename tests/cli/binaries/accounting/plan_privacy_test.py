"""The planning binary against direct calls of the library."""

import dataclasses
import functools
import json
import subprocess
import sys

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import UniformCohorts
from dpfl.planning import answer
from dpfl.planning.request import PlanningConfig, Request
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.server_config import ServerConfig
from tests import binaries, forked_binaries

_forked = functools.partial(forked_binaries.run, 'plan_privacy')
_ES_ES = ['--population=4210000', '--rounds=1900']


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    cache = str(tmp_path_factory.mktemp('cache'))
    return functools.partial(forked_binaries.run, 'plan_privacy', DPFL_CACHE_DIR=cache)


@pytest.fixture(name='plan')
def _plan(run):
    def plan(*flags):
        done = run(*flags, '--format=json')
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return plan


def _tree_plan(separation, noise_multiplier, clients_per_round=6500, rounds=1900, **others):
    return accounting.PrivacyPlan(
        mechanism=mechanisms.BinaryTree(rounds),
        participation=Participation(rounds, separation),
        noise_multiplier=noise_multiplier,
        clients_per_round=clients_per_round,
        **{'clip_norm': 1.0, **others},
    )


def test_production_setting_of_document_000(plan):
    # es-ES: a timer of 24 hours gave an observed MinS of 313; the population allows 647.
    result = plan(
        *_ES_ES,
        '--clients_per_round=6500',
        '--timer_hours=24',
        '--round_minutes=4.6',
        '--mechanism=tree',
        '--noise_multiplier=7',
        '--accountant=analytic_gaussian',
    )
    [row] = result['plans']
    direct = _tree_plan(313, 7.0)
    assert row['population_separation'] == 647
    assert row['timer_separation'] == row['min_separation'] == 313
    assert row['separation_limit'] == 'timer'
    assert row['max_participations'] == 7
    assert row['rho'] == direct.rho and row['sensitivity'] == direct.sensitivity
    assert row['epsilon'] == direct.epsilon(1e-10, 'analytic_gaussian')
    assert row['prefix_noise'] == 7.0 * direct.mechanism.max_error() / 6500
    text = ' '.join(result['assumptions'])
    for words in ('an estimate', 'Rounds take 4.6 minutes', 'No amplification', 'every node'):
        assert words in text


_TIMED = (
    *_ES_ES,
    '--clients_per_round=6500',
    '--mechanism=tree',
    '--noise_multiplier=7',
    '--accountant=analytic_gaussian',
)


def test_a_timer_counts_its_slowest_window(plan, tmp_path):
    # Rounds of 4 minutes by day, and of 12 in the first six hours of a day: 30 and 270 of 300.
    night, day = np.arange(0, 360, 12), np.arange(360, 1440, 4)
    one = np.concatenate([night, day])
    minutes = np.concatenate([1440 * d + one for d in range(4)])
    path = tmp_path / 'times.csv'
    lines = [f'{i},{60 * m}\n' for i, m in enumerate(minutes)]
    path.write_text('round,start\n' + ''.join(lines))
    pattern = tmp_path / 'pattern.txt'
    pattern.write_text(' '.join(['5'] * 6 + ['15'] * 18))
    listed = ','.join(['1'] * 6 + ['3'] * 18)
    cases = {
        (6, f'--round_times={path}', None): 30,
        (24, f'--round_times={path}', None): 300,
        (6, '--round_minutes=4.8', f'--daily_pattern={pattern}'): 30,
        (6, '--round_minutes=4.8', f'--daily_pattern={listed}'): 30,
        (48, '--round_minutes=4.8', f'--daily_pattern={listed}'): 600,
        (48, '--rounds_by_day=300,280,310', None): 280,
        (72, '--rounds_by_day=300,280,310', None): 580,
        (24, '--rounds_by_day=300,280,310', None): 1,
    }
    for (hours, *flags), rounds in cases.items():
        given = [flag for flag in flags if flag]
        result = plan(*_TIMED, f'--timer_hours={hours}', *given)
        [row] = result['plans']
        assert row['timer_separation'] == row['min_separation'] == rounds, flags
        assert row['rho'] == _tree_plan(rounds, 7.0).rho
        [sentence] = [each for each in result['assumptions'] if each.startswith('A timer of')]
        assert f'covers {rounds} rounds: ' in sentence


def test_a_timer_limits_the_participations_in_recorded_rounds(plan, tmp_path):
    # Ten days of 24 rounds, of which the first has only twelve: with a separation of 12, up to
    # ceil(226 / 12) = 19 rounds would be possible, but there are ten days.
    hours = np.concatenate([np.arange(0, 24, 2), np.arange(24, 238)])
    path = tmp_path / 'times.csv'
    path.write_text('round,start\n' + ''.join(f'{i},{3600 * h}\n' for i, h in enumerate(hours)))
    flags = (*_TIMED, '--timer_hours=24', f'--round_times={path}')
    for rounds, most in ((226, 10), (100, 5), (227, 19)):  # 227 are more than the file has.
        result = plan(*flags, f'--rounds={rounds}')
        [row] = result['plans']
        assert (row['min_separation'], row['max_participations']) == (12, most)
        schema = Participation(rounds, 12, most)
        direct = dataclasses.replace(_tree_plan(12, 7.0, rounds=rounds), participation=schema)
        assert row['rho'] == direct.rho
        text = ' '.join(result['assumptions'])
        assert (f'more than {most} of {rounds} consecutive rounds' in text) == (rounds < 227)
    # With a population for eleven rounds, rounds wait for clients, and take longer than these.
    [row] = plan(*flags, '--rounds=226', '--population=71500')['plans']
    assert (row['min_separation'], row['max_participations']) == (11, 21)


def test_what_uniform_cohorts_would_do_is_stated_and_changes_nothing(plan):
    results = [plan(*_TIMED, f'--failure_probability={p}') for p in (1e-6, 0.1)]
    assert results[0]['plans'] == results[1]['plans']
    cohorts = UniformCohorts(population=4_210_000, clients_per_round=6500, rounds=1900)
    for result, failure in zip(results, (1e-6, 0.1), strict=True):
        for sentence in cohorts.sentences(647, 3, failure):
            assert sentence in result['assumptions']


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--timer_hours=24'], '--timer_hours=24.0: needs round_minutes, round_times or rounds_by'),
        (['--rounds_by_day=3,4'], '--rounds_by_day=3,4: needs timer_hours'),
        (['--timer_hours=9', '--rounds_by_day=3,x'], '--rounds_by_day=3,x: must be comma-separ'),
        (['--timer_hours=96', '--rounds_by_day=3,4'], '--timer_hours=96.0: must be < 96'),
        (
            ['--timer_hours=9', '--rounds_by_day=3', '--round_minutes=4'],
            '--rounds_by_day=3: cannot be combined with round_minutes',
        ),
        (['--timer_hours=9', '--daily_pattern=1,2'], '--daily_pattern=1,2: needs round_minutes'),
        (
            ['--timer_hours=9', '--round_minutes=4', '--daily_pattern=1,2'],
            '--daily_pattern=1,2: must be 24 numbers, has 2 entries',
        ),
        (
            ['--timer_hours=9', '--round_minutes=4', '--daily_pattern=absent.txt'],
            '--daily_pattern=absent.txt: must be 24 comma-separated numbers, or a file of them',
        ),
        (
            ['--timer_hours=5', '--round_times={times}', '--rounds=12', '--max_participations=5'],
            '--max_participations=5: must be <= 4, what 12 rounds and a timer of 5 hours allow',
        ),
        (
            ['--timer_hours=9', '--round_times=absent.csv'],
            '--round_times=absent.csv: cannot be read',
        ),
        (['--failure_probability=1'], '--failure_probability=1.0: must be a finite number > 0'),
    ],
)
def test_bad_times_of_rounds_are_one_line(run, flags, message, tmp_path):
    times = tmp_path / 'times.csv'
    hours = [0, 2, 4, 6, *range(8, 16)]
    times.write_text('round,start\n' + ''.join(f'{i},{3600 * h}\n' for i, h in enumerate(hours)))
    done = run(*_TIMED, *(flag.replace('{times}', str(times)) for flag in flags))
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert message in done.stderr


def test_a_calibrated_plan_meets_its_target_with_every_mechanism(plan):
    result = plan(
        *_ES_ES,
        '--clients_per_round=6500',
        '--target_epsilon=5',
        '--delta=1e-8',
        '--accountant=rdp',
        '--model_dimension=2400000',
        '--memory_limit=0.05',
    )
    names = [row['mechanism'] for row in result['plans']]
    assert names[0] == 'block_blt with 2 buffers' and 'gaussian' in names
    assert any('larger than 0.05 GB' in row['verdict'] for row in result['left'])
    schema = Participation(1900, 647)
    for row in result['plans']:
        assert 5 * (1 - 1e-6) < row['epsilon'] <= 5
        assert row['epsilon'] == accounting.epsilon_from_mu(row['mu'], 1e-8, 'rdp')
    noises = [row['prefix_noise'] for row in result['plans']]
    assert noises == sorted(noises)  # The best first.
    gaussian = result['plans'][names.index('gaussian')]
    assert gaussian['sensitivity'] == mechanisms.Identity(1900).sensitivity(schema)


def test_the_least_report_goal_for_a_target(plan):
    search = [
        *_ES_ES,
        '--mechanism=tree',
        '--simulated_noise_multiplier=0.54',
        '--simulated_clients_per_round=500',
        '--target_rho=0.2',
    ]
    [row] = plan(*search, '--max_clients_per_round=20000')['plans']
    cohort = row['clients_per_round']
    assert row['rho'] <= 0.2 and row['noise_over_simulation'] == pytest.approx(1)
    assert row['noise_multiplier'] == pytest.approx(0.54 * cohort / 500)
    smaller = _tree_plan(4_210_000 // (cohort - 1), 0.54 * (cohort - 1) / 500)
    assert smaller.rho > 0.2
    # Strategy 3: with fewer clients than that, more noise than the simulation had.
    result = plan(*search, '--max_clients_per_round=8000')
    [row] = result['plans']
    assert row['clients_per_round'] == 8000 and row['rho'] <= 0.2
    assert row['noise_over_simulation'] > 1.1
    assert row['noise_multiplier'] == pytest.approx(row['sensitivity'] / 0.4**0.5)
    assert 'expect less utility' in result['assumptions'][-1]


def test_sweeps_as_in_figure_4_of_document_000(plan, tmp_path):
    plot = tmp_path / 'plan.png'
    rows = plan(
        '--population=1000000',
        '--rounds=2000',
        '--mechanism=tree',
        '--availability=0.5',
        '--simulated_noise_multiplier=7',
        '--simulated_clients_per_round=6500',
        '--sweep_clients_per_round=1000,4000,16000',
        '--sweep_population=2000000,20000000',
        '--accountant=analytic_gaussian',
        f'--plot={plot}',
    )['plans']
    assert [(row['population'], row['clients_per_round']) for row in rows] == [
        (n, m) for n in (2_000_000, 20_000_000) for m in (1000, 4000, 16_000)
    ]
    for row in rows:
        m = row['clients_per_round']
        separation = min(2000, row['population'] // 2 // m)
        direct = _tree_plan(separation, 7.0 * m / 6500, m, 2000)
        assert row['min_separation'] == separation and row['rho'] == direct.rho
    for line in (rows[:3], rows[3:]):
        rhos = [row['rho'] for row in line]
        assert rhos == sorted(rhos, reverse=True)
    for small, large in zip(rows[:3], rows[3:], strict=True):
        assert small['rho'] >= large['rho']
    assert plot.stat().st_size > 5000


def test_secure_aggregation_and_restarts_count(plan):
    [row] = plan(
        '--population=3000000',
        '--clients_per_round=6500',
        '--rounds=1900',
        '--noise_multiplier=7',
        '--mechanism=tree',
        '--clip_norm=5',
        '--secagg',
        '--secagg_bits=22',
        '--model_dimension=2400000',
        '--restart_first=128',
        '--restart_every=1024',
        '--accountant=analytic_gaussian',
    )['plans']
    discretization = Discretization.for_bits(22, 6500, 2_400_000, 5.0)
    assert row['inflated_norm'] == discretization.inflated_norm
    assert row['bits_per_parameter'] == 22
    restarted = mechanisms.Restarted.every(mechanisms.BinaryTree(1900))
    exact = restarted.sensitivity(Participation(1900, 461))
    assert row['sensitivity'] == pytest.approx(exact * discretization.inflated_norm / 5)


def test_text_shows_what_differs_and_rounds_guarantees_up(run):
    done = run(
        *_ES_ES,
        '--clients_per_round=6500',
        '--mechanism=tree',
        '--noise_multiplier=7',
        '--sweep_min_separation=300,600',
        '--accountant=analytic_gaussian',
    )
    assert done.returncode == 0, done.stderr
    shared, table, assumptions = done.stdout.split('\n\n')
    assert 'noise_multiplier' in shared and 'rho' not in shared.split()
    header, *lines = (line.split() for line in table.splitlines())
    assert [line[header.index('min_separation')] for line in lines] == ['300', '600']
    for line, separation in zip(lines, (300, 600), strict=True):
        shown = float(line[header.index('rho')])
        exact = _tree_plan(separation, 7.0).rho
        assert exact <= shown <= exact * 1.001
    assert assumptions.startswith('Assumptions:\n- The population is an estimate')
    none = run(*_ES_ES, '--clients_per_round=6500', '--mechanism=tree', '--noise_multiplier=0')
    assert 'no privacy guarantee' in none.stdout and none.returncode == 0


def test_no_tensorflow():
    code = (
        'import sys, dpfl.cli.binaries.accounting.plan_privacy\n'
        'print([m for m in sys.modules if m.startswith("tensorflow")])'
    )
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=binaries.ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == '[]'


def test_auto_can_be_for_the_models_of_the_server():
    def losses(**server):
        request = Request(
            privacy=PrivacyConfig(
                mechanism='auto',
                workload='server' if server else 'prefix_sums',
                noise_multiplier=1.0,
                model_dimension=1000,
            ),
            planning=PlanningConfig(),
            schema=dict(
                rounds=30,
                min_separation=10,
                max_participations=None,
                population=100,
                clients_per_round=10,
                timer_hours=None,
            ),
            server=ServerConfig(**server),
        )
        request.check()
        workload = request.workload(30)
        schema = Participation(30, 10)
        found, _ = answer._candidates(request, answer._deployment(request, {}))
        return [each.make(schema).max_loss(schema, workload) for each in found], workload

    plain, no_workload = losses()
    cooled, workload = losses(server_schedule='linear', server_momentum=0.5)
    assert no_workload is None
    assert cooled == sorted(cooled) and plain == sorted(plain)
    assert workload.shape == (30, 30)


@pytest.mark.parametrize(
    'flags, message',
    [
        ([], '--noise_multiplier: must be given, or a target, or a simulation'),
        (['--target_rho=nan'], '--target_rho=nan: must be a finite number'),
        (['--target_epsilon=1e-9', '--accountant=rdp'], '--target_epsilon=1e-09: must be at least'),
        (['--target_epsilon=1', '--delta=1'], '--delta=1.0: must be a finite number > 0 and < 1'),
        (['--noise_multiplier=7', '--min_separation=700'], '--min_separation=700: must be <= 647'),
        (
            ['--noise_multiplier=7', '--max_participations=4'],
            '--max_participations=4: must be <= 3',
        ),
        (['--noise_multiplier=7', '--sweep_rounds=10,x'], '--sweep_rounds=10,x: must be comma-'),
        (['--noise_multiplier=7', '--mechanism=auto'], '--model_dimension: must be given'),
        (
            [
                '--target_rho=1',
                '--mechanism=auto',
                '--model_dimension=9',
                '--simulated_noise_multiplier=1',
                '--simulated_clients_per_round=9',
            ],
            '--max_clients_per_round: needs a target',
        ),
        (['--noise_multiplier=7', '--workload=server'], '--workload=server: needs mechanism=auto'),
        (
            ['--noise_multiplier=7', '--server_schedule=cosine'],
            '--server_schedule=cosine: needs workload=server',
        ),
    ],
)
def test_bad_flags_are_one_line_and_status_2(flags, message):
    done = _forked(*_ES_ES, '--clients_per_round=6500', '--mechanism=tree', *flags)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert message in done.stderr
