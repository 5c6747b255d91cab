"""Queries of an audited run: release minus sum, the distance of sums from the plan, and canaries.

`AuditedQuery` is the outermost query. It sees the record of each client and the result of each
round. It computes the sum of the clipped records itself, in three lines, from the plan alone.
`SumTap` is the innermost one around the noise, and shows the sum that the run's own queries made.
`auditing.one_shot` tests both: the run's sum against that of the plan, and the result
against the run's sum. So a fault anywhere in between shows: in clipping, rounding, units, noise,
keys, kernel or division.

Release minus sum determines the noise, so it is as confidential as the noise key.

Canary clients have known random updates, which are added to the sums of a run. In a round with
canaries the server computes the update of each of them, passes it through the same client side of
the query as the updates of clients (clip, rounding, integers), and adds it to their sum before the
noise. Real clients see nothing of this but sums that contain known vectors, which depend on no
data. No denominator counts canaries.

What the audit needs of the releases is kept as weighted sums of them, one for each group of
canaries. They are computed from what is released.
"""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp

from dpfl import _random, accounting
from dpfl.aggregators import clipping, flat, query
from dpfl.aggregators.noise import draws

_STREAM = 'canaries'
# Length of a canary's update before clipping, in clip norms: a run that does not clip shows it.
LENGTH = 100.0
# Numbers that are kept, at most about: 4 MB of the state.
_MOST_NUMBERS = 2**20
# Coordinates of a tensor that are kept at least, if the tensor has them and there are not too many.
_LEAST_OF_TENSOR = 64


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
    root = tf.constant(draws.seeded_root_key(seed, _STREAM))
    return _all_directions(root, tf.constant(numbers, tf.int64), size).numpy()


@tf.function(reduce_retracing=True)
def _all_directions(root_key, numbers, size: int):
    return tf.map_fn(
        lambda number: _direction(root_key, number, size),
        numbers,
        fn_output_signature=tf.TensorSpec([size], tf.float64),
    )


def _direction(root_key: Any, number: Any, size: int) -> tf.Tensor:
    vector = draws.normal(draws.derive(root_key, number), size)
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
        root_key = tf.constant(draws.seeded_root_key(self._canaries.seed, _STREAM))

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
    """Parameters of a round for clients: those of the inner query, and the planned clip norm.

    The norm is a float64 scalar.
    """

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
        canaries: CanaryQuery,
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
        if self._plan.adaptive_clip is None:
            norm = tf.gather(self._norms, tf.minimum(global_state.round, self._rounds - 1))
        else:  # The one in use.
            norm = tf.cast(query.innermost(params), tf.float64)
        return AuditedParams(params, norm)

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
