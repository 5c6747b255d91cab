"""Statistics that tell from a sequence of releases whether a client took part.

A sequence has the released values of one coordinate of an aggregator in all rounds, in clip norms.
If all is as planned it is `u_t + z (C^-1 n)_t` with the client and `z (C^-1 n)_t` without it, for
the noise multiplier z and independent standard normal n.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

# Variance that is added to every direction, as a share of the planned one. It is far above the
# rounding of releases to float32, and far below all noise.
_RIDGE = 1e-9


class Sequences(NamedTuple):
    """Released sequences.

    Attributes:
      present: with the client, float64 [rounds, any].
      absent: without it, float64 [rounds, any].
    """

    present: np.ndarray
    absent: np.ndarray

    def first_half(self) -> 'Sequences':
        """The first half of the trials of either kind."""
        return Sequences(*(trials[:, : trials.shape[1] // 2] for trials in self))

    def second_half(self) -> 'Sequences':
        """The trials that are not in the first half."""
        return Sequences(*(trials[:, trials.shape[1] // 2 :] for trials in self))


def likelihood_ratio(
    sequences: Sequences, matrix: np.ndarray, pattern: np.ndarray, noise_multiplier: float
) -> tuple[np.ndarray, np.ndarray]:
    """The best statistic if all is as planned.

    `C` turns a sequence into `C u + z n`: a normal vector with independent entries. By the lemma of
    Neyman and Pearson the best tests compare its projection on `C u` with a threshold.

    Args:
      sequences: of all trials.
      matrix: C, [rounds, rounds].
      pattern: u, [rounds].
      noise_multiplier: z, above 0.

    Returns:
      The statistics with and without the client, of variance 1 if all is as planned.
    """
    moved = matrix @ pattern
    weights = matrix.T @ moved / (np.linalg.norm(moved) * noise_multiplier)
    return weights @ sequences.present, weights @ sequences.absent


def learned(
    known: Sequences, others: Sequences, matrix: np.ndarray, noise_multiplier: float
) -> tuple[Sequences, Sequences]:
    """The best linear statistic according to some trials, whatever was planned.

    It finds faults that the likelihood ratio of the plan cannot see, such as noise that is used
    twice and cancels in a difference of two rounds. The direction is that of Fisher's discriminant:
    the inverse covariance of the sequences times the difference of their means.

    Args:
      known: trials to learn from.
      others: other trials.
      matrix, noise_multiplier: as for `likelihood_ratio`; they only set the scale of the entries.

    Returns:
      Statistics of both, each [1, any].
    """
    white = [
        Sequences(*(matrix @ trials / noise_multiplier for trials in sequences))
        for sequences in (known, others)
    ]
    means = [trials.mean(axis=1) for trials in white[0]]
    spread = np.hstack(
        [trials - mean[:, None] for trials, mean in zip(white[0], means, strict=True)]
    )
    covariance = spread @ spread.T / spread.shape[1]
    covariance[np.diag_indices_from(covariance)] += _RIDGE
    weights = linalg.solve(covariance, means[0] - means[1], assume_a='pos')
    weights /= max(float(np.linalg.norm(weights)), np.finfo(float).tiny)
    statistics = [
        Sequences(*((weights @ trials)[None] for trials in sequences)) for sequences in white
    ]
    return statistics[0], statistics[1]
