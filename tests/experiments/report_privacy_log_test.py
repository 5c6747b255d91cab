"""`report_privacy` with a participation log, against the library."""

import functools
import json

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.cli.flags import participation_log
from dpfl.participation import UniformCohorts
from tests import forked_binaries

_run = functools.partial(forked_binaries.run, 'report_privacy')
_PLAN = (
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
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.BinaryTree(12),
        participation=Participation(12, 4),
        clip_norm=1.0,
        noise_multiplier=2.0,
        clients_per_round=1,
    )
    log = ParticipationLog(cohorts)
    return accounting.PrivacyReport.from_plan(
        plan,
        [1e-6],
        log,
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
        form: json.loads(_run(*_PLAN, f'--participation_log={path}', '--format=json').stdout)
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
    simulate = functools.partial(forked_binaries.run, 'simulate_population', '--population=600')
    flags = ('--clients_per_round=20', '--rounds=12', '--timer_hours=20', '--format=json')
    simulated = simulate(*flags, f'--output={tmp_path}/log.npz')
    assert simulated.returncode == 0, simulated.stderr
    done = _run(*_PLAN, f'--participation_log={tmp_path}/log.npz', '--format=json')
    seen, said = json.loads(done.stdout)['observed'], json.loads(simulated.stdout)
    assert seen['guarantee']['min_separation'] == said['min_separation']
    assert seen['clients'] == said['clients'] and seen['smallest_cohort'] == 20


def test_nothing_of_an_id_is_printed(tmp_path):
    path = tmp_path / 'log.csv'
    for last in ('1', '0', 'x'):
        path.write_text(f'client,round\nSECRET1,0\nSECRET2,0\nSECRET1,{last}\n')
        for form in ('text', 'json', 'html'):
            done = _run(*_PLAN, f'--participation_log={path}', f'--format={form}')
            assert (done.returncode == 0) == (last == '1')
            assert 'SECRET' not in done.stdout + done.stderr
            assert done.returncode == 0 or 'row 3: ' in done.stderr


def test_missing_rounds_are_what_is_given(tmp_path):
    path = _csv(tmp_path / 'log.csv', [[1], [], [2], [1]])
    for meaning, separation in (('empty', 3), ('unused', 2)):
        done = _run(
            *_PLAN, f'--participation_log={path}', f'--missing_rounds={meaning}', '--format=json'
        )
        values = json.loads(done.stdout)
        assert values['observed']['guarantee']['min_separation'] == separation
        assert '1 of these numbers have no row' in values['remarks'][1]


def test_limits_follow_from_a_timer_and_the_times_of_rounds(tmp_path):
    # A round an hour, but only every second hour at first.
    path = tmp_path / 'times.csv'
    hours = [0, 2, 4, 6, *range(8, 16)]
    path.write_text('round,start\n' + ''.join(f'{i},{3600 * h}\n' for i, h in enumerate(hours)))
    by_timer = (f'--round_times={path}', '--timer_hours=5')
    plain = [flag for flag in _PLAN if not flag.startswith(('--rounds', '--min_separation'))]
    values = json.loads(_run(*plain, *by_timer, '--format=json').stdout)
    given = ('--rounds=12', '--min_separation=2', '--max_participations=4')
    direct = json.loads(_run(*plain, *given, '--format=json').stdout)
    [remark] = values.pop('remarks')
    assert values == direct and direct['max_participations'] == 4
    assert remark.startswith('Separation 2 and at most 4 participations follow from a timer of 5')
    fewer = _run(*plain, *by_timer, '--max_participations=3', '--format=json')
    assert json.loads(fewer.stdout)['max_participations'] == 3
    for flags, message in (
        (('--rounds=11',), '--rounds=11: must be 12, the rounds of round_times'),
        (('--min_separation=2',), '--min_separation=2: cannot be combined with timer_hours'),
        (('--max_participations=5',), '--max_participations=5: must be <= 4, what timer_hours and'),
        (('--sampling=poisson', '--population=9'), '--round_times: cannot be combined with sampl'),
    ):
        done = _run(*plain, *by_timer, *flags)
        assert done.stderr.startswith(f'error: {message}') and done.stderr.count('\n') == 1


def test_what_uniform_cohorts_would_do_changes_no_number():
    flags = (*_PLAN, '--clients_per_round=5', '--format=json')
    plain = json.loads(_run(*flags).stdout)
    values = json.loads(_run(*flags, '--estimated_population=9000').stdout)
    cohorts = UniformCohorts(population=9000, clients_per_round=5, rounds=12)
    assert values.pop('remarks') == cohorts.sentences(4, 3, 1e-6)
    assert values == plain


@pytest.mark.parametrize(
    'flags, message',
    [
        (('--participation_log=absent.csv',), '--participation_log=absent.csv: cannot be read'),
        (('--participation_log=absent.npz',), 'absent.npz: not a participation log'),
        (('--participation_log={log}',), 'has no row of round 1001 (1 such rounds)'),
        (('--round_times={log}',), ': needs timer_hours'),
        (('--timer_hours=4',), '--timer_hours=4.0: needs round_times'),
        (('--missing_rounds=empty',), '--missing_rounds=empty: needs participation_log'),
        (
            ('--missing_rounds=empty', '--participation_log=a.npz'),
            '--missing_rounds=empty: needs a log of rows',
        ),
        (('--participation_log={log}', '--run_dir=.'), '--participation_log: cannot be combined'),
        (('--estimated_population=9',), '--clients_per_round: must be given'),
        (
            ('--estimated_population=9', '--clients_per_round=10'),
            '--clients_per_round=10: must be an integer >= 1 and <= 9',
        ),
        (
            (
                '--mechanism=gaussian',
                '--min_separation=1',
                '--sampling=poisson',
                '--population=90',
                '--clients_per_round=3',
                '--accountant=pld',
                '--estimated_population=90',
            ),
            '--estimated_population=90: needs a plan without sampling',
        ),
    ],
)
def test_bad_flags_are_one_line(tmp_path, flags, message):
    log = _csv(tmp_path / 'log.csv', [[1], [], [2], [1]])
    done = _run(*_PLAN, *(flag.replace('{log}', str(log)) for flag in flags))
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert message in done.stderr
