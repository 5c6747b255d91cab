"""Runs with cyclic Poisson sampling: trained, verified, continued and extended."""

import dataclasses
import functools

import pytest

from dpfl.errors import ArgumentError
from dpfl.simulation import sampling
from dpfl.simulation.training import SamplingConfig, train
from tests.simulation.training import sampled_runs

_CONFIG = sampled_runs.config('cyclic_poisson', bands=3)
_plan = functools.partial(sampled_runs.plan, _CONFIG)


@pytest.mark.tff
@pytest.mark.exhaustive
def test_a_run_is_verified_with_the_groups_of_its_log(tmp_path):
    path = tmp_path / 'run'
    sampler = sampling.CyclicPoissonSampler(5, 24, 4, 3, seed=_CONFIG.seed)
    report = sampled_runs.trained(_CONFIG, path, sampler)
    assert (report.plan.groups, report.plan.participation.min_separation) == (3, 3)
    # With more rounds it goes on with the same groups.
    longer = train(_CONFIG.with_values({'rounds': 7}), path, resume=True, progress=False)
    assert longer.report.basis == 'plan' and longer.report.plan.groups == 3
    sampled_runs.assert_verified(path)


def test_the_bands_are_the_default_number_of_groups():
    assert _plan().groups == 3
    assert _plan(groups=4).participation.min_separation == 4
    assert _plan(mechanism='gaussian', bands=None).groups == 1
    assert _plan(min_separation=2).participation.min_separation == 2
    plain = dict(sampling='poisson', mechanism='gaussian', bands=None)
    assert _plan(**plain).groups is None


def test_a_largest_cohort_is_in_the_plan_and_in_the_sampler():
    config = _CONFIG.with_values(
        dict(sampling='truncated_poisson', cohort_cap=6, mechanism='gaussian', bands=None)
    )
    plan = _plan(sampling='truncated_poisson', cohort_cap=6, mechanism='gaussian', bands=None)
    assert (plan.cohort_cap, plan.groups, plan.participation.count) == (6, None, 5)
    sampler = config.sampling.sampler(plan.participation, 24, 0, plan.groups)
    sampling.check(sampler, plan)
    assert max(sampler.cohort(t).size for t in range(5)) <= 6


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(groups=2), 'groups=2: must be at least 3, the bands of the strategy'),
        (dict(groups=3, sampling='poisson'), 'groups=3: needs sampling=cyclic_poisson'),
        (dict(groups=3, sampling='min_separation'), 'groups=3: needs sampling=cyclic_poisson'),
        (dict(cohort_cap=9), 'cohort_cap=9: needs truncated_poisson'),
        (dict(sampling='truncated_poisson'), 'sampling=truncated_poisson: must be none, or cyclic'),
        (dict(groups=7), 'population=24: must be at least 28, 7 groups of clients_per_round=4'),
        (dict(mechanism='tree', bands=None), 'mechanism=tree: cannot be a tree'),
        (dict(min_separation=4), 'min_separation=4: must be at most 3'),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        _plan(**changes)


def test_a_config_without_groups_is_read():
    values = _CONFIG.to_dict()
    del values['sampling']['groups']
    assert type(_CONFIG).from_dict(values) == _CONFIG
    assert 'groups' not in _CONFIG.fixed()
    assert dataclasses.replace(_CONFIG, sampling=SamplingConfig(groups=3)).fixed()['groups'] == 3
