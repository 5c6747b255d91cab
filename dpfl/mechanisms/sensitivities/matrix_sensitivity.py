"""Sensitivity of any strategy matrix, from its Gram matrix.

A client's updates u_i, one for each round i of an admitted pattern, are vectors of norm at most 1.
With the Gram matrix `G = C^T C`

    ||C u||_F^2 = sum_{i,j} G_ij <u_i, u_j> <= sum_{i,j} |G_ij|,   i, j in the pattern,

for entries of any sign ([McMahan24], section 3.1). This file bounds the right-hand side over all
patterns that a schema admits, by dynamic programming over the rounds.

Where the Gram matrix falls with the rounds, as that of a BLT does, there is a closed form. Let `G =
C^T C`, and for s, m >= 0

    H(s, m) = max |G_ij|  over  i >= s b,  j >= i + m b.

Take any admitted pattern p_0 < p_1 < .. of at most k rounds. Since p_s >= s b and
p_{s+m} - p_s >= m b, and for updates of norm at most 1,

    ||C u||^2  <=  sum_{i,j} |G_ij|  <=  sum_{s<k} H(s, 0) + 2 sum_{s<k} sum_{m=1..k-1-s} H(s, m).

That is the bound, for entries of any sign. The pattern 0, b, 2b, .. is admitted, and attains it if
H(s, m) = G_{sb, sb+mb} for all s and m. This is the case for non-negative matrices whose entries
fall down each column and along each diagonal, C[t+1, j] <= C[t, j] and C[t+1, j+1] <= C[t, j]:
then

    G_{i+1,j+1} = sum_t C[t+1, i+1] C[t+1, j+1]  <=  sum_t C[t, i] C[t, j] = G_ij,
    G_{i,j+1}   = sum_t C[t+1, i] C[t+1, j+1]    <=  sum_t C[t, i] C[t, j] = G_ij.

Toeplitz matrices with non-negative, non-increasing coefficients are the case of [McMahan24],
theorem 3.1. For others the bound is exact wherever the pattern attains it, which is tested.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dpfl import errors
from dpfl.participation import Participation

# Rows of the Gram matrix whose partners are searched at once: limits the memory.
_ROWS_AT_ONCE = 256
# Relative difference that is attributed to rounding.
_ROUNDING = 1e-12
# Most participations: the table of H has the square of it.
MOST_COUNT = 1024


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


def heaviest_pattern(weights: np.ndarray, participation: Participation) -> float:
    """Exact maximum over all admitted patterns of the sum of the weights of their rounds.

    Args:
      weights: non-negative, [at least participation.rounds].

    Raises:
      ArgumentError: if a weight is negative or NaN, or there are fewer weights than rounds.
    """
    weights = np.asarray(weights, dtype=np.float64)[: participation.rounds]
    if weights.size < participation.rounds or not (weights >= 0).all():
        raise errors.ArgumentError(
            'weights', weights, f'must be at least {participation.rounds} numbers, each >= 0'
        )
    *_, best = best_patterns(weights, participation.min_separation, participation.count)
    return float(best[-1])


def evenly_spaced(participation: Participation) -> np.ndarray:
    """The pattern 0, b, 2b, ... with as many rounds as the schema allows, int64 [count]."""
    return np.arange(participation.count) * participation.min_separation


def upper_bound(gram: np.ndarray, participation: Participation) -> Sensitivity:
    """Proven upper bound on the squared sensitivity of any matrix, from its Gram matrix.

    The result is the smallest of several bounds on sum_{i,j} |G_ij| over the pattern:

    - Triangle inequality: the norm of a sum of columns is at most the sum of their norms, so the
      squared weight of the heaviest pattern of column norms is a bound.
    - Partners: split each pair i < j of the pattern, `2 |G_ij|`, between its two rounds: a share
      s to i and 1 - s to j. The p-th round t of a pattern of at most k rounds has at most k - p
      partners after it and p - 1 before it, all separated by b from each other and from t. Let
      R_t(c) and L_t(c) be the heaviest admitted sets of at most c later and earlier partners,
      weighted by |G_tj|. The sum over pairs is then at most the sum of
      `G_tt + 2 s R_t(k - p) + 2 (1 - s) L_t(p - 1)` over the pattern. The maximum of that over all
      patterns is found exactly. It is a bound for any s within [0, 1].

    The bound is exact, for entries of any sign, in these cases:

    - No two rounds at distance b or more have a non-zero G_ij. The columns of a pattern are then
      orthogonal, and the heaviest pattern of squared column norms is the answer.
    - k <= 2: all pairs are tried, and the sign of one of two updates can be chosen.
    - One of the patterns found on the way, or 0, b, 2b, ..., attains the bound.

    It takes at most O(n^2 k) operations.

    Args:
      gram: C^T C, [n, n] with n at least participation.rounds.

    Returns:
      The squared bound, and whether it is exact.
    """
    n, separation, count = participation.rounds, participation.min_separation, participation.count
    gram = np.asarray(gram, dtype=np.float64)[:n, :n]
    squared_norms = np.diag(gram)
    if count == 1:
        return Sensitivity(float(squared_norms.max()), is_exact=True)
    if count == 2:
        worst = squared_norms.max()
        for i in range(n - separation):
            pairs = squared_norms[i + separation :] + 2 * np.abs(gram[i, i + separation :])
            worst = max(worst, squared_norms[i] + pairs.max())
        return Sensitivity(float(worst), is_exact=True)
    before, after = partners(gram, participation)
    if not after.any():
        return Sensitivity(heaviest_pattern(squared_norms, participation), is_exact=True)
    candidates = [evenly_spaced(participation)]
    squared = heaviest_pattern(np.sqrt(squared_norms), participation) ** 2
    for share in (0.0, 0.5, 1.0):
        # Row p - 1 holds for the p-th round of the pattern.
        weights = squared_norms + 2 * share * after[::-1] + 2 * (1 - share) * before
        total, pattern = heaviest_by_position(weights, separation)
        squared = min(squared, total)
        candidates.append(pattern)
    attained = max(gram[np.ix_(pattern, pattern)].sum() for pattern in candidates)
    return Sensitivity(float(squared), is_exact=bool(attained >= squared * (1 - _ROUNDING)))


def of_matrix(matrix: np.ndarray, participation: Participation) -> Sensitivity:
    """`upper_bound` for a strategy matrix C, at least [rounds, rounds] of the schema."""
    block = matrix[: participation.rounds, : participation.rounds]
    return upper_bound(block.T @ block, participation)


def best_patterns(weights: np.ndarray, separation: int, count: int) -> Iterator[np.ndarray]:
    """Yields the largest sums of at most 0, 1, .. `count` separated rounds, by their last round.

    Args:
      weights: non-negative, [..., rounds].

    Yields:
      Entry t is for patterns that end in round t or before, [..., rounds].
    """
    rounds = weights.shape[-1]
    yield np.zeros(weights.shape)
    best = np.maximum.accumulate(weights, axis=-1)
    yield best
    for _ in range(count - 1):
        longer = weights.copy()
        if separation < rounds:
            longer[..., separation:] += best[..., : rounds - separation]
        best = np.maximum.accumulate(longer, axis=-1)
        yield best


def partners(gram: np.ndarray, participation: Participation) -> tuple[np.ndarray, np.ndarray]:
    """L_t(c) and R_t(c) of `upper_bound` for c = 0 .. count - 1, each float64 [count, rounds].

    It stops at a c with which one more round adds nothing. That is safe because the largest total
    is concave in the number of rounds: it is the optimum of a linear program whose constraints (at
    most one of any b consecutive rounds, at most c in all) have the consecutive-ones property, and
    hence integral vertices.

    Args:
      gram: symmetric, [participation.rounds, participation.rounds].
      participation: the schema.
    """
    n, separation, count = participation.rounds, participation.min_separation, participation.count
    before, after = np.zeros((count, n)), np.zeros((count, n))
    for low in range(0, n, _ROWS_AT_ONCE):
        high = min(low + _ROWS_AT_ONCE, n)
        rounds = np.arange(low, high)[:, None]
        # Only the columns where some of these rows have a partner.
        earlier, later = np.arange(max(high - separation, 0)), np.arange(low + separation, n)
        for side, columns, distance in (
            (before, earlier, rounds - earlier),
            (after, later, later - rounds),
        ):
            if columns.size:
                weights = np.abs(gram[low:high, columns[0] : columns[-1] + 1])
                weights[distance < separation] = 0.0
                table = side[:, low:high]
                for c, sums in enumerate(best_patterns(weights, separation, count - 1)):
                    table[c:] = sums[..., -1]
                    if c > 1 and (table[c] <= table[c - 1]).all():
                        break
    return before, after


def heaviest_by_position(weights: np.ndarray, separation: int) -> tuple[float, np.ndarray]:
    """Heaviest pattern if the p-th round of a pattern has the weights weights[p - 1].

    Args:
      weights: non-negative, [count, rounds].

    Returns:
      The largest sum, and a pattern that attains it.
    """
    count, rounds = weights.shape
    ending = np.zeros((count, rounds))  # The p-th round is t.
    for p in range(count):
        ending[p] = weights[p]
        if p:
            ending[p, :separation] = -np.inf
            best = np.maximum.accumulate(ending[p - 1])
            ending[p, separation:] += best[: rounds - separation]
    last = int(ending.max(axis=1).argmax())
    pattern, stop = [], rounds
    for p in range(last, -1, -1):
        pattern.append(int(ending[p, :stop].argmax()))
        stop = pattern[-1] - separation + 1
    return float(ending.max()), np.array(pattern[::-1])


def by_envelope(columns: Iterator[np.ndarray], participation: Participation) -> Sensitivity:
    """The bound of this file.

    Args:
      columns: the upper part of the columns of the Gram matrix in order: the j-th has the entries
        G[0, j] .. G[j, j].
      participation: the schema; its count is at most `MOST_COUNT`.

    Returns:
      The bound; exact if the pattern 0, b, 2b, .. attains it up to rounding.
    """
    separation, count = participation.min_separation, participation.count
    largest = np.zeros((count, count))  # [s, m], over i // b = s and (j - i) // b = m.
    evenly = np.zeros((count, count))
    for j, column in zip(range(participation.rounds), columns, strict=False):
        magnitudes = np.abs(column)
        # Only the diagonal and lags of b and more belong to patterns.
        i = np.append(np.arange(max(j - separation + 1, 0)), j)
        bins = np.minimum(i // separation, count - 1), np.minimum((j - i) // separation, count - 1)
        np.maximum.at(largest, bins, magnitudes[i])
        if j % separation == 0 and j // separation < count:
            place = j // separation
            evenly[: place + 1, place] = column[::separation]
    for axis in (0, 1):
        largest = np.flip(np.maximum.accumulate(np.flip(largest, axis), axis), axis)
    # This leaves H(s, 0) a maximum of squared column norms: |G_ij| is at most the larger of two.
    counted = np.add.outer(np.arange(count), np.arange(count)) < count
    bound = 2 * largest[counted].sum() - largest[:, 0].sum()
    attained = 2 * evenly.sum() - np.trace(evenly)
    exact = attained >= bound * (1 - _ROUNDING)
    return Sensitivity(float(max(bound, attained)), is_exact=bool(exact))
