"""Selects the examples that a generative model is trained on, as a substitute for inspecting them.

[Augenstein20], table 1, lists six tasks for which a modeler inspects data, each with a criterion
that selects the data. Here each criterion is a function that a device can apply to its own data.
Examples that do not meet it are left out. A client without selected examples contributes a zero
update, and the guarantee of the run is unchanged.

"Examples" are a list, an array with one row per example, or a mapping to such arrays.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpfl import _random, _validate, errors


@dataclasses.dataclass(frozen=True)
class Selection:
    """A criterion that selects examples of a client.

    Attributes:
      task: name of the task in [Augenstein20], table 1: 'T1' to 'T6'.
      criterion: description of the selected examples, in words.
      mask: maps (client, its examples) to bool [number of examples], true for selected examples.
      min_examples: clients with fewer selected examples are left out, because they would be
        outliers ([Augenstein20], appendix C.4, uses 5).

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
        """The selected examples, of the type of `examples`; none if fewer than `min_examples`."""
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

    def mask(client: int, examples: Any) -> np.ndarray:
        return _random.generator('select.random', seed, client).random(_count(examples)) < rate

    return Selection('T1', f'each example with probability {rate:g}', mask)


def by_outcome(
    is_correct: Callable[[Any], np.ndarray], correct: bool = False, min_examples: int = 1
) -> Selection:
    """T2, debugging mistakes: the examples that the primary model gets wrong.

    Args:
      is_correct: maps examples to bool [number of examples], true where the primary model is right.
      correct: select the examples that the model gets right instead, for comparison.
      min_examples: as in `Selection`.
    """
    return Selection(
        'T2',
        f'examples that the model gets {"right" if correct else "wrong"}',
        lambda client, examples: np.asarray(is_correct(examples), bool) == correct,
        min_examples,
    )


def unknown_labels(is_known: Callable[[Any], bool]) -> Selection:
    """T3, unknown classes: examples of no known class, such as words outside the vocabulary.

    Args:
      is_known: tells whether one example belongs to a known class.
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
    """T4, poor slices: all examples of the clients whose accuracy is in a range.

    Args:
      is_correct: as in `by_outcome`.
      at_least, at_most: bounds of the client's accuracy, inclusive.
      min_examples: as in `Selection`.
    """
    _validate.number('at_least', at_least, minimum=0, maximum=1)
    _validate.number('at_most', at_most, minimum=at_least, maximum=1)

    def mask(client: int, examples: Any) -> np.ndarray:
        count = _count(examples)
        accuracy = np.mean(is_correct(examples)) if count else np.nan
        return np.full(count, at_least <= accuracy <= at_most)

    return Selection(
        'T4', f'clients with an accuracy from {at_least:g} to {at_most:g}', mask, min_examples
    )


def unlabeled(is_labeled: Callable[[Any], np.ndarray]) -> Selection:
    """T5, human labelling: the examples that have no label.

    Args:
      is_labeled: maps examples to bool [number of examples].
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
    """T6, bias: examples that are rare in the training data ([Augenstein20], section 2.1).

    Args:
      log_training_density: maps examples to the natural logarithm of their density under a model of
        the public training data, [number of examples].
      threshold: without a serving density, selects the examples with a training density of at most
        exp(threshold); with one, those with a ratio training / serving of at most exp(threshold).
      log_serving_density: the same under a model of the data that are served, or None.
    """
    _validate.number('threshold', threshold)

    def mask(client: int, examples: Any) -> np.ndarray:
        density = np.asarray(log_training_density(examples))
        if log_serving_density is not None:
            density = density - np.asarray(log_serving_density(examples))
        return density <= threshold

    relative = 'relative ' if log_serving_density is not None else ''
    return Selection(
        'T6', f'examples of a {relative}log density of at most {threshold:g} in training', mask
    )


def _count(examples: Any) -> int:
    return len(next(iter(examples.values())) if isinstance(examples, Mapping) else examples)


def _take(examples: Any, chosen: np.ndarray) -> Any:
    if isinstance(examples, Mapping):
        like: Any = type(examples)
        return like((name, _take(part, chosen)) for name, part in examples.items())
    if isinstance(examples, np.ndarray):
        return examples[chosen]
    return [example for example, keep in zip(examples, chosen, strict=True) if keep]
