"""What a training run needs of any task: a model, the data of clients, and held-out data."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederatedTask:
    """A data set of clients with a model for it.

    Attributes:
      model: a `tff.learning.models.FunctionalModel`.
      population: number of clients to train on, whose ids are 0 to `population - 1`; None for an
        endless population.
      client_batches: from (client id, batch size, epochs, most batches or None) to the batches of
        the client as a list of structures of NumPy arrays, which is empty if the client has no
        data; a pure function, called in a thread of its own. May raise `DataError`.
      heldout: from (number of clients, batch size) to a `tf.data.Dataset` of batches of clients
        that are not trained on, of at most so many.
      reference_accuracies: what accuracies can be compared with, by name.
      description: what the data are, in values that JSON has: counts, what was left out. No text,
        no client key and no digest of the data. A run is continued with the same data only.
      fingerprints: digests of the files of the data, by what they are. They have no key, and so are
        a test of every guess at the contents: they must not be written anywhere.
      not_covered: what of this task the guarantee of a run says nothing about, a sentence each.
    """

    model: Any
    population: int | None
    client_batches: Callable[[int, int, int, int | None], Sequence[Any]]
    heldout: Callable[[int, int], Any]
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    description: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    not_covered: tuple[str, ...] = ()
