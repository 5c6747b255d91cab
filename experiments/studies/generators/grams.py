"""N-grams of both sides: tables of the largest differences, and distances."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl.debugging.differences import Difference
from dpfl.debugging.text import distances, ngrams
from experiments.studies.generators import allowance
from experiments.studies.generators.config import ComparisonConfig
from experiments.studies.generators.verdict import Area


@dataclasses.dataclass(frozen=True)
class Grams:
    """N-grams of one order.

    Attributes:
      order: Number of tokens of an n-gram.
      number: Number of different n-grams that either side wrote.
      differences: Differences of the shares of sequences that have an n-gram, the largest first.
        Their names are the n-grams as text.
      distance: Distance of the distributions of n-grams.
      implied: The training deviation that would explain all differences; None if there are few.
    """

    order: int
    number: int
    differences: tuple[Difference, ...]
    distance: distances.Distance
    implied: float | None

    def area(self, name: str) -> Area:
        """The differences as an area of the verdict."""
        return Area(name, self.differences)

    def to_dict(self, top: int) -> dict[str, Any]:
        """The n-grams as JSON values, with the first `top` differences."""
        return {
            'order': self.order,
            'different': self.number,
            'compared': len(self.differences),
            'largest': [each.to_dict() for each in self.differences[:top]],
            'distance': dataclasses.asdict(self.distance),
            'implied_training_deviation': self.implied,
        }


def compare(
    samples: tuple[np.ndarray, np.ndarray],
    alphabet: ngrams.Alphabet,
    written: Callable[[tuple[int, ...]], str],
    config: ComparisonConfig,
) -> tuple[Grams, ...]:
    """Compares the n-grams of all orders of a configuration.

    Args:
      samples: Token ids that the two sides wrote.
      alphabet: The tokens.
      written: From the token ids of an n-gram to its text.
      config: How they are compared.
    """
    allowed = allowance.Allowance(config.training_deviation)
    found = []
    for order in range(1, config.orders + 1):
        grams = ngrams.ngrams(*samples, order, alphabet)
        compared = ngrams.compare(grams, least=config.least_count, between=allowed.of_shares)
        found.append(
            Grams(
                order,
                len(grams.grams),
                tuple(
                    dataclasses.replace(each.difference, name=written(each.gram))
                    for each in compared
                ),
                distances.distance(grams, config.splits, config.drawn.seed),
                allowance.implied(*grams.sequences(), grams.sizes),
            )
        )
    return tuple(found)
