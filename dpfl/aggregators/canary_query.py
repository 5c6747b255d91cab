"""Canary clients: known random updates that are added to the sums of a run, for an audit.

In a round with canaries the server computes the update of each of them, passes it through the same
client side of the query as the updates of clients (clip, rounding, integers), and adds it to their
sum before the noise. Real clients see nothing of this but sums that contain known vectors, which
depend on no data. No denominator counts canaries.

What the audit needs of the releases is kept as weighted sums of them, one for each group of
canaries. They are computed from what is released.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp

from dpfl.aggregators import flat, query
from dpfl.aggregators.noise import keys, normal

_STREAM = 'canaries'
# Length of a canary's update before clipping, in clip norms: a run that does not clip shows it.
LENGTH = 100.0


@dataclasses.dataclass(frozen=True)
class Canaries:
    """Which canaries take part when, and which sums of releases are kept.

    Attributes:
      seed: of the directions. It is public, and has nothing to do with the key of the noise.
      cohorts: numbers of the canaries of each round.
      weights: of the rounds in each sum, float64 [groups, rounds].
    """

    seed: int
    cohorts: tuple[np.ndarray, ...]
    weights: np.ndarray

    @property
    def largest_cohort(self) -> int:
        """Most canaries in a round."""
        return max(map(len, self.cohorts))


def directions(seed: int, numbers: np.ndarray, size: int) -> np.ndarray:
    """The directions of canaries, uniform on the unit sphere, float64 [canaries, size].

    They are always the same. None is stored.

    Args:
      seed: as in `Canaries`.
      numbers: of the canaries, integers.
      size: dimension of the sphere's space.
    """
    root = tf.constant(keys.seeded_root_key(seed, _STREAM))
    return _all_directions(root, tf.constant(numbers, tf.int64), size).numpy()


@tf.function(reduce_retracing=True)
def _all_directions(root_key, numbers, size: int):
    return tf.map_fn(
        lambda number: _direction(root_key, number, size),
        numbers,
        fn_output_signature=tf.TensorSpec([size], tf.float64),
    )


def _direction(root_key: Any, number: Any, size: int) -> tf.Tensor:
    vector = normal.normal(keys.derive(root_key, number), size)
    return vector / tf.norm(vector)


class CanaryState(NamedTuple):
    """State of `CanaryQuery` between two rounds.

    Attributes:
      inner: state of the query that adds the noise.
      round: rounds done, int64 scalar.
      released: the sums of the releases, each in clip norms of its round, float32 [groups, size].
    """

    inner: Any
    round: Any
    released: Any


class CanaryQuery(query.WrappedQuery):
    """Adds the updates of canaries to the sums of the inner query.

    Attributes:
      added: sum of the directions of the canaries of the latest round, float64 [size]; a tensor of
        the graph that is being built.
      count: their number, float64 scalar of the same graph.
    """

    added: Any = None
    count: Any = None

    def __init__(self, inner: tfp.SumAggregationDPQuery, canaries: Canaries, record_specs: Any):
        """Args: inner: clips, sums and adds noise; record_specs: of an update, floats."""
        super().__init__(inner)
        self._canaries = canaries
        self._specs = record_specs
        self._size = sum(flat.leaf_sizes(record_specs))
        # The canaries of round t are `numbers[offsets[t] : offsets[t + 1]]`.
        self._numbers = np.concatenate([np.zeros(0, np.int64), *canaries.cohorts]).astype(np.int64)
        self._offsets = np.cumsum([0, *map(len, canaries.cohorts)])

    def initial_global_state(self) -> CanaryState:
        groups = self._canaries.weights.shape[0]
        return CanaryState(
            self._inner.initial_global_state(),
            tf.zeros([], tf.int64),
            tf.zeros([groups, self._size]),
        )

    def derive_sample_params(self, global_state: Any) -> Any:
        return self._inner.derive_sample_params(global_state.inner)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        state, done = global_state.inner, global_state.round
        norm = query.innermost(state).clip_norm
        total = self._with_canaries(sample_state, state, done, norm)
        result, inner, event = self._inner.get_noised_result(total, state)
        release = flat.vector(result, tf.float64)
        weights = tf.gather(tf.constant(self._canaries.weights), done, axis=1)
        added = weights[:, None] * (release / tf.cast(norm, tf.float64))[None]
        released = global_state.released + tf.cast(added, tf.float32)
        return result, CanaryState(inner, done + 1, released), event

    def derive_metrics(self, global_state: Any) -> Any:
        return self._inner.derive_metrics(global_state.inner)

    def _with_canaries(self, sample_state: Any, state: Any, done: Any, norm: Any) -> Any:
        """The sum with that of the canaries of a round."""
        nothing = tf.zeros([self._size], tf.float64)
        self.added, self.count = nothing, tf.zeros([], tf.float64)
        if not self._numbers.size:
            return sample_state
        params = self._inner.derive_sample_params(state)
        numbers, offsets = tf.constant(self._numbers), tf.constant(self._offsets, tf.int64)
        begin, end = tf.gather(offsets, done), tf.gather(offsets, done + 1)
        root_key = tf.constant(keys.seeded_root_key(self._canaries.seed, _STREAM))

        def add(place, total, added):
            vector = _direction(root_key, tf.gather(numbers, place), self._size)
            scaled = LENGTH * vector * tf.cast(norm, tf.float64)
            update = flat.cast_to(flat.structured(scaled, self._specs), self._specs)
            record = self._inner.preprocess_record(params, update)
            total = self._inner.accumulate_preprocessed_record(total, record)
            return place + 1, total, added + vector

        _, total, self.added = tf.while_loop(
            lambda place, *_: place < end,
            add,
            (begin, sample_state, nothing),
            parallel_iterations=1,
        )
        self.count = tf.cast(end - begin, tf.float64)
        return total
