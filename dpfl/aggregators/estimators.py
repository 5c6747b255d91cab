"""Weights of clients, and the clipped-denominator estimator ([McMahan18], section 2)."""

from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_privacy as tfp

from dpfl.aggregators import query


class WeightedRecord(NamedTuple):
    """Record of a client whose weight is its number of examples.

    Attributes:
      update: structure of floating-point tensors.
      num_examples: n_k, scalar of any numeric type.

    Example:
      >>> record = WeightedRecord(update=tf.constant([0.5]), num_examples=tf.constant(20))
      >>> int(record.num_examples)
      20
    """

    update: Any
    num_examples: Any


def update_of(record: Any) -> Any:
    """The update in a record (or in its specs), which may have a weight or not."""
    return record.update if isinstance(record, WeightedRecord) else record


def with_update(record: Any, update: Any) -> Any:
    """The record with another update."""
    return record._replace(update=update) if isinstance(record, WeightedRecord) else update


def weight_of(record: Any, example_cap: float | None) -> tf.Tensor:
    """The client's weight `min(n_k / example_cap, 1)`, float32 scalar; 0 for n_k below 0 or NaN."""
    if example_cap is None:
        return tf.ones([])
    # More than one number would give an update more coordinates than get noise.
    share = tf.ensure_shape(tf.cast(record.num_examples, tf.float32), []) / example_cap
    return tf.where(share > 0, tf.minimum(share, 1.0), 0.0)


class WeightedQuery(query.WrappedQuery):
    """Multiplies each client's clipped update by its weight, at most 1; takes `WeightedRecord`."""

    def __init__(self, inner: tfp.SumAggregationDPQuery, example_cap: float):
        super().__init__(inner)
        self._example_cap = example_cap

    def preprocess_record(self, params: Any, record: Any) -> Any:
        weight = weight_of(record, self._example_cap)
        clipped = self._inner.preprocess_record(params, record.update)
        return tf.nest.map_structure(lambda leaf: leaf * tf.cast(weight, leaf.dtype), clipped)


_WEIGHT_UNIT = 2.0**-40


class WeightedSample(NamedTuple):
    """Sum over clients for the clipped denominator.

    Attributes:
      sum: of the inner query: of `w_k update_k`.
      weight: sum of the w_k, each rounded to a multiple of 2^-40 so that the sum is exact, float64
        scalar.
    """

    sum: Any
    weight: Any


class ClippedDenominatorQuery(query.WrappedQuery):
    """The mean with a clipped denominator, times `min_weight / 2`, plus the noise of a sum.

    One client moves `f = sum w_k update_k / max(min_weight, sum w_k)` by at most
    `2 S / min_weight` ([McMahan18], lemma 1), and so moves `f min_weight / 2` by at most the clip
    norm S, like a sum of clipped updates. The total weight is not released.
    """

    def __init__(
        self, inner: tfp.SumAggregationDPQuery, min_weight: float, example_cap: float | None
    ):
        """Args: inner: sums updates; example_cap: None if every client has weight 1."""
        super().__init__(inner)
        self._min_weight = min_weight
        self._example_cap = example_cap

    def initial_sample_state(self, template: Any = None) -> Any:
        return WeightedSample(self._inner.initial_sample_state(template), tf.zeros([], tf.float64))

    def preprocess_record(self, params: Any, record: Any) -> Any:
        weight = tf.cast(weight_of(record, self._example_cap), tf.float64)
        return WeightedSample(
            self._inner.preprocess_record(params, record),
            tf.math.rint(weight / _WEIGHT_UNIT) * _WEIGHT_UNIT,
        )

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        factor = self._min_weight / 2 / tf.maximum(sample_state.weight, self._min_weight)
        scaled = tf.nest.map_structure(
            lambda leaf: leaf * tf.cast(factor, leaf.dtype), sample_state.sum
        )
        return self._inner.get_noised_result(scaled, global_state)
