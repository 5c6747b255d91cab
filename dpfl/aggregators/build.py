"""From a privacy plan to what plugs into tensorflow-privacy and TFF: the order of composition."""

import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl import _validate, accounting
from dpfl.aggregators import query


def build_query(
    plan: accounting.PrivacyPlan, seed: int | None = None, *, record_specs=None
) -> tfp.DPQuery:
    """The mean of a round under a privacy plan, as a `tfp.DPQuery`.

    Composition: clip each record -> sum -> add noise -> divide by the planned cohort size.

    Args:
      plan: determines clip norm, noise and denominator.
      seed: None for noise keys from the operating system; an integer >= 0 makes the noise
        repeatable, and the run a simulation without a guarantee against those who know it.
      record_specs: structure of `tf.TensorSpec` of one client's update, float32 or float64. With
        it the state has one type from the first round on, as TFF and `tf.function` loops need;
        without it the noise buffers appear with the first result.

    Raises:
      ValueError: if the seed is not an integer >= 0.
    """
    total = query.CorrelatedNoiseQuery(plan, record_specs, seed)
    return tfp.NormalizedQuery(total, denominator=float(plan.clients_per_round))


def build_aggregator(
    plan: accounting.PrivacyPlan, seed: int | None = None
) -> tff.aggregators.UnweightedAggregationFactory:
    """The mean of a round under a privacy plan, for any TFF pipeline.

    The result of round t is
    `(sum of clipped updates + clip_norm * noise_multiplier * (C^-1 z)_t) / clients_per_round`.
    All of its state, the noise key included, is in the state of the aggregation process. It goes
    where TFF takes an unweighted aggregator, such as `model_aggregator` of
    `tff.learning.algorithms.build_unweighted_fed_avg`.

    Args:
      plan, seed: as in `build_query`.

    Raises:
      ValueError: if the seed is not an integer >= 0.
    """
    return _PrivateMeanFactory(plan, seed)


class _PrivateMeanFactory(tff.aggregators.UnweightedAggregationFactory):
    def __init__(self, plan, seed):
        if seed is not None:
            _validate.integer('seed', seed, minimum=0)
        self._plan = plan
        self._seed = seed

    def create(self, value_type) -> tff.templates.AggregationProcess:
        """Aggregation process for values of `value_type`, tensors of float32 or float64.

        Raises:
          TypeError: if `value_type` has other tensors.
        """
        specs = tff.types.type_to_tf_tensor_specs(value_type)
        private_mean = build_query(self._plan, record_specs=specs, seed=self._seed)
        return tff.aggregators.DifferentiallyPrivateFactory(private_mean).create(value_type)
