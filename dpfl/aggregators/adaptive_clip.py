"""Adaptive clipping: the clip norm follows a private quantile (document 000, algorithm 1)."""

import collections
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from dpfl import accounting
from dpfl.aggregators import clipping, estimators, query
from dpfl.aggregators.noise import correlated, keys

_COUNT = tf.TensorSpec([], tf.float64)


class AdaptiveState(NamedTuple):
    """State between two rounds.

    Attributes:
      inner: of the query of the updates; holds the clip norm in use.
      estimate: C^t, the norm at the target quantile as far as known, float32 scalar.
      fractions: noised fractions of updates within the norm, summed over all rounds, float64
        scalar.
      noise: of the clipped counts, with keys of their own.
    """

    inner: Any
    estimate: Any
    fractions: Any
    noise: correlated.NoiseState


class AdaptiveParams(NamedTuple):
    """What a client needs: the inner query's parameters, and the norm that it compares with."""

    inner: Any
    estimate: Any


class AdaptiveSample(NamedTuple):
    """Sum over clients.

    Attributes:
      sum: that of the inner query.
      within: number of clients within the norm minus the number of the others, int32 scalar;
        clients whose update is zero are neither.
    """

    sum: Any
    within: Any


class AdaptiveClipQuery(query.WrappedQuery):
    """Tracks the norm at a quantile of the updates, and clips to it from the next restart on.

    In round t, each client says whether its update is within the estimate C^t. The fraction of
    those who are gets the noise of the mechanism, with its restarts, and is added up over the
    rounds; the estimate moves down while that sum grows faster than the target:

        C^{t+1} = C^0 exp(-learning_rate (sum of t + 1 fractions - t target_quantile))

    as printed: one target fewer than fractions, which multiplies all estimates by a constant that
    the feedback undoes. The clip norm in use becomes C^{t+1} after the last round of a segment of
    the mechanism, and after each round if the noise is independent.

    A client adds 1/2 or -1/2 to the count, as theorem 1 assumes (`accounting.adaptive_clip`), and 0
    if its update is zero or not finite, for then it is zeroed out: the count must not show that it
    was there. The fraction is of the planned cohort size: clients that are missing count half, and
    clients beyond it count as well.
    """

    def __init__(
        self, inner: query.SumQuery, plan: accounting.PrivacyPlan, seed: int | None = None
    ):
        """Args: inner: takes records of updates; plan: has `adaptive_clip`; seed: of the noise."""
        super().__init__(inner)
        self._plan = plan
        rounds = plan.participation.rounds
        self._kernel = plan.mechanism.with_rounds(rounds).kernel()
        # Whether a round is the last one before the noise starts afresh, bool [rounds].
        self._is_last = np.isin(np.arange(rounds) + 1, plan.fresh_rounds)
        self._root_key = keys.root_key_source(seed, 'clipped count')

    def clip_norm(self, global_state):
        return self._inner.clip_norm(global_state.inner)

    def with_clip_norm(self, global_state, clip_norm):
        inner = self._inner.with_clip_norm(global_state.inner, clip_norm)
        return global_state._replace(inner=inner)

    def initial_global_state(self) -> AdaptiveState:
        inner = self._inner.initial_global_state()
        return AdaptiveState(
            inner=inner,
            estimate=self._inner.clip_norm(inner),
            fractions=tf.zeros([], tf.float64),
            noise=correlated.initial_state(self._kernel, _COUNT, self._root_key()),
        )

    def derive_sample_params(self, global_state) -> AdaptiveParams:
        return AdaptiveParams(
            self._inner.derive_sample_params(global_state.inner), global_state.estimate
        )

    def initial_sample_state(self, template=None) -> AdaptiveSample:
        return AdaptiveSample(self._inner.initial_sample_state(template), tf.zeros([], tf.int32))

    def preprocess_record(self, params, record) -> AdaptiveSample:
        norm = clipping.norm(clipping.finite(estimators.update_of(record)))
        return AdaptiveSample(
            self._inner.preprocess_record(params.inner, record),
            tf.where(norm > 0, tf.where(norm <= params.estimate, 1, -1), 0),
        )

    def get_noised_result(self, sample_state, global_state):
        result, inner, event = self._inner.get_noised_result(sample_state.sum, global_state.inner)
        completed = global_state.noise.round
        unit_noise, noise_state = correlated.next_noise(
            self._kernel, self._plan.participation.rounds, global_state.noise, _COUNT
        )
        count = tf.cast(sample_state.within, tf.float64) / 2 + self._plan.count_stddev * unit_noise
        fractions = global_state.fractions + count / self._plan.clients_per_round + 0.5
        estimate = self._estimate(fractions, completed)
        clip_norm = tf.where(
            tf.gather(self._is_last, completed), estimate, self._inner.clip_norm(inner)
        )
        inner = self._inner.with_clip_norm(inner, clip_norm)
        return result, AdaptiveState(inner, estimate, fractions, noise_state), event

    def derive_metrics(self, global_state):
        """The clip norm in use and the estimate, computed from noised counts alone."""
        return collections.OrderedDict(
            clip_norm=self.clip_norm(global_state), clip_norm_estimate=global_state.estimate
        )

    def _estimate(self, fractions, completed):
        """C^{t+1} from the fractions of rounds 0 .. t = `completed`, float32 scalar."""
        settings = self._plan.adaptive_clip
        target = tf.cast(completed, tf.float64) * settings.target_quantile
        exponent = -settings.learning_rate * (fractions - target)
        # Noise alone cannot make a norm vanish or overflow. The sum is not limited.
        bounds = np.log([clipping.SMALLEST_NORM, clipping.LARGEST_NORM])
        log_norm = math.log(self._plan.clip_norm) + exponent
        return tf.cast(tf.exp(tf.clip_by_value(log_norm, *bounds)), tf.float32)
