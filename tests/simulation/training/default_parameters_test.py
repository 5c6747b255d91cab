"""Mechanisms of which no parameter is given: optimised for the schema of a run, or refused."""

import functools

import pytest

from dpfl import mechanisms
from dpfl.errors import ArgumentError
from dpfl.simulation.training import mechanism
from dpfl.simulation.training.plan import build_plan, strategy_hint
from tests.simulation.training import small_config

_NO_PARAMETERS = {'blt_decay': None, 'blt_scale': None}
_OPTIMIZED = {
    'blt': mechanisms.optimize_blt,
    'banded': mechanisms.optimize_banded,
    'free_banded': functools.partial(mechanisms.optimize_banded, loss='max', column_norms='free'),
    'banded_toeplitz': mechanisms.optimize_banded_toeplitz,
    'banded_inverse': mechanisms.optimize_banded_inverse,
}


def _plan(**values):
    config = small_config.BLT.with_values({**_NO_PARAMETERS, 'rounds': 12, **values})
    return build_plan(config.privacy, config.sampling, population=lambda: 16, dimension=lambda: 100)


@pytest.mark.parametrize('name', _OPTIMIZED)
def test_a_mechanism_is_optimised_for_the_schema(name):
    plan = _plan(mechanism=name)
    size = 4  # Buffers of a BLT, or the bands of a separation of four rounds.
    assert plan.mechanism == _OPTIMIZED[name](plan.participation, size)
    assert plan.participation.min_separation == 4


def test_what_is_given_is_used():
    given = {'blt_decay': (0.9, 0.5), 'blt_scale': (0.1, 0.2)}
    assert _plan(mechanism='blt', **given).mechanism == mechanisms.Blt(12, *given.values())
    assert _plan(mechanism='blt', strategy='blt_b100').mechanism.rounds == 12


def test_half_of_the_parameters_is_refused():
    with pytest.raises(ArgumentError, match='mechanism=blt: needs strategy, or blt_decay and'):
        _plan(mechanism='blt', blt_decay=(0.9,))


def test_with_amplification_the_schema_is_not_what_to_optimise_for():
    with pytest.raises(ArgumentError, match='mechanism=banded: needs strategy'):
        _plan(mechanism='banded', sampling='cyclic_poisson', min_separation=1)


def test_a_report_about_earlier_noise_does_not_optimise():
    config = small_config.BLT.with_values(_NO_PARAMETERS).privacy
    with pytest.raises(ArgumentError, match='mechanism=blt: needs strategy'):
        mechanism.build(config, 12)


@pytest.mark.standard
def test_a_strategy_for_other_rounds_is_mentioned_with_what_it_costs():
    given = small_config.BLT.with_values({**_NO_PARAMETERS, 'strategy': 'blt_b400'})
    plan = _plan(strategy='blt_b400', rounds=60)
    best = mechanisms.optimize_blt(plan.participation)
    saved = 1 - best.max_loss(plan.participation) / plan.mechanism.max_loss(plan.participation)
    text = strategy_hint(given.privacy, plan)
    assert saved > 0.05 and f'has {saved:.0%} less noise' in text
    # What it proposes has the guarantee of the plan.
    epsilon = plan.epsilon(given.privacy.delta)
    assert f'target_epsilon={epsilon} in place of noise_multiplier' in text
    followed = _plan(rounds=60, noise_multiplier=None, target_epsilon=epsilon)
    assert followed.mechanism == best
    assert followed.epsilon(given.privacy.delta) == pytest.approx(epsilon, rel=1e-6)
    assert 'in place of' not in strategy_hint(
        given.privacy.with_values({'noise_multiplier': None, 'target_epsilon': epsilon}), plan
    )
    # Nothing to say: it was optimised for this schema, or its parameters were given one by one.
    assert strategy_hint(given.privacy, _plan(mechanism='tree')) is None
    assert strategy_hint(small_config.BLT.privacy, _plan(mechanism='blt')) is None
    made_for = {'rounds': 2000, 'min_separation': 400, 'max_participations': 5}
    assert strategy_hint(given.privacy, _plan(strategy='blt_b400', **made_for)) is None
