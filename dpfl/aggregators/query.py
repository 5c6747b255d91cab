"""The query of a privacy plan: what clients and server compute in one round."""

import collections
from typing import Any, NamedTuple

import dp_accounting
import tensorflow as tf
import tensorflow_privacy as tfp

from dpfl import accounting
from dpfl.aggregators import clipping, keys, noise


class QueryState(NamedTuple):
    """State of `CorrelatedNoiseQuery` between two rounds: the clip norm and the noise."""

    clip_norm: Any
    noise: noise.NoiseState


class CorrelatedNoiseQuery(tfp.SumAggregationDPQuery):
    """Sum of clipped records plus noise: `sum + clip_norm * noise_multiplier * (C^-1 z)_t`.

    A `tfp.DPQuery`: the client side is `preprocess_record`, the server side `get_noised_result`.
    Its event in each round is `UnsupportedDpEvent`: only the whole run has a guarantee, that of the
    plan.
    """

    def __init__(self, plan: accounting.PrivacyPlan, record_specs=None, seed: int | None = None):
        """Args: as `build_query`."""
        self._plan = plan
        self._record_specs = record_specs
        self._kernel = plan.mechanism.with_rounds(plan.participation.rounds).kernel()
        self._root_key = None if seed is None else keys.seeded_root_key(seed)
        self._entropy = keys.entropy()

    def initial_global_state(self) -> QueryState:
        """State before the first round; without a seed each call starts from another root key."""
        key = self._root_key
        if key is None:
            key = keys.fresh_root_key(self._entropy)
        return QueryState(
            tf.cast(self._plan.clip_norm, tf.float32),
            noise.initial_state(self._kernel, self._record_specs, key),
        )

    def derive_sample_params(self, global_state):
        """What a client needs in a round: the clip norm, float32 scalar."""
        return global_state.clip_norm

    def preprocess_record(self, params, record):
        """Clips one client's record: a structure of float32 or float64 tensors.

        Raises:
          TypeError: if the record has another tensor.
        """
        for leaf in tf.nest.flatten(record):
            dtype = tf.as_dtype(leaf.dtype)
            if dtype not in (tf.float32, tf.float64):
                raise TypeError(f'record has a {dtype.name} tensor: must be float32 or float64')
        return clipping.clip_flat(record, params)

    def get_noised_result(self, sample_state, global_state):
        """The sum with the noise of this round, the state of the next, and the event."""
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, sample_state)
        unit_noise, noise_state = noise.next_noise(
            self._kernel, self._plan.participation.rounds, global_state.noise, specs
        )
        stddev = global_state.clip_norm * self._plan.noise_multiplier
        noised = [
            total + tf.cast(stddev, total.dtype) * unit
            for total, unit in zip(
                tf.nest.flatten(sample_state), tf.nest.flatten(unit_noise), strict=True
            )
        ]
        return (
            tf.nest.pack_sequence_as(sample_state, noised),
            QueryState(global_state.clip_norm, noise_state),
            dp_accounting.UnsupportedDpEvent(),
        )

    def derive_metrics(self, global_state):
        """None: nothing that is computed from updates without noise leaves the query."""
        return collections.OrderedDict()
