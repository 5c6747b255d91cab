"""Distances of two distributions from samples, with the distance that chance alone makes (NumPy).

The distance of two finite samples is never 0, and it grows with the number of possible outcomes. So
each distance comes with its noise floor: the sequences of both samples are pooled and split at
random into samples of the same sizes, again and again. The share of splits with a distance at least
as large is the p-value of a permutation test, which is exact for any sizes (Fisher 1935; with one
added above and below, Phipson and Smyth 2010, Statistical Applications in Genetics and Molecular
Biology 9).
"""

import dataclasses

import numpy as np

from dpfl import _random, _validate
from dpfl.debugging.text.ngrams import NGrams


@dataclasses.dataclass(frozen=True)
class Distance:
    """How far two distributions are apart.

    Attributes:
      total_variation: half the sum of the absolute differences, within [0, 1].
      divergence: Jensen-Shannon divergence in bits, within [0, 1].
      floor: mean total variation of random splits of the pooled sequences.
      divergence_floor: mean divergence of these splits.
      p_value: of equal distributions, by the divergence.
      splits: number of splits.
    """

    total_variation: float
    divergence: float
    floor: float
    divergence_floor: float
    p_value: float
    splits: int


def total_variation(first: np.ndarray, second: np.ndarray) -> float:
    """Total variation of two distributions given by counts [G]; 0 if a sample is empty."""
    if not min(first.sum(), second.sum()):
        return 0.0
    return float(np.abs(first / first.sum() - second / second.sum()).sum() / 2)


def divergence(first: np.ndarray, second: np.ndarray) -> float:
    """Jensen-Shannon divergence in bits of two distributions given by counts [G].

    It is the mean of the two Kullback-Leibler divergences from the average of the distributions
    (Lin 1991, IEEE Transactions on Information Theory 37); 0 if a sample is empty.
    """
    if not min(first.sum(), second.sum()):
        return 0.0
    p, q = first / first.sum(), second / second.sum()
    middle = (p + q) / 2
    return float(max((_information(p, middle) + _information(q, middle)) / 2, 0.0))


def distance(found: NGrams, splits: int, seed: int) -> Distance:
    """The distance of the n-grams of two samples, and its noise floor.

    Args:
      found: the n-grams.
      splits: number of random splits, at least 1.
      seed: seed of the splits.
    """
    _validate.integer('splits', splits, minimum=1)
    first, second = found.occurrences()
    is_first = np.arange(sum(found.sizes)) < found.sizes[0]
    rng = _random.generator('debugging.splits', _random.check_seed('seed', seed))
    by_chance = np.empty((splits, 2))
    for split in range(splits):
        counts = found.occurrences(rng.permutation(is_first))
        by_chance[split] = total_variation(*counts), divergence(*counts)
    far = divergence(first, second)
    # Splits that only rounding tells apart from the samples are as far.
    as_far = int((by_chance[:, 1] >= far - 1e-12).sum())
    return Distance(
        total_variation=total_variation(first, second),
        divergence=far,
        floor=float(by_chance[:, 0].mean()),
        divergence_floor=float(by_chance[:, 1].mean()),
        p_value=(1 + as_far) / (1 + splits),
        splits=splits,
    )


def _information(p: np.ndarray, q: np.ndarray) -> float:
    """Kullback-Leibler divergence in bits; q is positive where p is."""
    some = p > 0
    return float((p[some] * np.log2(p[some] / q[some])).sum())
