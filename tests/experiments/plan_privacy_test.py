"""The planning binary against direct calls of the library: a plan, several, with sampling."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms, strategies
from dpfl.accounting.records import archive
from dpfl.mechanisms.discretization import Discretization
from tests import forked_binaries
from tests.accounting import plans

_planned = functools.partial(forked_binaries.printed, 'plan_privacy')
# Two processes may use other numbers of threads.
_about = functools.partial(pytest.approx, rel=1e-12)
_ES_ES = ('--population=4210000', '--rounds=1900', '--clients_per_round=6500')
_TREE = (*_ES_ES, '--mechanism=tree', '--noise_multiplier=7', '--accountant=analytic_gaussian')
_CYCLIC = (
    '--population=171000',
    '--clients_per_round=100',
    '--rounds=2052',
    '--sampling=cyclic_poisson',
    '--delta=1e-6',
)


def _plans(*flags):
    return _planned(*flags)['plans']


def _tree_plan(separation, noise_multiplier, clients_per_round=6500, rounds=1900):
    return plans.production(
        mechanism=mechanisms.BinaryTree(rounds),
        participation=Participation(rounds, separation),
        noise_multiplier=noise_multiplier,
        clients_per_round=clients_per_round,
    )


@pytest.mark.standard
def test_a_blt_without_parameters_is_that_of_train():
    flags = ('--population=300', '--clients_per_round=10', '--rounds=60', '--noise_multiplier=3')
    result = _planned(*flags, '--mechanism=blt', '--accountant=analytic_gaussian')
    schema = Participation(60, 30)
    assert result['plans'][0]['sensitivity'] == _about(
        mechanisms.optimize_blt(schema).sensitivity(schema)
    )
    report = forked_binaries.printed(
        'report_privacy',
        *('--mechanism=blt', '--rounds=60', '--min_separation=30', '--noise_multiplier=3'),
        *('--accountant=analytic_gaussian', '--delta=1e-10'),
    )
    assert report['epsilon'] == _about(result['plans'][0]['epsilon'])
    # Without the number of parameters the estimate says which would do.
    assert (result['feasible'], result['noise_to_signal']) == ('doubtful', None)


def test_production_setting_of_document_000():
    # es-ES: a timer of 24 hours gave an observed MinS of 313; the population allows 647.
    result = _planned(*_TREE, '--timer_hours=24', '--round_minutes=4.6')
    [row] = result['plans']
    direct = _tree_plan(313, 7.0)
    assert row['population_separation'] == 647
    assert row['timer_separation'] == row['min_separation'] == 313
    assert row['separation_limit'] == 'timer'
    assert row['max_participations'] == 7
    assert row['rho'] == _about(direct.rho) and row['sensitivity'] == _about(direct.sensitivity)
    assert row['epsilon'] == _about(direct.epsilon(1e-10, 'analytic_gaussian'))
    assert row['prefix_noise'] == _about(7.0 * direct.mechanism.max_error() / 6500)
    text = ' '.join(result['assumptions'])
    for words in ('an estimate', 'Rounds take 4.6 minutes', 'No amplification', 'every node'):
        assert words in text


@pytest.mark.standard
def test_a_timer_counts_its_slowest_window(tmp_path):
    # Rounds of 4 minutes by day, and of 12 in the first six hours of a day: 30 and 270 of 300.
    day = np.concatenate([np.arange(0, 360, 12), np.arange(360, 1440, 4)])
    minutes = np.concatenate([1440 * d + day for d in range(4)])
    path = tmp_path / 'times.csv'
    lines = [f'{i},{60 * m}\n' for i, m in enumerate(minutes)]
    path.write_text('round,start\n' + ''.join(lines))
    pattern = tmp_path / 'pattern.txt'
    pattern.write_text(' '.join(['5'] * 6 + ['15'] * 18))
    listed = ','.join(['1'] * 6 + ['3'] * 18)
    cases = {
        (6, f'--round_times={path}'): 30,
        (24, f'--round_times={path}'): 300,
        (6, '--round_minutes=4.8', f'--daily_pattern={pattern}'): 30,
        (48, '--round_minutes=4.8', f'--daily_pattern={listed}'): 600,
        (48, '--rounds_by_day=300,280,310'): 280,
        (24, '--rounds_by_day=300,280,310'): 1,
    }
    for (hours, *flags), rounds in cases.items():
        result = _planned(*_TREE, f'--timer_hours={hours}', *flags)
        [row] = result['plans']
        assert row['timer_separation'] == row['min_separation'] == rounds, flags
        assert row['rho'] == _about(_tree_plan(rounds, 7.0).rho)
        [sentence] = [each for each in result['assumptions'] if each.startswith('A timer of')]
        assert f'covers {rounds} rounds: ' in sentence


@pytest.mark.standard
def test_a_timer_limits_the_participations_in_recorded_rounds(tmp_path):
    # Ten days of 24 rounds, of which the first has only twelve: with a separation of 12, up to
    # ceil(226 / 12) = 19 rounds would be possible, but there are ten days.
    hours = np.concatenate([np.arange(0, 24, 2), np.arange(24, 238)])
    path = tmp_path / 'times.csv'
    path.write_text('round,start\n' + ''.join(f'{i},{3600 * h}\n' for i, h in enumerate(hours)))
    flags = (*_TREE, '--timer_hours=24', f'--round_times={path}')
    for rounds, most in ((226, 10), (100, 5), (227, 19)):  # 227 are more than the file has.
        result = _planned(*flags, f'--rounds={rounds}')
        [row] = result['plans']
        assert (row['min_separation'], row['max_participations']) == (12, most)
        schema = Participation(rounds, 12, most)
        direct = dataclasses.replace(_tree_plan(12, 7.0, rounds=rounds), participation=schema)
        assert row['rho'] == _about(direct.rho)
        text = ' '.join(result['assumptions'])
        assert (f'more than {most} of {rounds} consecutive rounds' in text) == (rounds < 227)
    done = forked_binaries.run('plan_privacy', *flags, '--rounds=100', '--max_participations=6')
    assert done.returncode == 2
    assert '--max_participations=6: must be <= 5, what 100 rounds and a timer' in done.stderr
    # With a population for eleven rounds, rounds wait for clients, and take longer than these.
    [row] = _planned(*flags, '--rounds=226', '--population=71500')['plans']
    assert (row['min_separation'], row['max_participations']) == (11, 21)


@pytest.mark.standard
def test_a_calibrated_plan_meets_its_target_with_every_mechanism():
    result = _planned(
        '--population=300',
        '--clients_per_round=10',
        '--rounds=60',
        '--target_epsilon=5',
        '--delta=1e-8',
        '--accountant=rdp',
        '--model_dimension=2400000',
        '--memory_limit=0.05',
    )
    names = [row['mechanism'] for row in result['plans']]
    assert 'gaussian' in names and len(names) > 2
    assert any('larger than 0.05 GB' in row['verdict'] for row in result['left'])
    for row in result['plans']:
        assert 5 * (1 - 1e-6) < row['epsilon'] <= 5
        assert row['epsilon'] == _about(accounting.epsilon_from_mu(row['mu'], 1e-8, 'rdp'))
    noises = [row['prefix_noise'] for row in result['plans']]
    assert noises == sorted(noises)  # The best first.
    gaussian = result['plans'][names.index('gaussian')]
    assert gaussian['sensitivity'] == mechanisms.Identity(60).sensitivity(Participation(60, 30))
    assert result['feasible'] == 'no' and result['noise_to_signal'] > 100
    assert any('Any of these would do: ' in sentence for sentence in result['advice'])


@pytest.mark.standard
def test_the_least_report_goal_for_a_target():
    search = [
        *_ES_ES[:2],
        '--mechanism=tree',
        '--simulated_noise_multiplier=0.54',
        '--simulated_clients_per_round=500',
        '--target_rho=0.2',
    ]
    [row] = _plans(*search, '--max_clients_per_round=20000')
    cohort = row['clients_per_round']
    assert row['rho'] <= 0.2 and row['noise_over_simulation'] == pytest.approx(1)
    assert row['noise_multiplier'] == pytest.approx(0.54 * cohort / 500)
    smaller = _tree_plan(4_210_000 // (cohort - 1), 0.54 * (cohort - 1) / 500)
    assert smaller.rho > 0.2
    # Strategy 3: with fewer clients than that, more noise than the simulation had.
    result = _planned(*search, '--max_clients_per_round=8000')
    [row] = result['plans']
    assert row['clients_per_round'] == 8000 and row['rho'] <= 0.2
    assert row['noise_over_simulation'] > 1.1
    assert row['noise_multiplier'] == pytest.approx(row['sensitivity'] / 0.4**0.5)
    assert 'expect less utility' in result['assumptions'][-1]


@pytest.mark.standard
def test_sweeps_as_in_figure_4_of_document_000(tmp_path):
    plot = tmp_path / 'plan.png'
    rows = _plans(
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
    )
    assert [(row['population'], row['clients_per_round']) for row in rows] == [
        (n, m) for n in (2_000_000, 20_000_000) for m in (1000, 4000, 16_000)
    ]
    for row in rows:
        m = row['clients_per_round']
        separation = min(2000, row['population'] // 2 // m)
        direct = _tree_plan(separation, 7.0 * m / 6500, m, 2000)
        assert row['min_separation'] == separation and row['rho'] == _about(direct.rho)
    assert plot.stat().st_size > 5000


def _run_of(folder, plan, delta, accountant):
    """A directory that holds the plan of a run."""
    record = archive.PlanRecord(plan, (delta,), accountant, True)
    (folder / archive.PLAN).write_text(record.to_json())
    mechanisms.save(plan.mechanism, folder / archive.STRATEGY)
    return f'--run_dir={folder}'


def test_a_small_run_is_scaled_as_in_table_2_of_document_001(tmp_path):
    # sigma = 0.003 and S = 15 with 100 clients; the table has 5000 of 763,430 and of 1e8.
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(5000),
        participation=Participation(5000),
        clip_norm=15.0,
        noise_multiplier=100 * 0.003 / 15,
        clients_per_round=100,
        sampling=accounting.Poisson(population=763_430),
    )
    run = _run_of(tmp_path, plan, 1e-9, 'moments')
    plot = tmp_path / 'plot.png'
    flags = ('--clients_per_round=5000', '--sweep_population=763430,100000000', f'--plot={plot}')
    found = _planned(run, *flags)
    assert [row['noise_multiplier'] for row in found['plans']] == pytest.approx([1.0, 1.0])
    assert [round(row['epsilon'], 3) for row in found['plans']] == [4.634, 1.152]
    assert 'from 0.02 with 100 clients' in found['assumptions'][-1] and plot.stat().st_size > 5000
    [row] = _plans(run, *flags[:1], '--population=763430', '--delta=1e-10', '--accountant=rdp')
    assert (row['delta'], row['accountant']) == (1e-10, 'rdp')
    silent = _run_of(tmp_path, dataclasses.replace(plan, noise_multiplier=0.0), 1e-9, 'rdp')
    done = forked_binaries.run('plan_privacy', silent, *flags)
    assert done.returncode == 2 and 'the run has no noise' in done.stderr


def test_a_scaled_run_keeps_what_its_plan_has_and_takes_the_separation_of_the_population(tmp_path):
    # [Xu23-accounting]: 6500 clients, min separation 314, noise multiplier 7; rho 0.8061 there is
    # for 6 participations, and a population that allows the separation allows 7.
    small = dataclasses.replace(
        _tree_plan(100, 7 * 500 / 6500, 500, 2000), estimator=accounting.Estimator('clipped', 250.0)
    )
    run = _run_of(tmp_path, small, 1e-10, 'analytic_gaussian')
    flags = (run, f'--population={6500 * 314}', '--clients_per_round=6500')
    [row], [limited] = _plans(*flags), _plans(*flags, '--max_participations=7')
    assert row['noise_multiplier'] == pytest.approx(7.0)
    assert (row['min_separation'], row['max_participations']) == (314, 7)
    direct = _tree_plan(314, row['noise_multiplier'], rounds=2000)
    assert row['rho'] == limited['rho'] == _about(direct.rho)
    # The clipped estimator divides by at least half of the clients, with twice the noise.
    assert row['prefix_noise'] == _about(4 * 5 * 7.0 * small.mechanism.max_error() / 6500)


@pytest.mark.standard
def test_secure_aggregation_and_restarts_count():
    [row] = _plans(
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
    )
    discretization = Discretization.for_bits(22, 6500, 2_400_000, 5.0)
    assert row['inflated_norm'] == _about(discretization.inflated_norm)
    restarted = mechanisms.Restarted.every(mechanisms.BinaryTree(1900))
    exact = restarted.sensitivity(Participation(1900, 461))
    assert row['sensitivity'] == pytest.approx(exact * discretization.inflated_norm / 5)


def test_text_shows_what_differs_and_rounds_guarantees_up():
    done = forked_binaries.run('plan_privacy', *_TREE, '--sweep_min_separation=300,600')
    assert done.returncode == 0, done.stderr
    shared, table, assumptions = done.stdout.split('\n\n')
    assert 'noise_multiplier' in shared and 'rho' not in shared.split()
    header, *lines = (line.split() for line in table.splitlines())
    assert [line[header.index('min_separation')] for line in lines] == ['300', '600']
    for line, separation in zip(lines, (300, 600), strict=True):
        shown = float(line[header.index('rho')])
        exact = _tree_plan(separation, 7.0).rho
        assert exact * (1 - 1e-12) <= shown <= exact * 1.001
    assert assumptions.startswith('Assumptions:\n- The population is an estimate')
    none = forked_binaries.run('plan_privacy', *_TREE, '--noise_multiplier=0')
    assert 'no privacy guarantee' in none.stdout and none.returncode == 0
    one = forked_binaries.run(
        'plan_privacy', *_ES_ES, '--mechanisms=tree=0,gaussian=7', '--accountant=analytic_gaussian'
    )
    assert 'population is an estimate' in one.stdout and 'no privacy' not in one.stdout


@pytest.mark.standard
def test_the_choice_of_the_mechanism_is_one_line_and_its_reasons_are_in_a_file(tmp_path):
    flags = ['--population=40', '--clients_per_round=10', '--rounds=8', '--mechanism=auto']
    flags += ['--model_dimension=24000', '--memory_limit=0', '--noise_multiplier=4']
    data = tmp_path / 'plans.json'
    line, _, rest = forked_binaries.run('plan_privacy', *flags).stdout.partition('\n\n')
    assert line == 'took gaussian, the least loss; --data=FILE writes the reasons'
    line, _, same = forked_binaries.run('plan_privacy', *flags, f'--data={data}').stdout.partition(
        '\n\n'
    )
    assert line == f'took gaussian, the least loss; reasons in {data}' and same == rest
    assert 'honaker_tree' not in rest and '- gaussian: ' in rest
    rows = {row['mechanism']: row['verdict'] for row in json.loads(data.read_text())}
    assert rows['gaussian'] == 'taken: the least loss' and len(rows) == 8
    assert rows['honaker_tree'] == 'left: its state is larger than 0 GB'


@pytest.mark.standard
def test_production_mechanisms_over_rounds_as_in_document_002(tmp_path):
    # Figure 9: BLT has the smaller rho in every round, with fixed separation.
    data, plot = tmp_path / 'rounds.json', tmp_path / 'rounds.png'
    _planned(
        '--population=2600000',
        *_ES_ES[2:],
        '--rounds=3000',
        '--mechanisms=honaker_tree=7,blt_b400=7.379',
        '--sweep_rounds=1000,3000',
        f'--data={data}',
        f'--plot={plot}',
    )
    rows = {(row['mechanism'], row['rounds']): row for row in json.loads(data.read_text())}
    assert len(rows) == 4 and plot.stat().st_size > 5000
    for rounds in (1000, 3000):
        tree, other = rows['honaker_tree', rounds], rows['blt_b400', rounds]
        assert other['rho'] < tree['rho'] and other['max_participations'] == -(-rounds // 400)
        direct = plans.production(
            mechanism=strategies.load('blt_b400').with_rounds(rounds),
            participation=Participation(rounds, 400),
            noise_multiplier=7.379,
        )
        assert other['rho'] == _about(direct.rho)
        assert other['prefix_noise'] == _about(7.379 * direct.mechanism.max_error() / 6500)


@pytest.mark.standard
def test_noise_that_matches_a_tree():
    # Section 5 of document 002: the same root mean square error as TreeAgg with 7.
    flags = ('--population=2600000', '--clients_per_round=6500', '--rounds=2000')
    flags += ('--mechanisms=honaker_tree,blt_b400,blt_b100',)
    result = _planned(*flags, '--match=rmse:honaker_tree,7@1500', '--sweep_rounds=1000,2000')
    tree = mechanisms.HonakerTree(1500).rms_error()
    for row in result['plans']:
        expected = 7.0
        if row['mechanism'] != 'honaker_tree':
            own = strategies.load(row['mechanism']).with_rounds(1500)
            expected = 7 * tree / own.rms_error()
        assert row['noise_multiplier'] == pytest.approx(expected, rel=1e-12)
        assert row['matched_value'] == pytest.approx(7 * tree, rel=1e-12)
    assert 'over the first 1500 rounds' in ' '.join(result['assumptions'])
    rows = _plans(*flags, '--match=rho:blt_b400,7.379', '--accountant=analytic_gaussian')
    assert {round(row['rho'] / rows[1]['rho'], 9) for row in rows} == {1.0}
    assert rows[1]['noise_multiplier'] == pytest.approx(7.379, rel=1e-12)


@pytest.mark.standard
def test_several_mechanisms_with_sampling():
    several = '--mechanisms=gaussian=2,stackoverflow_banded_toeplitz=5'
    result = _planned(*_CYCLIC, several, '--sweep_clients_per_round=50,100')
    rows = result['plans']
    assert [row['clients_per_round'] for row in rows] == [50, 50, 100, 100]
    assert rows[1]['epsilon'] < rows[3]['epsilon'] and rows[0]['epsilon'] < rows[2]['epsilon']
    assert {row['separation_limit'] for row in rows} == {'cyclic_poisson'}
    text = ' '.join(result['assumptions'])
    assert 'divided into' in text and 'No amplification' not in text
