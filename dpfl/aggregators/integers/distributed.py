"""Sums whose noise comes from the clients: no server is trusted to add it."""

import dataclasses

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl.aggregators import clipping, precision, process, query
from dpfl.aggregators.integers import discretized, secure
from dpfl.aggregators.integers.distributed_noise import DistributedNoise
from dpfl.aggregators.noise import keys


class DistributedNoiseQuery(discretized.DiscretizedQuery):
    """Each client noises the integers that it sends, and sends their remainder by the modulus.

    Noise keys are drawn where a client's part of the computation runs, at every call, and are
    neither kept nor sent: a round that is repeated has other noise, so it is a further release,
    and its clients have taken part once more.
    """

    def __init__(self, noise: DistributedNoise, record_specs, clip=clipping.clip_flat):
        """Args: noise: shares and plan; record_specs, clip: as `build_query`."""
        # Clips, and counts the rounds; there is nothing for the server to add.
        silent = dataclasses.replace(noise.plan, noise_multiplier=0.0)
        super().__init__(
            query.CorrelatedNoiseQuery(silent, record_specs, clip=clip), noise.plan, record_specs
        )
        self._noise = noise
        self._dtype = tf.int64

    def preprocess_record(self, params, record) -> discretized.DiscretizedSample:
        sample = super().preprocess_record(params, record)
        noised = sample.update + self._draw_share()
        return sample._replace(update=tf.math.floormod(noised, self._noise.modulus))

    def _draw_share(self):
        stddev, size = self._noise.local_stddev, self._settings.padded_dimension
        if not stddev:
            return 0
        draw = skellam if self._noise.kind == 'skellam' else discrete_gaussian
        return draw(keys.fresh_root_key(), stddev, size)

    def get_noised_result(self, sample_state, global_state):
        modulus, least = self._noise.modulus, self._noise.min_clients
        # The sum of no clients has no noise, and nothing to hide.
        too_few = tf.debugging.assert_greater_equal(
            tf.where(sample_state.clients > 0, sample_state.clients, least),
            least,
            message=f'The cohort has fewer than {least} clients, so the sum has too little noise.',
        )
        with tf.control_dependencies([too_few] if too_few is not None else []):
            clients = tf.cast(tf.identity(sample_state.clients), tf.int64)
        # Each client has shifted its update by the bound; around that the sum is centred.
        shift = clients * self._settings.linf_bound
        total = tf.math.floormod(sample_state.update - shift, modulus)
        centred = tf.where(total > modulus // 2, total - modulus, total)
        return super().get_noised_result(
            sample_state._replace(update=centred + shift), global_state
        )


def skellam(key, stddev: float, size: int) -> tf.Tensor:
    """Independent Skellam variables of mean 0, int64 [size], a function of the key.

    tensorflow-privacy's own are seeded by the clock in microseconds, which clients can share, and
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


def discrete_gaussian(key, stddev: float, size: int) -> tf.Tensor:
    """Independent discrete Gaussian variables of mean 0, int64 [size], a function of the key.

    Discrete Laplace variables of scale `stddev`, each accepted with probability
    `exp(-(|y| - stddev)^2 / (2 stddev^2))` (Canonne, Kamath and Steinke 2020, algorithm 3), in
    float64.

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
        # Zero has no sign: with both it would be drawn twice as often.
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
    noise: DistributedNoise, *, record_specs, clip=clipping.clip_flat
) -> tfp.DPQuery:
    """The mean of a round whose noise comes from the clients, as a `tfp.DPQuery`.

    Args:
      noise: of each client, with the plan; the guarantee is `noise.epsilon`.
      record_specs: structure of `tf.TensorSpec` of one client's update.
      clip: as in `build_query`.

    Raises:
      ValueError: if the specs have another number of coordinates than the plan's discretization.
    """
    if precision.has_halves(record_specs):
        wide = build_distributed_query(
            noise, record_specs=precision.widened_specs(record_specs), clip=clip
        )
        return precision.HalfPrecisionQuery(wide, record_specs)
    total = DistributedNoiseQuery(noise, record_specs, clip)
    return tfp.NormalizedQuery(total, denominator=noise.plan.denominator)


def build_distributed_aggregator(
    noise: DistributedNoise, *, clip=clipping.clip_flat, secure_sum: bool = False
) -> tff.aggregators.UnweightedAggregationFactory:
    """The mean of a round whose noise comes from the clients, for any TFF pipeline.

    Cohorts of more than `clients_per_round` clients are refused by an error, and so are those of
    fewer than `noise.min_clients`, but for none: the result is then 0. The server has their sum by
    then: for the guarantee, secure aggregation itself must deliver no sum of fewer.

    Args:
      noise, clip: as in `build_distributed_query`.
      secure_sum: as in `build_aggregator`.
    """
    return _DistributedMeanFactory(noise, clip, secure_sum)


class _DistributedMeanFactory(tff.aggregators.UnweightedAggregationFactory):
    def __init__(self, noise, clip, secure_sum):
        self._noise, self._clip = noise, clip
        self._sum = tff.aggregators.SumFactory()
        if secure_sum:
            self._sum = secure.SecureSumFactory(noise.plan, noise.modulus)

    def create(self, value_type) -> tff.templates.AggregationProcess:
        """Aggregation process for values of `value_type`, tensors of floating-point numbers.

        Raises:
          TypeError: if `value_type` has other tensors.
        """
        private_mean = build_distributed_query(
            self._noise,
            record_specs=tff.types.type_to_tf_tensor_specs(value_type),
            clip=self._clip,
        )
        return process.aggregation_process(private_mean, self._sum, value_type)
