"""For an audit of the sums of a run: release minus sum, and the distance of sums from the plan.

`AuditedQuery` is the outermost query. It sees the record of each client and the result of each
round. It computes the sum of the clipped records itself, in three lines, from the plan alone.
`SumTap` is the innermost one around the noise, and shows the sum that the run's own queries made.
`auditing.sum_tests` tests both: the run's sum against that of the plan, and the result
against the run's sum. So a fault anywhere in between shows: in clipping, rounding, units, noise,
keys, kernel or division.

Release minus sum determines the noise, so it is as confidential as the noise key.
"""

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp

from dpfl import _random, accounting
from dpfl.aggregators import canary_query, clipping, flat, query

# Numbers that are kept, at most about: 4 MB of the state.
_MOST_NUMBERS = 2**20
# Coordinates of a tensor that are kept at least, if the tensor has them and there are not too many.
_LEAST_OF_TENSOR = 64


class SumTap(query.WrappedQuery):
    """Shows the sums that it passes on.

    Attributes:
      total: the latest sum, a tensor of the graph that is being built.
    """

    total: Any = None

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        self.total = sample_state
        return super().get_noised_result(sample_state, global_state)


class AuditedParams(NamedTuple):
    """Parameters of a round for clients: those of the inner query, and the planned clip norm."""

    inner: Any
    clip_norm: Any


class AuditedSample(NamedTuple):
    """Sum over clients.

    Attributes:
      inner: of the inner query.
      clipped: sum of the updates, clipped as the plan says, in clip norms, float64 [size].
      clients: their number, int32 scalar.
    """

    inner: Any
    clipped: Any
    clients: Any


class AuditedState(NamedTuple):
    """State between two rounds; zeros for rounds to come.

    Attributes:
      inner: of the inner query.
      round: rounds done, int64 scalar.
      residuals: release minus sum in clip norms, float32 [rounds, coordinates kept].
      clip_errors: length of the difference between the run's sum and that of the plan, in clip
        norms per client, float32 [rounds].
      largest: largest coordinate of a release, in clip norms, float32 [rounds].
    """

    inner: Any
    round: Any
    residuals: Any
    clip_errors: Any
    largest: Any


class AuditedQuery(tfp.SumAggregationDPQuery):
    """Keeps residuals and errors of the inner query's sums for an audit, and changes no sum."""

    def __init__(
        self,
        inner: tfp.SumAggregationDPQuery,
        plan: accounting.PrivacyPlan,
        record_specs: Any,
        tap: SumTap,
        canaries: canary_query.CanaryQuery,
    ):
        """Args: inner: returns the mean; tap, canaries: queries within it; others: as before."""
        self._inner, self._plan, self._tap, self._canaries = inner, plan, tap, canaries
        self._rounds = plan.participation.rounds
        sizes = flat.leaf_sizes(record_specs)
        self._size = sum(sizes)
        self._kept = kept_coordinates(sizes, self._rounds)[0]
        norms = np.full(self._rounds, plan.clip_norm)
        for first, norm in plan.clip_schedule:
            norms[first:] = norm
        self._norms = norms

    def initial_global_state(self) -> AuditedState:
        return AuditedState(
            self._inner.initial_global_state(),
            tf.zeros([], tf.int64),
            tf.zeros([self._rounds, len(self._kept)]),
            tf.zeros([self._rounds]),
            tf.zeros([self._rounds]),
        )

    def derive_sample_params(self, global_state: Any) -> AuditedParams:
        params = self._inner.derive_sample_params(global_state.inner)
        return AuditedParams(params, self._planned_norm(params, global_state.round))

    def _planned_norm(self, params: Any, done: Any) -> tf.Tensor:
        """The clip norm of the plan, float64; that in use if it is adaptive."""
        if self._plan.adaptive_clip is not None:
            return tf.cast(query.innermost(params), tf.float64)
        return tf.gather(self._norms, tf.minimum(done, self._rounds - 1))

    def initial_sample_state(self, template: Any = None) -> AuditedSample:
        return AuditedSample(
            self._inner.initial_sample_state(template),
            tf.zeros([self._size], tf.float64),
            tf.zeros([], tf.int32),
        )

    def preprocess_record(self, params: Any, record: Any) -> AuditedSample:
        update = flat.vector(record, tf.float64) / params.clip_norm
        length = tf.norm(update)
        clipped = update * tf.minimum(1.0 / length, 1.0)
        # As all queries do: no scaling bounds an update without a norm in float32.
        is_kept = tf.math.is_finite(clipping.norm(record)) & (length > 0)
        return AuditedSample(
            self._inner.preprocess_record(params.inner, record),
            tf.where(is_kept, clipped, tf.zeros_like(clipped)),
            tf.ones([], tf.int32),
        )

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        done = global_state.round
        norm = self.derive_sample_params(global_state).clip_norm
        mean, inner, event = self._inner.get_noised_result(sample_state.inner, global_state.inner)
        release = flat.vector(mean, tf.float64) * self._plan.denominator / norm
        total = flat.vector(self._tap.total, tf.float64) / norm
        expected = sample_state.clipped + self._canaries.added
        clients = tf.cast(sample_state.clients, tf.float64) + self._canaries.count
        error = tf.norm(total - expected) / tf.maximum(clients, 1.0)
        values = {
            'residuals': tf.gather(release - total, self._kept),
            'clip_errors': error,
            'largest': tf.reduce_max(tf.abs(release)),
        }
        kept = {
            name: tf.tensor_scatter_nd_update(
                getattr(global_state, name), [[done]], [tf.cast(value, tf.float32)]
            )
            for name, value in values.items()
        }
        return mean, global_state._replace(inner=inner, round=done + 1, **kept), event

    def derive_metrics(self, global_state: Any) -> collections.OrderedDict[str, Any]:
        return self._inner.derive_metrics(global_state.inner)


def kept_coordinates(sizes: list[int], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates whose residuals are kept, of each tensor evenly, and their tensors.

    Args:
      sizes: of the tensors.
      rounds: of the run.
    """
    most, total = max(1, _MOST_NUMBERS // rounds), sum(sizes)
    least = min(_LEAST_OF_TENSOR, max(1, most // len(sizes)))
    kept = []
    for number, (size, begin) in enumerate(zip(sizes, np.cumsum([0, *sizes]), strict=False)):
        count = min(size, max(least, most * size // total))
        if not count:
            continue
        # One coordinate of each of `count` equal parts of the tensor.
        places = np.arange(count, dtype=np.float64)
        if count < size:
            places += _random.generator('audited part', number).random(count)
        kept.append(begin + np.unique((places * size / count).astype(np.int64)))
    tensors = np.searchsorted(np.cumsum(sizes), np.concatenate(kept), side='right')
    return np.concatenate(kept), tensors
