"""Which clients and examples a generative model is trained on, by what a classifier makes of them.

Document 004 gives two criteria: all examples of some clients, chosen by the accuracy on each client
(task T4, appendix C.3), and some examples of all clients, chosen by whether they are classified
correctly (task T2, appendix C.4). Each device can decide by itself once the thresholds are known;
nothing here is noised, and sizes of subpopulations and thresholds are not covered by any guarantee.
The criteria are `selection.clients_by_accuracy` and `selection.by_outcome`, applied to a whole
population at a time: a simulation draws its cohorts from those who are selected, and counts them.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dpfl import _validate

# Images that are classified at a time, over clients.
_IMAGES = 4_096
# Percentiles of the clients' accuracies without a bug, for poor and for strong (table 10).
PERCENTILES = (25, 75)
# Fewer examples of a kind than this, and a client has no part in its subpopulation (table 12).
MIN_EXAMPLES = 5


@dataclasses.dataclass(frozen=True)
class Verdicts:
    """Which examples of which clients a classifier gets right.

    Attributes:
      clients: ids, int64 [N].
      num_examples: of each client, int64 [N].
      correct: by client, and in the order of its examples: bool [sum of num_examples].
    """

    clients: np.ndarray
    num_examples: np.ndarray
    correct: np.ndarray

    @property
    def num_correct(self) -> np.ndarray:
        """Number of correctly classified examples of each client, int64 [N]."""
        owners = np.repeat(np.arange(len(self.clients)), self.num_examples)
        return np.bincount(owners[self.correct], minlength=len(self.clients))

    @property
    def accuracies(self) -> np.ndarray:
        """Share of the examples that are classified correctly, float64 [N]; NaN without any."""
        counts = self.num_examples.astype(float)
        return np.divide(
            self.num_correct, counts, out=np.full(counts.shape, np.nan), where=counts > 0
        )

    def split(self) -> list[np.ndarray]:
        """For each client which of its examples are classified correctly, bool [n]."""
        return np.split(self.correct, np.cumsum(self.num_examples))[:-1]


def judge(
    classify: Callable[[np.ndarray], np.ndarray],
    clients: Sequence[int],
    examples: Iterable[tuple[np.ndarray, np.ndarray]],
) -> Verdicts:
    """Classifies the examples of clients, many clients at a time.

    Args:
      classify: from pixels [n, 28, 28] to classes, int [n].
      clients: ids.
      examples: pixels and labels of each, in the same order; read once, a few at a time.
    """
    waiting, num_waiting, counts, correct = [], 0, [], []

    def classify_waiting():
        pixels, labels = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        correct.append(classify(pixels) == labels)
        waiting.clear()

    for _, (pixels, labels) in zip(clients, examples, strict=True):
        counts.append(len(labels))
        waiting.append((pixels, labels))
        num_waiting += len(labels)
        if num_waiting >= _IMAGES:
            classify_waiting()
            num_waiting = 0
    if waiting:
        classify_waiting()
    return Verdicts(
        clients=np.asarray(clients, np.int64),
        num_examples=np.asarray(counts, np.int64),
        correct=np.concatenate([np.zeros(0, bool), *correct]),
    )


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """Accuracies that make a client poor (at most `poor`) or strong (at least `strong`)."""

    poor: float
    strong: float

    def __post_init__(self):
        _validate.number('poor', self.poor, minimum=0, maximum=1)
        _validate.number('strong', self.strong, minimum=0, maximum=1)


def thresholds(verdicts: Verdicts, percentiles: tuple[float, float] = PERCENTILES) -> Thresholds:
    """Percentiles of the clients' accuracies (document 004, table 10); clients without data aside.

    Args:
      verdicts: of the population without a bug.
      percentiles: for poor and strong, 0 to 100.

    Raises:
      ValueError: if no client has an example, or the percentiles are not such numbers in order.
    """
    low, high = percentiles
    _validate.number('percentiles', low, minimum=0, maximum=100)
    _validate.number('percentiles', high, minimum=low, maximum=100)
    accuracies = verdicts.accuracies
    known = accuracies[~np.isnan(accuracies)]
    _validate.integer('clients with examples', len(known), minimum=1)
    return Thresholds(*(float(value) for value in np.percentile(known, percentiles)))


@dataclasses.dataclass(frozen=True)
class Subpopulation:
    """Clients that take part in training, and which of their examples do.

    Attributes:
      name: what they have in common.
      clients: their ids, int64 [N].
      masks: for each client which of its examples, bool [n]; None for all of all.
    """

    name: str
    clients: np.ndarray
    masks: tuple[np.ndarray, ...] | None = None

    def __len__(self) -> int:
        return len(self.clients)

    def chosen(self, position: int, pixels: np.ndarray) -> np.ndarray:
        """The examples of the client at a position that take part, of all of its pixels."""
        return pixels if self.masks is None else pixels[self.masks[position]]


def by_client(verdicts: Verdicts, limits: Thresholds) -> tuple[Subpopulation, Subpopulation]:
    """Clients on whom the classifier is strong, and clients on whom it is poor (table 11).

    A client without examples is neither; where the thresholds meet a client can be both.

    Returns:
      The high-accuracy and the low-accuracy subpopulation; either can be empty.
    """
    accuracies = verdicts.accuracies  # NaN is neither >= nor <= any number.
    return (
        Subpopulation('high_accuracy', verdicts.clients[accuracies >= limits.strong]),
        Subpopulation('low_accuracy', verdicts.clients[accuracies <= limits.poor]),
    )


def by_example(
    verdicts: Verdicts, min_examples: int = MIN_EXAMPLES
) -> tuple[Subpopulation, Subpopulation]:
    """Correctly classified examples, and misclassified ones (table 12).

    Args:
      verdicts: of the population.
      min_examples: examples of the kind that a client needs to take part.

    Returns:
      The two subpopulations, with masks; either can be empty.

    Raises:
      ValueError: if the number is not a positive integer.
    """
    _validate.integer('min_examples', min_examples, minimum=1)
    right = verdicts.split()
    parts = []
    for name, masks in (('correct', right), ('misclassified', [~mask for mask in right])):
        takes_part = np.array([mask.sum() >= min_examples for mask in masks], bool)
        kept = tuple(mask for mask, is_in in zip(masks, takes_part, strict=True) if is_in)
        parts.append(Subpopulation(name, verdicts.clients[takes_part], kept))
    return tuple(parts)
