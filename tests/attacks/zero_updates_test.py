"""A client with a zero update changes nothing, as zero-out adjacency requires.

With and without it the server computes the same bits from the same noise.
"""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import accounting, aggregators
from dpfl.mechanisms.discretization import Discretization
from tests.accounting import plans
from tests.aggregators import rounds

_SPEC = tf.TensorSpec([8])
_ADAPTIVE = dict(adaptive_clip=accounting.AdaptiveClip(count_stddev=10.0))
_DISCRETIZED = dict(discretization=Discretization(1e3, 8, 1.0))


@pytest.mark.parametrize(
    'changes',
    [{}, _ADAPTIVE, _DISCRETIZED, _ADAPTIVE | _DISCRETIZED, dict(noise='hardened')],
    ids=['plain', 'adaptive clip', 'discretized', 'adaptive clip, discretized', 'hardened'],
)
def test_a_zero_update_changes_nothing(changes):
    plan = plans.independent(4, noise_multiplier=0.1, clients_per_round=100, **changes)
    is_hardened = plan.noise == 'hardened'
    query = aggregators.build_query(plan, seed=0, record_specs=_SPEC, supplied_noise=is_hardened)
    start = query.initial_global_state()
    if is_hardened:
        with aggregators.build_noise_ring(plan) as ring:
            start = ring.supply(start, ())
    others = np.random.default_rng(0).normal(size=[5, 8]).astype(np.float32)
    ends = []
    for cohort in (others, [*others, np.zeros(8, np.float32)]):
        rows, state = rounds.run(query, start, [cohort], _SPEC)
        ends.append([rows, *map(np.asarray, tf.nest.flatten(state))])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)
