"""Runs with amplification by sampling: their plans, and that they are verified and go on."""

import dataclasses

import pytest

from dpfl import Participation, ParticipationLog
from dpfl.accounting.sampling import monte_carlo
from dpfl.errors import ArgumentError
from dpfl.simulation import run_directory, sampling
from dpfl.simulation.training import SamplingConfig, train
from dpfl.simulation.training.plan import build_plan
from tests.simulation.training import small_config

_ROUNDS, _POPULATION, _CLIENTS = 5, 24, 4
_GAUSSIAN = dict(mechanism='gaussian', bands=None)
_TREE = dict(mechanism='tree', bands=None)
_BANDS = {'balls_in_bins': 5, 'b_min_sep': 3, 'cyclic_poisson': 3}


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)


def _config(kind):
    return small_config.GAUSSIAN.with_values(
        {
            'mechanism': 'fichtenberger_toeplitz',
            'bands': _BANDS[kind],
            'sampling': kind,
            'min_separation': 1,
            'rounds': _ROUNDS,
            'population': _POPULATION,
            'noise_multiplier': 2.0,
            'client_update': 'fedsgd',
        }
    )


def _plan(kind, **changes):
    changed = _config(kind).with_values(changes)
    return build_plan(
        changed.privacy, changed.sampling, population=lambda: _POPULATION, dimension=lambda: 1
    )


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize('kind', ['b_min_sep', 'cyclic_poisson'])
def test_a_longer_run_has_the_cohorts_of_its_sampler(kind, tmp_path):
    config, path = _config(kind), tmp_path / 'run'
    train(config, path, progress=False)
    longer = train(config.with_values({'rounds': 7}), path, resume=True, progress=False)
    assert longer.report.basis == 'plan' and longer.report.plan.sampling.groups == 3
    assert run_directory.verify(path).differences == ()
    log = ParticipationLog.load(path / 'participation.npz')
    plan = longer.report.plan
    sampler = config.sampling.sampler(plan.participation, _POPULATION, config.seed, plan.sampling)
    assert log == ParticipationLog(map(sampler.cohort, range(7)))


@pytest.mark.parametrize(
    'kind, changes, groups, schema',
    [
        ('cyclic_poisson', {}, 3, Participation(5, 3)),
        ('cyclic_poisson', dict(groups=4), 4, Participation(5, 4)),
        ('cyclic_poisson', dict(min_separation=2), 3, Participation(5, 2)),
        ('cyclic_poisson', _GAUSSIAN, 1, Participation(5)),
        ('cyclic_poisson', dict(_GAUSSIAN, sampling='poisson'), None, Participation(5)),
        (
            'cyclic_poisson',
            dict(_GAUSSIAN, sampling='truncated_poisson', cohort_cap=6),
            None,
            Participation(5),
        ),
        ('b_min_sep', {}, 3, Participation(5, 3)),
        ('b_min_sep', dict(groups=5), 5, Participation(5, 5)),
        ('balls_in_bins', {}, 6, Participation(5, 6)),
        ('balls_in_bins', dict(groups=5), 5, Participation(5, 5)),
        (
            'balls_in_bins',
            dict(sampling='random_allocation', groups=6, rounds=14),
            6,
            Participation(14, 1, 3),
        ),
    ],
)
def test_the_plan_of_a_configuration_is_kept_by_its_sampler(kind, changes, groups, schema):
    plan = _plan(kind, **changes)
    settings = plan.sampling.to_dict()
    assert (settings.get('groups'), plan.participation) == (groups, schema)
    config = _config(kind).with_values(changes)
    sampler = config.sampling.sampler(schema, _POPULATION, 0, plan.sampling)
    sampling.check(sampler, plan)
    if cap := settings.get('cohort_cap'):
        assert max(sampler.cohort(t).size for t in range(_ROUNDS)) <= cap == 6


@pytest.mark.standard
def test_noise_is_calibrated_for_an_estimate():
    plan = _plan('b_min_sep', noise_multiplier=None, target_epsilon=2.0, delta=1e-4)
    assert 1.8 < plan.epsilon(1e-4, 'best') <= 2


@pytest.mark.parametrize(
    'kind, changes, message',
    [
        ('balls_in_bins', dict(groups=9), 'population=24: must be about 36, 9 groups of clients'),
        ('balls_in_bins', _TREE, 'cannot be a tree with sampling=balls_in_bins'),
        (
            'balls_in_bins',
            dict(noise_multiplier=None, target_epsilon=2.0, accountant='rdp'),
            'accountant=rdp: must be one of best with sampling=balls_in_bins',
        ),
        ('b_min_sep', dict(groups=2), 'groups=2: must be at least 3, the bands of the strategy'),
        ('b_min_sep', _TREE, 'mechanism=tree: cannot be a tree'),
        ('cyclic_poisson', dict(groups=2), 'groups=2: must be at least 3, the bands'),
        ('cyclic_poisson', dict(groups=3, sampling='poisson'), 'groups=3: needs sampling=cyclic'),
        ('cyclic_poisson', dict(cohort_cap=9), 'cohort_cap=9: needs sampling=truncated_poisson'),
        (
            'cyclic_poisson',
            dict(sampling='truncated_poisson', cohort_cap=6),
            'sampling=truncated_poisson: must be none, or cyclic',
        ),
        ('cyclic_poisson', dict(groups=7), 'population=24: must be at least 28, 7 groups'),
        ('cyclic_poisson', _TREE, 'mechanism=tree: cannot be a tree'),
        ('cyclic_poisson', dict(min_separation=4), 'min_separation=4: must be at most 3'),
    ],
)
def test_settings_that_contradict_each_other_are_refused(kind, changes, message):
    with pytest.raises(ArgumentError, match=message):
        _plan(kind, **changes)


def test_another_number_of_groups_is_another_run():
    config = _config('cyclic_poisson')
    assert config.fixed()['groups'] is None
    assert dataclasses.replace(config, sampling=SamplingConfig(groups=3)).fixed()['groups'] == 3
