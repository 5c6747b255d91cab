"""Sums whose noise comes from the clients, so the server is not trusted to add it."""

import dataclasses
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl.aggregators import clipping, precision, process, query, value_types
from dpfl.aggregators.integers import discretized, secure
from dpfl.aggregators.integers.distributed_noise import DistributedNoise
from dpfl.aggregators.noise import keys


class DistributedNoiseQuery(discretized.DiscretizedQuery):
    """Each client adds noise to its integers, and sends them modulo M.

    A noise key is drawn at every call, where the client's part of the computation runs, and is
    neither kept nor sent. So a repeated round has fresh noise: it is a further release, and counts
    as one more participation of its clients.
    """

    def __init__(
        self, noise: DistributedNoise, record_specs: Any, clip: clipping.Clip = clipping.clip_flat
    ):
        """Args: noise: shares and plan; record_specs, clip: as `build_query`."""
        # Clips and counts rounds; the server adds no noise.
        silent = dataclasses.replace(noise.plan, noise_multiplier=0.0)
        inner = query.CorrelatedNoiseQuery(
            silent,
            record_specs,
            clip=clip,
            stated=noise.plan,
            shares=[noise.kind, noise.min_clients],
        )
        super().__init__(inner, noise.plan, record_specs)
        self._noise = noise
        self._dtype = tf.int64

    def preprocess_record(self, params: Any, record: Any) -> discretized.DiscretizedSample:
        sample = super().preprocess_record(params, record)
        noised = sample.update + self._draw_share()
        return sample._replace(update=tf.math.floormod(noised, self._noise.modulus))

    def _draw_share(self):
        stddev, size = self._noise.local_stddev, self._settings.padded_dimension
        if not stddev:
            return 0
        draw = skellam if self._noise.kind == 'skellam' else discrete_gaussian
        return draw(keys.fresh_root_key(), stddev, size)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        modulus, least = self._noise.modulus, self._noise.min_clients
        # The sum over no clients has no noise and nothing to hide.
        too_few = tf.debugging.assert_greater_equal(
            tf.where(sample_state.clients > 0, sample_state.clients, least),
            least,
            message=f'The cohort has fewer than {least} clients, so the sum has too little noise.',
        )
        with tf.control_dependencies([too_few] if too_few is not None else []):
            clients = tf.cast(tf.identity(sample_state.clients), tf.int64)
        # Each client has shifted its update by the bound, so the sum is centred around their total.
        shift = clients * self._settings.linf_bound
        total = tf.math.floormod(sample_state.update - shift, modulus)
        centred = tf.where(total > modulus // 2, total - modulus, total)
        return super().get_noised_result(
            sample_state._replace(update=centred + shift), global_state
        )


def skellam(key: Any, stddev: float, size: int) -> tf.Tensor:
    """Independent Skellam variables of mean 0, int64 [size], a function of the key.

    Those of tensorflow-privacy are seeded by the clock in microseconds, which clients can share;
    its discrete Gaussian ones by a generator that forked processes share.

    Args:
      key: int64 [2].
      stddev: standard deviation, above 0.
      size: number of variables.
    """
    rate = tf.constant(stddev**2 / 2, tf.float64)
    plus, minus = (
        tf.random.stateless_poisson([size], keys.derive(key, part), rate, tf.int64)
        for part in range(2)
    )
    return plus - minus


def discrete_gaussian(key: Any, stddev: float, size: int) -> tf.Tensor:
    """Independent discrete Gaussian variables of mean 0, int64 [size], a function of the key.

    Draws discrete Laplace variables y of scale `stddev`, and accepts each with probability
    `exp(-(|y| - stddev)^2 / (2 stddev^2))` ([Canonne20], algorithm 3), in float64.

    Args:
      key: int64 [2].
      stddev: parameter sigma, a whole number above 0.
      size: number of variables.
    """
    candidates = size + size // 2 + 100  # About 76 % are accepted.

    def attempt(number, accepted):
        u, v, w = (
            keys.uniform(keys.derive(keys.derive(key, number), part), candidates, tf.float64)
            for part in range(3)
        )
        magnitude = tf.floor(-tf.math.log1p(-u) * stddev)
        is_negative = v < 0.5
        # Zero has no sign: counting both would draw it twice as often.
        is_once = ~(is_negative & tf.equal(magnitude, 0))
        is_accepted = w < tf.exp(-tf.square(magnitude - stddev) / (2 * stddev**2))
        drawn = tf.cast(tf.where(is_negative, -magnitude, magnitude), tf.int64)
        kept = tf.boolean_mask(drawn, is_once & is_accepted)
        return number + 1, tf.concat([accepted, kept], axis=0)

    _, drawn = tf.while_loop(
        lambda _, accepted: tf.size(accepted) < size,
        attempt,
        (tf.zeros([], tf.int64), tf.zeros([0], tf.int64)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )
    return tf.ensure_shape(drawn[:size], [size])


def build_distributed_query(
    noise: DistributedNoise, *, record_specs: Any, clip: clipping.Clip = clipping.clip_flat
) -> tfp.DPQuery:
    """The mean of a round whose noise comes from the clients, as a `tfp.DPQuery`.

    Args:
      noise: the clients' noise, with the plan; the guarantee is `noise.epsilon`.
      record_specs: structure of `tf.TensorSpec` of one client's update.
      clip: as in `build_query`.

    Raises:
      ValueError: if the number of coordinates of the specs is not the plan's.

    Example:
      >>> rounding = mechanisms.Discretization.for_bits(
      ...     bits=16, clients_per_round=10, dimension=8, clip_norm=1.0)
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=4.0, clients_per_round=10, discretization=rounding)
      >>> query = build_distributed_query(DistributedNoise(plan), record_specs=tf.TensorSpec([8]))
    """
    if precision.has_halves(record_specs):
        wide = build_distributed_query(
            noise, record_specs=precision.widened_specs(record_specs), clip=clip
        )
        return precision.HalfPrecisionQuery(wide, record_specs)
    total = DistributedNoiseQuery(noise, record_specs, clip)
    return tfp.NormalizedQuery(total, denominator=noise.plan.denominator)


def build_distributed_aggregator(
    noise: DistributedNoise, *, clip: clipping.Clip = clipping.clip_flat, secure_sum: bool = False
) -> tff.aggregators.UnweightedAggregationFactory:
    """The mean of a round whose noise comes from the clients, for any TFF pipeline.

    A cohort of more than `clients_per_round` clients is an error, and so is one of fewer than
    `noise.min_clients`, except an empty one, whose result is 0. By then the server has the sum: for
    the guarantee, secure aggregation itself must not deliver a sum of too few clients.

    Args:
      noise, clip: as in `build_distributed_query`.
      secure_sum: as in `build_aggregator`.

    Example:
      >>> rounding = mechanisms.Discretization.for_bits(
      ...     bits=16, clients_per_round=10, dimension=8, clip_norm=1.0)
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=4.0, clients_per_round=10, discretization=rounding)
      >>> factory = build_distributed_aggregator(DistributedNoise(plan))
      >>> process = factory.create(tff.TensorType(np.float32, [8]))
      >>> process.next(process.initialize(), [np.zeros(8, np.float32)] * 10).result.shape
      (8,)
    """
    return _DistributedMeanFactory(noise, clip, secure_sum)


class _DistributedMeanFactory(tff.aggregators.UnweightedAggregationFactory):
    def __init__(self, noise, clip, secure_sum):
        self._noise, self._clip = noise, clip
        self._sum = tff.aggregators.SumFactory()
        if secure_sum:
            self._sum = secure.SecureSumFactory(noise.plan, noise.modulus)

    def create(self, value_type) -> tff.templates.AggregationProcess:
        """As `create` of `build_aggregator`.

        Raises:
          TypeError: if `value_type` is of something else than tensors, or has tensors of another
            type or of unknown shape.
        """
        value_types.check(value_type)
        if value_types.is_empty(value_type):
            return tff.aggregators.SumFactory().create(value_type)
        private_mean = build_distributed_query(
            self._noise,
            record_specs=tff.types.type_to_tf_tensor_specs(value_type),
            clip=self._clip,
        )
        return process.aggregation_process(private_mean, self._sum, value_type)
