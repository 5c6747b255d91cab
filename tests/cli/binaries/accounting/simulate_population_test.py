import functools
import itertools
import json
import math
import shlex
import subprocess
import sys

import numpy as np
import pytest

from dpfl import ParticipationLog, mechanisms
from tests import binaries, forked_binaries

_SMALL = ('--population=3000', '--clients_per_round=100', '--rounds=90', '--timer_hours=24')
_run = functools.partial(forked_binaries.run, 'simulate_population')


@pytest.fixture(scope='module', name='simulated')
def _simulated(tmp_path_factory):
    """The folder of a simulation with its files, and what it printed."""
    folder = tmp_path_factory.mktemp('population')
    done = _run(
        *_SMALL,
        '--format=json',
        '--mechanism=tree',
        '--noise_multiplier=5',
        f'--output={folder}/log.npz',
        f'--plot={folder}/plot.png',
    )
    assert done.returncode == 0, done.stderr
    assert 'days=' in done.stderr and '90 of 90 rounds' in done.stderr
    return folder, json.loads(done.stdout)


def _brute_force(path):
    """Rounds of each client, straight from the arrays of the file."""
    with np.load(path) as data:
        clients, offsets = data['clients'].tolist(), data['offsets'].tolist()
    seen = {}
    for t, (start, end) in enumerate(itertools.pairwise(offsets)):
        for client in clients[start:end]:
            seen.setdefault(client, []).append(t)
    return seen


def test_what_is_printed_is_a_count_of_the_log(simulated):
    folder, values = simulated
    seen = _brute_force(folder / 'log.npz')
    gaps = [j - i for rounds in seen.values() for i, j in itertools.pairwise(rounds)]
    assert values['min_separation'] == min(gaps) == values['rounds_between'] + 1
    assert values['max_participations'] == max(map(len, seen.values())) > 1
    assert values['clients'] == len(seen)
    assert values['max_per_round'] == 1
    assert values['largest_separation'] == 30
    for name, counted in (('participations', map(len, seen.values())), ('separations', gaps)):
        counts = {str(n): len(list(group)) for n, group in itertools.groupby(sorted(counted))}
        assert values[name] == counts
    assert sum(values['separations'].values()) == 9000 - len(seen)


def test_times_agree_with_one_another(simulated):
    _, values = simulated
    minutes = values['minutes_per_round']
    assert minutes['shortest'] <= minutes['median'] <= minutes['percentile_90']
    assert minutes['percentile_90'] <= minutes['longest']
    # With one minute from the end of a round to the start of the next one.
    assert values['days'] * 24 * 60 == pytest.approx(90 * minutes['mean'] + 89)
    assert values['rounds_per_day'] == pytest.approx(90 / values['days'])
    assert len(values['minutes_by_hour']) == 24
    # The timer is 24 hours; no client was back before a whole window of that length was over.
    assert values['fewest_rounds_in_24_hours'] == values['fewest_rounds_in_timer']
    assert 1 < values['fewest_rounds_in_timer'] <= values['min_separation']
    assert 0.02 < values['dropped_share'] < 0.1


def test_rho_of_the_schema_and_of_the_patterns(simulated):
    folder, values = simulated
    nodes = mechanisms.BinaryTree(90).released_matrix()
    worst = max(
        (nodes[:, rounds].sum(axis=1) ** 2).sum()
        for rounds in _brute_force(folder / 'log.npz').values()
    )
    assert values['rho_of_log'] == pytest.approx(worst / 50)
    assert values['sensitivity_of_log'] == pytest.approx(math.sqrt(worst))
    assert values['sensitivity_of_log_is_exact']
    log = ParticipationLog.load(folder / 'log.npz')
    schema = mechanisms.BinaryTree(90).sensitivity_bound(log.observed()).squared
    assert values['rho_of_schema'] == pytest.approx(schema / 50)
    assert values['rho_of_log'] <= values['rho_of_schema']


def test_a_log_is_described_as_its_simulation_was(simulated):
    folder, values = simulated
    assert (folder / 'plot.png').stat().st_size > 1000
    done = _run(
        f'--log={folder}/log.npz',
        '--format=json',
        '--mechanism=tree',
        '--noise_multiplier=5',
        f'--plot={folder}/again.pdf',
    )
    assert (done.returncode, done.stderr) == (0, '')
    assert (folder / 'again.pdf').stat().st_size > 1000
    described = json.loads(done.stdout)
    assert described == {name: values[name] for name in described}
    assert {'min_separation', 'max_participations', 'rho_of_log'} <= described.keys()


def test_a_client_listed_twice_in_a_round_counts_twice(tmp_path):
    ParticipationLog([[1, 1, 2], [3], [2]]).save(tmp_path / 'log.npz')
    values = json.loads(
        _run(f'--log={tmp_path}/log.npz', '--format=json', '--mechanism=gaussian').stdout
    )
    assert values['max_per_round'] == 2
    # Two clip norms in one round: 4 by the pattern. The schema: two rounds of at most two each.
    assert values['sensitivity_of_log'] == pytest.approx(2)
    assert values['sensitivity_of_schema'] == pytest.approx(2 * math.sqrt(2))


def test_equal_seeds_give_equal_results(simulated, tmp_path):
    folder, _ = simulated
    for seed, same in ((0, True), (1, False)):
        assert _run(*_SMALL, f'--seed={seed}', f'--output={tmp_path}/log.npz').returncode == 0
        again = ParticipationLog.load(tmp_path / 'log.npz')
        assert (again == ParticipationLog.load(folder / 'log.npz')) is same


def test_separation_against_the_timer(simulated, tmp_path):
    done = _run(
        *_SMALL,
        '--vary=timer_hours',
        '--values=48,24',
        '--format=json',
        '--mechanism=blt_b100',
        f'--plot={tmp_path}/timers.png',
    )
    assert done.returncode == 0, done.stderr
    longer, usual = json.loads(done.stdout)
    assert longer['timer_hours'] == 48
    assert usual['min_separation'] == simulated[1]['min_separation'] < longer['min_separation']
    assert longer['rho_of_log'] < usual['rho_of_log'] <= usual['rho_of_schema']
    assert (tmp_path / 'timers.png').stat().st_size > 1000


def test_noise_grows_with_the_report_goal():
    done = _run(
        *_SMALL,
        '--vary=clients_per_round',
        '--values=50,100',
        '--format=json',
        '--mechanism=gaussian',
        '--noise_multiplier=6',
    )
    half, usual = json.loads(done.stdout)
    assert (half['noise_multiplier'], usual['noise_multiplier']) == (3, 6)
    assert half['rho_of_schema'] == pytest.approx(half['max_participations'] / 18)
    assert usual['rho_of_schema'] == pytest.approx(usual['max_participations'] / 72)


def test_tables_name_what_they_show():
    text = _run(*_SMALL).stdout
    for name in ('min_separation', 'rounds_between', 'minutes_per_round.median', 'participations'):
        assert name in text
    header, *rows = _run(*_SMALL, '--vary=clients_per_round', '--values=50,100').stdout.splitlines()
    assert header.split()[:3] == ['clients_per_round', 'min_separation', 'rounds_between']
    assert [row.split()[0] for row in rows] == ['50', '100']


@pytest.fixture(scope='module', name='logs')
def _logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp('logs')
    ParticipationLog().save(folder / 'empty.npz')
    ParticipationLog([[], []]).save(folder / 'nobody.npz')
    ParticipationLog([[1, 2]] * 40).save(folder / 'whole.npz')
    (folder / 'truncated.npz').write_bytes((folder / 'whole.npz').read_bytes()[:200])
    return folder


@pytest.mark.parametrize(
    'flags, message',
    [
        ((*_SMALL[:2], *_SMALL[3:]), '--rounds: must be given'),
        ((*_SMALL, '--population=0'), '--population=0: must be an integer >= 1'),
        ((*_SMALL, '--rounds=-1'), '--rounds=-1: must be an integer >= 1'),
        (
            (*_SMALL, '--clients_per_round=3001'),
            '--clients_per_round=3001: must be an integer >= 1 ',
        ),
        ((*_SMALL, '--drop_out=1'), '--drop_out=1.0: must be a finite number >= 0 and < 1'),
        ((*_SMALL, '--timer_hours=nan'), '--timer_hours=nan: must be a finite number >= 0'),
        ((*_SMALL, '--timer_hours=inf'), '--timer_hours=inf: must be a finite number >= 0'),
        ((*_SMALL, '--window_hours=-7'), '--window_hours=-7.0: must be a finite number > 0'),
        ((*_SMALL, '--over_selection=x'), '--over_selection=x: must be a'),
        ((*_SMALL, '--vary=timer_hours'), '--values: must be given with --vary'),
        (
            (*_SMALL, '--vary=population', '--values=1e6'),
            '--values=1e6: must be comma-separated int',
        ),
        ((*_SMALL, '--vary=timer_hours', '--values=24,-1'), '--timer_hours=-1.0: must be a finite'),
        (
            (*_SMALL, '--vary=timer_hours', '--values=1', '--output=a.npz'),
            '--output: cannot be combined',
        ),
        ((*_SMALL, '--output=absent/log.npz'), '--output=absent/log.npz: must be in a directory'),
        ((*_SMALL, '--plot=log.xyz'), '--plot=log.xyz: must end in one of'),
        ((*_SMALL, '--mechanism=magic'), '--mechanism=magic: must be a file or one of'),
        ((*_SMALL, '--mechanism=tree', '--noise_multiplier=0'), '--noise_multiplier=0.0: must be'),
        (('--log={logs}/absent.npz',), 'absent.npz: not a participation log'),
        (('--log={logs}/truncated.npz',), 'truncated.npz: not a participation log'),
        (('--log={logs}/empty.npz',), 'empty.npz: must hold at least one client'),
        (('--log={logs}/nobody.npz',), 'nobody.npz: must hold at least one client'),
        (
            ('--log={logs}/whole.npz', '--population=9'),
            '--population: cannot be combined with --log',
        ),
    ],
)
def test_bad_flags_are_one_line_and_status_2(flags, message, logs):
    done = _run(*(flag.replace('{logs}', str(logs)) for flag in flags))
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert message in done.stderr


def test_a_round_that_is_never_filled_is_an_error_that_names_the_flag():
    done = _run('--population=60', '--clients_per_round=50', '--rounds=2', '--timer_hours=8000')
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.splitlines()[-1].startswith(
        'error: --clients_per_round=50: was not reached within 60 days of population=60'
    )


def test_no_tensorflow_is_loaded():
    code = (
        'import sys, dpfl.cli.binaries.accounting.simulate_population\n'
        'print([m for m in sys.modules if m.split(".")[0].startswith("tensorflow")])'
    )
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=binaries.ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == '[]'


@pytest.mark.parametrize('mechanism, name', [('tree', 'tree'), ('blt_b100', 'blt')])
def test_it_names_the_command_that_reports_on_its_log(tmp_path, mechanism, name):
    path = tmp_path / 'log.npz'
    flags = ('--noise_multiplier=5', f'--mechanism={mechanism}', f'--output={path}')
    done = _run(*_SMALL, *flags)
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout.splitlines()[-1])
    assert words[:3] == ['.venv/bin/python', '-m', 'experiments.report_privacy']
    assert f'--participation_log={path}' in words and f'--mechanism={name}' in words
    report = forked_binaries.run('report_privacy', *words[3:], '--format=json')
    assert report.returncode == 0, report.stderr
    values = json.loads(report.stdout)
    assert values['basis'] == 'plan' and values['observed']['violations'] == []
    assert values['rho'] == pytest.approx(json.loads(_rho(mechanism, path))['rho_of_schema'])


def _rho(mechanism, path):
    """The statistics of a log with the guarantee of a mechanism."""
    return _run(
        f'--log={path}', '--noise_multiplier=5', f'--mechanism={mechanism}', '--format=json'
    ).stdout
