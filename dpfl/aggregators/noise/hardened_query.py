"""Hardened noise in a round: updates as integers, their exact sum, integer noise, then floats.

A round releases a vector of 64-bit integers: the sum of the clients' integers, the same in every
order of summation, plus noise that a `HardenedRing` supplies. All that follows, the scaling to
floating-point numbers included, is post-processing (docs/reference/hardened.md).
"""

import collections
import math
from typing import Any, NamedTuple

import dp_accounting
import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp

from dpfl import _validate, accounting, errors
from dpfl.accounting import hardened
from dpfl.aggregators import clipping, estimators, flat, query
from dpfl.aggregators.noise import correlated, draws
from dpfl.mechanisms.hardened import discrete_gaussian, stream

# Bound on the norm of an update's integers, as a share of the norm that the plan counts. The
# difference is far above the rounding of a norm in float64, whatever the number of coordinates.
_NORM_MARGIN = 1 - 2.0**-20
_KEY_WORDS = discrete_gaussian.KEY_BYTES // 8


class IntegerRow(NamedTuple):
    """Integer noise that a `HardenedRing` supplies for one round; empty after that round.

    Attributes:
      round: the round that it is for, int64 scalar; -1 for none.
      size: number of coordinates, int64 scalar.
      values: w, int64 [any].
    """

    round: Any
    size: Any
    values: Any


class HardenedQuery(tfp.SumAggregationDPQuery):
    """Sums clipped, weighted updates and noise as integers, and returns floating-point numbers.

    The state is a `query.QueryState`. The key in its `NoiseState` has 256 bits, int64 [4].
    """

    def __init__(
        self,
        plan: accounting.PrivacyPlan,
        record_specs: Any,
        seed: int | None = None,
        clip: clipping.Clip = clipping.clip_flat,
    ):
        """Args: as `build_query`; the plan has `noise='hardened'`.

        Raises:
          ValueError: if the plan has no noise or no guarantee, the model has more coordinates than
            the guarantee allows, or the seed is not an integer >= 0.
        """
        if plan.noise != 'hardened':
            raise errors.ArgumentError('noise', plan.noise, 'must be hardened')
        if not plan.noise_multiplier > 0:
            raise errors.ArgumentError(
                'noise_multiplier', plan.noise_multiplier, 'must be > 0 with noise=hardened'
            )
        kernel, rounds = plan.mechanism_of_run.kernel(), plan.participation.rounds
        stddevs = hardened.STDDEV * stream.stddevs(kernel, rounds)
        least, largest = discrete_gaussian.LEAST, discrete_gaussian.LARGEST
        if not least <= stddevs.min() <= stddevs.max() <= largest:
            raise errors.ArgumentError(
                'noise',
                'hardened',
                f'must be default with mechanism={plan.mechanism.name}: noise of single rounds is '
                f'{stddevs.min():g} .. {stddevs.max():g} integers, must be within '
                f'{least:g} .. {largest:g}',
            )
        if math.isinf(plan.sensitivity):
            raise errors.ArgumentError(
                'noise',
                'hardened',
                f'must be default with mechanism={plan.mechanism.name} and '
                f'noise_multiplier={plan.noise_multiplier}: no bound is proven for these',
            )
        self._plan, self._clip = plan, clip
        self._digest = query.plan_digest(plan, clip)
        self._specs = estimators.update_of(record_specs)
        self._size = sum(flat.sizes(self._specs).values())
        if self._size > hardened.MOST_COORDINATES:
            raise errors.ArgumentError(
                'record_specs',
                errors.NOT_SHOWN,
                f'has {self._size} coordinates, must have at most '
                f'{hardened.MOST_COORDINATES} with noise=hardened',
            )
        self._units = hardened.STDDEV / plan.noise_multiplier  # Integer units in a clip norm.
        self._key = None
        if seed is not None:
            _validate.integer('seed', seed, minimum=0)
            self._key = np.frombuffer(discrete_gaussian.seeded_key(seed), '<i8').astype(np.int64)

    def initial_global_state(self) -> query.QueryState:
        """State before the first round; without a seed each call draws a new key."""
        key = draws.fresh_root_key(_KEY_WORDS) if self._key is None else tf.constant(self._key)
        return query.QueryState(
            tf.cast(self._plan.clip_norm, tf.float32),
            correlated.NoiseState(
                key,
                tf.zeros([], tf.int64),
                correlated.no_keys(self._plan.participation.rounds, _KEY_WORDS),
                self._no_row(),
            ),
            tf.constant(self._digest),
        )

    def derive_sample_params(self, global_state: Any) -> Any:
        """Parameters of a round for clients: the clip norm, float32 scalar."""
        return global_state.clip_norm

    def initial_sample_state(self, template: Any = None) -> Any:
        del template  # The record specs say how long it is.
        return tf.zeros([self._size], tf.int64)

    def preprocess_record(self, params: Any, record: Any) -> Any:
        """One client's update as integers of norm below `STDDEV / noise_multiplier`, int64 [d].

        The norm is bounded once more here, in float64, whatever the clip did. Rounding towards zero
        lowers it further.

        Raises:
          TypeError, ValueError, tf.errors.InvalidArgumentError: as `query.checked`.
        """
        update = query.checked(estimators.update_of(record), self._specs)
        weight = estimators.weight_of(record, self._plan.estimator.example_cap)
        vector = flat.vector(self._clip(update, params), tf.float64)
        scale = tf.cast(weight, tf.float64) * self._units / tf.cast(params, tf.float64)
        norm = tf.norm(vector)
        scaled = vector * tf.minimum(scale, self._units * _NORM_MARGIN / norm)
        # An update whose norm is not finite counts as zero. The cast rounds towards zero.
        finite = tf.where(tf.math.is_finite(norm), scaled, tf.zeros_like(scaled))
        return tf.cast(finite, tf.int64)

    def derive_metrics(self, global_state: Any) -> collections.OrderedDict[str, Any]:
        return query.public_metrics(self._plan, global_state)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        """The noised sum in the structure of the specs, the state of the next round, the event."""
        state = global_state.noise
        checks = query.require_plan(global_state.plan, self._plan, self._digest)
        checks += [
            correlated.require_planned(state.round, self._plan.participation.rounds),
            correlated.require_supplied(state.past, state.round),
        ]
        with correlated.after(checks):
            values = tf.reshape(state.past.values, [self._size])
        # 64-bit integers wrap around: the result is the unbounded sum modulo 2^64.
        released = sample_state + values
        unit = tf.cast(global_state.clip_norm, tf.float64) / self._units
        result = flat.structured(tf.cast(released, tf.float64) * unit, self._specs)
        following = query.QueryState(
            query.next_clip_norm(self._plan, global_state),
            correlated.NoiseState(state.key, state.round + 1, state.drawn, self._no_row()),
            global_state.plan,
        )
        result = flat.cast_to(result, self._specs)
        return result, following, dp_accounting.UnsupportedDpEvent()

    def _no_row(self) -> IntegerRow:
        empty = correlated.of_any_length(tf.zeros([0], tf.int64))
        return IntegerRow(tf.constant(-1, tf.int64), tf.constant(self._size, tf.int64), empty)
