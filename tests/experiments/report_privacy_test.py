import functools
import json
import math

import pytest
from scipy import stats

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.records import archive
from dpfl.cli.flags import participation_log
from dpfl.planning import UniformCohorts
from tests import forked_binaries, json_schema
from tests.accounting import archives, plans

_run = functools.partial(forked_binaries.run, 'report_privacy')


def _printed(*flags):
    values = forked_binaries.printed('report_privacy', *flags)
    json_schema.require_report(values)
    return values


_TREE = (
    '--mechanism=tree',
    '--rounds=2000',
    '--min_separation=314',
    '--max_participations=6',
    '--noise_multiplier=7',
    '--delta=1e-10',
)
_FAST_TREE = (*_TREE, '--accountant=analytic_gaussian')
_SIMPLE = ('--delta=1e-6', '--accountant=analytic_gaussian')


def test_tree_run_of_document_003():
    done = _run(*_TREE, '--accountant=rdp', '--format=json')
    assert (done.returncode, done.stderr) == (0, '')
    values = json.loads(done.stdout)
    assert values['rho'] == pytest.approx(0.8061, abs=5e-5)
    assert values['epsilon'] == pytest.approx(8.8986, abs=5e-5)
    assert values['sensitivity_is_exact'] is True
    assert values['max_participations'] == 6
    by_pld = _printed(*_TREE)
    assert by_pld['epsilon'] == pytest.approx(8.526, abs=5e-4)
    assert by_pld['accountant'] == 'pld'


def test_tree_by_what_it_releases():
    by_nodes, by_prefix_sums, honaker = (
        _printed(*_FAST_TREE, *flags)
        for flags in ([], ['--tree_released=prefix_sums'], ['--mechanism=honaker_tree'])
    )
    assert by_prefix_sums['rho'] < by_nodes['rho'] == honaker['rho']
    assert by_prefix_sums['sensitivity_is_exact']
    assert 'every node' in ' '.join(by_nodes['assumptions'])
    assert 'every node' not in ' '.join(by_prefix_sums['assumptions'])


def test_production_blt_of_document_002():
    values = _printed(
        '--mechanism=blt',
        '--strategy=blt_b400',
        '--rounds=1280',
        '--min_separation=301',
        '--max_participations=4',
        '--noise_multiplier=7.379',
        '--delta=1e-10',
    )
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
    blt = mechanisms.Blt(20, [0.9, 0.4], [0.2, 0.3])
    plan = plans.independent(20, mechanism=blt, noise_multiplier=300.0, clients_per_round=50)
    assert done.stdout == accounting.PrivacyReport.from_plan(plan, [1e-6]).render() + '\n'


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
        (_POISSON, 3.899),
        ((*_POISSON, '--rounds=10000', '--accountant=best'), 5.515),
        (_CYCLIC, 1.0),
        ((*_POISSON, '--sampling=truncated_poisson', '--cohort_cap=5500'), 3.899),
        ((*_CYCLIC, '--groups=500', '--population=250000'), 0.9033),
        ((*_FIXED_SIZE, '--accountant=moments', '--adjacency=replace_one_half_shift'), 9.222),
        ((*_FIXED_SIZE, '--accountant=moments', '--adjacency=replace_one'), 58.76),
        ((*_FIXED_SIZE, '--adjacency=replace_one'), 32.12),
    ],
)
def test_sampled_runs_of_documents_001_and_004(flags, epsilon):
    values = _printed(*flags)
    assert values['epsilon'] == pytest.approx(epsilon, rel=2e-4)
    assert values['rho'] is None and values['mu'] is None
    assert 'Who took part is secret' in ' '.join(values['assumptions'])


def test_groups_membership_tests_and_selection():
    flags = ('--mechanism=gaussian', '--rounds=100', '--noise_multiplier=50', *_SIMPLE)
    one, group = (
        _printed(*flags, *more)
        for more in ((), ('--group_size=3', '--tradeoff', '--selected_from=geometric:5'))
    )
    assert group['mu'] == pytest.approx(3 * one['mu']) == pytest.approx(0.6)
    assert group['rho'] == pytest.approx(9 * one['rho'])
    assert group['epsilon'] == pytest.approx(
        accounting.epsilon_from_mu(0.6, 1e-6, 'analytic_gaussian')
    )
    assert group['group_size'] == 3 and 'every group of 3 clients' in group['statement']
    for point in group['tradeoff']:
        threshold = stats.norm.isf(point['fpr'])
        assert point['tpr'] == pytest.approx(stats.norm.sf(threshold - 0.6), rel=1e-9)
    assert group['selection']['epsilon'] > group['epsilon']
    assert not {'group_size', 'tradeoff', 'selection'} & set(one)


def test_a_finished_run_for_groups_of_clients(tmp_path):
    run = archives.write_run(tmp_path / 'run')
    one = json.loads((run / archive.REPORT).read_text())
    group = _printed(f'--run_dir={run}', '--group_size=2')
    assert group['mu'] == pytest.approx(2 * one['mu'])
    assert group['observed']['guarantee']['mu'] == pytest.approx(
        2 * one['observed']['guarantee']['mu']
    )
    assert group['tradeoff'][0]['tpr'] > one['tradeoff'][0]['tpr']


def test_restarts_of_document_000():
    flags = ('--mechanism=tree', '--rounds=4000', '--min_separation=300', *_SIMPLE)
    flags += ('--noise_multiplier=70',)
    plain, restarted = (
        _printed(*flags, *more) for more in ((), ('--restart_first=128', '--restart_every=1024'))
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
    values = _printed(
        '--mechanism=tree',
        f'--rounds={rounds}',
        f'--min_separation={separation}',
        f'--max_participations={most}',
        '--noise_multiplier=7',
        '--clip_norm=5',
        '--secagg',
        '--secagg_scale=3000',
        '--model_dimension=2400000',
        *_SIMPLE,
    )
    assert round(values['rho'], 2) == published
    assert 'inflated norm' in ' '.join(values['assumptions'])
    assert not values['sensitivity_is_exact']


def test_composition_with_another_report(tmp_path):
    first = _printed(*_FAST_TREE)
    path = tmp_path / 'first.json'
    path.write_text(json.dumps(first))
    flags = (*_FAST_TREE, f'--compose_with={path}')
    both = _printed(*flags)
    assert both['composition']['reports'] == 2
    assert both['composition']['rho'] == pytest.approx(2 * first['rho'])
    assert both['composition']['epsilon'] == pytest.approx(
        accounting.epsilon_from_mu(math.sqrt(4 * first['rho']), 1e-10, 'analytic_gaussian')
    )
    assert '## Composition' in _run(*flags).stdout
    for more, message in (
        ('--group_size=2', 'group_size=1: must be 2'),
        ('--selected_from=poisson:3', 'cannot be combined with compose_with'),
        ('--adjacency=replace_one', 'must be replace_one'),
    ):
        done = _run(*flags, more)
        assert done.returncode == 2 and message in done.stderr


def test_composition_with_a_simulation_is_a_simulation(tmp_path):
    path, said = tmp_path / 'seeded.json', dict(noise_is_seeded=True, train_metrics_released=True)
    plan = plans.independent(4, noise_multiplier=5.0)
    path.write_text(plans.report(plan, [1e-10], **said).to_json())
    flags = ('--mechanism=gaussian', '--rounds=9', '--noise_multiplier=15', '--delta=1e-10')
    flags += ('--accountant=analytic_gaussian', f'--compose_with={path}')
    together = _printed(*flags)['composition']
    assert together['noise_is_seeded'] and together['train_metrics_released']
    assert together['statement'].startswith('Simulation: with secret noise this run and 1 other')
    assert 'except for the metrics of the training clients' in together['statement']
    for form in ('text', 'html'):
        page = _run(*flags, f'--format={form}').stdout
        assert 'Composition' in page and together['statement'] in page


# With a participation log, against the library.
_LOGGED = (
    '--mechanism=tree',
    '--rounds=12',
    '--min_separation=4',
    '--noise_multiplier=2',
    '--delta=1e-6',
    '--accountant=analytic_gaussian',
)
_KEEPS = [[1, 2], [3], [4], [5], [1], [2, 3], [6], [7], [1], [2], [3], [4]]
_BREAKS = [[1, 2], [3], [4], [1], [5], [2, 3], [6], [7], [1], [2], [3], [4]]


def _report(cohorts):
    tree = dict(mechanism=mechanisms.BinaryTree(12), participation=Participation(12, 4))
    return plans.report(
        plans.independent(12, clients_per_round=1, **tree),
        log=cohorts,
        accountant='analytic_gaussian',
        also_not_covered=participation_log.NOT_COVERED,
    )


def _csv(path, cohorts, first=1000):
    rows = [f'id{c:x},{first + t},{3600 * t}' for t, each in enumerate(cohorts) for c in each]
    path.write_text('device,round,time\n' + '\n'.join(rows))
    return path


@pytest.mark.parametrize('cohorts', [_KEEPS, _BREAKS])
def test_a_log_of_rows_counts_as_that_of_a_run(tmp_path, cohorts):
    direct = _report(cohorts)
    ParticipationLog(cohorts).save(tmp_path / 'log.npz')
    by_form = {
        form: _printed(*_LOGGED, f'--participation_log={path}')
        for form, path in (('npz', tmp_path / 'log.npz'), ('csv', _csv(tmp_path / 'a', cohorts)))
    }
    remarks = by_form['csv'].pop('remarks')
    assert by_form['npz'] == by_form['csv'] == json.loads(direct.to_json())
    breaks = cohorts is _BREAKS
    assert by_form['csv']['basis'] == ('log' if breaks else 'plan')
    assert by_form['csv']['min_separation'] == (3 if breaks else 4)
    assert f'began at least {3 if breaks else 4} hours apart' in ' '.join(remarks)
    assert '14 rows of rounds 1000 to 1011' in remarks[0]


def test_the_log_of_a_simulation_is_read(tmp_path):
    flags = ('--population=600', '--clients_per_round=20', '--rounds=12', '--timer_hours=20')
    said = forked_binaries.printed('simulate_population', *flags, f'--output={tmp_path}/log.npz')
    seen = _printed(*_LOGGED, f'--participation_log={tmp_path}/log.npz')['observed']
    assert seen['guarantee']['min_separation'] == said['min_separation']
    assert seen['clients'] == said['clients'] and seen['smallest_cohort'] == 20


def test_nothing_of_an_id_is_printed(tmp_path):
    path = tmp_path / 'log.csv'
    for last, form in (('1', 'text'), ('1', 'json'), ('1', 'html'), ('0', 'text'), ('x', 'text')):
        path.write_text(f'client,round\nSECRET1,0\nSECRET2,0\nSECRET1,{last}\n')
        done = _run(*_LOGGED, f'--participation_log={path}', f'--format={form}')
        assert (done.returncode == 0) == (last == '1')
        assert 'SECRET' not in done.stdout + done.stderr
        assert done.returncode == 0 or 'row 3: ' in done.stderr


def test_missing_rounds_are_what_is_given(tmp_path):
    path = _csv(tmp_path / 'log.csv', [[1], [], [2], [1]])
    for meaning, separation in (('empty', 3), ('unused', 2)):
        flags = (f'--participation_log={path}', f'--missing_rounds={meaning}')
        values = _printed(*_LOGGED, *flags)
        assert values['observed']['guarantee']['min_separation'] == separation
        assert '1 of these numbers have no row' in values['remarks'][1]


def test_limits_follow_from_a_timer_and_the_times_of_rounds(tmp_path):
    # A round an hour, but only every second hour at first.
    path = tmp_path / 'times.csv'
    hours = [0, 2, 4, 6, *range(8, 16)]
    path.write_text('round,start\n' + ''.join(f'{i},{3600 * h}\n' for i, h in enumerate(hours)))
    by_timer = (f'--round_times={path}', '--timer_hours=5')
    plain = [flag for flag in _LOGGED if not flag.startswith(('--rounds', '--min_separation'))]
    values = _printed(*plain, *by_timer)
    given = ('--rounds=12', '--min_separation=2', '--max_participations=4')
    direct = _printed(*plain, *given)
    [remark] = values.pop('remarks')
    assert values == direct and direct['max_participations'] == 4
    assert remark.startswith('Separation 2 and at most 4 participations follow from a timer of 5')
    fewer = _printed(*plain, *by_timer, '--max_participations=3')
    assert fewer['max_participations'] == 3


def test_what_uniform_cohorts_would_do_changes_no_number():
    flags = (*_LOGGED, '--clients_per_round=5')
    plain = _printed(*flags)
    values = _printed(*flags, '--estimated_population=9000')
    cohorts = UniformCohorts(population=9000, clients_per_round=5, rounds=12)
    assert values.pop('remarks') == cohorts.sentences(4, 3, 1e-6)
    assert values == plain
