"""A private query as an aggregation process of TFF."""

import collections
from typing import Any, NamedTuple

import dp_accounting
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl.aggregators.noise import correlated


class AggregatorState(NamedTuple):
    """State between two rounds: that of the query and that of the sum.

    TFF's `extract_dp_event_from_state` reads the properties. A round has no event, only the whole
    run has one: `plan.dp_event()`.
    """

    query_state: Any
    sum_state: Any

    @property
    def is_init_state(self) -> bool:
        return False

    @property
    def dp_event(self) -> Any:
        return dp_accounting.UnsupportedDpEvent().to_named_tuple()


def aggregation_process(
    query: tfp.SumAggregationDPQuery,
    sum_factory: tff.aggregators.UnweightedAggregationFactory,
    value_type: tff.Type,
) -> tff.templates.AggregationProcess:
    """A TFF process that runs the query round by round.

    TFF's own `DifferentiallyPrivateFactory` draws a round's noise in `initialize` too, to get the
    privacy event of a round. Here only whole runs have events.

    Args:
      query: what clients and server compute.
      sum_factory: sums what clients send.
      value_type: type of a client's value.

    Raises:
      TypeError: if the query does not take values of this type.
    """
    initial_state = tff.tensorflow.computation(
        lambda: correlated.without_buffers(query.initial_global_state())
    )
    state_type = initial_state.type_signature.result
    sample_params = tff.tensorflow.computation(query.derive_sample_params, state_type)
    client_work = tff.tensorflow.computation(
        query.preprocess_record, sample_params.type_signature.result, value_type
    )
    sums = sum_factory.create(client_work.type_signature.result)

    @tff.tensorflow.computation(sums.next.type_signature.result.result.member, state_type)
    def server_work(total, state):
        result, state, _ = query.get_noised_result(total, state)
        return result, state, query.derive_metrics(state)

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            AggregatorState(tff.federated_eval(initial_state, tff.SERVER), sums.initialize())
        )

    @tff.federated_computation(
        initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
    )
    def next_round(state, value):
        params = tff.federated_broadcast(tff.federated_map(sample_params, state.query_state))
        # At the clients.
        samples = tff.federated_map(client_work, (params, value))
        total = sums.next(state.sum_state, samples)
        # At the server.
        result, query_state, metrics = tff.federated_map(
            server_work, (total.result, state.query_state)
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(AggregatorState(query_state, total.state)),
            result,
            tff.federated_zip(
                collections.OrderedDict(dp_query_metrics=metrics, dp=total.measurements)
            ),
        )

    return tff.templates.AggregationProcess(initialize, next_round)
