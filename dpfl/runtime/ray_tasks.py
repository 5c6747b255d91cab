"""The tasks of a process of Ray: shards of a round, and descriptions of data.

Ray calls `run` in any of its processes, on any node. A process keeps what it has compiled and
opened, so that a round sends it little more than the model. No result depends on what it has kept:
Ray may end a process at any time, and another one computes the same bits.
"""

import collections
import functools
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

# Programs that a process keeps; a run has few, each compiled once. A run has one reader of data.
_MAX_PROGRAMS, _MAX_READERS = 4, 2
# Updates that a process has in memory while it adds them.
_MOST_ADDENDS = 8


class Setting(NamedTuple):
    """Environment with which a process computes the bits of the driver.

    Attributes:
      environment: variables that TensorFlow reads when it is imported.
      versions: of the packages that compute, by name.
    """

    environment: Mapping[str, str]
    versions: Mapping[str, str]


class Kept(NamedTuple):
    """An object in Ray's store that a process reads once.

    Attributes:
      key: digest of the object.
      reference: to it, in a list: Ray would replace a bare reference by its object in every call.
    """

    key: str
    reference: list[Any]


class Lost(NamedTuple):
    """Updates that a sum lacks.

    Attributes:
      indices: of the shards whose updates are in no store any more.
    """

    indices: list[int]


class Part(NamedTuple):
    """A part of a cohort.

    Attributes:
      rows: of each client.
      descriptions: of each client.
      template: a batch without rows; None if no client has a batch.
    """

    rows: list[int]
    descriptions: list[Any]
    template: Any


@functools.cache
def _versions() -> dict[str, str]:
    import tensorflow as tf
    import tensorflow_federated as tff

    import dpfl

    return {'dpfl': dpfl.__version__, 'TensorFlow': tf.__version__, 'TFF': tff.__version__}


def setting() -> Setting:
    """The setting of this process."""
    environment = {name: value for name, value in os.environ.items() if name.startswith('TF_')}
    return Setting(environment, _versions())


def run(wanted: Setting, name: str, *arguments: Any) -> Any:
    """Calls a function of this module in a process of Ray.

    Args:
      wanted: the setting of the driver.
      name: of the function.
      *arguments: of the function.

    Raises:
      RuntimeError: if the node has other versions of packages than the driver.
    """
    # Before the first import of TensorFlow in this process.
    os.environ.update(wanted.environment)
    if _versions() != wanted.versions:
        here, there = (
            ', '.join(f'{package} {version}' for package, version in versions.items())
            for versions in (wanted.versions, _versions())
        )
        raise RuntimeError(f'a node of the cluster has {there}; this process has {here}')
    return _FUNCTIONS[name](*arguments)


def _update(work: Kept, num_parts: int, message: Any, shard: Any) -> Any:
    """The update of one shard.

    Args:
      work: bytes of the computation `work` of a `split_round.SplitRound`.
      num_parts: into how many parts the update is cut.
      message: what its `begin` has computed.
      shard: its data, as `expressions.from_python` gives them.

    Returns:
      The update; with parts None, which says that all is well, and the parts.
    """
    from dpfl.runtime import split_round

    interpreter, computation = _program(work)
    update = interpreter.execute(computation, (message, [shard]))
    if not num_parts:
        return update
    return [None, *split_round.cut(update, computation.type_signature.result, num_parts)]


def _update_of(
    work: Kept, num_parts: int, message: Any, reader: Kept, template: Any, members: Sequence
) -> Any:
    """The update of one shard, whose data this process reads.

    Args:
      work, num_parts, message: as in `_update`.
      reader: pickled functions: the batches of a client, and their description.
      template: a batch without rows.
      members: for each client of the shard, in order, the argument of the first function and the
        description that the second one must return.

    Raises:
      RunError: if a client has other data than they were when the cohort was described.
    """
    from dpfl import errors
    from dpfl.runtime import expressions, shards

    client_data, describe = _opened(reader)
    clients = []
    for client, description in members:
        clients.append(shards.read(client_data(client)))
        if describe(clients[-1]) != description:
            raise errors.RunError('the data of a client changed while its round was prepared')
    shard_type = _program(work)[1].type_signature.parameter[1].member
    data = expressions.from_python(shards.dataset(clients, template), shard_type)
    return _update(work, num_parts, message, data)


def _total(references: Sequence[Any]) -> Any:
    """The sum of one part of all updates, added in their order; `Lost` if there are not all.

    Args:
      references: to that part of each update.
    """
    import ray

    lost: list[int] = []
    total: list[Any] = []
    waiting: list[Any] = []
    for index, reference in enumerate(references):
        try:
            waiting.append(ray.get(reference))
        except ray.exceptions.ObjectLostError:
            lost.append(index)
        if not lost and (len(waiting) == _MOST_ADDENDS or index == len(references) - 1):
            addends = [*total, *waiting]
            vectors = tuple((vector.dtype.str, len(vector)) for vector in addends[0])
            interpreter, add = _adder(vectors)
            total, waiting = [list(interpreter.execute(add, addends))], []
    return Lost(lost) if lost else total[0]


@functools.lru_cache(maxsize=2 * _MAX_PROGRAMS)
def _adder(vectors: Sequence[tuple[str, int]]) -> Any:
    """An interpreter and `federated_sum` for vectors of these types and sizes."""
    import numpy as np
    import tensorflow_federated as tff

    from dpfl.runtime import interpreter

    members = [tff.TensorType(np.dtype(dtype).type, [size]) for dtype, size in vectors]
    add = tff.federated_computation(
        tff.federated_sum, tff.FederatedType(tff.StructType(members), tff.CLIENTS)
    )
    return interpreter.Interpreter(1), add


def _describe(reader: Kept, members: Sequence[Any]) -> Part:
    """Describes clients; `members` are arguments of the reader's first function."""
    from dpfl.runtime import shards

    client_data, describe = _opened(reader)
    rows, descriptions, template = [], [], None
    for member in members:
        batches = shards.read(client_data(member))
        rows.append(shards.num_rows(batches))
        descriptions.append(describe(batches))
        if template is None and batches:
            template = shards.empty(batches[0])
    return Part(rows, descriptions, template)


def _program(work: Kept) -> Any:
    """An interpreter and the computation; the first execution compiles it."""
    from dpfl.runtime import compilation, interpreter, memory

    def load(data):
        memory.keep_freed()
        return interpreter.Interpreter(1), compilation.from_bytes(data)

    return _programs.get(work, load)


def _opened(reader: Kept) -> Any:
    return _readers.get(reader, pickle.loads)


class _Cache:
    """Objects that a process made from kept bytes; drops the least recently used one first."""

    def __init__(self, size: int):
        self._size = size
        self._made: collections.OrderedDict[str, Any] = collections.OrderedDict()

    def get(self, kept: Kept, make: Callable[[bytes], Any]) -> Any:
        import ray

        if kept.key not in self._made:
            made = make(ray.get(kept.reference[0]).tobytes())
            while len(self._made) >= self._size:
                self._made.popitem(last=False)
            self._made[kept.key] = made
        self._made.move_to_end(kept.key)
        return self._made[kept.key]


_programs, _readers = _Cache(_MAX_PROGRAMS), _Cache(_MAX_READERS)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    'update': _update,
    'update_of': _update_of,
    'total': _total,
    'describe': _describe,
}
