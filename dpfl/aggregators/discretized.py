"""Updates as integers, for modular sums ([Xu23], algorithm 2).

A client clips, scales, rotates, clips each coordinate, rounds at random, and shifts. The server
gets the sum of integers, undoes shift, rotation and scale, and adds noise.
`dpfl.mechanisms.discretization`, and so the privacy plan, knows by how much rounding inflates the
norm of an update and which modulus the sums need.

A randomised Hadamard transform spreads a vector's norm evenly over its coordinates ([Xu23], section
2.4; [Kairouz21-discrete], lemma 29). The transform is `H D x / sqrt(d)`, with random
signs on the diagonal of D and the Hadamard matrix H of order d, a power of two. It is orthogonal.

TFF's secure aggregation computes the sums, if it is asked to.
"""

import collections
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp
from scipy import linalg

from dpfl import accounting, errors
from dpfl.aggregators import adaptive_clip, estimators, flat, query
from dpfl.aggregators.noise import correlated, draws
from dpfl.mechanisms.discretization import Discretization

# Each matrix product covers 2^5 coordinates. Fewer would mean more passes over the vector, more
# would mean more operations.
_BITS_PER_PASS = 5
# Attempts at random rounding before the update is rounded towards zero. With the alpha of
# production an attempt fails with probability at most exp(-1/2), and all fail with 2e-14.
_MOST_ATTEMPTS = 64
# Share of a squared norm that covers the server's rounding before the noise, see `_check_rounding`.
_MARGIN = 1e-7
# Share for the scale and for the standard deviation of the noise, each after two roundings to
# float32, of which each can change their product by 2^-24.
_FLOAT32_MARGIN = 8 * 2.0**-24


def hadamard(vector: tf.Tensor) -> tf.Tensor:
    """The product `H vector / sqrt(d)` with the Hadamard matrix, which is its own inverse.

    Args:
      vector: float tensor [d] of static shape, d a power of two.

    Returns:
      A tensor of the shape and type of `vector`, in O(d log d) operations and with at most two
      vectors in memory.
    """
    size = vector.shape[0]
    bits = size.bit_length() - 1
    # H is the Kronecker product of small Hadamard matrices. Each pass applies one to the last axis
    # and makes it the first. After all passes every axis is back in its place.
    rotated = vector
    for done in range(0, bits, _BITS_PER_PASS):
        order = 2 ** min(_BITS_PER_PASS, bits - done)
        small = linalg.hadamard(order).astype(vector.dtype.as_numpy_dtype) / math.sqrt(order)
        rows = tf.reshape(rotated, [size // order, order])
        rotated = tf.matmul(small.astype(vector.dtype.as_numpy_dtype), rows, transpose_b=True)
    return tf.reshape(rotated, [size])


def signs(key: Any, size: int) -> tf.Tensor:
    """Independent uniform signs -1 or 1, float32 [size], a function of the key."""
    words = -(-size // 32)
    bits = draws.uniform_bits(key, words)
    unpacked = tf.bitwise.right_shift(bits[:, None], np.arange(32, dtype=np.int32))
    positive = tf.reshape(tf.bitwise.bitwise_and(unpacked, 1), [-1])[:size]
    return 2.0 * tf.cast(positive, tf.float32) - 1.0


def rotate(vector: tf.Tensor, sign: tf.Tensor, padded_size: int) -> tf.Tensor:
    """`H D x / sqrt(d)` of a vector that is padded with zeros to d coordinates.

    Args:
      vector: float32 [size].
      sign: diagonal of D for the coordinates of the vector, float32 [size].
      padded_size: d, a power of two, at least the size.

    Returns:
      float32 [padded_size].
    """
    padding = [[0, padded_size - vector.shape[0]]]
    return hadamard(tf.pad(vector * sign, padding))


def rotate_back(rotated: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """The inverse of `rotate`, [size] in the type of `rotated`."""
    return hadamard(rotated)[: sign.shape[0]] * tf.cast(sign, rotated.dtype)


class DiscretizedState(NamedTuple):
    """State between two rounds.

    Attributes:
      inner: state of the query that adds the noise.
      key: root key of rotation and rounding, int64 [2]. Clients get keys derived from it; the noise
        does not use it.
      round: rounds done, int64 scalar.
    """

    inner: Any
    key: Any
    round: Any


class DiscretizedParams(NamedTuple):
    """Parameters of a round for clients.

    Attributes:
      inner: those of the inner query.
      scale: factor from updates to integers, float32 scalar.
      sign_key, rounding_key: int64 [2], common to all clients.
    """

    inner: Any
    scale: Any
    sign_key: Any
    rounding_key: Any


class DiscretizedSample(NamedTuple):
    """Sum over clients.

    Attributes:
      update: of integers within 0 .. 2 C_inf from each client, int32 or int64 [padded dimension].
      clients: number of clients, int32 scalar.
    """

    update: Any
    clients: Any


class DiscretizedQuery(query.WrappedQuery):
    """Sends each client's clipped update as integers. The inner query adds the noise.

    The sum over the planned number of clients does not wrap around; larger cohorts are refused.
    Rounding is a function of the update and the round's key, so a repeated round gives the same
    result.
    """

    def __init__(
        self,
        inner: tfp.SumAggregationDPQuery,
        plan: accounting.PrivacyPlan,
        record_specs,
        seed: int | None = None,
        more_clients: int = 0,
    ):
        """Args: as `build_query`; the plan has a discretization; more_clients: beyond the plan's.

        Raises:
          ValueError: if specs are missing or their number of coordinates is not the plan's, or if
            sums take more than 62 bits.
        """
        super().__init__(inner)
        self._settings = settings_of(plan)
        self._largest_cohort = plan.clients_per_round + more_clients
        if record_specs is None:
            raise errors.ArgumentError(
                'record_specs', 'None', 'must be given with a discretization'
            )
        self._specs = estimators.update_of(record_specs)
        size = sum(flat.leaf_sizes(self._specs))
        if size != self._settings.dimension:
            raise errors.ArgumentError(
                'dimension',
                self._settings.dimension,
                f'must be {size}, the number of coordinates of an update',
            )
        _check_rounding(self._settings, self._largest_cohort)
        self._dtype = integer_type(self._settings, self._largest_cohort)
        self._root_key = draws.root_key_source(seed, 'rotation')

    def initial_global_state(self) -> DiscretizedState:
        return DiscretizedState(
            self._inner.initial_global_state(), self._root_key(), tf.zeros([], tf.int64)
        )

    def derive_sample_params(self, global_state: Any) -> DiscretizedParams:
        round_key = draws.derive(global_state.key, global_state.round)
        return DiscretizedParams(
            inner=self._inner.derive_sample_params(global_state.inner),
            scale=self._scale(global_state),
            sign_key=draws.derive(round_key, 0),
            rounding_key=draws.derive(round_key, 1),
        )

    def _scale(self, global_state):
        """Scale s for the current clip norm, so that bounds and modulus do not depend on it."""
        scaled_norm = self._settings.scale * self._settings.clip_norm
        return tf.cast(scaled_norm, tf.float32) / query.innermost(global_state).clip_norm

    def initial_sample_state(self, template: Any = None) -> DiscretizedSample:
        del template  # The record specs say how long it is.
        return DiscretizedSample(
            tf.zeros([self._settings.padded_dimension], self._dtype), tf.zeros([], tf.int32)
        )

    def preprocess_record(self, params: Any, record: Any) -> DiscretizedSample:
        clipped = self._inner.preprocess_record(params.inner, record)
        vector = flat.vector(clipped, tf.float32) * params.scale
        sign = signs(params.sign_key, self._settings.dimension)
        rotated = rotate(vector, sign, self._settings.padded_dimension)
        key = draws.derive_from_content(params.rounding_key, vector)
        rounded = round_conditionally(clip_linf(rotated, self._settings), key, self._settings)
        bound = self._settings.linf_bound
        # The float32 of a large bound may be above it.
        bounded = tf.clip_by_value(tf.cast(rounded, self._dtype), -bound, bound)
        return DiscretizedSample(bounded + bound, tf.ones([], tf.int32))

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        too_many = tf.debugging.assert_less_equal(
            sample_state.clients,
            self._largest_cohort,
            message='The cohort is larger than the planned one, and the sum wrapped around.',
        )
        with correlated.after([too_many]):
            clients = tf.cast(tf.identity(sample_state.clients), self._dtype)
        total = sample_state.update - clients * self._settings.linf_bound
        sign_key = self.derive_sample_params(global_state).sign_key
        sign = signs(sign_key, self._settings.dimension)
        # In float64 until noise is added: rounding is far below `_MARGIN` of a client's norm.
        scaled = tf.cast(total, tf.float64) / tf.cast(self._scale(global_state), tf.float64)
        vector = rotate_back(scaled, sign)
        result, inner, event = self._inner.get_noised_result(
            flat.structured(vector, self._specs), global_state.inner
        )
        return result, DiscretizedState(inner, global_state.key, global_state.round + 1), event

    def derive_metrics(self, global_state: Any) -> collections.OrderedDict[str, Any]:
        return self._inner.derive_metrics(global_state.inner)


def settings_of(plan: accounting.PrivacyPlan) -> Discretization:
    """The discretization of a plan.

    Raises:
      ValueError: if the plan has none.
    """
    if plan.discretization is None:
        raise errors.ArgumentError('discretization', 'None', 'must be given for sums of integers')
    return plan.discretization


def integer_type(settings: Discretization, clients_per_round: int) -> tf.DType:
    """The type of modular sums.

    Raises:
      ValueError: if they take more than 62 bits.
    """
    bits = settings.bits_per_parameter(clients_per_round)
    if bits > 62:
        raise errors.ArgumentError(
            'scale',
            settings.scale,
            f'must be smaller: sums take {bits} bits, and at most 62 are supported',
        )
    return tf.int32 if bits <= 31 else tf.int64


def clip_linf(vector: tf.Tensor, settings: Discretization) -> tf.Tensor:
    """Scales a vector, in units of 1/s, so that no coordinate exceeds C_inf."""
    bound = float(settings.linf_bound)
    largest = tf.reduce_max(tf.abs(vector))
    return vector * tf.where(largest <= bound, 1.0, bound / largest)


def squared_limit(settings: Discretization) -> float:
    """Largest squared norm of integers: `(s C_inflated)^2` less what later rounding can add."""
    margin = _MARGIN + _FLOAT32_MARGIN
    return (settings.scale * settings.inflated_norm) ** 2 * (1 - margin)


def round_conditionally(vector: tf.Tensor, key: Any, settings: Discretization) -> tf.Tensor:
    """Rounds at random, repeatedly until the norm is within the plan's bound.

    Each coordinate becomes one of its two neighbouring integers, with probabilities that keep its
    mean. After `_MOST_ATTEMPTS` attempts it becomes the one nearer to zero, which is biased but
    does not raise the norm.

    Args:
      vector: float32 [padded dimension], of norm at most s C.
      key: int64 [2].
      settings: limits the squared norm of the result, see `squared_limit`.

    Returns:
      Integers as float32, of the shape of `vector`.
    """
    limit = squared_limit(settings)
    floor = tf.floor(vector)
    fraction = vector - floor

    def attempt(index, rounded, accepted):
        up = draws.uniform(draws.derive(key, index), vector.shape[0]) < fraction
        candidate = floor + tf.cast(up, tf.float32)
        accepted = tf.reduce_sum(tf.square(tf.cast(candidate, tf.float64))) <= limit
        return index + 1, tf.where(accepted, candidate, rounded), accepted

    def goes_on(index, rounded, accepted):
        del rounded
        return ~accepted & (index < _MOST_ATTEMPTS)

    towards_zero = tf.sign(vector) * tf.floor(tf.abs(vector))
    start = (tf.zeros([], tf.int64), towards_zero, tf.constant(False))
    return tf.while_loop(goes_on, attempt, start)[1]


def _check_rounding(settings: Discretization, clients_per_round: int) -> None:
    """Checks that the server's arithmetic stays within the margin of one client's norm.

    A pass of the rotation adds at most 32 products per coordinate, and so rounds by `32 sqrt(32)
    2^-53` of the norm of the sum. That norm is below `clients_per_round` times a client's. There
    are two neighbouring runs.
    """
    passes = math.ceil(math.log2(settings.padded_dimension) / 5)
    steps = 2 + 182 * passes
    most = int(_MARGIN / 4 / (2 * steps * 2.0**-53))
    if clients_per_round > most:
        raise errors.ArgumentError(
            'clients_per_round',
            clients_per_round,
            f'must be at most {most} with a discretization, whose sums are rounded to float64',
        )


class SecureSumFactory(tff.aggregators.UnweightedAggregationFactory):
    """Sums integers by secure operators of TFF only: the server sees no client's values.

    Updates are summed modulo the modulus of the plan's discretization, and counts of updates within
    the clip norm modulo one that is large enough for them. The number of clients, by which too
    large cohorts are refused, is summed without a modulus. TFF 0.87 executes these operators in
    `tff.backends.test` only, without cryptography; other platforms bring their own.
    """

    def __init__(self, plan: accounting.PrivacyPlan):
        """Args: plan: has a discretization."""
        settings, clients = settings_of(plan), plan.clients_per_round
        self._update_modulus = settings.modulus(clients)
        self._update_type = integer_type(settings, clients).as_numpy_dtype
        # Counts within -clients .. clients.
        self._within_modulus = 2 * clients + 1

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """Aggregation process for the samples of the plan's query."""
        is_adaptive = value_type.python_container is adaptive_clip.AdaptiveSample

        @tff.federated_computation
        def initialize():
            return tff.federated_value((), tff.SERVER)

        @tff.federated_computation(
            initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
        )
        def next_sum(state, value):
            if is_adaptive:
                total = adaptive_clip.AdaptiveSample(
                    self._sum_of_updates(value.sum), self._sum_within(value.within)
                )
            else:
                total = self._sum_of_updates(value)
            return tff.templates.MeasuredProcessOutput(
                state, tff.federated_zip(total), tff.federated_value((), tff.SERVER)
            )

        return tff.templates.AggregationProcess(initialize, next_sum)

    def _sum_of_updates(self, sample):
        return DiscretizedSample(
            update=tff.backends.mapreduce.federated_secure_modular_sum(
                sample.update, self._update_type(self._update_modulus)
            ),
            clients=tff.federated_secure_sum_bitwidth(sample.clients, bitwidth=1),
        )

    def _sum_within(self, within):
        modulus = self._within_modulus
        total = tff.backends.mapreduce.federated_secure_modular_sum(within, modulus)

        @tff.tensorflow.computation(tf.int32)
        def centred(value):
            return tf.where(value > modulus // 2, value - modulus, value)

        return tff.federated_map(centred, total)
