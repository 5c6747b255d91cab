"""Training data of the study's GANs: selected clients and examples, or public images.

[Augenstein20] selects by the results of a classifier, with two criteria: all examples of some
clients, selected by the classifier's accuracy on the client (task T4, appendix C.3), and some
examples of all clients, selected by whether they are classified correctly (task T2, appendix C.4).
Once the thresholds are known each device can decide by itself. Nothing here has noise: no guarantee
covers thresholds and sizes of subpopulations.

The criteria are applied to a whole population at once, because a simulation draws its cohorts from
the selected clients.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dpfl import _validate
from dpfl.debugging.diagnosis import Effects
from dpfl.debugging.images import diagnosis, traits
from dpfl.tasks import federated_task
from dpfl.tasks.images import image_clients

BUG, FIXED, AS_IS = 'bug', 'fixed', 'as_is'
EVERYONE, PUBLIC = 'everyone', 'public'
# Names of subpopulations in words.
IN_WORDS = {
    PUBLIC: 'public images',
    EVERYONE: 'all clients',
    'high_accuracy': 'clients on whom the classifier does well',
    'low_accuracy': 'clients on whom the classifier does badly',
    'correct': 'examples that the classifier gets right',
    'misclassified': 'examples that the classifier gets wrong',
}
# Number of clients whose images are classified together.
_CLIENTS = 32
# Percentiles of the accuracies without a bug, for poor and strong ([Augenstein20], table 10).
_PERCENTILES = (25, 75)
# Least number of examples of a client in a subpopulation by examples (table 12).
_MIN_EXAMPLES = 5
# Public images of one client of the generators for comparison.
_PUBLIC_EACH = 64
# Public images that generated ones are compared with, and those that stand for one client.
_REFERENCE, _OF_A_CLIENT = 600, 16


@dataclasses.dataclass(frozen=True)
class Verdicts:
    """Which examples of which clients a classifier gets right.

    Attributes:
      clients: ids of the clients, int64 [N].
      num_examples: number of examples of each client, int64 [N].
      correct: whether each example is classified correctly, client after client, bool
        [sum of num_examples].
    """

    clients: np.ndarray
    num_examples: np.ndarray
    correct: np.ndarray

    @property
    def accuracies(self) -> np.ndarray:
        """Accuracy on each client, float64 [N]; NaN for clients without examples."""
        return np.array([mask.mean() if mask.size else np.nan for mask in self.split()])

    def split(self) -> list[np.ndarray]:
        """For each client, whether each of its examples is classified correctly, bool [n]."""
        return np.split(self.correct, np.cumsum(self.num_examples))[:-1]


def judge(
    classify: Callable[[np.ndarray], np.ndarray],
    clients: Sequence[int],
    examples: Iterable[tuple[np.ndarray, np.ndarray]],
) -> Verdicts:
    """Classifies the examples of clients, many clients at a time.

    Args:
      classify: maps pixels [n, 28, 28] to classes, int [n].
      clients: ids of the clients.
      examples: pixels and labels of each client, in the same order; iterated once.
    """
    rest, correct = iter(examples), [np.zeros(0, bool)]
    counts: list[int] = []
    while several := list(itertools.islice(rest, _CLIENTS)):
        pixels, labels = zip(*several, strict=True)
        counts += map(len, labels)
        correct.append(classify(np.concatenate(pixels)) == np.concatenate(labels))
    return Verdicts(
        clients=np.asarray(clients, np.int64),
        num_examples=np.asarray(counts, np.int64),
        correct=np.concatenate(correct),
    )


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """The classifier is poor on clients up to accuracy `poor`, and strong from `strong` on."""

    poor: float
    strong: float


def thresholds(verdicts: Verdicts) -> Thresholds:
    """Percentiles of the accuracies of all clients with examples ([Augenstein20], table 10).

    Args:
      verdicts: verdicts on the population without the bug.

    Raises:
      ArgumentError: if no client has an example.
    """
    accuracies = verdicts.accuracies
    known = accuracies[~np.isnan(accuracies)]
    _validate.integer('clients with examples', len(known), minimum=1)
    return Thresholds(*(float(value) for value in np.percentile(known, _PERCENTILES)))


@dataclasses.dataclass(frozen=True)
class Subpopulation:
    """The clients and examples that a generative model is trained on.

    Attributes:
      name: its name, a key of `IN_WORDS`.
      clients: ids of the clients, int64 [N].
      masks: for each client a mask of its examples, bool [n]; None for all examples.
    """

    name: str
    clients: np.ndarray
    masks: tuple[np.ndarray, ...] | None = None

    def __len__(self) -> int:
        return len(self.clients)

    def chosen(self, position: int, pixels: np.ndarray) -> np.ndarray:
        """The selected examples of the client at a position, given all of its pixels."""
        return pixels if self.masks is None else pixels[self.masks[position]]


def select(
    selection: str, verdicts: Verdicts, limits: Thresholds
) -> tuple[Subpopulation, Subpopulation]:
    """The two subpopulations: where the primary model does well, and where it does badly.

    Args:
      selection: 'client': all examples of the clients on whom it is strong, or poor (table 11);
        those without examples are in neither. If the thresholds are equal, a client can be in both.
        'example': correctly classified examples, and misclassified ones (table 12), of the clients
        who have enough of them.
      verdicts: Which examples of the population the primary model gets right.
      limits: Thresholds for the selection by client.

    Returns:
      The two subpopulations; either may be empty.
    """
    if selection == 'client':
        accuracies = verdicts.accuracies  # NaN is neither >= nor <= any number.
        return (
            Subpopulation('high_accuracy', verdicts.clients[accuracies >= limits.strong]),
            Subpopulation('low_accuracy', verdicts.clients[accuracies <= limits.poor]),
        )

    def of_examples(name: str, masks: Sequence[np.ndarray]) -> Subpopulation:
        is_kept = np.array([mask.sum() >= _MIN_EXAMPLES for mask in masks], bool)
        kept = tuple(mask for mask, keep in zip(masks, is_kept, strict=True) if keep)
        return Subpopulation(name, verdicts.clients[is_kept], kept)

    correct = verdicts.split()
    return of_examples('correct', correct), of_examples('misclassified', [~m for m in correct])


@dataclasses.dataclass(frozen=True)
class Training:
    """The training data of one GAN.

    Attributes:
      state: 'bug', 'fixed' or 'as_is'.
      data: All clients, in this state.
      chosen: Clients or examples that take part.
    """

    state: str
    data: Any
    chosen: Subpopulation

    @property
    def name(self) -> str:
        """Name of the training and of its directory."""
        return f'{self.state}/{self.chosen.name}'

    def pixels(self, position: int, limit: int | None = None) -> np.ndarray:
        """The first `limit` images that take part, of the client at a position."""
        is_whole = self.chosen.masks is None
        pixels, _ = self.data.examples(
            int(self.chosen.clients[position]), limit if is_whole else None
        )
        return self.chosen.chosen(position, pixels)[:limit]

    def client_batches(
        self, position: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """Batches of the client at a position. The labels are 0 and not used."""

        def examples(position: int, limit: int | None) -> federated_task.Examples:
            pixels = self.pixels(position, limit)
            return image_clients.named(pixels, np.zeros(len(pixels), np.int32))

        return federated_task.client_batches(examples, position, batch_size, epochs, max_batches)


@dataclasses.dataclass(frozen=True)
class PublicImages:
    """Public images, those of held-out clients, dealt out to clients in their order.

    Attributes:
      pixels: The images, float32 [n, 28, 28].
      labels: Their classes, int32 [n].
    """

    pixels: np.ndarray
    labels: np.ndarray

    def examples(self, client: int, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The examples of a client, as `examples` of a task."""
        part = slice(client * _PUBLIC_EACH, (client + 1) * _PUBLIC_EACH)
        return self.pixels[part][:limit], self.labels[part][:limit]

    def sample(self) -> np.ndarray:
        """Some images of all, to compare generated ones with."""
        return self.pixels[:: len(self.pixels) // _REFERENCE + 1]

    def effects(self, infer: traits.Infer) -> Effects:
        """By how much faults raise traits of public images, as `diagnosis.effects`."""
        return diagnosis.effects(self.sample(), self.pixels[:_OF_A_CLIENT], infer)

    @property
    def half(self) -> Subpopulation:
        """Every other client: a generator learns from these, and is compared with all."""
        return Subpopulation(PUBLIC, np.arange(0, -(-len(self.labels) // _PUBLIC_EACH), 2))
