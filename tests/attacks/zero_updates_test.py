"""A client with a zero update changes nothing, as zero-out adjacency requires.

With and without it the server computes the same bits from the same noise.
"""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization

_SIZE, _CLIENTS = 8, 100
_ADAPTIVE = accounting.AdaptiveClip(count_stddev=10.0)
_PLANS = {
    'plain': {},
    'adaptive clip': dict(adaptive_clip=_ADAPTIVE),
    'discretized': dict(discretization=Discretization(1e3, _SIZE, 1.0)),
    'adaptive clip, discretized': dict(
        adaptive_clip=_ADAPTIVE, discretization=Discretization(1e3, _SIZE, 1.0)
    ),
    'hardened': dict(noise='hardened'),
}


@pytest.mark.parametrize('name', _PLANS)
def test_a_zero_update_changes_nothing(name):
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(4),
        participation=Participation(4),
        clip_norm=1.0,
        noise_multiplier=0.1,
        clients_per_round=_CLIENTS,
        **_PLANS[name],
    )
    is_hardened = plan.noise == 'hardened'
    query = aggregators.build_query(
        plan, seed=0, record_specs=tf.TensorSpec([_SIZE]), supplied_noise=is_hardened
    )
    start = query.initial_global_state()
    if is_hardened:
        with aggregators.HardenedRing(plan) as ring:
            start = ring.supply(start, ())
    params = query.derive_sample_params(start)
    others = np.random.default_rng(0).normal(size=[5, _SIZE]).astype(np.float32)
    ends = []
    for cohort in (others, [*others, np.zeros(_SIZE, np.float32)]):
        sample = query.initial_sample_state(tf.TensorSpec([_SIZE]))
        for update in cohort:
            sample = query.accumulate_record(params, sample, tf.constant(update))
        result, state, _ = query.get_noised_result(sample, start)
        ends.append([np.asarray(leaf) for leaf in tf.nest.flatten((result, state))])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)
