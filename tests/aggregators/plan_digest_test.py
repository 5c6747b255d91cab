"""A state under another plan than its own: refused by name, or continued where that is right."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization
from tests import oracles, redrawn
from tests.aggregators import rounds

_SPEC = tf.TensorSpec([3])


def _blt(number, decay=0.9):
    return mechanisms.Blt(number, [decay], [0.2])


def _plan(number=6, mechanism=None, **changes):
    return rounds.plan(mechanism or _blt(number), **changes)


def _query(plan, **changes):
    return aggregators.build_query(plan, 3, record_specs=_SPEC, **changes)


def _released(query, state, number):
    return rounds.run(query, state, [[np.float32([0.1, 0.2, 0.3])]] * number, _SPEC)


@pytest.mark.parametrize(
    'changes, named',
    [
        (dict(noise_multiplier=0.1), r'noise_multiplier \(here 0.1\);'),
        (dict(clip_norm=0.25), r'clip_norm or its rule \(here 0.25\);'),
        (dict(clients=4), r'clients_per_round \(here 4\);'),
        (dict(estimator=accounting.Estimator('clipped')), 'estimator;'),
        (dict(mechanism=_blt(6, 0.8)), r'mechanism \(here blt for 6 rounds\);'),
        (dict(number=12), r'mechanism \(here blt for 12 rounds\);'),
        (dict(clip_norm=0.25, noise_multiplier=4.0), 'noise_multiplier .*, clip_norm'),
    ],
)
def test_a_state_is_refused_under_another_plan(changes, named):
    _, state = _released(_query(_plan()), _query(_plan()).initial_global_state(), 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f'with another {named}') as error:
        _released(_query(_plan(**changes)), state, 1)
    assert str(error.value).startswith('state: was made under a plan with another')
    assert str(error.value).endswith('a state goes on only under the plan that it was made with')


def test_how_updates_are_clipped_and_how_they_become_integers_are_compared():
    state = _query(_plan()).initial_global_state()
    with pytest.raises(tf.errors.InvalidArgumentError, match='with another clip;'):
        _released(_query(_plan(), clip=aggregators.PerLayer()), state, 1)
    settings = [Discretization(scale=scale, dimension=3, clip_norm=0.5) for scale in (1e3, 2e3)]
    one, other = (_query(_plan(discretization=each)) for each in settings)
    with pytest.raises(tf.errors.InvalidArgumentError, match='with another discretization;'):
        _released(other, one.initial_global_state(), 1)


def test_hardened_noise_is_compared():
    plans = [_plan(noise='hardened', noise_multiplier=value) for value in (2.0, 0.5)]
    one, other = (_query(plan, supplied_noise=True) for plan in plans)
    with pytest.raises(tf.errors.InvalidArgumentError, match='with another noise_multiplier'):
        other.get_noised_result(tf.zeros([3], tf.int64), one.initial_global_state())


def test_a_whole_number_of_clients_is_an_integer():
    assert _plan(clients=4.0) == _plan(clients=4)
    assert _plan(clients=4.0).digest() == _plan(clients=4).digest()
    with pytest.raises(ValueError, match='clients_per_round=4.5: must be an integer'):
        _plan(clients=4.5)


def test_what_only_accounting_reads_may_change():
    identity = dict(mechanism=mechanisms.Identity(6))
    query = _query(_plan(**identity))
    _, state = _released(query, query.initial_global_state(), 1)
    whole, _ = _released(query, state, 1)
    for changes in (dict(group_size=2), dict(sampling=accounting.Poisson(population=100))):
        again, _ = _released(_query(_plan(**identity, **changes)), state, 1)
        np.testing.assert_array_equal(again, whole)


@pytest.mark.parametrize(
    'mechanism, longer',
    [
        (_blt(6), _blt(12)),
        (mechanisms.HonakerTree(6), mechanisms.HonakerTree(12)),
    ],
)
def test_more_rounds_have_the_noise_of_the_whole_matrix(mechanism, longer):
    before, plan = _plan(mechanism.rounds, mechanism), _plan(12, longer)
    query, shorter = _query(plan), _query(before)
    first, state = _released(shorter, shorter.initial_global_state(), 4)
    state = aggregators.extended_state(state, before, plan)
    second, end = _released(query, state, 8)
    z = redrawn.vectors(end, _SPEC)
    noise = oracles.streamed_by_solving(longer, z) * plan.stddev
    released = np.concatenate([first, second]) * plan.denominator
    np.testing.assert_allclose(released - [[0.1, 0.2, 0.3]], noise, atol=2e-5)
    if not isinstance(mechanism, mechanisms.HonakerTree):  # More rounds need more buffers.
        whole, _ = _released(query, query.initial_global_state(), 12)
        np.testing.assert_array_equal(np.concatenate([first, second]), whole)


@pytest.mark.parametrize(
    'plan, message',
    [
        (_plan(12, _blt(12, 0.8)), 'mechanism=blt: must have the strategy .* in its 6 rounds'),
        (_plan(12, mechanisms.Identity(12)), 'mechanism=gaussian: must have the strategy'),
        (_plan(12, noise_multiplier=1.0), 'noise_multiplier=1.0: must be 2.0, as in the plan'),
    ],
)
def test_a_plan_that_differs_in_what_was_released_is_refused(plan, message):
    _, state = _released(_query(_plan()), _query(_plan()).initial_global_state(), 2)
    with pytest.raises(ValueError, match=message):
        aggregators.extended_state(state, _plan(), plan)
    with pytest.raises(ValueError, match='before: has another clip_norm than the state'):
        aggregators.extended_state(state, _plan(clip_norm=0.1), plan)
