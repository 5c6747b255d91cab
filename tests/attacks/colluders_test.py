"""Colluders do not raise the effect of one client on a sum above its clip norm.

The repeated rounding attack of [Casacuberta22]: 6,500 clients fill a sum of float32 numbers up to
a power of two, and the victim's update takes the sum beyond it. There the steps between numbers are
twice as wide, so the update of each further client is rounded up to twice its value. The attack is
also tried on the steps of float64, and on sums of several shards. The control is a plain float32
sum, in which the effect is 1.59 clip norms.
"""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import accounting, aggregators
from dpfl.accounting import hardened
from tests.accounting import plans
from tests.sizes import exhaustive, standard

_CLIENTS, _FILLING = 6500, 4095


def _effect(total, dtype) -> float:
    """The largest change of a sum by the victim, over several ways to collude.

    Args:
      total: (updates in order, [clients]) -> their sum, a number.
      dtype: type of the updates.
    """
    moved = []
    # Just above half a step beyond the power of two, for the steps of float32 and of float64.
    for value in (2.0**-12 * 1.001, 2.0**-12 * 0.999, 2.0**-41 * 1.001, 2.0**-40 * 1.5):
        before, after = [1.0] * _FILLING + [0.4], [value] * (_CLIENTS - _FILLING - 2)
        sums = [total(np.array([*before, *victim, *after], dtype)) for victim in ([1.0], [])]
        moved.append(sums[0] - sums[1])
    return max(moved)


@pytest.mark.standard
def test_the_attack_moves_float32_sums():
    assert _effect(lambda updates: float(np.add.accumulate(updates)[-1]), np.float32) > 1.5


@pytest.mark.parametrize(
    'dtype, shards, changes',
    [
        standard('float32', 2, {}),
        *(exhaustive(f'float{bits}', 1, {}) for bits in (16, 32, 64)),
        exhaustive('float32', 1, dict(estimator=accounting.Estimator('clipped'))),
        exhaustive('float32', 1, dict(noise='hardened')),
    ],
)
def test_exact_sums_are_not_moved(dtype, shards, changes):
    spec = tf.TensorSpec([1], dtype)
    plan = plans.independent(1, clients_per_round=_CLIENTS, **changes)
    is_hardened = plan.noise == 'hardened'
    query = aggregators.build_query(plan, seed=0, record_specs=spec, supplied_noise=is_hardened)
    params = query.derive_sample_params(query.initial_global_state())
    # Hardened noise sums integers.
    clip_norm = hardened.STDDEV / plan.noise_multiplier if is_hardened else plan.clip_norm

    @tf.function(input_signature=[tf.TensorSpec([None], dtype)])
    def in_order(updates):
        return tf.foldl(
            lambda sample, update: query.accumulate_record(params, sample, update[None]),
            updates,
            query.initial_sample_state(spec),
        )

    def total(updates) -> float:
        samples = [in_order(tf.constant(shard)) for shard in np.array_split(updates, shards)]
        sample = tf.nest.map_structure(lambda *parts: tf.add_n(parts), *samples)
        return float(np.ravel(tf.nest.flatten(sample)[0])[0]) / clip_norm

    assert _effect(total, dtype) <= 1
