import json
import math

import numpy as np
import pytest
from scipy import stats

from dpfl import Participation, accounting, mechanisms
from tests import forked_binaries, json_schema
from tests.accounting import archives


def _run(*flags):
    done = forked_binaries.run('report_privacy', *flags)
    if '--format=json' in flags and done.returncode == 0:
        json_schema.require_report(json.loads(done.stdout))
    return done


_TREE = (
    '--mechanism=tree',
    '--rounds=2000',
    '--min_separation=314',
    '--max_participations=6',
    '--noise_multiplier=7',
    '--delta=1e-10',
)
_FAST_TREE = (*_TREE, '--accountant=analytic_gaussian')


def test_tree_run_of_document_003():
    done = _run(*_TREE, '--accountant=rdp', '--format=json')
    assert (done.returncode, done.stderr) == (0, '')
    values = json.loads(done.stdout)
    assert values['rho'] == pytest.approx(0.8061, abs=5e-5)
    assert values['epsilon'] == pytest.approx(8.8986, abs=5e-5)
    assert values['sensitivity_is_exact'] is True
    assert values['max_participations'] == 6
    by_pld = json.loads(_run(*_TREE, '--format=json').stdout)
    assert by_pld['epsilon'] == pytest.approx(8.526, abs=5e-4)
    assert by_pld['accountant'] == 'pld'


def test_tree_by_what_it_releases():
    by_nodes, by_prefix_sums, honaker = (
        json.loads(_run(*_FAST_TREE, '--format=json', *flags).stdout)
        for flags in ([], ['--tree_released=prefix_sums'], ['--mechanism=honaker_tree'])
    )
    assert by_prefix_sums['rho'] < by_nodes['rho'] == honaker['rho']
    assert by_prefix_sums['sensitivity_is_exact']
    assert 'every node' in ' '.join(by_nodes['assumptions'])
    assert 'every node' not in ' '.join(by_prefix_sums['assumptions'])


def test_production_blt_of_document_002():
    done = _run(
        '--mechanism=blt',
        '--strategy=blt_b400',
        '--rounds=1280',
        '--min_separation=301',
        '--max_participations=4',
        '--noise_multiplier=7.379',
        '--delta=1e-10',
        '--format=json',
    )
    values = json.loads(done.stdout)
    assert values['rho'] == pytest.approx(0.1534, abs=5e-5)
    assert values['epsilon'] == pytest.approx(3.456, abs=5e-4)
    assert values['mechanism_parameters']['rounds'] == 1280


def test_page_is_the_report_of_the_plan():
    done = _run(
        '--mechanism=blt',
        '--blt_decay=0.9,0.4',
        '--blt_scale=0.2,0.3',
        '--rounds=20',
        '--noise_multiplier=300',
        '--delta=1e-6',
        '--clients_per_round=50',
    )
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Blt(20, [0.9, 0.4], [0.2, 0.3]),
        participation=Participation(20),
        clip_norm=1.0,
        noise_multiplier=300.0,
        clients_per_round=50,
    )
    assert done.stdout == accounting.PrivacyReport.from_plan(plan, [1e-6]).render() + '\n'


def test_strategy_from_a_file(tmp_path):
    path = tmp_path / 'mine.npz'
    mechanisms.save(mechanisms.Blt(5, [0.5], [0.25]), path)
    done = _run(
        '--mechanism=blt',
        f'--strategy={path}',
        '--rounds=9',
        '--noise_multiplier=100',
        '--format=json',
    )
    assert json.loads(done.stdout)['mechanism_parameters']['decay'] == [0.5]


_POISSON = (
    '--mechanism=gaussian',
    '--sampling=poisson',
    '--population=763430',
    '--clients_per_round=5000',
    '--rounds=5000',
    '--noise_multiplier=1',
    '--delta=1e-9',
)
_CYCLIC = (
    '--mechanism=fichtenberger_toeplitz',
    '--bands=342',
    '--sampling=cyclic_poisson',
    '--population=171000',
    '--clients_per_round=100',
    '--rounds=2052',
    '--delta=1e-6',
    '--noise_multiplier=4.62',
)
_FIXED_SIZE = (
    '--mechanism=gaussian',
    '--sampling=without_replacement',
    '--population=342477',
    '--clients_per_round=5000',
    '--rounds=2000',
    '--noise_multiplier=1',
    '--delta=2.92e-6',
)


@pytest.mark.standard
@pytest.mark.parametrize(
    'flags, epsilon',
    [
        ((*_POISSON, '--accountant=moments'), 4.634),
        ((*_POISSON, '--accountant=rdp'), 4.183),
        (_POISSON, 3.899),
        ((*_POISSON, '--rounds=10000', '--accountant=best'), 5.515),
        (_CYCLIC, 1.0),
        ((*_POISSON, '--sampling=truncated_poisson', '--cohort_cap=5500'), 3.899),
        ((*_CYCLIC, '--groups=500', '--population=250000'), 0.9033),
        ((*_FIXED_SIZE, '--accountant=moments', '--adjacency=replace_one_half_shift'), 9.222),
        ((*_FIXED_SIZE, '--accountant=moments', '--adjacency=replace_one'), 58.76),
        ((*_FIXED_SIZE, '--accountant=rdp'), 57.37),
        (_FIXED_SIZE, 23.30),  # of which replace-one makes 32.12
        ((*_FIXED_SIZE, '--adjacency=replace_one'), 32.12),
    ],
)
def test_sampled_runs_of_documents_001_and_004(flags, epsilon):
    values = json.loads(_run(*flags, '--format=json').stdout)
    assert values['epsilon'] == pytest.approx(epsilon, rel=2e-4)
    assert values['rho'] is None and values['mu'] is None
    assert 'Who took part is secret' in ' '.join(values['assumptions'])


def test_groups_membership_tests_and_selection():
    flags = ('--mechanism=gaussian', '--rounds=100', '--noise_multiplier=50', '--delta=1e-6')
    one, group = (
        json.loads(_run(*flags, *more, '--format=json').stdout)
        for more in ((), ('--group_size=3', '--tradeoff', '--selected_from=geometric:5'))
    )
    assert group['mu'] == pytest.approx(3 * one['mu']) == pytest.approx(0.6)
    assert group['rho'] == pytest.approx(9 * one['rho'])
    assert group['epsilon'] == pytest.approx(accounting.epsilon_from_mu(0.6, 1e-6))
    assert group['group_size'] == 3 and 'every group of 3 clients' in group['statement']
    for point in group['tradeoff']:
        threshold = stats.norm.isf(point['fpr'])
        assert point['tpr'] == pytest.approx(stats.norm.sf(threshold - 0.6), rel=1e-9)
    assert group['selection']['epsilon'] > group['epsilon']
    assert not {'group_size', 'tradeoff', 'selection'} & set(one)


def test_a_finished_run_for_groups_of_clients(tmp_path):
    archives.write_run(tmp_path)
    one, group = (
        json.loads(_run(f'--run_dir={tmp_path}', *more, '--format=json').stdout)
        for more in ((), ('--group_size=2',))
    )
    assert group['mu'] == pytest.approx(2 * one['mu'])
    assert group['observed']['guarantee']['mu'] == pytest.approx(
        2 * one['observed']['guarantee']['mu']
    )
    assert group['tradeoff'][0]['tpr'] > one['tradeoff'][0]['tpr']


def test_restarts_of_document_000():
    flags = ('--mechanism=tree', '--rounds=4000', '--min_separation=300', '--noise_multiplier=70')
    plain, restarted = (
        json.loads(_run(*flags, *more, '--format=json').stdout)
        for more in ((), ('--restart_first=128', '--restart_every=1024'))
    )
    assert restarted['mechanism'] == 'restarted'
    assert restarted['mechanism_parameters']['starts'] == [129, 1153, 2177, 3201]
    assert restarted['sensitivity_is_exact'] and restarted['rho'] != plain['rho']


@pytest.mark.parametrize(
    'row',
    [
        (1360, 623, 2, 0.25),
        (1750, 350, 4, 0.52),  # en-US* and es-ES* of [Xu23], table 1
    ],
)
def test_secure_aggregation_rows_of_document_000_count_the_inflated_norm(row):
    rounds, separation, most, published = row
    values = json.loads(
        _run(
            '--mechanism=tree',
            f'--rounds={rounds}',
            f'--min_separation={separation}',
            f'--max_participations={most}',
            '--noise_multiplier=7',
            '--clip_norm=5',
            '--secagg',
            '--secagg_scale=3000',
            '--model_dimension=2400000',
            '--format=json',
        ).stdout
    )
    assert round(values['rho'], 2) == published
    assert 'inflated norm' in ' '.join(values['assumptions'])
    assert not values['sensitivity_is_exact']


def test_composition_with_another_report(tmp_path):
    first = json.loads(_run(*_FAST_TREE, '--format=json').stdout)
    path = tmp_path / 'first.json'
    path.write_text(json.dumps(first))
    flags = (*_FAST_TREE, f'--compose_with={path}')
    both = json.loads(_run(*flags, '--format=json').stdout)
    assert both['composition']['reports'] == 2
    assert both['composition']['rho'] == pytest.approx(2 * first['rho'])
    assert both['composition']['epsilon'] == pytest.approx(
        accounting.epsilon_from_mu(math.sqrt(4 * first['rho']), 1e-10, 'analytic_gaussian')
    )
    assert '## Composition' in _run(*flags).stdout
    for more, message in (
        ('--group_size=2', 'group_size=1: must be 2'),
        ('--selected_from=poisson:3', 'cannot be combined with --compose_with'),
        ('--adjacency=replace_one', 'must be replace_one'),
    ):
        done = _run(*flags, more)
        assert done.returncode == 2 and message in done.stderr


def test_html_page_stands_alone():
    page = _run(*_FAST_TREE, '--format=html').stdout
    assert page.count('<svg') == 2 and '<h2>Assumptions</h2>' in page and '<table>' in page
    # Namespaces of SVG are names, not addresses that a browser would load.
    assert 'src=' not in page and '<link' not in page and '<script' not in page


def test_composition_with_a_simulation_is_a_simulation(tmp_path):
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(4),
        participation=Participation(4),
        clip_norm=1.0,
        noise_multiplier=5.0,
        clients_per_round=3,
    )
    path = tmp_path / 'seeded.json'
    path.write_text(
        accounting.PrivacyReport.from_plan(
            plan, [1e-10], noise_is_seeded=True, train_metrics_released=True
        ).to_json()
    )
    flags = (*_FAST_TREE, f'--compose_with={path}')
    together = json.loads(_run(*flags, '--format=json').stdout)['composition']
    assert together['noise_is_seeded'] and together['train_metrics_released']
    assert together['statement'].startswith('Simulation: with secret noise this run and 1 other')
    assert 'except for the metrics of the training clients' in together['statement']
    for form in ('text', 'html'):
        page = _run(*flags, f'--format={form}').stdout
        assert 'Composition' in page and together['statement'] in page


def test_help_names_the_flags():
    done = _run('--helpfull')
    assert '--min_separation' in done.stdout
    assert 'Traceback' not in done.stdout + done.stderr


def test_infinite_guarantee_is_null():
    values = json.loads(
        _run('--mechanism=gaussian', '--rounds=3', '--noise_multiplier=0', '--format=json').stdout
    )
    assert values['rho'] is None and values['epsilon'] is None
    assert np.isfinite(values['sensitivity'])
