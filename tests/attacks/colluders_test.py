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

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.accounting import hardened

_CLIENTS, _FILLING = 6500, 4095
_KINDS = ('float32', 'float64', 'float16', 'clipped denominator', 'hardened')


def _effect(total, dtype) -> float:
    """The largest change of a sum by the victim, over several ways to collude.

    Args:
      total: (updates in order, [clients]) -> their sum, a number.
      dtype: type of the updates.
    """
    # Just above half a step beyond the power of two, for the steps of float32 and of float64.
    colluding = [2.0**-12 * 1.001, 2.0**-12 * 0.999, 2.0**-41 * 1.001, 2.0**-40 * 1.5]
    moved = []
    for value in colluding:
        rest = _CLIENTS - _FILLING - 2
        before, after = [1.0] * _FILLING + [0.4], [value] * rest
        sums = [total(np.array([*before, *victim, *after], dtype)) for victim in ([1.0], [])]
        moved.append(sums[0] - sums[1])
    return max(moved)


def _float32_sum(updates) -> float:
    return float(np.add.accumulate(updates)[-1])


def _sum_of(kind: str):
    dtype = np.dtype(kind if kind.startswith('float') else 'float32')
    spec = tf.TensorSpec([1], tf.as_dtype(dtype))
    estimator = accounting.Estimator('clipped' if kind == 'clipped denominator' else 'fixed')
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(1),
        participation=Participation(1),
        clip_norm=1.0,
        noise_multiplier=1.0,
        clients_per_round=_CLIENTS,
        estimator=estimator,
        noise='hardened' if kind == 'hardened' else 'default',
    )
    query = aggregators.build_query(
        plan, seed=0, record_specs=spec, supplied_noise=kind == 'hardened'
    )
    state = query.initial_global_state()
    params = query.derive_sample_params(state)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.as_dtype(dtype))])
    def in_order(updates):
        return tf.foldl(
            lambda sample, update: query.accumulate_record(params, sample, update[None]),
            updates,
            query.initial_sample_state(spec),
        )

    # Hardened noise sums integers.
    clip_norm = hardened.STDDEV / plan.noise_multiplier if kind == 'hardened' else plan.clip_norm

    def total(updates) -> float:
        shards = np.array_split(updates, 2 if kind == 'two shards' else 1)
        samples = [in_order(tf.constant(shard)) for shard in shards]
        sample = tf.nest.map_structure(lambda *parts: tf.add_n(parts), *samples)
        return float(np.ravel(tf.nest.flatten(sample)[0])[0]) / clip_norm

    return total, dtype


@pytest.mark.standard
def test_the_attack_moves_float32_sums():
    assert _effect(_float32_sum, np.float32) > 1.5


@pytest.mark.parametrize(
    'kind',
    [
        pytest.param('two shards', marks=pytest.mark.standard),
        *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in _KINDS),
    ],
)
def test_exact_sums_are_not_moved(kind):
    assert _effect(*_sum_of(kind)) <= 1
