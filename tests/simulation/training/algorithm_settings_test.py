"""The settings of [McMahan18], algorithm 1, from a configuration to a run and its report."""

import dataclasses

import pytest

from dpfl import accounting
from dpfl.errors import ArgumentError
from dpfl.simulation.training import PrivacyConfig, SamplingConfig
from dpfl.simulation.training.plan import build_plan
from tests.simulation.training import small_config

_CONFIG = small_config.GAUSSIAN.with_values(
    {
        'packing': 'windows',
        'client_max_tokens': 80,
        'client_min_sentences': 10,
        'estimator': 'clipped',
        'cohort_weight': 2.5,
        'example_cap': 12.0,
        'rounds': 2,
        'min_separation': 2,
        'client_batch_size': 8,
        'clip_each_batch': True,
    }
)


def _plan(**changes):
    privacy = dataclasses.replace(_CONFIG.privacy, **changes)
    return build_plan(privacy, _CONFIG.sampling, population=lambda: 16, dimension=lambda: 1000)


def test_the_plan_has_the_estimator_of_the_configuration():
    assert _plan().estimator == accounting.Estimator('clipped', 2.5, 12.0)
    # Lemma 1: 2 S / (q W_min).
    assert _plan().clip_norm / _plan().denominator == pytest.approx(2 * 0.3 / 2.5)
    fixed = _plan(estimator='fixed', cohort_weight=None)
    assert fixed.denominator == 4
    assert fixed.epsilon(1e-3) == _plan().epsilon(1e-3)
    with pytest.raises(ArgumentError, match='estimator=clipped: must be fixed with a discret'):
        _plan(secagg=True, secagg_bits=20)


def test_a_mean_that_is_biased_says_so():
    def biased(**changes):
        return [each for each in _CONFIG.with_values(changes).remarks(2) if 'biased' in each]

    assert len(biased(estimator='fixed', cohort_weight=None)) == 1
    assert not biased(estimator='fixed')
    assert not biased(cohort_weight=None)
    assert not biased(estimator='fixed', cohort_weight=None, example_cap=None)


@pytest.mark.parametrize(
    'name, value', [('clip_quantile', 0.7), ('clip_learning_rate', 0.5), ('count_stddev', 3.0)]
)
def test_settings_of_adaptive_clipping_need_it(name, value):
    with pytest.raises(ArgumentError, match=f'{name}={value}: needs adaptive_clip'):
        _plan(estimator='fixed', cohort_weight=None, **{name: value})


@pytest.mark.parametrize(
    'mechanism, restarts, least',
    [('tree', {}, 130), ('tree', dict(restart_first=7, restart_every=16), 9), ('gaussian', {}, 2)],
)
def test_a_clip_norm_that_never_adapts_is_refused(mechanism, restarts, least):
    def plan(rounds):
        privacy = PrivacyConfig(
            mechanism=mechanism, noise_multiplier=1.0, adaptive_clip=True, **restarts
        )
        sampling = SamplingConfig(rounds=rounds, clients_per_round=30)
        return build_plan(privacy, sampling, population=lambda: 100, dimension=lambda: 10)

    with pytest.raises(ArgumentError, match=f'rounds={least - 1}: must be >= {least} for adaptiv'):
        plan(least - 1)
    assert plan(least).fresh_rounds == (least - 1,)
