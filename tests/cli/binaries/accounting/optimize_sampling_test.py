"""The binary that finds groups and bands of cyclic Poisson sampling, and the runs that it names."""

import functools
import json
import pathlib
import shlex

import numpy as np
import pytest

from dpfl import _setting_texts, errors, mechanisms
from dpfl.planning import amplification, designs
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import accountant, build_plan
from tests import forked_binaries

_run = functools.partial(forked_binaries.run, 'optimize_sampling')
_SEARCH = amplification.Search(rounds=4, population=60, clients_per_round=6, delta=1e-5)
_FLAGS = ('--rounds=4', '--population=60', '--clients_per_round=6', '--delta=1e-5')
# Sums of several threads may differ in their last bits from one time to the next.
_about = functools.partial(pytest.approx, rel=1e-9, abs=0)
_TINY = (
    '--flagfile=configs/quickstart.flags',
    '--client_max_batches=1',
    '--eval_clients=2',
    '--noise_seed=1',
    '--format=json',
)


@pytest.fixture(scope='module', name='made')
def _made():
    return _SEARCH.least_error(2.0)


def test_the_table_is_that_of_the_library_and_the_best_is_saved(tmp_path, made):
    output = tmp_path / 'design.npz'
    done = _run(*_FLAGS, '--target_epsilon=2', f'--output={output}', '--format=json')
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row['design'] for row in found['designs']] == ['best', 'independent', 'separated']
    for row in found['designs']:
        design = getattr(made, row['design'])
        for name in ('bands', 'groups', 'probability', 'epsilon', 'error'):
            assert row[name] == _about(getattr(design, name))
        assert row['epsilon'] <= 2.0
        assert row['noise_multiplier'] == _about(design.plan.noise_multiplier)
    chosen = min(found['designs'], key=lambda row: row['error'])
    assert found['chosen'] == chosen['design'] == 'best'
    saved = mechanisms.load(output).strategy_matrix()
    np.testing.assert_allclose(saved, made.best.plan.mechanism.strategy_matrix(), rtol=1e-9)


@pytest.mark.parametrize('name', ['best', 'independent', 'separated'])
def test_the_flags_of_train_have_the_guarantee_of_the_design(tmp_path, made, name):
    design = getattr(made, name)
    strategy = tmp_path / 'a design.npz'
    mechanisms.save(design.plan.mechanism, strategy)
    words = designs.train_flags(design, _SEARCH, strategy, 2.0)
    assert '--target_epsilon=2.0' in words
    texts = dict(word.removeprefix('--').split('=', 1) for word in words)
    config = _setting_texts.with_texts(TrainConfig(), texts)
    plan = build_plan(
        config.privacy, config.sampling, population=lambda: 60, dimension=lambda: 1000
    )
    assert (plan.mechanism, plan.sampling) == (design.plan.mechanism, design.plan.sampling)
    assert plan.noise_multiplier == _about(design.plan.noise_multiplier)
    assert plan.epsilon(1e-5, accountant(config.privacy, plan)) == _about(design.epsilon)


def _started(tmp_path, command):
    """The report of a run that the printed command starts, with a small task."""
    words = shlex.split(command)
    assert words[:4] == [
        '.venv/bin/python',
        '-m',
        'experiments.train',
        '--output_dir=runs/planned',
    ]
    directory = f'--output_dir={tmp_path}/run'
    done = forked_binaries.run('train', *_TINY, *words[4:], directory)
    assert done.returncode == 0, done.stderr
    return json.loads(pathlib.Path(tmp_path, 'run', 'privacy_report.json').read_text())


@pytest.mark.tff
@pytest.mark.parametrize('population, design', [(20, 'best'), (8, 'separated')])
def test_the_command_starts_a_run_with_the_promised_epsilon(tmp_path, population, design):
    schema = ('--rounds=2', f'--population={population}', '--clients_per_round=4', '--delta=1e-5')
    output = f'--output={tmp_path}/design.npz'
    done = _run(*schema, '--target_epsilon=4', output, '--format=json')
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {row['design']: row for row in found['designs']}
    assert found['chosen'] == design
    report = _started(tmp_path, found['command'])
    assert report['epsilon'] == _about(rows[design]['epsilon'])
    assert report['epsilon'] <= 4
    assert report['sampling'] == rows[design]['sampling']


@pytest.mark.tff
def test_the_text_ends_with_the_command_also_for_a_target_error(tmp_path):
    schema = ('--rounds=2', '--population=20', '--clients_per_round=4', '--delta=1e-5')
    done = _run(*schema, '--target_error=1.5', f'--output={tmp_path}/design.npz')
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = {words[0]: words for words in map(str.split, lines[:4])}
    assert {rows[name][-1] for name in ('best', 'independent', 'separated')} == {'1.5'}
    report = _started(tmp_path, lines[-1])
    assert f'{report["epsilon"]:.4g}' == min(rows[name][-2] for name in ('best', 'independent'))


def test_independent_noise_is_the_best_where_it_has_the_least_error():
    # So little is asked for that the estimates of more groups are off.
    search = amplification.Search(rounds=6, population=600, clients_per_round=6, delta=1e-6)
    found = search.least_error(0.02)
    assert found.best.error <= found.independent.error


def test_estimates_with_little_noise_are_those_without_amplification():
    strategy = amplification.strategy_of(4, 2, 'banded_toeplitz', 'rms')
    little = _SEARCH.estimated_epsilon(strategy, 2, 0.05)
    assert little >= _SEARCH.for_error(0.05 * strategy.rms_error(), 2).epsilon
    assert _SEARCH.estimated_epsilon(strategy, 2, 1e-3) > little


@pytest.mark.parametrize(
    'flags, message',
    [
        ([], '--target_epsilon: or target_error must be given'),
        (['--target_epsilon=2', '--target_error=3'], '--target_error=3.0: cannot be combined'),
        (['--target_epsilon=0.05'], '--target_epsilon=0.05: must be a finite number >= 0.1'),
        (['--target_epsilon=1e3'], '--target_epsilon=1000.0: must be'),
        (['--target_error=0'], '--target_error=0.0: must be a finite number > 0'),
        (['--target_epsilon=2', '--clients_per_round=61'], '--clients_per_round=61: must be'),
        (['--target_epsilon=2', '--population='], '--population'),
        (['--target_epsilon=2', '--delta=1'], '--delta=1.0: must be'),
        (['--target_epsilon=2', '--output=/nowhere/a.npz'], '--output=/nowhere/a.npz: must be in'),
        (
            ['--target_epsilon=2', '--mechanism=blt'],
            '--mechanism=blt: must be one of banded_toeplitz, banded',
        ),
    ],
)
def test_bad_flags_are_one_line_and_status_2(tmp_path, flags, message):
    done = _run(*_FLAGS, f'--output={tmp_path}/design.npz', *flags)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1


def test_what_must_be_given(tmp_path):
    done = _run('--rounds=4', '--target_epsilon=2', f'--output={tmp_path}/design.npz')
    assert done.stderr == 'error: --population: must be given\n'
    with pytest.raises(errors.ArgumentError, match='target_error=1.0: cannot be combined'):
        designs.DesignConfig(target_epsilon=1.0, target_error=1.0)
