"""The participation pattern of a client that is the easiest to detect.

A client with updates `u_t v`, for a unit vector v and u_t = +-1 in the rounds of an admitted
pattern, moves the releases of a mechanism by the norm of `C u`. The sensitivity is at least the
largest such norm, and it is equal if it is exact for the actual releases.
"""

from collections.abc import Iterator

import numpy as np

from dpfl import _random
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.participation import Participation

# Patterns to start from: fewer if a step takes long. A few steps from each are enough.
_STARTS = (4, 64)
_ENTRIES = 2**23
_MOST_STEPS = 50
_ROUNDING = 1e-12


def worst_pattern(matrix: np.ndarray, participation: Participation) -> np.ndarray:
    """An admitted pattern with signs, for which the norm of `C u` is as large as was found.

    The square of the norm is convex in u. So the pattern that is best for its slope at some u is at
    least as good as u, and is found exactly by dynamic programming. Then single participations move
    to better places. Both are repeated until nothing improves, from many patterns. The
    result is a local maximum: a lower bound of the sensitivity.

    Args:
      matrix: C, which maps a sequence of updates to the releases, [any, rounds of the schema].
      participation: the schema.

    Returns:
      u: 1 or -1 in the rounds of the pattern and 0 in others, float64 [rounds].
    """
    gram = matrix.T @ matrix
    best, largest = np.zeros(participation.rounds), -1.0
    for start in _starts(participation):
        u = start
        for _ in range(_MOST_STEPS):
            following = _moved(gram, _best_for_slope(gram @ u, participation), participation)
            if _squared(gram, following) <= _squared(gram, u) * (1 + _ROUNDING):
                break
            u = following
        if _squared(gram, u) > largest * (1 + _ROUNDING):
            best, largest = u, _squared(gram, u)
    return best


def _squared(gram: np.ndarray, u: np.ndarray) -> float:
    """The squared norm of `C u`."""
    return float(u @ gram @ u)


def _moved(gram: np.ndarray, u: np.ndarray, participation: Participation) -> np.ndarray:
    """The pattern after each participation, in turn, has moved to its best place between others."""
    u = u.copy()
    places = np.flatnonzero(u)
    for i, place in enumerate(places):
        low = places[i - 1] + participation.min_separation if i else 0
        end = participation.rounds
        if i + 1 < places.size:
            end = places[i + 1] - participation.min_separation + 1
        u[place] = 0.0
        slope = gram[low:end] @ u
        new = int(np.argmax(np.diag(gram)[low:end] + 2 * np.abs(slope)))
        places[i] = low + new
        u[places[i]] = -1.0 if slope[new] < 0 else 1.0
    return u


def _starts(participation: Participation) -> Iterator[np.ndarray]:
    """The patterns 0, b, 2b, .. and random ones, with equal, alternating or random signs."""
    rounds, separation, most = (
        participation.rounds,
        participation.min_separation,
        participation.count,
    )
    rng = _random.generator('worst pattern', rounds, separation, most)
    for start in range(int(np.clip(_ENTRIES // (rounds * (rounds + 20 * most)), *_STARTS))):
        count = most if start < 2 else int(rng.integers(1, most + 1))
        slack = rounds - 1 - (count - 1) * separation
        # The rounds, less the separations before them.
        places = np.zeros(count, int) if start < 2 else np.sort(rng.integers(0, slack + 1, count))
        signs = (-1.0) ** (start * np.arange(count)) if start % 3 else rng.choice([-1, 1], count)
        u = np.zeros(rounds)
        u[places + separation * np.arange(count)] = 1.0 if start == 0 else signs
        yield u


def _best_for_slope(slope: np.ndarray, participation: Participation) -> np.ndarray:
    """The admitted pattern with signs of the largest product with `slope`."""
    weights = np.broadcast_to(np.abs(slope), (participation.count, slope.size))
    _, pattern = matrix_sensitivity.heaviest_by_position(weights, participation.min_separation)
    u = np.zeros(slope.size)
    u[pattern] = np.where(slope[pattern] < 0, -1.0, 1.0)
    return u
