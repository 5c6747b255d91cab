import functools
import itertools
import json
import math
import shlex

import numpy as np
import pytest

from dpfl import ParticipationLog, mechanisms
from tests import forked_binaries

_SMALL = ('--population=3000', '--clients_per_round=100', '--rounds=90', '--timer_hours=24')
_TREE = ('--mechanism=tree', '--noise_multiplier=5')
_run = functools.partial(forked_binaries.run, 'simulate_population')
_printed = functools.partial(forked_binaries.printed, 'simulate_population')


@pytest.fixture(scope='module', name='simulated')
def _simulated(tmp_path_factory):
    """The folder of a simulation with its files, and what it printed."""
    folder = tmp_path_factory.mktemp('population')
    files = (f'--output={folder}/log.npz', f'--plot={folder}/plot.png')
    done = _run(*_SMALL, *_TREE, *files, '--format=json', check=True)
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


@pytest.mark.standard
def test_what_is_printed_is_a_count_of_the_log(simulated):
    folder, values = simulated
    seen = _brute_force(folder / 'log.npz')
    gaps = [j - i for rounds in seen.values() for i, j in itertools.pairwise(rounds)]
    assert values['min_separation'] == min(gaps) == values['rounds_between'] + 1
    assert values['max_participations'] == max(map(len, seen.values())) > 1
    assert values['clients'] == len(seen) and values['max_per_round'] == 1
    assert values['largest_separation'] == 30
    for name, counted in (('participations', map(len, seen.values())), ('separations', gaps)):
        counts = {str(n): len(list(group)) for n, group in itertools.groupby(sorted(counted))}
        assert values[name] == counts
    assert sum(values['separations'].values()) == 9000 - len(seen)


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


@pytest.mark.standard
def test_a_log_is_described_as_its_simulation_was(simulated):
    folder, values = simulated
    assert (folder / 'plot.png').stat().st_size > 1000
    done = _run(f'--log={folder}/log.npz', *_TREE, '--format=json', f'--plot={folder}/again.pdf')
    assert (done.returncode, done.stderr) == (0, '')
    assert (folder / 'again.pdf').stat().st_size > 1000
    described = json.loads(done.stdout)
    assert described == {name: values[name] for name in described}
    assert {'min_separation', 'max_participations', 'rho_of_log'} <= described.keys()


@pytest.mark.standard
def test_separation_against_the_timer(simulated, tmp_path):
    flags = ('--vary=timer_hours', '--values=48,24', '--mechanism=blt_b100')
    longer, usual = _printed(*_SMALL, *flags, f'--plot={tmp_path}/timers.png')
    assert longer['timer_hours'] == 48
    assert usual['min_separation'] == simulated[1]['min_separation'] < longer['min_separation']
    assert longer['rho_of_log'] < usual['rho_of_log'] <= usual['rho_of_schema']
    assert (tmp_path / 'timers.png').stat().st_size > 1000


@pytest.mark.standard
@pytest.mark.parametrize('mechanism, name', [('tree', 'tree'), ('blt_b100', 'blt')])
def test_it_names_the_command_that_reports_on_its_log(tmp_path, mechanism, name):
    path = tmp_path / 'log.npz'
    flags = ('--noise_multiplier=5', f'--mechanism={mechanism}', f'--output={path}')
    words = shlex.split(_run(*_SMALL, *flags, check=True).stdout.splitlines()[-1])
    assert words[0].endswith('dpfl') and words[1] == 'report_privacy'
    assert f'--participation_log={path}' in words and f'--mechanism={name}' in words
    values = forked_binaries.printed('report_privacy', *words[2:])
    assert values['basis'] == 'plan' and values['observed']['violations'] == []
    described = _printed(f'--log={path}', *flags[:2])
    assert values['rho'] == pytest.approx(described['rho_of_schema'])
