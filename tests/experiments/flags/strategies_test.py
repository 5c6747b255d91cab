"""The binaries that optimise and compare mechanisms."""

import functools
import json

import pytest

from dpfl import Participation, mechanisms
from tests import forked_binaries

_SCHEMA = ['--rounds=60', '--min_separation=20', '--max_participations=3']


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    cache = str(tmp_path_factory.mktemp('cache'))
    return functools.partial(forked_binaries.run, DPFL_CACHE_DIR=cache)


@pytest.mark.parametrize(
    'flags',
    [
        ['--mechanism=blt', '--buffers=2'],
        ['--mechanism=banded'],
        ['--mechanism=banded_toeplitz', '--bands=10', '--loss=rms'],
        ['--mechanism=banded_inverse', '--bands=6', '--momentum=0.9'],
    ],
    ids=lambda flags: flags[0],
)
def test_an_optimised_strategy_goes_into_a_report(run, flags, tmp_path):
    output = tmp_path / 'strategy.npz'
    done = run('optimize_strategy', *_SCHEMA, *flags, f'--output={output}', '--format=json')
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    mechanism = mechanisms.load(output)
    schema = Participation(60, 20, 3)
    assert mechanism.name == result['mechanism']
    assert mechanism.sensitivity(schema) == result['sensitivity']
    assert mechanism.kernel().buffers == result['buffers']
    if '--momentum=0.9' not in flags:
        assert mechanism.max_loss(schema) == pytest.approx(result['max_loss'])
        assert result['max_loss'] < mechanisms.BinaryTree(60).max_loss(schema)
    report = run(
        'report_privacy',
        *_SCHEMA,
        flags[0],
        f'--strategy={output}',
        '--noise_multiplier=5',
        '--format=json',
    )
    assert json.loads(report.stdout)['sensitivity'] == result['sensitivity']


def test_comparison_has_a_row_for_each_mechanism_and_value(run, tmp_path):
    plot = tmp_path / 'losses.png'
    done = run(
        'compare_mechanisms',
        *_SCHEMA,
        '--vary=min_separation',
        '--values=10,20,30',
        '--mechanisms=tree,honaker_tree,full_honaker_tree,blt:2,best_blt:2,banded:20,blt_b100',
        '--relative_to=tree',
        '--noise_multiplier=3',
        f'--plot={plot}',
        '--format=json',
    )
    assert done.returncode == 0, done.stderr
    rows = {(row['mechanism'], row['min_separation']): row for row in json.loads(done.stdout)}
    assert len(rows) == 21
    schema = Participation(60, 30, 3)
    tree = mechanisms.BinaryTree(60)
    assert rows['tree', 30]['max_loss'] == tree.max_loss(schema)
    assert rows['tree', 30]['epsilon'] > 0
    for value in (10, 20, 30):
        best = rows['best_blt:2', value]['max_loss']
        assert best <= rows['blt:2', value]['max_loss'] * (1 + 1e-6)
        assert best < rows['full_honaker_tree', value]['max_loss']
    # Bands beyond the separation cost: the sensitivity is a bound there.
    assert rows['banded:20', 20]['exact'] and not rows['banded:20', 10]['exact']
    assert plot.stat().st_size > 5000


def test_comparison_over_rounds(run):
    done = run('compare_mechanisms', *_SCHEMA, '--values=30,120', '--mechanisms=blt:2,banded:20')
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split()[:2] == ['mechanism', 'rounds']
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize(
    'binary, flags, message',
    [
        ('optimize_strategy', ['--mechanism=blt'], '--output: must be given'),
        (
            'optimize_strategy',
            ['--mechanism=blt', '--output=/nowhere/a.npz'],
            'must be in a directory',
        ),
        ('optimize_strategy', ['--mechanism=blt', '--output=a.npz', '--buffers=0'], '--buffers=0'),
        (
            'optimize_strategy',
            ['--mechanism=blt', '--output=a.npz', '--momentum=1'],
            'beta=1.0: must',
        ),
        (
            'compare_mechanisms',
            ['--mechanisms=magic'],
            '--mechanisms=magic: must be one of gaussian',
        ),
        ('compare_mechanisms', ['--mechanisms=tree', '--values=a'], '--values=a: must be comma-'),
        (
            'compare_mechanisms',
            ['--mechanisms=tree', '--relative_to=blt'],
            '--relative_to=blt: must',
        ),
        ('compare_mechanisms', [], '--mechanisms: must be given'),
    ],
)
def test_bad_flags_are_one_line_and_status_2(run, binary, flags, message):
    done = run(binary, *_SCHEMA, *flags)
    assert done.returncode == 2
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert message in done.stderr
