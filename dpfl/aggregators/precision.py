"""Updates of 16-bit floating-point numbers, which are summed and noised in wider types."""

from typing import Any

import tensorflow as tf

from dpfl.aggregators import estimators, query

_HALVES = (tf.float16, tf.bfloat16)


def has_halves(record_specs: Any) -> bool:
    """Whether an update has a tensor of 16-bit floats."""
    leaves = tf.nest.flatten(estimators.update_of(record_specs))
    return any(leaf.dtype in _HALVES for leaf in leaves)


def widened_specs(record_specs: Any) -> Any:
    """Specs of the record with float32 in place of 16-bit floats."""
    update = tf.nest.map_structure(
        lambda spec: tf.TensorSpec(spec.shape, _wide(spec.dtype)),
        estimators.update_of(record_specs),
    )
    return estimators.with_update(record_specs, update)


def _wide(dtype):
    return tf.float32 if dtype in _HALVES else dtype


class HalfPrecisionQuery(query.WrappedQuery):
    """Casts 16-bit tensors of each record to float32, and the result back.

    It has the state of the inner query. Results beyond the range of the type saturate.
    """

    def __init__(self, inner, record_specs):
        super().__init__(inner)
        self._specs = record_specs

    def initial_sample_state(self, template: Any = None) -> Any:
        return self._inner.initial_sample_state(widened_specs(self._specs))

    def preprocess_record(self, params: Any, record: Any) -> Any:
        update = tf.nest.map_structure(
            lambda leaf: tf.cast(leaf, _wide(tf.as_dtype(leaf.dtype))),
            estimators.update_of(record),
        )
        return self._inner.preprocess_record(params, estimators.with_update(record, update))

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        result, state, event = self._inner.get_noised_result(sample_state, global_state)
        narrowed = tf.nest.map_structure(
            lambda leaf, spec: tf.saturate_cast(leaf, spec.dtype),
            result,
            estimators.update_of(self._specs),
        )
        return narrowed, state, event
