"""Sensitivity of Toeplitz mechanisms that start afresh: block-diagonal Toeplitz matrices."""

import numpy as np

from dpfl.mechanisms.sensitivities.common import Sensitivity, best_split
from dpfl.participation import Participation


def sensitivity(
    coefficients: np.ndarray, lengths: tuple[int, ...], participation: Participation
) -> Sensitivity:
    """Exact sensitivity of segments with the same monotone coefficients.

    Within a segment, j participations not before round s do most at s, s + b, ...: moving one and
    all that follow it a round ahead adds to each column and to each product of two columns (the
    argument of document 002, theorem 3.1). They also end earliest there, which leaves the next
    segment most freedom. So only how many participations each segment has remains to be chosen,
    and only as many as fit into a segment delay the first one of the next.

    Args:
      coefficients: non-negative and non-increasing, [at least the longest segment].
      lengths: rounds of the segments.
      participation: over all rounds.
    """
    b, k = participation.min_separation, participation.count
    # By the earliest round of the next participation, counted from the start of the segment: the
    # largest squared norm so far for each number of participations; -inf where it cannot be.
    states = {0: np.zeros(1)}
    for length in lengths:
        following: dict[int, np.ndarray] = {}
        for first, values in states.items():
            inside = _evenly_spaced(coefficients[:length], first, b, k)
            fit = inside.size - 1
            end = first + fit * b - length
            if end > 0:
                full = np.append(np.full(fit, -np.inf), values + inside[-1])
                _keep(following, end, full[: k + 1])
                inside = inside[:-1]
            if inside.size:
                _keep(following, 0, best_split(values, inside, k))
        states = following
    best = max(values.max() for values in states.values())
    return Sensitivity(float(best), is_exact=True)


def _evenly_spaced(coefficients: np.ndarray, first: int, separation: int, count: int) -> np.ndarray:
    """Squared norm of `C u` for 0, 1, .. participations at first, first + separation, ...

    Args:
      coefficients: first column of C, [rounds].
      first: the earliest round, possibly beyond the last.
      separation: b.
      count: most participations.

    Returns:
      float64 [1 + as many participations as fit, at most count].
    """
    rounds = coefficients.size
    released = np.zeros(rounds)
    squared = [0.0]
    for place in range(first, rounds, separation)[:count]:
        released[place:] += coefficients[: rounds - place]
        squared.append(float(released @ released))
    return np.array(squared)


def _keep(states: dict[int, np.ndarray], first: int, values: np.ndarray) -> None:
    """Enters values into `states[first]`, entry by entry where they are larger."""
    known = states.get(first, np.zeros(0))
    larger = np.full(max(known.size, values.size), -np.inf)
    larger[: known.size] = known
    larger[: values.size] = np.maximum(larger[: values.size], values)
    states[first] = larger
