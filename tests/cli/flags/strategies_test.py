"""The binaries that optimise and compare mechanisms."""

import csv
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
    done = run(
        'compare_mechanisms', *_SCHEMA, '--values=30,120', '--mechanisms=blt:2,best_banded:9'
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split()[:2] == ['mechanism', 'rounds']
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_mechanisms_are_optimised_for_the_loss_that_is_compared(run, loss):
    names = 'blt:2,blt:2:max,blt:2:rms,banded_toeplitz:20,banded:20'
    done = run(
        'compare_mechanisms',
        *_SCHEMA,
        '--values=60',
        f'--mechanisms={names}',
        f'--loss={loss}',
        '--format=json',
    )
    assert done.returncode == 0, done.stderr
    rows = {row['mechanism']: row for row in json.loads(done.stdout)}
    schema, measure = Participation(60, 20, 3), f'{loss}_loss'
    own = mechanisms.optimize_blt(schema, 2, loss=loss)
    toeplitz = mechanisms.optimize_banded_toeplitz(schema, 20, loss=loss)
    assert rows['blt:2'][measure] == rows[f'blt:2:{loss}'][measure]
    assert rows['blt:2'][measure] == pytest.approx(getattr(own, measure)(schema), rel=1e-9)
    assert rows['banded_toeplitz:20'][measure] == pytest.approx(
        getattr(toeplitz, measure)(schema), rel=1e-9
    )
    other = {'max': 'rms', 'rms': 'max'}[loss]
    assert rows['blt:2'][measure] < 0.999 * rows[f'blt:2:{other}'][measure]
    # BandMF is the published one, which minimises the rms loss.
    published = mechanisms.optimize_banded(schema, 20)
    assert rows['banded:20']['rms_loss'] == pytest.approx(published.rms_loss(schema), rel=1e-9)


def test_designs_of_several_schemas_in_one_command(run, tmp_path):
    data, plot = tmp_path / 'rounds.csv', tmp_path / 'rounds.png'
    names = ['blt:2@30/10', 'blt:2@60/20/3', 'banded:10@30/10', 'banded:20', 'best_banded:20']
    done = run(
        'compare_mechanisms',
        *_SCHEMA,
        '--values=30,60,90',
        '--loss=rms',
        f'--mechanisms={",".join(names)}',
        f'--data={data}',
        f'--plot={plot}',
        '--format=json',
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    with open(data, newline='') as file:
        written = list(csv.DictReader(file))
    assert [float(row['rms_loss']) for row in written] == [row['rms_loss'] for row in printed]
    assert [row['mechanism'] for row in written] == [row['mechanism'] for row in printed]
    rounds = {
        name: [row['rounds'] for row in printed if row['mechanism'] == name] for name in names
    }
    # BandMF ends at the rounds that it was made for; a fresh one and a BLT go on.
    assert rounds == {
        'blt:2@30/10': [30, 60, 90],
        'blt:2@60/20/3': [30, 60, 90],
        'banded:10@30/10': [30],
        'banded:20': [30, 60],
        'best_banded:20': [30, 60, 90],
    }
    loss = {(row['mechanism'], row['rounds']): row['rms_loss'] for row in printed}
    schema = Participation(30, 20, 3)
    design = mechanisms.optimize_banded(Participation(60, 20, 3), 20).with_rounds(30)
    assert loss['banded:20', 30] == pytest.approx(design.rms_loss(schema), rel=1e-9)
    assert loss['best_banded:20', 30] < loss['banded:20', 30]
    short = mechanisms.optimize_blt(Participation(30, 10), 2, loss='rms').with_rounds(90)
    assert loss['blt:2@30/10', 90] == pytest.approx(
        short.rms_loss(Participation(90, 20, 3)), rel=1e-9
    )
    assert plot.stat().st_size > 5000


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
            '--momentum=1.0: must',
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
        (
            'compare_mechanisms',
            ['--mechanisms=banded:4@30/10', '--values=60,90'],
            '--mechanisms=banded:4@30/10: has fewer rounds than every value',
        ),
        (
            'compare_mechanisms',
            ['--mechanisms=blt:2:mean'],
            '--mechanisms=blt:2:mean: must have a loss of max, rms',
        ),
        ('compare_mechanisms', ['--mechanisms=tree', '--data=a.txt'], '--data=a.txt: must end in'),
        (
            'compare_mechanisms',
            ['--mechanisms=tree', '--data=/nowhere/a.csv'],
            '--data=/nowhere/a.csv: No such file',
        ),
    ],
)
def test_bad_flags_are_one_line_and_status_2(run, binary, flags, message):
    done = run(binary, *_SCHEMA, *flags)
    assert done.returncode == 2
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert message in done.stderr
