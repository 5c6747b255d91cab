"""Runs that go on with more rounds end as if that had been planned.

`records_of_extensions_test.py` has what journal and plan keep of it.
"""

import functools
import json
import shutil

import numpy as np
import pytest

from dpfl.accounting.records import archive
from dpfl.accounting.reports import inputs
from dpfl.accounting.sampling import monte_carlo
from dpfl.errors import ArgumentError, RunError
from dpfl.simulation import program, run_directory
from dpfl.simulation.training import TrainConfig, train
from tests import runs
from tests.simulation.training import small_config
from tests.sizes import exhaustive, standard

pytestmark = pytest.mark.tff

_PLANNED = small_config.BLT.with_values({'rounds': 10, 'eval_every': 100, 'checkpoint_every': 4})
_BANDED = {
    'mechanism': 'fichtenberger_toeplitz',
    **small_config.NO_BUFFERS,
    'bands': 3,
    'min_separation': 1,
    'population': 24,
}
_ADAPTIVE = {'adaptive_clip': True, 'count_stddev': 5.0}
# Rounds in the ledger when the run is killed; the last checkpoint has fewer.
_RELEASED = 6
# Settings of the run before it gets more rounds.
_CASES = {
    'blt': {},
    'tree': small_config.TREE,
    'restarts': {**small_config.TREE, 'restart_first': 2, 'restart_every': 9},
    'hardened noise': {'noise': 'hardened'},
    'adaptive': {**_ADAPTIVE, 'restart_first': 2, 'restart_every': 3},
    'cyclic Poisson sampling': {**_BANDED, 'sampling': 'cyclic_poisson'},
    'b-min-sep sampling': {**_BANDED, 'sampling': 'b_min_sep'},
    'killed': {},
    'killed in a file': {'memory_limit': 0.0},
}
_STANDARD = ('blt', 'killed')


class _KilledError(BaseException):
    pass


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)


@functools.cache
def _before(config):
    """Directories of a run as it was planned, finished and killed."""
    folder = small_config.folder() / f'before {config.digest()}'
    small_config.copied_when_killed(config, folder / 'run', folder / 'killed', _RELEASED)
    return folder / 'run', folder / 'killed'


def _after(name):
    """The configuration with which a run goes on."""
    return _PLANNED.with_values({**_CASES[name], 'rounds': 14})


def _beginning(name, tmp_path):
    """A copy of the run before it gets more rounds."""
    finished, killed = _before(_PLANNED.with_values(_CASES[name]))
    return shutil.copytree(killed if name.startswith('killed') else finished, tmp_path / 'run')


def _assert_same(found, path, config):
    """The run is the one that was planned so from the beginning."""
    whole = small_config.finished(config)
    # A tree of more rounds has other buffers, on which the keys depend: the same law, other bits.
    mechanism = found.report.plan.mechanism
    if getattr(mechanism, 'base', mechanism).name != 'tree':
        for mine, same in zip(found.weights, whole.weights, strict=True):
            np.testing.assert_array_equal(mine, same)
        assert runs.released(path) == runs.released(whole.directory)
    assert found.report.guarantee == whole.report.guarantee
    assert found.report.observed == whole.report.observed
    assert run_directory.verify(path).differences == ()


@pytest.mark.parametrize(
    'name',
    [standard(each) if each in _STANDARD else exhaustive(each) for each in _CASES],
)
def test_a_run_that_goes_on_is_the_one_that_was_planned_so(name, tmp_path):
    path = _beginning(name, tmp_path)
    lines, before = runs.released(path), archive.read_plan(path).report(None).guarantee
    found = train(_after(name), path, resume=True)
    _assert_same(found, path, _after(name))
    computed = [line for line in lines[1:] if line[-1] is not None]
    assert runs.released(path)[1 : len(computed) + 1] == computed
    again = train(_after(name), path, resume=True)
    assert again.report.to_json() == found.report.to_json()
    assert TrainConfig.from_dict(json.loads((path / 'config.json').read_text())) == _after(name)
    after = found.report.guarantee
    assert (before.rounds, after.rounds) == (10, 14) and after.epsilons[0] > before.epsilons[0]
    released = _RELEASED if name.startswith('killed') else 10
    assert archive.read_plan(path).extensions == (inputs.Extension(released, 10, 14),)
    assert f'extended to 14 when {released}' in (path / 'privacy_report.md').read_text()
    with pytest.raises(ArgumentError, match='rounds=10: must be 14'):
        train(_PLANNED.with_values(_CASES[name]), path, resume=True)


@pytest.mark.standard
@pytest.mark.parametrize(
    'name, changes, message',
    [
        ('killed', {'noise_multiplier': 2.0}, 'noise_multiplier=2.0: must be 3.0, as when the'),
        ('killed', {'clip_norm': 0.2}, 'clip_norm=0.2: must be 0.3, as when the run began'),
        ('blt', {'noise_seed': 6}, 'noise_seed=6: must be 5, as when the run began'),
        ('blt', {'min_separation': 3}, 'min_separation=3: must be 4, as when the run began'),
        ('killed', {'max_participations': 2}, 'max_participations=2: must be at least 3'),
        (
            'blt',
            {'target_epsilon': 9.0, 'noise_multiplier': None},
            'target_epsilon=9.0: cannot hold for more rounds.*noise_multiplier=3.0 instead',
        ),
        ('blt', {'blt_scale': (0.1, 0.3)}, 'mechanism=blt: must have the strategy of the run'),
    ],
)
def test_nothing_else_may_change(name, tmp_path, changes, message):
    path = _beginning(name, tmp_path)
    before = runs.contents(path)
    with pytest.raises(ArgumentError, match=message):
        train(_after(name).with_values(changes), path, resume=True)
    assert runs.contents(path) == before


@pytest.mark.standard
@pytest.mark.parametrize('mechanism', ['blt', 'auto'])
def test_a_strategy_that_was_optimised_is_kept(mechanism, tmp_path):
    planned = _PLANNED.with_values({**small_config.NO_BUFFERS, 'mechanism': mechanism})
    used = train(planned, tmp_path / 'run').report.plan.mechanism
    longer = planned.with_values({'rounds': 14})
    assert used.extends == (mechanism == 'blt')
    if not used.extends:
        with pytest.raises(ArgumentError, match='rounds=14: must be at most 10'):
            train(longer, tmp_path / 'run', resume=True)
        return
    found = train(longer, tmp_path / 'run', resume=True)
    whole = longer.with_values({'mechanism': used.with_rounds(14)})
    _assert_same(found, tmp_path / 'run', whole)


@pytest.mark.exhaustive
def test_a_second_extension(tmp_path):
    path = _beginning('killed', tmp_path)
    twice = tmp_path / 'twice'
    small_config.copied_when_killed(_after('killed'), path, twice, 9, resume=True)
    config = _PLANNED.with_values({'rounds': 16})
    found = train(config, twice, resume=True)
    _assert_same(found, twice, config)
    steps = (inputs.Extension(6, 10, 14), inputs.Extension(9, 14, 16))
    assert archive.read_plan(twice).extensions == steps


@pytest.mark.exhaustive
def test_a_schedule_that_is_made_for_all_rounds_gets_no_more(tmp_path):
    config = _PLANNED.with_values({'server_schedule': 'linear'})
    train(config, tmp_path / 'run')
    with pytest.raises(ArgumentError, match='linear: must be constant to extend'):
        train(config.with_values({'rounds': 18}), tmp_path / 'run', resume=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', _STANDARD)
@pytest.mark.parametrize(
    'owner, method, after, is_new',
    [
        (run_directory.RunDirectory, 'forget_digests', True, False),
        (run_directory.RunDirectory, 'write_strategy', True, False),
        (run_directory.RunDirectory, 'take_next_strategy', False, True),
        (run_directory.RunDirectory, 'take_next_strategy', True, True),
        (run_directory.RunDirectory, 'forget_results', True, True),
        (program, 'run_training', False, True),
    ],
)
def test_a_change_that_is_killed_leaves_the_old_run_or_the_new_one(
    name, tmp_path, monkeypatch, owner, method, after, is_new
):
    work, path = getattr(owner, method), _beginning(name, tmp_path)

    def dying(*arguments, **options):
        if after:
            work(*arguments, **options)
        raise _KilledError

    with monkeypatch.context() as patched, pytest.raises(_KilledError):
        patched.setattr(owner, method, dying)
        train(_after(name), path, resume=True)
    if is_new:
        with pytest.raises((ArgumentError, RunError), match='14'):
            train(_PLANNED, path, resume=True)
    else:
        old = shutil.copytree(path, tmp_path / 'old')
        train(_PLANNED, old, resume=True)
        assert run_directory.verify(old).differences == ()
    _assert_same(train(_after(name), path, resume=True), path, _after(name))
