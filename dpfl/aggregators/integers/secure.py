"""Sums of discretized updates by TFF's secure aggregation."""

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import accounting
from dpfl.aggregators import adaptive_clip
from dpfl.aggregators.integers import discretized


class SecureSumFactory(tff.aggregators.UnweightedAggregationFactory):
    """Sums integers by secure operators of TFF only: the server sees no client's values.

    Updates are summed modulo the modulus of the plan's discretization, and counts of updates within
    the clip norm modulo one that is large enough for them. The number of clients, by which too
    large cohorts are refused, is summed without a modulus. TFF 0.87 executes these operators in
    `tff.backends.test` only, without cryptography; other platforms bring their own.
    """

    def __init__(self, plan: accounting.PrivacyPlan):
        """Args: plan: has a discretization."""
        settings, clients = discretized.settings_of(plan), plan.clients_per_round
        self._update_modulus = settings.modulus(clients)
        self._update_type = discretized.integer_type(settings, clients).as_numpy_dtype
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
        return discretized.DiscretizedSample(
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
