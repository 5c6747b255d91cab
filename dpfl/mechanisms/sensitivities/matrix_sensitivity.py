"""Sensitivity of strategy matrices for which no closed theorem holds.

A client's updates u_i, one for each round i of an admitted pattern, are vectors of norm at most 1.
With the Gram matrix `G = C^T C`

    ||C u||_F^2 = sum_{i,j} G_ij <u_i, u_j> <= sum_{i,j} |G_ij|,   i, j in the pattern,

for entries of any sign (document 002, section 3.1). Everything here bounds the right-hand side
over all patterns that a schema admits, by dynamic programmes over the rounds.
"""

import numpy as np

from dpfl import errors
from dpfl.mechanisms.sensitivities.common import Sensitivity
from dpfl.participation import Participation

# Rows of the Gram matrix whose partners are searched at one time: bounds the memory.
_ROWS_AT_ONCE = 256
_ROUNDING = 1e-12


def heaviest_pattern(weights: np.ndarray, participation: Participation) -> float:
    """Largest sum of the weights of the rounds of a pattern, over all admitted patterns; exact.

    Args:
      weights: non-negative, [at least participation.rounds].

    Raises:
      ValueError: if a weight is negative or NaN, or there are fewer weights than rounds.
    """
    weights = np.asarray(weights, dtype=np.float64)[: participation.rounds]
    if weights.size < participation.rounds or not (weights >= 0).all():
        raise errors.ArgumentError(
            'weights', weights, f'must be at least {participation.rounds} numbers, each >= 0'
        )
    *_, heaviest = _totals(weights, participation.min_separation, participation.count)
    return float(heaviest)


def evenly_spaced(participation: Participation) -> np.ndarray:
    """The pattern 0, b, 2b, ... with as many rounds as the schema allows, int64 [count]."""
    return np.arange(participation.count) * participation.min_separation


def lower_bound(matrix: np.ndarray, participation: Participation) -> float:
    """Norm of `C u` for equal updates in the rounds 0, b, 2b, ... (document 002, remark 3.2).

    For planning only: the sensitivity may be larger, so no guarantee may rest on it.

    Args:
      matrix: C, [at least participation.rounds, at least participation.rounds].
    """
    rounds = participation.rounds
    return float(np.linalg.norm(matrix[:rounds, evenly_spaced(participation)].sum(axis=1)))


def upper_bound(gram: np.ndarray, participation: Participation) -> Sensitivity:
    """Proven upper bound on the squared sensitivity of any matrix, from its Gram matrix.

    It is the smallest of these, each of them a bound on sum_{i,j} |G_ij| over the pattern:

    - Triangle inequality: the norm of a sum of columns is at most the sum of their norms, so the
      heaviest pattern of column norms, squared, is one.
    - Partners: share out each pair i < j of the pattern, `2 |G_ij|`, between its two rounds: a
      part s to i and 1 - s to j. The p-th round t of a pattern of at most k has at most k - p
      partners after it and p - 1 before it, all separated by b from each other and from t. Let
      R_t(c) and L_t(c) be the heaviest admitted set of at most c of them, weighted by |G_tj|.
      The sum is then at most that of `G_tt + 2 s R_t(k - p) + 2 (1 - s) L_t(p - 1)` over the
      pattern, whose maximum over all patterns is found exactly. Any s within [0, 1] will do.

    It is exact, for entries of any sign, where no two rounds at distance b or more have a non-zero
    G_ij (columns orthogonal: the heaviest pattern of squared column norms), where k <= 2 (all
    pairs are tried; with two updates the sign of one can be chosen), and where a pattern that was
    met on the way, or 0, b, 2b, ..., attains the bound.

    Takes O(n^2 k) operations at worst.

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
        return Sensitivity(_heaviest_pair(gram, separation), is_exact=True)
    before, after = _partners(gram, separation, count)
    if not after.any():
        return Sensitivity(heaviest_pattern(squared_norms, participation), is_exact=True)
    candidates = [evenly_spaced(participation)]
    squared = heaviest_pattern(np.sqrt(squared_norms), participation) ** 2
    for share in (0.0, 0.5, 1.0):
        # Row p - 1 holds for the p-th round of the pattern.
        weights = squared_norms + 2 * share * after[::-1] + 2 * (1 - share) * before
        total, pattern = _heaviest_by_position(weights, separation)
        squared = min(squared, total)
        candidates.append(pattern)
    attained = max(gram[np.ix_(pattern, pattern)].sum() for pattern in candidates)
    return Sensitivity(float(squared), is_exact=bool(attained >= squared * (1 - _ROUNDING)))


def of_matrix(matrix: np.ndarray, participation: Participation) -> Sensitivity:
    """`upper_bound` of a strategy matrix C, [at least rounds, at least rounds] of the schema."""
    block = matrix[: participation.rounds, : participation.rounds]
    return upper_bound(block.T @ block, participation)


def _totals(weights: np.ndarray, separation: int, count: int):
    """Yields the heaviest sums of at most 0, 1, .. `count` separated rounds, each of shape [...].

    Args:
      weights: non-negative, [..., rounds].
    """
    rounds = weights.shape[-1]
    yield np.zeros(weights.shape[:-1])
    # best[t]: heaviest pattern of at most so many rounds that ends at t or before.
    best = np.maximum.accumulate(weights, axis=-1)
    yield best[..., -1]
    for _ in range(count - 1):
        longer = weights.copy()
        if separation < rounds:
            longer[..., separation:] += best[..., : rounds - separation]
        best = np.maximum.accumulate(longer, axis=-1)
        yield best[..., -1]


def _heaviest_pair(gram: np.ndarray, separation: int) -> float:
    """Largest sum_{i,j} |G_ij| over all patterns of one round or two."""
    squared_norms = np.diag(gram)
    worst = squared_norms.max()
    for i in range(gram.shape[0] - separation):
        pairs = squared_norms[i + separation :] + 2 * np.abs(gram[i, i + separation :])
        worst = max(worst, squared_norms[i] + pairs.max())
    return float(worst)


def _partners(gram: np.ndarray, separation: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """L_t(c) and R_t(c) of `upper_bound` for c = 0 .. count - 1, each float64 [count, rounds]."""
    n = gram.shape[0]
    before, after = np.zeros((count, n)), np.zeros((count, n))
    rounds = np.arange(n)
    for low in range(0, n, _ROWS_AT_ONCE):
        rows = slice(low, min(low + _ROWS_AT_ONCE, n))
        distance = rounds - rounds[rows, None]
        weights = np.abs(gram[rows])
        for side, allowed in ((before, distance <= -separation), (after, distance >= separation)):
            _fill(side[:, rows], _totals(np.where(allowed, weights, 0.0), separation, count - 1))
    return before, after


def _fill(table: np.ndarray, totals) -> None:
    """Writes the totals into the rows of the table; stops once one more round adds nothing.

    That is safe because the heaviest total is concave in the number of rounds: it is the optimum
    of a linear programme whose constraints (at most one of any b consecutive rounds, at most c in
    all) have the consecutive-ones property, hence integral vertices.
    """
    for c, heaviest in enumerate(totals):
        table[c:] = heaviest
        if c > 1 and (table[c] <= table[c - 1]).all():
            return


def _heaviest_by_position(weights: np.ndarray, separation: int) -> tuple[float, np.ndarray]:
    """Heaviest pattern where the p-th round of a pattern weighs weights[p - 1].

    Args:
      weights: non-negative, [count, rounds].

    Returns:
      The sum, and a pattern that attains it.
    """
    count, rounds = weights.shape
    ending = np.zeros((count, rounds))  # the p-th round is exactly t
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
