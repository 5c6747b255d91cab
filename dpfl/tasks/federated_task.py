"""A task as a training run takes it: a model, the clients' data, and held-out data."""

import abc
import collections
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import _validate, errors

# Examples of one client or several: arrays by name, an example in each row.
Examples = Mapping[str, np.ndarray]
EVAL_BATCH_SIZE = 256
# Clients of a run on synthetic data, if its configuration gives no number.
_DEFAULT_POPULATION = 10_000


def batches(
    examples: Examples,
    batch_size: int,
    epochs: int = 1,
    max_batches: int | None = None,
) -> list[collections.OrderedDict]:
    """Cuts the examples of a client into batches. The last batch of an epoch may be smaller.

    Args:
      examples: arrays by name, an example in each row.
      batch_size: examples per batch.
      epochs: passes over the examples.
      max_batches: total number of batches at most; None for no bound.

    Returns:
      Batches of arrays by the same names; none if there are no examples.
    """
    length = len(next(iter(examples.values())))
    parts = [slice(first, first + batch_size) for first in range(0, length, batch_size)]
    one_pass = [
        collections.OrderedDict((name, array[part]) for name, array in examples.items())
        for part in parts
    ]
    return (one_pass * epochs)[:max_batches]


def client_batches(
    examples: Callable[[int, int | None], Examples],
    client: int,
    batch_size: int,
    epochs: int = 1,
    max_batches: int | None = None,
) -> list[collections.OrderedDict]:
    """The batches of a client, in the order of its examples. No more examples are read than used.

    Args:
      examples: maps a client, and how many of its first examples are used (None: all), to these.
      client: the client.
      batch_size, epochs, max_batches: as in `batches`.
    """
    limit = None
    if max_batches is not None:
        limit = batch_size * max_batches
    return batches(examples(client, limit), batch_size, epochs, max_batches)


def dataset(examples: Examples, batch_size: int) -> Any:
    """One pass over examples as a `tf.data.Dataset` of batches."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(examples)).batch(batch_size)


def pooled(parts: Sequence[Examples]) -> Examples:
    """The examples of at least one client or batch, all together, in their order."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class ClientData(abc.ABC):
    """Clients with examples, and held-out clients. Gives a task its functions of them."""

    @abc.abstractmethod
    def of_client(self, client: int, limit: int | None = None) -> Examples:
        """The first `limit` examples of a training client, or all."""

    @abc.abstractmethod
    def of_heldout(self, num_clients: int) -> Sequence[Examples]:
        """The examples of each of the first held-out clients."""

    def client_batches(
        self, client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """`FederatedTask.client_batches`."""
        return client_batches(self.of_client, client, batch_size, epochs, max_batches)

    def heldout_dataset(self, num_clients: int, batch_size: int) -> Any:
        """`FederatedTask.heldout`."""
        return dataset(pooled(self.of_heldout(num_clients)), batch_size)

    def heldout_owners(self, num_clients: int) -> np.ndarray:
        """`FederatedTask.heldout_owners`, int64."""
        sizes = [len(next(iter(examples.values()))) for examples in self.of_heldout(num_clients)]
        return np.repeat(np.arange(len(sizes)), sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederatedTask:
    """A model and the data of the clients that train it.

    Attributes:
      model: a `tff.learning.models.FunctionalModel`; None for a GAN, which has its own.
      population: number of training clients; their ids are 0 to `population - 1`. None for an
        endless population.
      client_batches: maps (client id, batch size, epochs, most batches or None) to the client's
        batches, a list of structures of NumPy arrays; the list is empty if the client has no data.
        A pure function that must be safe to call in any thread. May raise `DataError`.
      heldout: maps (number of clients, batch size) to a `tf.data.Dataset` with the batches of at
        most that many held-out clients.
      heldout_owners: maps a number of clients to the held-out client of each example of `heldout`,
        in its order, integers from 0. With `hits` an evaluation then also has quantiles of the
        clients' accuracies; None for tasks that do not tell clients apart.
      hits: maps labels and predictions of a batch, as tensors, to the number of right predictions
        and of targets in each example, int64 [B] both.
      num_test_clients: number of clients for a test of the final model; they are neither training
        clients nor held out. None for an endless supply.
      test: maps (number of test clients, batch size) to their batches, an iterable of structures
        of arrays; the number is at most `num_test_clients`. None if the task has no such clients.
      reference_accuracies: accuracies to compare with, by name.
      baselines: maps the number of held-out clients to accuracies of predictors that only count,
        by name; None if there are none.
      with_sentences: maps sentences by training client, each a list of words of the model's
        vocabulary, to the same task in which these clients have them before their own; None for a
        task without sentences.
      description: facts about the data as JSON values, such as counts of clients and of skipped
        records. It contains no text, no client key and no digest of the data. A resumed run must
        have the same description.
      fingerprints: unkeyed digests of the data files, by the role of the file. Anyone who has such
        a digest can test guesses at the file's contents, so it must never be written to disk.
      in_memory: data in memory by role, such as 'clients'. Each function returns an iterable with
        the batches of one client after the other. A run calls it when it begins and when it
        continues, and must find the same data.
      not_covered: sentences that name what the run's guarantee does not cover in this task.
      made_from: the inputs of a task of one's own, as JSON values by name: a run is continued with
        the same values only.
      found: results of the private draws before training, as JSON values by name; a run keeps them.
      language_model: name in `text.models.saved_models.ALL` and vocabulary, None for one of bytes,
        of a language model, as which a run then saves it; None for other models.
    """

    model: Any
    population: int | None
    client_batches: Callable[[int, int, int, int | None], Sequence[Any]]
    heldout: Callable[[int, int], Any]
    heldout_owners: Callable[[int], Any] | None = None
    hits: Callable[[Any, Any], tuple[Any, Any]] | None = None
    num_test_clients: int | None = None
    test: Callable[[int, int], Iterable[Any]] | None = None
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    baselines: Callable[[int], Mapping[str, float]] | None = None
    with_sentences: Callable[[Mapping[int, Sequence[list[str]]]], 'FederatedTask'] | None = None
    description: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    in_memory: Mapping[str, Callable[[], Iterable[Sequence[Any]]]] = dataclasses.field(
        default_factory=dict
    )
    not_covered: tuple[str, ...] = ()
    made_from: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    found: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    language_model: tuple[str, Sequence[str] | None] | None = None


class TaskSource(abc.ABC):
    """A task that is opened as far as a question needs it, and only once."""

    def num_clients(self) -> int | None:
        """Number of clients to train on; None for an endless population. Draws nothing."""
        return None

    def population(self, given: int | None) -> int:
        """The number of clients to train on, of which the configuration may give another."""
        return population(given, self.num_clients())

    @abc.abstractmethod
    def num_parameters(self) -> int:
        """Number of parameters of the model; may draw a vocabulary."""

    def most_parameters(self) -> int:
        """The largest number that `num_parameters` may give; draws nothing."""
        return self.num_parameters()

    @abc.abstractmethod
    def load(self) -> FederatedTask:
        """The task."""


def hold_out(ids: Iterable[Any], fraction: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Divides clients by the digests of their ids; the smallest digests are held out.

    Args:
      ids: different ids of all clients.
      fraction: share of the clients to hold out, as in `count`.

    Returns:
      Ids of the training clients and ids of the held-out clients, both in the order of the digests.

    Raises:
      ValueError: as `count`.
    """

    def key(client: Any) -> tuple[bytes, str]:
        name = str(client)
        return hashlib.sha256(name.encode('utf-8', 'surrogatepass')).digest(), name

    by_digest = sorted(ids, key=key)
    number = num_held_out(len(by_digest), fraction)
    return tuple(by_digest[number:]), tuple(by_digest[:number])


def num_held_out(num_clients: int, fraction: float) -> int:
    """Number of held-out clients: the given fraction, but at least one and not all.

    Raises:
      ValueError: if there are fewer than two clients, or the fraction is not in (0, 1).
    """
    _validate.number('heldout_fraction', fraction, above=0, below=1)
    if num_clients < 2:
        raise errors.ArgumentError(
            'num_clients', num_clients, 'must be at least 2, one to train on and one held out'
        )
    return min(max(round(fraction * num_clients), 1), num_clients - 1)


def population(given: int | None, available: int | None) -> int:
    """The number of clients to train on.

    Args:
      given: the number in the configuration; None for all clients of the data.
      available: the number in the data; None for an endless population.

    Raises:
      ArgumentError: if the data have fewer.
    """
    if available is None:
        return _DEFAULT_POPULATION if given is None else given
    if given is not None and given > available:
        raise errors.ArgumentError(
            'population',
            given,
            f'must be <= {available}, the clients to train on that the data have',
        )
    return available if given is None else given
