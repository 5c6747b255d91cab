"""Sensitivity of restarted Toeplitz mechanisms: block-diagonal matrices of Toeplitz blocks."""

import numpy as np

from dpfl.mechanisms.sensitivities.common import Sensitivity, best_split
from dpfl.participation import Participation


def sensitivity(
    coefficients: np.ndarray, lengths: tuple[int, ...], participation: Participation
) -> Sensitivity:
    """Exact sensitivity of segments with the same monotone coefficients.

    Within a segment, j participations not before round s contribute most at s, s + b, ...: moving
    one participation and all later ones of the segment a round earlier lowers no column norm
    and no product of two columns (the argument of [McMahan24], theorem 3.1). This choice also
    ends earliest, which leaves the next segment most freedom. So only the number of participations
    of each segment remains to be chosen. Only a full segment, into which no further one fits,
    delays the first participation of the next segment.

    Args:
      coefficients: first column of C, non-negative and non-increasing, [at least the length of
        the longest segment].
      lengths: number of rounds of each segment.
      participation: the schema over all rounds.
    """
    b, k = participation.min_separation, participation.count
    # Key: the earliest round of the next participation, counted from the start of the segment.
    # Value: the largest squared norm so far for each number of participations; -inf if impossible.
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
      first: round of the first participation, possibly beyond the last round.
      separation: b.
      count: largest number of participations.

    Returns:
      float64 [1 + number of participations that fit, at most 1 + count].
    """
    rounds = coefficients.size
    released = np.zeros(rounds)
    squared = [0.0]
    for place in range(first, rounds, separation)[:count]:
        released[place:] += coefficients[: rounds - place]
        squared.append(float(released @ released))
    return np.array(squared)


def _keep(states: dict[int, np.ndarray], first: int, values: np.ndarray) -> None:
    """Raises the entries of `states[first]` to the values that are larger."""
    known = states.get(first, np.zeros(0))
    larger = np.full(max(known.size, values.size), -np.inf)
    larger[: known.size] = known
    larger[: values.size] = np.maximum(larger[: values.size], values)
    states[first] = larger
