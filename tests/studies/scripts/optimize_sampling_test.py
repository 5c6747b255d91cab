"""The binary that finds groups and bands of cyclic Poisson sampling, and the runs that it names."""

import functools
import json
import shlex

import numpy as np
import pytest

from dpfl import _setting_texts, mechanisms
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import accountant, build_plan
from experiments.studies.sampling import amplification, designs
from tests import forked_binaries

_SEARCH = amplification.Search(rounds=4, population=60, clients_per_round=6, delta=1e-5)
_FLAGS = ('--rounds=4', '--population=60', '--clients_per_round=6', '--delta=1e-5')
# Sums of several threads may differ in their last bits from one time to the next.
_about = functools.partial(pytest.approx, rel=1e-9, abs=0)


@pytest.fixture(scope='module', name='made')
def _made():
    return _SEARCH.least_error(2.0)


@pytest.mark.standard
def test_the_table_is_that_of_the_library_and_the_best_is_saved(tmp_path, made):
    output = f'--output={tmp_path}/design.npz'
    flags = (*_FLAGS, '--target_epsilon=2', output, '--format=json')
    done = forked_binaries.run('studies.optimize_sampling', *flags)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row['design'] for row in found['designs']] == ['best', 'independent', 'separated']
    for row in found['designs']:
        design = getattr(made, row['design'])
        for name in ('bands', 'groups', 'probability', 'epsilon', 'error'):
            assert row[name] == _about(getattr(design, name))
        assert row['epsilon'] <= 2.0
        assert row['noise_multiplier'] == _about(design.plan.noise_multiplier)
    assert found['chosen'] == min(found['designs'], key=lambda row: row['error'])['design']
    saved = mechanisms.load(tmp_path / 'design.npz').strategy_matrix()
    np.testing.assert_allclose(saved, made.best.plan.mechanism.strategy_matrix(), rtol=1e-9)


@pytest.mark.standard
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


@pytest.mark.exhaustive
@pytest.mark.tff
def test_the_text_ends_with_a_command_that_starts_a_run_with_its_epsilon(tmp_path):
    schema = ('--rounds=2', '--population=20', '--clients_per_round=4', '--delta=1e-5')
    output = f'--output={tmp_path}/design.npz'
    done = forked_binaries.run('studies.optimize_sampling', *schema, '--target_error=1.5', output)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = {words[0]: words for words in map(str.split, lines[:4])}
    assert {rows[name][-1] for name in ('best', 'independent', 'separated')} == {'1.5'}
    program, binary, _, *flags = shlex.split(lines[-1])
    assert program.endswith('dpfl') and binary == 'train'
    tiny = ('--flagfile=quickstart', '--client_max_batches=1', '--eval_clients=2')
    run = forked_binaries.run('train', *tiny, *flags, f'--output_dir={tmp_path}/run')
    assert run.returncode == 0, run.stderr
    report = json.loads((tmp_path / 'run' / 'privacy_report.json').read_text())
    assert f'{report["epsilon"]:.4g}' == min(rows[name][-2] for name in ('best', 'independent'))


@pytest.mark.standard
def test_independent_noise_is_the_best_where_it_has_the_least_error():
    # So little is asked for that the estimates of more groups are off.
    search = amplification.Search(rounds=6, population=600, clients_per_round=6, delta=1e-6)
    found = search.least_error(0.02)
    assert found.best.error <= found.independent.error
