"""`report_privacy` of a plan, with or without a log: what the library says of the same plan."""

import functools
import json

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms, strategies
from dpfl.accounting.records import archive
from dpfl.accounting.reports import two_reports
from dpfl.accounting.selection import Selection
from dpfl.cli.flags import participation_log
from dpfl.mechanisms.discretization import Discretization
from dpfl.planning import UniformCohorts
from tests import forked_binaries, json_schema
from tests.accounting import archives, plans

_run = functools.partial(forked_binaries.run, 'report_privacy')


def _printed(*flags):
    values = forked_binaries.printed('report_privacy', *flags)
    json_schema.require_report(values)
    return values


_BLT = '--mechanism=blt --blt_decay=0.9,0.4 --blt_scale=0.2,0.3 --rounds=20'
_OF_BLT = plans.independent(20, mechanism=mechanisms.Blt(20, [0.9, 0.4], [0.2, 0.3]))
_PRODUCTION = '--rounds=1280 --min_separation=301 --max_participations=4'
_BANDED = mechanisms.BandedToeplitz.fichtenberger(7, 3)


@pytest.mark.parametrize(
    ('flags', 'plan'),
    [
        (f'{_BLT} --group_size=3', plans.replaced(_OF_BLT, group_size=3)),
        (f'{_BLT} --noise=hardened', plans.replaced(_OF_BLT, noise='hardened')),
        (
            f'--mechanism=blt --strategy=blt_b400 {_PRODUCTION}',
            plans.independent(
                1280,
                mechanism=strategies.load('blt_b400').with_rounds(1280),
                participation=Participation(1280, 301, 4),
            ),
        ),
        (
            '--mechanism=tree --tree_released=prefix_sums --rounds=9',
            plans.independent(9, mechanism=mechanisms.BinaryTree(9, 'prefix_sums')),
        ),
        (
            '--mechanism=tree --rounds=40 --restart_first=12 --restart_every=16',
            plans.independent(
                40, mechanism=mechanisms.Restarted.every(mechanisms.BinaryTree(40), 12, 16)
            ),
        ),
        (
            '--mechanism=gaussian --rounds=9 --secagg --secagg_scale=3000 --model_dimension=2400',
            plans.independent(9, discretization=Discretization(3000.0, 2400, 1.0)),
        ),
        ('--mechanism=gaussian --sampling=poisson', plans.sampled('poisson')),
        (
            '--mechanism=gaussian --sampling=truncated_poisson --cohort_cap=5',
            plans.sampled('truncated_poisson'),
        ),
        (
            '--mechanism=gaussian --sampling=without_replacement --adjacency=replace_one',
            plans.sampled('without_replacement', adjacency='replace_one'),
        ),
        (
            '--mechanism=fichtenberger_toeplitz --bands=3 --sampling=cyclic_poisson --groups=4',
            plans.sampled(
                'cyclic_poisson', mechanism=_BANDED, participation=Participation(7, 4), groups=4
            ),
        ),
    ],
)
def test_the_report_of_flags_is_that_of_the_plan(flags, plan):
    others = '--noise_multiplier=4 --delta=1e-6 --accountant=rdp --clients_per_round='
    others += '3 --rounds=7 --population=60' if plan.sampling else '10'
    direct = plans.report(plans.replaced(plan, noise_multiplier=4.0), accountant='rdp')
    assert _printed(*flags.split(), *others.split()) == json.loads(direct.to_json())


def test_libraries_print_no_warnings_of_their_own():
    flags = '--mechanism=gaussian --rounds=1 --sampling=poisson --population=2 --accountant=rdp'
    assert not _run(*flags.split(), '--noise_multiplier=1', check=True).stderr


def test_the_page_has_what_the_flags_ask_for():
    flags = f'{_BLT} --noise_multiplier=300 --delta=1e-6 --clients_per_round=10'.split()
    plan = plans.replaced(_OF_BLT, noise_multiplier=300.0)
    report = accounting.PrivacyReport.from_plan(plan, [1e-6])
    assert _run(*flags).stdout == report.render() + '\n'
    report = report.with_tradeoff().selected_from(Selection('geometric', 5.0))
    asked = ('--tradeoff', '--selected_from=geometric:5')
    assert _run(*flags, *asked).stdout == report.render() + '\n'


def test_a_finished_run_for_groups_of_clients(tmp_path):
    run = archives.write_run(tmp_path / 'run')
    one = json.loads((run / archive.REPORT).read_text())
    group = _printed(f'--run_dir={run}', '--group_size=2')
    for before, after in (one, group), (one['observed'], group['observed']):
        before, after = before.get('guarantee', before), after.get('guarantee', after)
        assert after['mu'] == pytest.approx(2 * before['mu'])
    assert group['tradeoff'][0]['tpr'] > one['tradeoff'][0]['tpr']


def test_composition_with_a_simulation_is_a_simulation(tmp_path):
    flags = ('--mechanism=gaussian', '--rounds=9', '--noise_multiplier=15', '--delta=1e-6')
    own, other = (
        plans.report(plans.independent(rounds, noise_multiplier=noise, clients_per_round=1), **said)
        for rounds, noise, said in (
            (9, 15.0, dict(accountant='analytic_gaussian')),
            (4, 5.0, dict(noise_is_seeded=True, train_metrics_released=True)),
        )
    )
    path = tmp_path / 'seeded.json'
    path.write_text(other.to_json())
    flags += ('--accountant=analytic_gaussian', f'--compose_with={path}')
    together = _printed(*flags)['composition']
    assert together == json.loads(json.dumps(two_reports.to_dict([own, other])))
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


def _csv(path, cohorts):
    rows = [f'id{c:x},{1000 + t},{3600 * t}' for t, each in enumerate(cohorts) for c in each]
    path.write_text('device,round,time\n' + '\n'.join(rows))
    return path


@pytest.mark.parametrize(
    ('cohorts', 'basis', 'separation'), [(_KEEPS, 'plan', 4), (_BREAKS, 'log', 3)]
)
def test_a_log_of_rows_counts_as_that_of_a_run(tmp_path, cohorts, basis, separation):
    tree = dict(mechanism=mechanisms.BinaryTree(12), participation=Participation(12, 4))
    direct = plans.report(
        plans.independent(12, clients_per_round=1, **tree),
        log=cohorts,
        accountant='analytic_gaussian',
        also_not_covered=participation_log.NOT_COVERED,
    )
    ParticipationLog(cohorts).save(tmp_path / 'log.npz')
    of_run, of_rows = (
        _printed(*_LOGGED, f'--participation_log={path}')
        for path in (tmp_path / 'log.npz', _csv(tmp_path / 'a', cohorts))
    )
    remarks = of_rows.pop('remarks')
    assert of_run == of_rows == json.loads(direct.to_json())
    assert (of_run['basis'], of_run['min_separation']) == (basis, separation)
    assert f'began at least {separation} hours apart' in ' '.join(remarks)
    assert '14 rows of rounds 1000 to 1011' in remarks[0]


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
    [remark] = values.pop('remarks')
    assert remark.startswith('Separation 2 and at most 4 participations follow from a timer of 5')
    given = ('--rounds=12', '--min_separation=2', '--max_participations=4')
    assert values == _printed(*plain, *given) and values['max_participations'] == 4
    fewer = _printed(*plain, *by_timer, '--max_participations=3')
    assert fewer['max_participations'] == 3


def test_what_uniform_cohorts_would_do_changes_no_number():
    flags = (*_LOGGED, '--clients_per_round=5')
    values = _printed(*flags, '--estimated_population=9000')
    cohorts = UniformCohorts(population=9000, clients_per_round=5, rounds=12)
    assert values.pop('remarks') == cohorts.sentences(4, 3, 1e-6)
    assert values == _printed(*flags)
