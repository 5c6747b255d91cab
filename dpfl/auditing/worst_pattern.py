"""The participation pattern of a client that is the easiest to detect.

A client with updates `u_t v`, for a unit vector v and u_t = +-1 in the rounds of an admitted
pattern, moves what a mechanism releases by the norm of `C u`. The sensitivity is at least the
largest such norm, and it is equal if it is exact for what is really released.
"""

import numpy as np

from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.participation import Participation

# Patterns to start from, and steps from each; a few steps are enough.
_MOST_STARTS = 32
_MOST_STEPS = 50


def worst_pattern(matrix: np.ndarray, participation: Participation) -> np.ndarray:
    """An admitted pattern with signs, for which the norm of `C u` is as large as was found.

    The square of the norm is convex in u. So the pattern that is best for its slope at some u is at
    least as good as u, and is found exactly by dynamic programming. This is repeated until nothing
    changes, from several evenly spaced patterns. The result is a local maximum: a lower bound of
    the sensitivity.

    Args:
      matrix: what is released of a sequence of updates, C, [any, rounds of the schema].
      participation: the schema.

    Returns:
      u: 1 or -1 in the rounds of the pattern and 0 in others, float64 [rounds].
    """
    gram = matrix.T @ matrix
    best, largest = np.zeros(participation.rounds), -1.0
    for u in _starts(participation):
        value = float(u @ gram @ u)
        for _ in range(_MOST_STEPS):
            following = _best_for_slope(gram @ u, participation)
            increased = float(following @ gram @ following)
            if increased <= value * (1 + 1e-12):
                break
            u, value = following, increased
        if value > largest * (1 + 1e-12):
            best, largest = u, value
    return best


def _starts(participation: Participation) -> list[np.ndarray]:
    """Evenly spaced patterns from different first rounds, with equal and with alternating signs."""
    rounds, separation = participation.rounds, participation.min_separation
    firsts = np.unique(np.linspace(0, rounds - 1, min(rounds, _MOST_STARTS)).astype(int))
    starts = []
    for first in firsts:
        chosen = np.arange(first, rounds, separation)[: participation.count]
        for sign in (1.0, -1.0):
            u = np.zeros(rounds)
            u[chosen] = sign ** np.arange(chosen.size)
            starts.append(u)
    return starts


def _best_for_slope(slope: np.ndarray, participation: Participation) -> np.ndarray:
    """The admitted pattern with signs of the largest product with `slope`."""
    weights = np.broadcast_to(np.abs(slope), (participation.count, slope.size))
    _, pattern = matrix_sensitivity.heaviest_by_position(weights, participation.min_separation)
    u = np.zeros(slope.size)
    u[pattern] = np.where(slope[pattern] < 0, -1.0, 1.0)
    return u
