"""From settings to a plan: mechanism, noise, schema, sampling, and what contradicts itself."""

import functools

import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.accounting.sampling import monte_carlo
from dpfl.simulation import sampling
from dpfl.simulation.training import (
    GanConfig,
    PrivacyConfig,
    SamplingConfig,
    mechanism,
)
from dpfl.simulation.training.plan import build_plan
from tests.simulation.training import small_config

_POPULATION = 24
# Four rounds of four clients, without a mechanism's parameters.
_UNSPECIFIED = small_config.BLT.with_values({**small_config.NO_BUFFERS, 'population': _POPULATION})


def _plan_of(config, **how):
    how = {'population': lambda: _POPULATION, 'dimension': lambda: 100, **how}
    return build_plan(config.privacy, config.sampling, **how)


# --- Parameters of the mechanism.


def _optimizable(**values):
    return _plan_of(_UNSPECIFIED.with_values({'rounds': 12, **values}))


_OPTIMIZERS = {
    'blt': mechanisms.optimize_blt,
    'banded': mechanisms.optimize_banded,
    'free_banded': functools.partial(mechanisms.optimize_banded, loss='max', column_norms='free'),
    'banded_toeplitz': mechanisms.optimize_banded_toeplitz,
    'banded_inverse': mechanisms.optimize_banded_inverse,
}


@pytest.mark.parametrize('name', _OPTIMIZERS)
def test_a_mechanism_without_parameters_is_optimised_for_the_schema(name):
    plan = _optimizable(mechanism=name)
    size = 4  # Buffers of a BLT, or the bands of a separation of four rounds.
    assert plan.mechanism == _OPTIMIZERS[name](plan.participation, size)
    assert plan.participation.min_separation == 4


def test_given_parameters_are_used():
    given = {'blt_decay': (0.9, 0.5), 'blt_scale': (0.1, 0.2)}
    assert _optimizable(mechanism='blt', **given).mechanism == mechanisms.Blt(12, *given.values())
    assert _optimizable(mechanism='blt', strategy='blt_b100').mechanism.rounds == 12
    # A report about earlier noise does not optimise.
    with pytest.raises(errors.ArgumentError, match='mechanism=blt: needs strategy'):
        mechanism.build(_UNSPECIFIED.privacy, 12)


def test_auto_takes_what_fits_into_memory():
    config = _UNSPECIFIED.with_values({'mechanism': 'auto', 'memory_limit': 0, 'rounds': 12})
    # Without memory, what can be drawn again is left, and of that the least loss.
    assert _plan_of(config).mechanism.name == 'banded_inverse'


# --- Estimator and adaptive clip norm of [McMahan18] and [Andrew21].

_CLIPPED = _UNSPECIFIED.with_values(
    {
        'mechanism': 'gaussian',
        'estimator': 'clipped',
        'cohort_weight': 2.5,
        'example_cap': 12.0,
        'rounds': 2,
        'min_separation': 2,
    }
)
_FIXED = {'estimator': 'fixed', 'cohort_weight': None}


def test_the_plan_has_the_estimator_of_the_configuration():
    plan = _plan_of(_CLIPPED)
    assert plan.estimator == accounting.Estimator('clipped', 2.5, 12.0)
    # Lemma 1: 2 S / (q W_min).
    assert plan.clip_norm / plan.denominator == pytest.approx(2 * 0.3 / 2.5)
    fixed = _plan_of(_CLIPPED.with_values(_FIXED))
    assert fixed.denominator == 4 and fixed.epsilon(1e-3) == plan.epsilon(1e-3)


@pytest.mark.parametrize('config', [_CLIPPED, GanConfig(privacy=_CLIPPED.privacy)])
def test_a_mean_that_is_biased_says_so(config):
    def biased(**changes):
        return [each for each in config.with_values(changes).remarks(2) if 'biased' in each]

    assert len(biased(**_FIXED)) == 1
    assert not biased(estimator='fixed')
    assert not biased(cohort_weight=None)
    assert not biased(**_FIXED, example_cap=None)


@pytest.mark.parametrize(
    'mechanism, restarts, least',
    [('tree', {}, 130), ('tree', dict(restart_first=7, restart_every=16), 9), ('gaussian', {}, 2)],
)
def test_a_clip_norm_that_never_adapts_is_refused(mechanism, restarts, least):
    def plan(rounds):
        privacy = PrivacyConfig(
            mechanism=mechanism, noise_multiplier=1.0, adaptive_clip=True, **restarts
        )
        schema = SamplingConfig(rounds=rounds, clients_per_round=30)
        return build_plan(privacy, schema, population=lambda: 100, dimension=lambda: 10)

    message = f'rounds={least - 1}: must be >= {least} for adaptiv'
    with pytest.raises(errors.ArgumentError, match=message):
        plan(least - 1)
    assert plan(least).fresh_rounds == (least - 1,)


# --- Amplification by sampling.

_BANDS = {'balls_in_bins': 5, 'b_min_sep': 3, 'cyclic_poisson': 3}
_GAUSSIAN = dict(mechanism='gaussian', bands=None)


def _sampled(kind, **changes):
    return _UNSPECIFIED.with_values(
        {
            'mechanism': 'fichtenberger_toeplitz',
            'bands': _BANDS[kind],
            'sampling': kind,
            'min_separation': 1,
            'rounds': 5,
            'noise_multiplier': 2.0,
            **changes,
        }
    )


_TRUNCATED = dict(_GAUSSIAN, sampling='truncated_poisson', cohort_cap=6)
_ALLOCATED = dict(sampling='random_allocation', groups=6, rounds=14)


@pytest.mark.parametrize(
    'kind, changes, groups, schema',
    [
        ('cyclic_poisson', {}, 3, Participation(5, 3)),
        ('cyclic_poisson', dict(groups=4), 4, Participation(5, 4)),
        ('cyclic_poisson', dict(min_separation=2), 3, Participation(5, 2)),
        ('cyclic_poisson', _GAUSSIAN, 1, Participation(5)),
        ('cyclic_poisson', dict(_GAUSSIAN, sampling='poisson'), None, Participation(5)),
        ('cyclic_poisson', _TRUNCATED, None, Participation(5)),
        ('b_min_sep', {}, 3, Participation(5, 3)),
        ('b_min_sep', dict(groups=5), 5, Participation(5, 5)),
        ('balls_in_bins', {}, 6, Participation(5, 6)),
        ('balls_in_bins', dict(groups=5), 5, Participation(5, 5)),
        ('balls_in_bins', _ALLOCATED, 6, Participation(14, 1, 3)),
    ],
)
def test_a_plan_with_sampling_is_kept_by_its_sampler(kind, changes, groups, schema):
    config = _sampled(kind, **changes)
    plan = _plan_of(config)
    settings = plan.sampling.to_dict()
    assert (settings.get('groups'), plan.participation) == (groups, schema)
    sampler = config.sampling.sampler(plan, _POPULATION, 0)
    sampling.check(sampler, plan)
    if cap := settings.get('cohort_cap'):
        assert max(sampler.cohort(t).size for t in range(5)) <= cap == 6


@pytest.mark.standard
def test_noise_is_calibrated_for_an_estimate(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)
    changes = dict(noise_multiplier=None, target_epsilon=2.0, delta=1e-4)
    assert 1.8 < _plan_of(_sampled('b_min_sep', **changes)).epsilon(1e-4, 'best') <= 2


# --- Settings that contradict each other.


_BINS, _CYCLIC = _sampled('balls_in_bins'), _sampled('cyclic_poisson')
_CALIBRATED = dict(noise_multiplier=None, target_epsilon=2.0)
_WITH_TARGET = _UNSPECIFIED.with_values(_GAUSSIAN | _CALIBRATED)


@pytest.mark.parametrize(
    'config, changes, message',
    [
        (_UNSPECIFIED, dict(blt_decay=(0.9,)), 'mechanism=blt: needs strategy, or blt_decay'),
        (
            _UNSPECIFIED,
            dict(mechanism='banded', sampling='cyclic_poisson', min_separation=1),
            'mechanism=banded: needs strategy',
        ),
        (_CLIPPED, dict(secagg=True, secagg_bits=20), 'estimator=clipped: must be fixed'),
        (_CLIPPED, dict(_FIXED, model_dimension=9), 'model_dimension=9: needs secagg'),
        (_BINS, dict(_CALIBRATED, accountant='rdp'), 'accountant=rdp: must be one of best with'),
        (_CYCLIC, dict(groups=7), 'population=24: must be at least 28, 7 groups'),
        (_CYCLIC, dict(groups=3, sampling='poisson'), 'groups=3: needs sampling=cyclic'),
        (_CYCLIC, dict(cohort_cap=9), 'cohort_cap=9: needs sampling=truncated_poisson'),
        (_WITH_TARGET, dict(noise_multiplier=1.0), 'target_epsilon'),
        (_WITH_TARGET, dict(mechanism='none'), 'target_epsilon'),
    ],
)
def test_settings_that_contradict_each_other_are_refused(config, changes, message):
    with pytest.raises(errors.ArgumentError, match=f'^{message}') as refused:
        _plan_of(config.with_values(changes))
    assert '\n' not in str(refused.value)
