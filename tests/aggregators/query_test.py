"""The query without TFF: use in an eager loop, scale of the noise, and the plan of its state."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy as tfp
from scipy import stats

from dpfl import accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization
from tests import oracles, redrawn
from tests.aggregators import rounds

_SPEC = tf.TensorSpec([3])
_HARDENED = dict(noise='hardened', supplied_noise=True)


def test_query_is_a_dp_query_for_an_eager_loop():
    query, records = aggregators.build_query(rounds.plan(), seed=4), [tf.ones([3])] * 2
    assert isinstance(query, tfp.DPQuery)
    state = query.initial_global_state()
    params, sample = query.derive_sample_params(state), query.initial_sample_state(records[0])
    for record in records:
        sample = query.accumulate_record(params, sample, record)
    result, _, event = query.get_noised_result(sample, state)
    assert isinstance(event, dp_accounting.UnsupportedDpEvent)
    expected, _ = rounds.run(query, state, [records], records[0])
    np.testing.assert_array_equal(result, expected[0])


@pytest.mark.parametrize('factor, accepted', [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_noise_has_the_planned_standard_deviation(factor, accepted):
    # One draw of 20,000 coordinates with a fixed seed: no flakiness.
    plan = rounds.plan(mechanisms.Identity(6))
    query = aggregators.build_query(plan, seed=11)
    result, _, _ = query.get_noised_result(tf.zeros([20_000]), query.initial_global_state())
    expected = plan.stddev / plan.clients_per_round
    p_value = stats.kstest(result.numpy() / (factor * expected), 'norm').pvalue
    assert (p_value > 1e-3) == accepted


def _blt(number, decay=0.9):
    return mechanisms.Blt(number, [decay], [0.2])


def _plan(number=6, mechanism=None, **changes):
    return rounds.plan(mechanism or _blt(number), **changes)


def _query(plan, **options):
    return aggregators.build_query(plan, 3, record_specs=_SPEC, **options)


def _changed(**changes):
    """A query; all changes but those of its options are of its plan."""
    options = {name: changes.pop(name) for name in ('clip', 'supplied_noise') if name in changes}
    return _query(_plan(**changes), **options)


def _released(query, state, number):
    return rounds.run(query, state, [[np.float32([0.1, 0.2, 0.3])]] * number, _SPEC)


def _integers(scale):
    return dict(discretization=Discretization(scale=scale, dimension=3, clip_norm=0.5))


@pytest.mark.parametrize(
    'before, after, named',
    [
        ({}, dict(noise_multiplier=0.1), r'noise_multiplier \(here 0.1\);'),
        ({}, dict(clip_norm=0.25), r'clip_norm or its rule \(here 0.25\);'),
        ({}, dict(clients=4), r'clients_per_round \(here 4\);'),
        ({}, dict(estimator=accounting.Estimator('clipped')), 'estimator;'),
        ({}, dict(mechanism=_blt(6, 0.8)), r'mechanism \(here blt for 6 rounds\);'),
        ({}, dict(number=12), r'mechanism \(here blt for 12 rounds\);'),
        ({}, dict(clip_norm=0.25, noise_multiplier=4.0), 'noise_multiplier .*, clip_norm'),
        ({}, dict(clip=aggregators.PerLayer()), 'clip;'),
        (_integers(1e3), _integers(2e3), 'discretization;'),
        (_HARDENED, dict(_HARDENED, noise_multiplier=0.5), 'noise_multiplier'),
    ],
)
def test_a_state_is_refused_under_another_plan(before, after, named):
    state = _changed(**before).initial_global_state()
    with pytest.raises(tf.errors.InvalidArgumentError, match=f'with another {named}') as error:
        _released(_changed(**after), state, 1)
    assert str(error.value).startswith('state: was made under a plan with another')
    assert str(error.value).endswith('a state goes on only under the plan that it was made with')


@pytest.mark.parametrize('changes', [{}, _integers(1e3), _HARDENED])
def test_a_record_of_another_shape_is_refused_as_a_sum_would_broadcast_it(changes):
    query = _changed(**changes)
    params = query.derive_sample_params(query.initial_global_state())
    for record in (np.ones(1, np.float32), np.float32(1), np.ones([2, 3], np.float32)):
        with pytest.raises(tf.errors.InvalidArgumentError, match='not compatible with expected'):
            query.preprocess_record(params, record)
    if not changes:
        query = aggregators.build_query(_plan())
        with pytest.raises(ValueError, match='Shapes .* are incompatible'):
            query.accumulate_record(params, query.initial_sample_state(_SPEC), record[:1, :1])


def test_what_only_accounting_reads_may_change():
    identity = dict(mechanism=mechanisms.Identity(6))
    query = _changed(**identity)
    _, state = _released(query, query.initial_global_state(), 1)
    whole, _ = _released(query, state, 1)
    poisson = accounting.Poisson(population=100)
    for changes in (dict(group_size=2), dict(sampling=poisson), dict(clients=2.0)):
        again, _ = _released(_changed(**identity, **changes), state, 1)
        np.testing.assert_array_equal(again, whole)


@pytest.mark.parametrize(
    'mechanism, longer',
    [
        (_blt(6), _blt(12)),
        (mechanisms.HonakerTree(6), mechanisms.HonakerTree(12)),
    ],
)
def test_more_rounds_have_the_noise_of_the_whole_matrix(mechanism, longer):
    before, plan = _plan(6, mechanism), _plan(12, longer)
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
    'before, after, message',
    [
        ({}, _plan(12, _blt(12, 0.8)), 'mechanism=blt: must have the strategy .* in its 6 rounds'),
        ({}, _plan(12, mechanisms.Identity(12)), 'mechanism=gaussian: must have the strategy'),
        ({}, _plan(12, noise_multiplier=1.0), 'noise_multiplier=1.0: must be 2.0, as in the plan'),
        (dict(clip_norm=0.1), _plan(12), 'before: has another clip_norm than the state'),
    ],
)
def test_a_state_is_not_extended_to_a_plan_that_differs_in_what_was_released(
    before, after, message
):
    state = _changed().initial_global_state()
    with pytest.raises(ValueError, match=message):
        aggregators.extended_state(state, _plan(**before), after)
