"""Sensitivity of the patterns that really occurred: the clients' rounds in a participation log.

Let a client have updates u_i of norm at most 1 in the rounds i of its pattern, and let G be the
Gram matrix of what is released. Then `||C u||_F^2 <= sum_{i,j} |G_ij|` over all pairs of the
pattern (see `matrix_sensitivity`). The largest such sum over the clients of a log is at most the
sensitivity of any schema that the log satisfies, and needs no theorem about patterns. A client
that is listed m times in a round has m updates in it.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from dpfl import _validate
from dpfl.mechanisms import rounding
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.sensitivities.common import Sensitivity
from dpfl.participation import ParticipationLog

# Most entries of the Gram matrix, and of other arrays, in memory at once.
_GRAM_ENTRIES = 2**25
_ENTRIES = 2**22
# A matrix whose share of non-zero entries is smaller is multiplied as a sparse matrix.
_SPARSE = 0.02
_ROUNDING = 1e-12


def of_log(mechanism: Mechanism, log: ParticipationLog) -> Sensitivity:
    """Largest squared norm of `C u` over the clients of the log, for clip norm 1.

    The result is exact if G has no negative entry between the rounds of the worst client, or if
    the signs of its updates can be chosen so that all of its pairs add up. Otherwise it is an
    upper bound.

    For n rounds it takes at most O(n^2) memory, in blocks of rows of the Gram matrix, and time
    linear in the number of listings for patterns of bounded length.

    Args:
      mechanism: the mechanism of the run, with at least as many rounds as the log.
      log: a log with at least one client.

    Returns:
      The squared sensitivity, and whether it is exact.

    Raises:
      ValueError: if the log has no client.
      ArgumentError: if the log has more rounds than the mechanism.
    """
    if not log.cohort_sizes.any():
        raise ValueError('the participation log holds no client')
    _validate.integer('rounds', log.rounds, minimum=1, maximum=mechanism.rounds)
    groups = [patterns for _, patterns in log.by_client().patterns()]
    sums = [np.zeros(len(patterns)) for patterns in groups]
    exact = True
    for low, gram in _gram_blocks(mechanism, log.rounds):
        exact = exact and bool((gram >= 0).all())
        weights = 2 * np.abs(gram)
        block = np.arange(len(gram))
        weights[block, low + block] /= 2
        for total, patterns in zip(sums, groups, strict=True):
            _add_sums(total, patterns, weights, low)
    worst = max(range(len(sums)), key=lambda group: sums[group].max())
    client = int(sums[worst].argmax())
    if not exact:
        pattern = np.unique(groups[worst][client])
        exact = _signs_agree(_columns(mechanism, log.rounds, pattern))
    if log.rounds < mechanism.rounds and not mechanism.shortens:
        exact = False  # What is counted for a run that stops early may be more than it releases.
    squared = float(sums[worst][client])
    if not mechanism.is_counted():
        squared = rounding.sum_up(squared, 4 * log.rounds)
    return Sensitivity(squared, is_exact=exact)


def _add_sums(total: np.ndarray, patterns: np.ndarray, weights: np.ndarray, low: int) -> None:
    """Adds each pattern's sum of weights[i - low, j] over its rounds i of the block and all its j.

    Args:
      total: sums so far, changed in place, [m].
      patterns: rounds of the patterns, [m, k].
      weights: block of rows, [rows, rounds], zero left of the diagonal.
      low: round of the first row.
    """
    rows, rounds = weights.shape
    count = patterns.shape[1]
    # Looking up one pair costs about as much as 32 multiplications in a matrix product.
    by_pairs = count**2 < 32 * rounds
    step = max(1, _ENTRIES // (count**2 if by_pairs else rounds))
    for first in range(0, len(patterns), step):
        part = patterns[first : first + step]
        if by_pairs:
            client, place = np.nonzero((part >= low) & (part < low + rows))
            pairs = weights[part[client, place, None] - low, part[client]].sum(axis=1)
            total[first : first + step] += np.bincount(client, pairs, minlength=len(part))
        else:
            listed = np.zeros((len(part), rounds))
            np.add.at(listed, (np.arange(len(part))[:, None], part), 1.0)
            product = listed[:, low : low + rows] @ weights
            total[first : first + step] += np.einsum('mj,mj->m', product, listed)


def _gram_blocks(mechanism: Mechanism, rounds: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields blocks of rows of the upper triangle of G = M^T M, for the first `rounds` rounds.

    Each item is the round of the first row, and the rows, float64 [rows, rounds], zero left of the
    diagonal.
    """
    step = max(1, _GRAM_ENTRIES // rounds)
    coefficients = mechanism.toeplitz_column(rounds)
    if coefficients is not None:
        yield from _toeplitz_blocks(coefficients, step)
        return
    matrix = mechanism.released_until(rounds)
    few = np.count_nonzero(matrix) < _SPARSE * matrix.size
    factor = sparse.csc_matrix(matrix) if few else matrix
    for low in range(0, rounds, step):
        # A lower-triangular matrix is zero above row `low` in these columns.
        top = 0 if matrix[:low, low:].any() else low
        left, right = factor[top:, low : low + step], factor[top:, low:]
        product = left.T @ right
        gram = np.zeros((product.shape[0], rounds))
        gram[:, low:] = product.toarray() if few else product
        yield low, np.triu(gram, low)


def _toeplitz_blocks(coefficients: np.ndarray, step: int) -> Iterator[tuple[int, np.ndarray]]:
    """`_gram_blocks` of a lower-triangular Toeplitz matrix with first column `coefficients` [n].

    Along each diagonal, G[i, j] = G[i + 1, j + 1] + c_{n-1-i} c_{n-1-j}. Starting from the last
    row, every entry takes one addition.
    """
    n = coefficients.size
    mirrored = coefficients[::-1]
    row = np.zeros(n + 1)
    for end in range(n, 0, -step):
        low = max(end - step, 0)
        gram = np.zeros((end - low, n))
        for i in range(end - 1, low - 1, -1):
            gram[i - low, i:] = row[i + 1 :] + mirrored[i] * mirrored[i:]
            row[i:n] = gram[i - low, i:]
        yield low, gram


def _columns(mechanism: Mechanism, rounds: int, pattern: np.ndarray) -> np.ndarray:
    """Columns of what is released in the rounds of the pattern, float64 [any, k]."""
    coefficients = mechanism.toeplitz_column(rounds)
    if coefficients is None:
        return mechanism.released_until(rounds)[:, pattern]
    lag = np.arange(rounds)[:, None] - pattern
    return np.where(lag >= 0, coefficients[np.maximum(lag, 0)], 0.0)


def _signs_agree(columns: np.ndarray) -> bool:
    """Whether some updates +-v in the rounds of a pattern make every pair contribute |G_ij|.

    Rounds with G_ij != 0 are linked. In each set of linked rounds one sign can be chosen freely,
    and the signs of G_ij determine the others. Either these agree with all pairs, or no signs do.

    Args:
      columns: columns of the released matrix in the rounds of the pattern, [any, k].
    """
    gram = columns.T @ columns
    norms = np.sqrt(np.diag(gram))
    links = np.where(np.abs(gram) > _ROUNDING * np.outer(norms, norms), np.sign(gram), 0.0)
    signs = np.zeros(len(links))
    for start in range(len(links)):
        if signs[start]:
            continue
        signs[start], reached = 1.0, [start]
        while reached:
            i = reached.pop()
            new = np.flatnonzero((links[i] != 0) & (signs == 0))
            signs[new] = signs[i] * links[i, new]
            reached.extend(new.tolist())
    return bool((links * np.outer(signs, signs) >= 0).all())
