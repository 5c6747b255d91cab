import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dpfl import accounting, mechanisms

_ROOT = pathlib.Path(__file__).parents[2]


def _run(*flags):
    return subprocess.run(
        [sys.executable, '-m', 'experiments.report_privacy', *flags],
        cwd=_ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )


_TREE = ('--mechanism=tree', '--rounds=2000', '--min_separation=314', '--max_participations=6',
         '--noise_multiplier=7', '--delta=1e-10')


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
        json.loads(_run(*_TREE, '--format=json', *flags).stdout) for flags in
        ([], ['--tree_released=prefix_sums'], ['--mechanism=honaker_tree'])
    )
    assert by_prefix_sums['rho'] < by_nodes['rho'] == honaker['rho']
    assert by_prefix_sums['sensitivity_is_exact']
    assert 'every node' in ' '.join(by_nodes['assumptions'])
    assert 'every node' not in ' '.join(by_prefix_sums['assumptions'])


def test_production_blt_of_document_002():
    done = _run('--mechanism=blt', '--strategy=blt_b400', '--rounds=1280', '--min_separation=301',
                '--max_participations=4', '--noise_multiplier=7.379', '--delta=1e-10',
                '--format=json')
    values = json.loads(done.stdout)
    assert values['rho'] == pytest.approx(0.1534, abs=5e-5)
    assert values['epsilon'] == pytest.approx(3.456, abs=5e-4)
    assert values['mechanism_parameters']['rounds'] == 1280


def test_page_is_the_report_of_the_plan():
    done = _run('--mechanism=blt', '--blt_decay=0.9,0.4', '--blt_scale=0.2,0.3', '--rounds=20',
                '--noise_multiplier=3', '--delta=1e-6', '--clients_per_round=50')
    from dpfl import Participation
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Blt(20, [0.9, 0.4], [0.2, 0.3]), participation=Participation(20),
        clip_norm=1.0, noise_multiplier=3.0, clients_per_round=50,
    )
    assert done.stdout == accounting.PrivacyReport.from_plan(plan, [1e-6]).render() + '\n'


def test_strategy_from_a_file(tmp_path):
    path = tmp_path / 'mine.npz'
    mechanisms.save(mechanisms.Blt(5, [0.5], [0.25]), path)
    done = _run('--mechanism=blt', f'--strategy={path}', '--rounds=9', '--noise_multiplier=1',
                '--format=json')
    assert json.loads(done.stdout)['mechanism_parameters']['decay'] == [0.5]


@pytest.fixture(scope='module', name='damaged')
def _damaged(tmp_path_factory):
    path = tmp_path_factory.mktemp('strategies') / 'damaged.npz'
    path.write_bytes(b'PK\x03\x04' + os.urandom(50))
    return path


@pytest.mark.parametrize('flags, message', [
    (_TREE[:1], '--rounds: must be given'),
    ((*_TREE, '--rounds=abc'), '--rounds=abc: must be an integer'),
    ((*_TREE, '--rounds=0'), '--rounds=0: must be an integer >= 1'),
    ((*_TREE, '--min_separation=0'), '--min_separation=0: must be an integer >= 1'),
    ((*_TREE, '--max_participations=0'), '--max_participations=0: must be an integer >= 1'),
    ((*_TREE, '--noise_multiplier=-1'), '--noise_multiplier=-1: must be a non-negative number'),
    ((*_TREE, '--noise_multiplier=nan'), '--noise_multiplier=nan: must be a finite number >= 0'),
    ((*_TREE, '--delta=1'), '--delta=1.0: must be a finite number > 0 and < 1'),
    ((*_TREE, '--accountant=guess'), '--accountant=guess: must be one of pld, rdp, analytic'),
    ((*_TREE, '--mechanism=magic'), '--mechanism=magic: must be one of gaussian, tree, '),
    ((*_TREE, '--bogus=1'), "Unknown command line flag 'bogus'"),
    ((*_TREE, 'word'), 'word: is not a flag'),
    ((*_TREE, '--strategy=blt_b400'), '--strategy: mechanism=tree has no parameters'),
    ((*_TREE, '--mechanism=blt'), '--mechanism=blt: needs --strategy, or --blt_decay and'),
    ((*_TREE, '--mechanism=blt', '--strategy=absent'), '--strategy=absent: must be a file or one'),
    ((*_TREE, '--mechanism=blt', '--strategy={damaged}'), 'damaged.npz: cannot be read as a mech'),
    ((*_TREE, '--mechanism=blt', '--blt_decay=2', '--blt_scale=1'), '--decay=[2.0]: each entry'),
    ((*_TREE, '--mechanism=blt', '--blt_decay=x', '--blt_scale=1'), '--blt_decay=x: must be'),
])
def test_bad_flags_are_one_line_and_status_2(flags, message, damaged):
    done = _run(*(flag.replace('{damaged}', str(damaged)) for flag in flags))
    assert done.returncode == 2
    assert done.stdout == ''
    assert done.stderr.startswith('error: ')
    assert done.stderr.count('\n') == 1
    assert message.replace('--decay', 'decay') in done.stderr


def test_help_names_the_flags():
    done = _run('--helpfull')
    assert '--min_separation' in done.stdout
    assert 'Traceback' not in done.stdout + done.stderr


def test_infinite_guarantee_is_null():
    values = json.loads(_run('--mechanism=gaussian', '--rounds=3', '--noise_multiplier=0',
                             '--format=json').stdout)
    assert values['rho'] is None and values['epsilon'] is None
    assert np.isfinite(values['sensitivity'])
