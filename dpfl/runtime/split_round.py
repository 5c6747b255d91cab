"""Splits a round into the server's part and the shards' part, which can run elsewhere."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow_federated as tff

from dpfl import errors

_SERVER_STATE_AND_SHARDS = 2


@dataclasses.dataclass(frozen=True)
class SplitRound:
    """A computation `(state@SERVER, shards@CLIENTS) -> result@SERVER` in three parts.

    With `message = begin(state)` and `updates = work(message, shards)` the result is
    `finish(state, updates)`: the same operations on the same numbers in the same order. So the
    result has the same bits, however the shards are divided, if the same build of TensorFlow
    executes `work`.

    Attributes:
      begin: state -> message, what every shard gets, such as the model and the clip norm.
      work: (message, shards) -> updates, one per shard.
      finish: sums the updates in the order of the shards, and does the server's step.
    """

    begin: tff.Computation
    work: tff.Computation
    finish: tff.Computation


def has_shards(comp: tff.Computation) -> bool:
    """Whether a computation takes values at clients, which are shards."""
    parameter = comp.type_signature.parameter
    return parameter is not None and tff.types.contains(parameter, _is_at_clients)


def split(comp: tff.Computation) -> SplitRound:
    """Splits a round.

    `finish` repeats what the server computes before the shards, so that must be a pure function of
    the state, as in the processes of `dpfl.learning`.

    Raises:
      ValueError: if the computation is not a function of a server state and shards.
      TypeError: if the server broadcasts again after an aggregation.
    """
    parameter = comp.type_signature.parameter
    if not (
        isinstance(parameter, tff.StructType)
        and len(parameter) == _SERVER_STATE_AND_SHARDS
        and _is_at_clients(parameter[1])
        and not tff.types.contains(parameter[0], _is_at_clients)
    ):
        raise errors.ArgumentError(
            'computation', errors.NOT_SHOWN, f'must take a state and shards, takes {parameter}'
        )
    form = tff.backends.mapreduce.get_distribute_aggregate_form_for_computation(comp)
    state_type, shards_type = parameter

    @tff.federated_computation(state_type)
    def begin(state):
        return form.server_prepare(state)[0]

    @tff.federated_computation(begin.type_signature.result, shards_type)
    def work(message, shards):
        return form.client_work(shards, form.server_to_client_broadcast(message))

    @tff.federated_computation(state_type, work.type_signature.result)
    def finish(state, updates):
        kept = form.server_prepare(state)[1]
        return form.server_result(kept, form.client_to_server_aggregation(kept, updates))

    # Compiling loses the Python containers, such as that of the state.
    annotated = tff.FunctionType(finish.type_signature.parameter, comp.type_signature.result)
    return SplitRound(begin, work, tff.framework.ConcreteComputation.with_type(finish, annotated))


def join(parts: Sequence[Any], updates_type: tff.Type) -> Any:
    """Concatenates the updates of consecutive parts of the shards."""
    if _is_at_clients(updates_type):
        return [update for part in parts for update in part]
    names = (
        [name for name, _ in tff.structure.to_elements(updates_type)]
        if isinstance(updates_type, tff.StructType)
        else []
    )
    return tuple(
        join([part[name or index] for part in parts], updates_type[index])
        for index, name in enumerate(names)
    )


def _is_at_clients(type_spec: tff.Type) -> bool:
    return isinstance(type_spec, tff.FederatedType) and type_spec.placement is tff.CLIENTS
