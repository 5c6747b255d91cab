"""The result of all sensitivity computations, and how they split participations."""

from typing import NamedTuple

import numpy as np


class Sensitivity(NamedTuple):
    """The squared sensitivity: largest squared norm of `C u` over the patterns, for clip norm 1.

    Attributes:
      squared: never below the truth.
      is_exact: False if `squared` is a proven upper bound that may not be attained.

    Example:
      >>> Sensitivity(squared=4.0, is_exact=True).squared
      4.0
    """

    squared: float
    is_exact: bool


def best_split(left: np.ndarray, right: np.ndarray, capacity: int) -> np.ndarray:
    """Max-plus convolution: the best way to share participations between two parts.

    Args:
      left: value of the first part by its number of participations, from 0 on, [l].
      right: value of the second part, likewise, [r].
      capacity: most participations of both parts together.

    Returns:
      Entry j is the largest left[i] + right[j - i], [min(l + r - 2, capacity) + 1].
    """
    size = min(left.size + right.size - 2, capacity) + 1
    best = np.full(size, -np.inf) if left.dtype.kind == 'f' else np.zeros(size, left.dtype)
    if right.size < left.size:
        left, right = right, left
    for i, value in enumerate(left[:size]):
        part = value + right[: size - i]
        best[i : i + part.size] = np.maximum(best[i : i + part.size], part)
    return best
