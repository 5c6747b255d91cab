import functools
import itertools
import json
import shlex

import numpy as np
import pytest

from tests import forked_binaries

_SMALL = ('--population=3000', '--clients_per_round=100', '--rounds=90', '--timer_hours=24')
_run = functools.partial(forked_binaries.run, 'simulate_population')


@pytest.fixture(scope='module', name='simulated')
def _simulated(tmp_path_factory):
    """The folder of a simulation with its files, and what it printed."""
    folder = tmp_path_factory.mktemp('population')
    done = _run(*_SMALL, f'--output={folder}/log.npz', '--format=json', check=True)
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
    assert values['clients'] == len(seen)
    assert values['largest_separation'] == 30
    for name, counted in (('participations', map(len, seen.values())), ('separations', gaps)):
        counts = {str(n): len(list(group)) for n, group in itertools.groupby(sorted(counted))}
        assert values[name] == counts
    assert sum(values['separations'].values()) == 9000 - len(seen)


@pytest.mark.standard
def test_it_names_the_command_that_reports_on_its_log(tmp_path):
    path = tmp_path / 'log.npz'
    words = shlex.split(_run(*_SMALL, f'--output={path}', check=True).stdout.splitlines()[-1])
    assert words[0].endswith('dpfl') and words[1] == 'report_privacy'
    assert f'--participation_log={path}' in words and '--mechanism=tree' in words
    values = forked_binaries.printed('report_privacy', *words[2:])
    assert values['basis'] == 'plan' and values['observed']['violations'] == []
