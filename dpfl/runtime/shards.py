"""Distributes the clients of a cohort over the shards that a process trains on.

A shard is one sequence of batches: the data of several clients one after the other, each after a
marker, which is a batch without rows. So a shard has the type of a client's data set, and a data
set without a marker is a shard of one client.
"""

import collections
import concurrent.futures
import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from dpfl import _validate, errors


def default_num_shards() -> int:
    """The number of processor cores that this process may use."""
    affinity = getattr(os, 'sched_getaffinity', None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def shard(clients: Iterable[Any], num_shards: int | None = None) -> list[tf.data.Dataset]:
    """The shards of a cohort, as `process.next` of `build_dp_fedavg` takes them.

    Shards get about equally many rows. The result is a pure function of the arguments, and holds a
    copy of the data.

    Args:
      clients: for each client its batches, structures of arrays whose first axes are the rows: a
        `tf.data.Dataset`, or an iterable of NumPy structures, which is read far faster.
      num_shards: number of shards; by default `default_num_shards()`. It determines the order in
        which updates are added, and so the rounding of sums in floating point.

    Returns:
      `num_shards` shards, or one per client if there are fewer clients; none if no client has data.

    Raises:
      ValueError: if a batch has no rows, or arrays of different numbers of rows, or if batches of
        two clients have different structures or row shapes.

    Example:
      >>> client = [{'x': np.ones([3, 2], np.float32)}]  # One batch of three rows.
      >>> len(shard([client, client, client], num_shards=2))
      2
    """
    if num_shards is None:
        num_shards = default_num_shards()
    _validate.integer('num_shards', num_shards, minimum=1)
    batches = [read(client) for client in clients]
    rows = [num_rows(client) for client in batches]
    template = next((batch for client in batches for batch in client), None)
    if template is None:
        return []
    return [
        dataset([batches[client] for client in members], template)
        for members in balanced(rows, num_shards)
    ]


def sharded_cohorts(
    cohorts: Iterable[Sequence[Any]],
    client_data: Callable[[Any], Any],
    num_shards: int | None = None,
    observe: Callable[[list[Any]], None] | None = None,
    describe: Callable[[list[Any]], Any] = len,
) -> Iterator[list[tf.data.Dataset]]:
    """Yields the shards of each cohort, and prepares the next one while the caller uses this one.

    At most two cohorts are in memory. An exception of `client_data` is raised for its own cohort.
    Closing or exhausting the generator waits for the preparation in progress.

    Args:
      cohorts: clients of each round; read one round ahead.
      client_data: returns the batches of a client, as in `shard`; called in another thread.
      num_shards: as in `shard`.
      observe: called in that thread, before a cohort is yielded, with the description of each of
        its clients, in the order of the cohort.
      describe: the description of a client, a function of its batches.

    Example:
      >>> client = [{'x': np.ones([3, 2], np.float32)}]
      >>> [len(shards) for shards in sharded_cohorts([[4, 7], [1]], lambda number: client, 2)]
      [2, 1]
    """
    cohorts = iter(cohorts)

    def prepare():
        cohort = next(cohorts, None)
        if cohort is None:
            return None
        clients = [read(client_data(client)) for client in cohort]
        if observe is not None:
            observe([describe(client) for client in clients])
        return shard(clients, num_shards)

    with concurrent.futures.ThreadPoolExecutor(1, 'dpfl-shards') as executor:
        pending = executor.submit(prepare)
        while (shards := pending.result()) is not None:
            pending = executor.submit(prepare)
            yield shards


def read(client: Any) -> list[Any]:
    """The batches of a client, checked, as a list.

    Raises:
      ValueError: if a batch has no rows, or arrays of different numbers of rows.
    """
    batches = list(client.as_numpy_iterator() if isinstance(client, tf.data.Dataset) else client)
    for batch in batches:
        counts = {np.shape(leaf)[:1] for leaf in tf.nest.flatten(batch)}
        if len(counts) != 1 or counts <= {(), (0,)}:
            shapes = ', '.join(str(np.shape(leaf)) for leaf in tf.nest.flatten(batch))
            raise errors.ArgumentError(
                'clients',
                errors.NOT_SHOWN,
                f'must have rows in each batch, equally many in all arrays; a batch has {shapes}',
            )
    return batches


def num_rows(batches: Sequence[Any]) -> int:
    """The number of rows of a client."""
    return sum(map(_num_rows, batches))


def _num_rows(batch) -> int:
    return len(tf.nest.flatten(batch)[0])


def balanced(costs: Sequence[int], num_shards: int) -> list[list[int]]:
    """Members of each shard. Greedy: the costliest first, each to the cheapest shard so far.

    No shard is empty: a cohort with fewer members than `num_shards` has fewer shards. Members keep
    their order within a shard.

    Args:
      costs: of each client of a cohort, such as its number of rows.
      num_shards: largest number of shards.
    """
    num_shards = min(num_shards, len(costs))
    shards: list[list[int]] = [[] for _ in range(num_shards)]
    heap = [(0, 0, index) for index in range(num_shards)]
    for member in sorted(range(len(costs)), key=lambda member: -costs[member]):
        cost, size, index = heapq.heappop(heap)
        shards[index].append(member)
        heapq.heappush(heap, (cost + costs[member], size + 1, index))
    return [sorted(members) for members in shards]


def empty(batch: Any) -> Any:
    """A batch without rows, as a template for `dataset`."""
    return tf.nest.map_structure(lambda leaf: np.asarray(leaf)[:0], batch)


def dataset(clients: Sequence[Sequence[Any]], template: Any) -> tf.data.Dataset:
    """One shard. NumPy joins the rows; TensorFlow cuts them into batches, without Python.

    Args:
      clients: the batches of each client, as `read` gives them.
      template: a batch of any client of the cohort, also one without rows.
    """
    batches = [batch for client in clients for batch in client]
    sizes = [size for client in clients for size in [0, *map(_num_rows, client)]]
    try:
        rows = tf.nest.map_structure(
            lambda *leaves: np.concatenate(leaves),
            empty(template),
            *batches,
        )
    except (TypeError, ValueError) as error:
        raise errors.ArgumentError(
            'clients', errors.NOT_SHOWN, f'must have batches of one structure; {error}'
        ) from None
    # TensorFlow makes one tensor of a list in a data set.
    rows = tree.traverse(lambda part: tuple(part) if isinstance(part, list) else None, rows, False)
    if isinstance(rows, dict):
        rows = collections.OrderedDict(rows)  # TFF takes no other mapping.
    if not any(sizes):
        # `rows` has no rows, so it is a marker itself.
        return tf.data.Dataset.from_tensors(rows).repeat(len(sizes))
    return _cut(rows, np.array(sizes, np.int64))


# Traced functions by structure, types and row shapes.
_cutters: dict[str, Any] = {}


def _cut(rows, sizes):
    """Batches of the given sizes.

    In a function that is traced once: elsewhere, every call of `rebatch` traces a function of its
    own, which takes 10 ms and memory that is never freed. The row shape stays static, since the
    shape of a batch without rows is taken from it.
    """
    specs = tf.nest.map_structure(
        lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), rows
    )
    if repr(specs) not in _cutters:
        _cutters[repr(specs)] = tf.function(
            _rebatched, input_signature=[specs, tf.TensorSpec([None], tf.int64)]
        )
    return _cutters[repr(specs)](rows, sizes)


def _rebatched(rows, sizes):
    # `rebatch` cycles through the sizes, and would end with another batch without rows.
    return tf.data.Dataset.from_tensors(rows).rebatch(sizes).take(tf.size(sizes, tf.int64))
