"""Which examples of which clients a generative model is trained on, instead of looking at them.

Document 004, table 1, names six tasks for which a modeler looks at data, with the criterion by
which the data are chosen; here each criterion is a function that a device can apply to its own
data. What does not meet it takes no part: a client without chosen examples contributes nothing to
its round, and the guarantee of the run holds as it is.

"Examples" are a list, an array with one row for each, or a mapping to such arrays.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpfl import _random, _validate, errors


@dataclasses.dataclass(frozen=True)
class Selection:
    """A criterion.

    Attributes:
      task: of document 004, table 1: 'T1' to 'T6'.
      criterion: what is chosen, in words.
      mask: from (client, its examples) to bool [number of examples]: those that are chosen.
      min_examples: a client with fewer chosen examples takes no part: it would be an outlier (5 in
        appendix C.4).

    Raises:
      ValueError: if `min_examples` is not a positive integer.
    """

    task: str
    criterion: str
    mask: Callable[[int, Any], np.ndarray]
    min_examples: int = 1

    def __post_init__(self):
        _validate.integer('min_examples', self.min_examples, minimum=1)

    def apply(self, client: int, examples: Any) -> Any:
        """The chosen examples, of the type of `examples`; none if they are too few."""
        chosen = np.asarray(self.mask(client, examples), bool)
        if chosen.shape != (_count(examples),):
            raise errors.ArgumentError(
                'mask', chosen.shape, f'must be ({_count(examples)},), the examples'
            )
        return _take(examples, chosen & (chosen.sum() >= self.min_examples))


def random_examples(rate: float, seed: int) -> Selection:
    """T1, sanity checks: each example with probability `rate`; a function of (seed, client)."""
    _validate.number('rate', rate, minimum=0, maximum=1)
    _random.check_seed('seed', seed)

    def mask(client, examples):
        return _random.generator('select.random', seed, client).random(_count(examples)) < rate

    return Selection('T1', f'each example with probability {rate:g}', mask)


def by_outcome(
    is_correct: Callable[[Any], np.ndarray], correct: bool = False, min_examples: int = 1
) -> Selection:
    """T2, mistakes: the examples that the primary model gets wrong (or right, to compare).

    Args:
      is_correct: from examples to bool [number of examples], by the primary model.
      correct: choose the right ones instead.
      min_examples: as in `Selection`.
    """
    return Selection(
        'T2',
        f'examples that the model gets {"right" if correct else "wrong"}',
        lambda client, examples: np.asarray(is_correct(examples), bool) == correct,
        min_examples,
    )


def unknown_labels(is_known: Callable[[Any], bool]) -> Selection:
    """T3, unknown classes: the examples that are of none; words outside the vocabulary, say.

    Args:
      is_known: from one example to whether it is of a known class.
    """
    return Selection(
        'T3',
        'examples of unknown classes',
        lambda client, examples: np.array([not is_known(one) for one in examples], bool),
    )


def clients_by_accuracy(
    is_correct: Callable[[Any], np.ndarray],
    at_least: float = 0.0,
    at_most: float = 1.0,
    min_examples: int = 1,
) -> Selection:
    """T4, bad slices: all examples of the clients whose share of right ones is in a range.

    Args:
      is_correct: as for `by_outcome`.
      at_least, at_most: bounds of the accuracy, both included.
      min_examples: as in `Selection`.
    """
    _validate.number('at_least', at_least, minimum=0, maximum=1)
    _validate.number('at_most', at_most, minimum=at_least, maximum=1)

    def mask(client, examples):
        count = _count(examples)
        accuracy = np.mean(is_correct(examples)) if count else np.nan
        return np.full(count, at_least <= accuracy <= at_most)

    return Selection(
        'T4', f'clients with an accuracy from {at_least:g} to {at_most:g}', mask, min_examples
    )


def unlabeled(is_labeled: Callable[[Any], np.ndarray]) -> Selection:
    """T5, examples for people to label: those that have no label.

    Args:
      is_labeled: from examples to bool [number of examples].
    """
    return Selection(
        'T5',
        'examples without a label',
        lambda client, examples: ~np.asarray(is_labeled(examples), bool),
    )


def underrepresented(
    log_training_density: Callable[[Any], np.ndarray],
    threshold: float,
    log_serving_density: Callable[[Any], np.ndarray] | None = None,
) -> Selection:
    """T6, bias of the training data: examples that these have too few of (section 2.1).

    Args:
      log_training_density: from examples to the natural logarithm of their density under a model of
        the public training data, [number of examples].
      threshold: without a serving density, examples of a density of at most exp(threshold); with
        it, those whose training density is at most exp(threshold) times it.
      log_serving_density: the same under a model of the data that are served.
    """
    _validate.number('threshold', threshold)

    def mask(client, examples):
        density = np.asarray(log_training_density(examples))
        if log_serving_density is not None:
            density = density - np.asarray(log_serving_density(examples))
        return density <= threshold

    relative = 'relative ' if log_serving_density is not None else ''
    return Selection(
        'T6', f'examples of a {relative}log density of at most {threshold:g} in training', mask
    )


def _count(examples) -> int:
    return len(next(iter(examples.values())) if isinstance(examples, Mapping) else examples)


def _take(examples, chosen: np.ndarray):
    if isinstance(examples, Mapping):
        return type(examples)((name, _take(part, chosen)) for name, part in examples.items())
    if isinstance(examples, np.ndarray):
        return examples[chosen]
    return [example for example, keep in zip(examples, chosen, strict=True) if keep]
