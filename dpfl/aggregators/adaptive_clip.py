"""Adaptive clipping: the clip norm follows a private quantile ([Xu23], algorithm 1)."""

import collections
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp

from dpfl import accounting
from dpfl.aggregators import clipping, estimators, query
from dpfl.aggregators.noise import correlated, draws

_COUNT = tf.TensorSpec([], tf.float64)


class AdaptiveState(NamedTuple):
    """State between two rounds.

    Attributes:
      inner: state of the query of the updates; holds the clip norm in use.
      estimate: C^t, the current estimate of the norm at the target quantile, float32 scalar.
      fractions: noised fractions of updates within the estimate, summed over all rounds, float64
        scalar.
      noise: noise state of the clipped counts, which have keys of their own.
    """

    inner: Any
    estimate: Any
    fractions: Any
    noise: correlated.NoiseState


class AdaptiveParams(NamedTuple):
    """Parameters of a round for clients: those of the inner query, and the norm to compare with."""

    inner: Any
    estimate: Any


class AdaptiveSample(NamedTuple):
    """Sum over clients.

    Attributes:
      sum: of the inner query.
      within: number of updates within the estimate minus the number above it, int32 scalar. Zero
        updates count as neither.
    """

    sum: Any
    within: Any


class AdaptiveClipQuery(query.WrappedQuery):
    """Tracks a quantile of the update norms, and clips to it from the next restart on.

    In round t each client reports whether its update's norm is at most the estimate C^t. The
    fraction of such clients gets noise of the mechanism, restarts included, and is summed over the
    rounds. While the sum grows faster than the target quantile, the estimate falls:

        C^{t+1} = C^0 exp(-learning_rate (sum of t + 1 fractions - t target_quantile))

    This is the published formula. It has one target fewer than fractions, which multiplies all
    estimates by a constant that the feedback undoes. C^{t+1} becomes the clip norm after the last
    round of a segment of the mechanism, or after every round if the noise is independent.

    A client adds 1/2 or -1/2 to the count, as theorem 1 assumes (`accounting.clipping`). A
    zero update, or one that is not finite and so becomes zero, adds 0: the count must not reveal
    that the client was there. The fraction is relative to the planned cohort size: missing clients
    count half, and clients above the planned number are counted too.
    """

    def __init__(
        self,
        inner: tfp.SumAggregationDPQuery,
        plan: accounting.PrivacyPlan,
        seed: int | None = None,
    ):
        """Args: inner: query of the updates; plan: has `adaptive_clip`; seed: of the noise."""
        super().__init__(inner)
        self._plan = plan
        rounds = plan.participation.rounds
        self._kernel = plan.mechanism_of_run.kernel()
        # Whether a round is the last one before the noise restarts, bool [rounds].
        self._is_last = np.isin(np.arange(rounds) + 1, plan.fresh_rounds)
        self._root_key = draws.root_key_source(seed, 'clipped count')

    def initial_global_state(self) -> AdaptiveState:
        inner = self._inner.initial_global_state()
        return AdaptiveState(
            inner=inner,
            estimate=query.innermost(inner).clip_norm,
            fractions=tf.zeros([], tf.float64),
            noise=correlated.initial_state(
                self._kernel, self._plan.participation.rounds, _COUNT, self._root_key()
            ),
        )

    def derive_sample_params(self, global_state: Any) -> AdaptiveParams:
        return AdaptiveParams(
            self._inner.derive_sample_params(global_state.inner), global_state.estimate
        )

    def initial_sample_state(self, template: Any = None) -> AdaptiveSample:
        return AdaptiveSample(self._inner.initial_sample_state(template), tf.zeros([], tf.int32))

    def preprocess_record(self, params: Any, record: Any) -> AdaptiveSample:
        norm = clipping.norm(clipping.finite(estimators.update_of(record)))
        return AdaptiveSample(
            self._inner.preprocess_record(params.inner, record),
            tf.where(norm > 0, tf.where(norm <= params.estimate, 1, -1), 0),
        )

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        result, inner, event = self._inner.get_noised_result(sample_state.sum, global_state.inner)
        # Both kinds of noise refuse a round beyond the plan; nothing else may fail before them.
        completed = tf.minimum(global_state.noise.round, len(self._is_last) - 1)
        # Two cohorts can well have one count: the key of the updates' noise tells them apart.
        updates_key = query.innermost(inner).noise.drawn[completed]
        unit_noise, noise_state = correlated.next_noise(
            self._kernel,
            self._plan.participation.rounds,
            global_state.noise,
            _COUNT,
            context=(sample_state.within, updates_key),
        )
        count = tf.cast(sample_state.within, tf.float64) / 2 + self._plan.count_stddev * unit_noise
        fractions = global_state.fractions + count / self._plan.clients_per_round + 0.5
        estimate = self._estimate(fractions, completed)
        clip_norm = tf.where(
            tf.gather(self._is_last, completed), estimate, query.innermost(inner).clip_norm
        )
        inner = query.with_clip_norm(inner, clip_norm)
        return result, AdaptiveState(inner, estimate, fractions, noise_state), event

    def derive_metrics(self, global_state: Any) -> collections.OrderedDict[str, Any]:
        """Metrics of a state, with the names of `tfp.QAdaClipTreeResSumQuery` for the clip norm.

        Returns:
          - `current_clip`: the clip norm of the next round, float32 scalar;
          - `estimate_clip`: the estimate of the quantile, float32 scalar;
          - `clip_counts`: noised number of updates within the estimate, summed over all rounds,
            float64 scalar;
          - `round` and `noise_stddev` as in `query.public_metrics`.
        """
        metrics = self._inner.derive_metrics(global_state.inner)
        return collections.OrderedDict(
            current_clip=metrics.pop(query.CLIP_METRIC),
            estimate_clip=global_state.estimate,
            clip_counts=global_state.fractions * self._plan.clients_per_round,
            **metrics,
        )

    def _estimate(self, fractions, completed):
        """C^{t+1} from the fractions of rounds 0 .. t = `completed`, float32 scalar."""
        settings = self._plan.adaptive_clip
        target = tf.cast(completed, tf.float64) * settings.target_quantile
        exponent = -settings.learning_rate * (fractions - target)
        # Keeps noise from driving the norm to zero or overflow. The sum itself is not limited.
        bounds = np.log([clipping.SMALLEST_NORM, clipping.LARGEST_NORM])
        log_norm = math.log(self._plan.clip_norm) + exponent
        return tf.cast(tf.exp(tf.clip_by_value(log_norm, *bounds)), tf.float32)


def round_metrics(
    before: collections.OrderedDict[str, Any], after: collections.OrderedDict[str, Any]
) -> collections.OrderedDict[str, Any]:
    """Metrics of one round, from `derive_metrics` of the states before and after it.

    Nothing is in them that was not computed from noised counts, which the guarantee covers.

    Returns:
      With adaptive clipping

      - `clip_norm`: norm to which the updates of the round were clipped, float32 scalar;
      - `clip_norm_estimate`: the estimate of the quantile after the round, float32 scalar;
      - `clip_count`: noised number of updates within the estimate before the round, float64
        scalar. A client that is missing from the planned cohort counts half.

      Of other queries nothing.
    """
    if 'clip_counts' not in after:
        return collections.OrderedDict()
    return collections.OrderedDict(
        clip_norm=before['current_clip'],
        clip_norm_estimate=after['estimate_clip'],
        clip_count=after['clip_counts'] - before['clip_counts'],
    )


def recorded(plan: accounting.PrivacyPlan, t: int, metrics: Any) -> dict[str, float]:
    """What a run records of adaptive clipping in round `t`, from 0; nothing without it.

    Args:
      plan: of the run.
      t: the round.
      metrics: of the aggregator in that round, of `round_metrics` or of another one.

    Returns:
      The metrics, and `clip_restart`: 1 if the noise started afresh in the round, else 0.
    """
    if 'clip_count' not in metrics:
        return {}
    values = {name: float(value) for name, value in metrics.items()}
    return values | {'clip_restart': float(t in plan.fresh_rounds)}
