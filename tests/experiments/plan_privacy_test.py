"""`plan_privacy` against the library: a plan, several, sweeps, and the commands that run it."""

import dataclasses
import functools
import json
import shlex

import numpy as np
import pytest

from dpfl import Participation, _setting_texts, accounting, mechanisms
from dpfl.accounting.records import archive
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import build_plan
from tests import forked_binaries
from tests.accounting import plans

_run = functools.partial(forked_binaries.run, 'plan_privacy')
_planned = functools.partial(forked_binaries.printed, 'plan_privacy')
# Two processes may use other numbers of threads.
_about = functools.partial(pytest.approx, rel=1e-12)
_ES_ES = ('--population=4210000', '--rounds=1900', '--clients_per_round=6500')
_TREE = (*_ES_ES, '--mechanism=tree', '--noise_multiplier=7', '--accountant=analytic_gaussian')


def _plans(*flags):
    return _planned(*flags)['plans']


def _tree_plan(separation, noise_multiplier, clients_per_round=6500, rounds=1900):
    return plans.production(
        mechanism=mechanisms.BinaryTree(rounds),
        participation=Participation(rounds, separation),
        noise_multiplier=noise_multiplier,
        clients_per_round=clients_per_round,
    )


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


def _times(path, hours):
    """Writes the hours at which rounds were opened; the flag that names the file."""
    rows = (f'{i},{round(3600 * h)}\n' for i, h in enumerate(hours))
    path.write_text('round,start\n' + ''.join(rows))
    return f'--round_times={path}'


@pytest.mark.standard
def test_a_timer_counts_its_slowest_window(tmp_path):
    # Rounds of 4 minutes by day, and of 12 in the first six hours of a day: 30 and 270 of 300.
    day = np.concatenate([np.arange(0, 360, 12), np.arange(360, 1440, 4)]) / 60
    times = _times(tmp_path / 'times.csv', np.concatenate([24 * d + day for d in range(4)]))
    pattern = tmp_path / 'pattern.txt'
    pattern.write_text(' '.join(['5'] * 6 + ['15'] * 18))
    listed = ','.join(['1'] * 6 + ['3'] * 18)
    for hours, flags, rounds in (
        (6, times, 30),
        (24, times, 300),
        (6, f'--round_minutes=4.8 --daily_pattern={pattern}', 30),
        (48, f'--round_minutes=4.8 --daily_pattern={listed}', 600),
        (48, '--rounds_by_day=300,280,310', 280),
        (24, '--rounds_by_day=300,280,310', 1),
    ):
        result = _planned(*_TREE, f'--timer_hours={hours}', *flags.split())
        [row] = result['plans']
        assert row['timer_separation'] == row['min_separation'] == rounds, flags
        [sentence] = [each for each in result['assumptions'] if each.startswith('A timer of')]
        assert f'covers {rounds} rounds: ' in sentence


@pytest.mark.standard
def test_a_timer_limits_the_participations_in_recorded_rounds(tmp_path):
    # Ten days of 24 rounds, of which the first has only twelve: with a separation of 12, up to
    # ceil(226 / 12) = 19 rounds would be possible, but there are ten days.
    hours = np.concatenate([np.arange(0, 24, 2), np.arange(24, 238)])
    flags = (*_TREE, '--timer_hours=24', _times(tmp_path / 'times.csv', hours))
    for rounds, population, separation, most in (
        (226, 4_210_000, 12, 10),
        (100, 4_210_000, 12, 5),
        (227, 4_210_000, 12, 19),  # More than the file has.
        # With a population for eleven rounds, rounds wait for clients, and take longer than these.
        (226, 71_500, 11, 21),
    ):
        result = _planned(*flags, f'--rounds={rounds}', f'--population={population}')
        [row] = result['plans']
        assert (row['min_separation'], row['max_participations']) == (separation, most)
        schema = Participation(rounds, separation, most)
        direct = plans.replaced(_tree_plan(1, 7.0, rounds=rounds), participation=schema)
        assert row['rho'] == _about(direct.rho)
        said = f'more than {most} of {rounds} consecutive rounds' in ' '.join(result['assumptions'])
        assert said == (most <= 10)


@pytest.mark.standard
def test_a_calibrated_plan_meets_its_target_with_every_mechanism():
    flags = ('--population=300', '--clients_per_round=10', '--rounds=60', '--target_epsilon=5')
    flags += ('--delta=1e-8', '--accountant=rdp', '--model_dimension=2400000')
    result = _planned(*flags, '--memory_limit=0.05')
    rows = result['plans']
    assert 'gaussian' in [row['mechanism'] for row in rows] and len(rows) > 2
    assert any('larger than 0.05 GB' in row['verdict'] for row in result['left'])
    for row in rows:
        assert 5 * (1 - 1e-6) < row['epsilon'] <= 5
        assert row['epsilon'] == _about(accounting.epsilon_from_mu(row['mu'], 1e-8, 'rdp'))
    noises = [row['prefix_noise'] for row in rows]
    assert noises == sorted(noises)  # The best first.
    assert result['feasible'] == 'no' and result['noise_to_signal'] > 100
    assert any('Any of these would do: ' in sentence for sentence in result['advice'])


@pytest.mark.standard
def test_sweeps_as_in_figure_4_of_document_000(tmp_path):
    plot = tmp_path / 'plan.png'
    flags = ('--population=1000000', '--rounds=2000', '--mechanism=tree', '--availability=0.5')
    flags += ('--simulated_noise_multiplier=7', '--simulated_clients_per_round=6500')
    flags += ('--sweep_clients_per_round=1000,16000', '--sweep_population=2000000,20000000')
    rows = _plans(*flags, '--accountant=analytic_gaussian', f'--plot={plot}')
    assert [(row['population'], row['clients_per_round']) for row in rows] == [
        (n, m) for n in (2_000_000, 20_000_000) for m in (1000, 16_000)
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
    plan = plans.independent(
        5000,
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
    done = _run(silent, *flags)
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


def test_text_shows_what_differs_and_rounds_guarantees_up():
    done = _run(*_TREE, '--sweep_min_separation=300,600', check=True)
    shared, table, assumptions = done.stdout.split('\n\n')
    assert 'noise_multiplier' in shared and 'rho' not in shared.split()
    header, *lines = (line.split() for line in table.splitlines())
    assert [line[header.index('min_separation')] for line in lines] == ['300', '600']
    for line, separation in zip(lines, (300, 600), strict=True):
        for name in ('sensitivity', 'rho'):
            shown = float(line[header.index(name)])
            exact = getattr(_tree_plan(separation, 7.0), name)
            assert exact * (1 - 1e-12) <= shown <= exact * 1.001
    assert assumptions.startswith('Assumptions:\n- The population is an estimate')
    none = _run(*_TREE, '--noise_multiplier=0', check=True)
    assert 'no privacy guarantee' in none.stdout
    one = _run(*_ES_ES, '--mechanisms=tree=0,gaussian=7', '--accountant=analytic_gaussian')
    assert 'population is an estimate' in one.stdout and 'no privacy' not in one.stdout


@pytest.mark.standard
def test_the_choice_of_the_mechanism_is_one_line_and_its_reasons_are_in_a_file(tmp_path):
    flags = ['--population=40', '--clients_per_round=10', '--rounds=8', '--mechanism=auto']
    flags += ['--model_dimension=24000', '--memory_limit=0', '--noise_multiplier=4']
    data = tmp_path / 'plans.json'
    line, _, rest = _run(*flags).stdout.partition('\n\n')
    assert line == 'took gaussian, the least loss; --data=FILE writes the reasons'
    line, _, same = _run(*flags, f'--data={data}').stdout.partition('\n\n')
    assert line == f'took gaussian, the least loss; reasons in {data}' and same == rest
    assert 'honaker_tree' not in rest and '- gaussian: ' in rest
    rows = {row['mechanism']: row['verdict'] for row in json.loads(data.read_text())}
    assert rows['gaussian'] == 'taken: the least loss' and len(rows) == 8
    assert rows['honaker_tree'] == 'left: its state is larger than 0 GB'


@pytest.mark.standard
def test_several_mechanisms_with_sampling():
    flags = ('--population=171000', '--clients_per_round=100', '--rounds=2052', '--delta=1e-6')
    flags += ('--sampling=cyclic_poisson', '--sweep_clients_per_round=50,100')
    result = _planned(*flags, '--mechanisms=gaussian=2,stackoverflow_banded_toeplitz=5')
    rows = result['plans']
    assert [row['clients_per_round'] for row in rows] == [50, 50, 100, 100]
    assert rows[1]['epsilon'] < rows[3]['epsilon'] and rows[0]['epsilon'] < rows[2]['epsilon']
    assert {row['separation_limit'] for row in rows} == {'cyclic_poisson'}
    text = ' '.join(result['assumptions'])
    assert 'divided into' in text and 'No amplification' not in text


_SMALL = '--population=300 --clients_per_round=10 --rounds=30 --delta=1e-3'
_SECAGG = '--secagg --secagg_bits=22 --model_dimension=1000 --restart_first=9 --restart_every=8'
_BY_MEMORY = f'{_SMALL} --noise_multiplier=4 --model_dimension=34646'


@pytest.mark.standard
@pytest.mark.parametrize(
    ('flags', 'mechanism'),
    [
        # The mechanism that is chosen: as train makes it, of another size.
        (f'{_SMALL} --target_epsilon=4 --model_dimension=34646', 'free_banded'),
        (f'{_BY_MEMORY} --memory_limit=0.0003', 'block_blt'),
        # Optimised for the separation, which only the population gives.
        (f'{_SMALL} --mechanism=blt --noise_multiplier=3 --accountant=analytic_gaussian', 'blt'),
        (
            f'{_SMALL} --mechanism=blt --blt_decay=0.9,0.2 --blt_scale=0.2,0.1 --target_epsilon=3 '
            '--accountant=rdp',
            'blt',
        ),
        (f'{_SMALL} --target_epsilon=4 --mechanism=tree --adjacency=replace_one', 'tree'),
        (f'{_SMALL} --mechanism=tree --target_rho=0.2', 'tree'),
        (f'{_SMALL} --mechanism=tree --noise_multiplier=7 {_SECAGG}', 'tree'),
        (f'{" ".join(_TREE)} --timer_hours=24 --round_minutes=4.6', 'tree'),
        (
            '--population=4210 --rounds=30 --delta=1e-6 --mechanism=tree --target_epsilon=4 '
            '--simulated_noise_multiplier=0.54 --simulated_clients_per_round=5 '
            '--max_clients_per_round=200',
            'tree',
        ),
        (f'{_SMALL} --sampling=poisson --mechanism=gaussian --target_epsilon=3', 'gaussian'),
        (
            f'{_SMALL} --sampling=cyclic_poisson --mechanism=fichtenberger_toeplitz --bands=20 '
            '--target_epsilon=3',
            'fichtenberger_toeplitz',
        ),
        (
            f'{_SMALL} --sampling=cyclic_poisson --groups=9 --mechanism=gaussian '
            '--noise_multiplier=2',
            'gaussian',
        ),
    ],
)
def test_it_ends_with_commands_that_run_its_plan(tmp_path, flags, mechanism):
    found = _planned(*flags.split())
    file = f'{tmp_path}/planned.npz'
    commands = [shlex.split(each.replace('planned.npz', file)) for each in found['commands']]
    *before, (program, name, *words) = commands
    assert program.endswith('dpfl') and name == 'train' and f'--mechanism={mechanism}' in words
    for _, each, *given in before:
        forked_binaries.run(each, *given, check=True)
    texts = dict(word.removeprefix('--').split('=', 1) for word in words)
    is_searched = '--max_clients_per_round' in flags
    assert ('target_epsilon' in texts) == ('--target_epsilon' in flags and not is_searched)
    del texts['output_dir']
    config = _setting_texts.with_texts(TrainConfig(), texts)
    sampling, privacy = config.sampling, config.privacy
    plan = build_plan(
        privacy, sampling, population=lambda: sampling.population, dimension=lambda: 1000
    )
    row = found['plans'][0]
    epsilon = plan.epsilon(privacy.delta, privacy.accountant_of(plan))
    assert epsilon == pytest.approx(row['epsilon'], rel=1e-6)
    assert plan.noise_multiplier == pytest.approx(row['noise_multiplier'], rel=1e-6)
    assert plan.participation.count == row['max_participations']
    assert plan.sensitivity == pytest.approx(row['sensitivity'])


@pytest.mark.standard
def test_the_text_ends_with_the_commands():
    flags = f'{_BY_MEMORY} --memory_limit=0.0003'.split()
    assert _run(*flags).stdout.splitlines()[-2:] == _planned(*flags)['commands']
