"""Splits a round into the server's part and the shards' part, which can run elsewhere."""

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from dpfl import errors
from dpfl.runtime import expressions, graphs

_SERVER_STATE_AND_SHARDS = 2


@dataclasses.dataclass(frozen=True)
class SplitRound:
    """A computation `(state@SERVER, shards@CLIENTS) -> result@SERVER` in three parts.

    With `message, kept = begin(state)` and `updates = work(message, shards)` the result is
    `finish(kept, updates)`: the same operations on the same numbers in the same order. So the
    result has the same bits, however the shards are divided, if the same build of TensorFlow
    executes `work`.

    Attributes:
      begin: state -> message, what every shard gets, such as the model and the clip norm; and
        what `finish` needs of the state, and of what was computed or drawn from it.
      work: (message, shards) -> updates, one per shard.
      finish: sums the updates in the order of the shards, and does the server's step.
      only_adds: whether all that `finish` does with updates is to add them. It then takes their sum
        as the update of a single shard, with the same result.
    """

    begin: tff.Computation
    work: tff.Computation
    finish: tff.Computation
    only_adds: bool


def has_shards(comp: tff.Computation) -> bool:
    """Whether a computation takes values at clients, which are shards."""
    parameter = comp.type_signature.parameter
    return parameter is not None and tff.types.contains(parameter, _is_at_clients)


def split(comp: tff.Computation) -> SplitRound:
    """Splits a round.

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
        prepared = form.server_prepare(state)
        return prepared[0], prepared[1]

    message_type, kept_type = begin.type_signature.result

    @tff.federated_computation(message_type, shards_type)
    def work(message, shards):
        return form.client_work(shards, form.server_to_client_broadcast(message))

    @tff.federated_computation(kept_type, work.type_signature.result)
    def finish(kept, updates):
        return form.server_result(kept, form.client_to_server_aggregation(kept, updates))

    # Compiling loses the Python containers, such as that of the state.
    annotated = tff.FunctionType(finish.type_signature.parameter, comp.type_signature.result)
    finish = tff.framework.ConcreteComputation.with_type(finish, annotated)
    return SplitRound(begin, work, finish, _only_adds(form.client_to_server_aggregation))


def _only_adds(aggregation: tff.Computation) -> bool:
    """Whether the only operations on values at clients are sums of tensors."""
    uris = set()

    def note(block):
        if isinstance(block, tff.framework.Intrinsic):
            uris.add(block.uri)
        return block, False

    tff.framework.transform_postorder(aggregation.to_building_block(), note)
    return uris == {'federated_sum'}


def cut(update: Any, updates_type: tff.Type, num_parts: int) -> list[list[np.ndarray]]:
    """The tensors of the update of one shard in parts of about equal size.

    Args:
      update: as `work` returns it for one shard.
      updates_type: of the result of `work`.
      num_parts: number of parts.

    Returns:
      For each part a vector for each dtype of the tensors.
    """
    leaves = graphs.leaves(expressions.of_client(expressions.from_python(update, updates_type), 0))
    by_dtype = collections.defaultdict(list)
    for leaf in leaves:
        by_dtype[np.asarray(leaf).dtype.str].append(np.ravel(leaf))
    vectors = [np.concatenate(by_dtype[dtype]) for dtype in sorted(by_dtype)]
    return [
        [
            vector[len(vector) * part // num_parts : len(vector) * (part + 1) // num_parts]
            for vector in vectors
        ]
        for part in range(num_parts)
    ]


def uncut(parts: Sequence[Sequence[np.ndarray]], updates_type: tff.Type) -> Any:
    """The update whose parts `cut` returned, as `finish` takes it for a single shard."""
    vectors = {vectors[0].dtype: np.concatenate(vectors) for vectors in zip(*parts, strict=True)}
    used: collections.Counter[Any] = collections.Counter()

    def of(type_spec):
        if isinstance(type_spec, tff.FederatedType):
            return [of(type_spec.member)]
        if isinstance(type_spec, tff.StructType):
            members = tff.structure.iter_elements(type_spec)
            return tff.structure.Struct((name, of(member)) for name, member in members)
        dtype, start = np.dtype(type_spec.dtype), used[np.dtype(type_spec.dtype)]
        used[dtype] += math.prod(type_spec.shape)
        return vectors[dtype][start : used[dtype]].reshape(type_spec.shape)

    return of(updates_type)


def num_bytes(updates_type: tff.Type) -> int | None:
    """Bytes of the update of one shard; None if the shape of a tensor is not known."""
    if isinstance(updates_type, tff.FederatedType):
        return num_bytes(updates_type.member)
    if isinstance(updates_type, tff.StructType):
        sizes = [num_bytes(member) for _, member in tff.structure.iter_elements(updates_type)]
        return None if None in sizes else sum(size for size in sizes if size)
    if updates_type.shape is None or None in updates_type.shape:
        return None
    return math.prod(updates_type.shape) * np.dtype(updates_type.dtype).itemsize


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
