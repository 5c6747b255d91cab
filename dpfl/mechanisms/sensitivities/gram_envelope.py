"""Sensitivity of matrices whose Gram matrix falls with the rounds, as that of a BLT does.

Let `G = C^T C`, and for s, m >= 0

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

import numpy as np

from dpfl.mechanisms.sensitivities.common import Sensitivity
from dpfl.participation import Participation

# Most participations: the table of H has the square of it.
MOST_COUNT = 1024
# Relative difference that is attributed to rounding.
_ROUNDING = 1e-12


def sensitivity(columns: Iterator[np.ndarray], participation: Participation) -> Sensitivity:
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
