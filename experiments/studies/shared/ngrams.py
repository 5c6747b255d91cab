"""N-grams of two samples of sequences: in how many sequences each occurs, and how often (NumPy).

Sequences are independent draws; the n-grams of one sequence are not. So shares are those of the
sequences that have an n-gram, and differences of them have exact draws to count. The same code
serves words of sentences and bytes of words.

Distances of two distributions from samples, with the distance that chance alone makes (NumPy).

The distance of two finite samples is never 0, and it grows with the number of possible outcomes. So
each distance comes with its noise floor: the sequences of both samples are pooled and split at
random into samples of the same sizes, again and again. The share of splits with a distance at least
as large is the p-value of a permutation test, which is exact for any sizes (Fisher 1935; with one
added above and below, Phipson and Smyth 2010, Statistical Applications in Genetics and Molecular
Biology 9).
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from dpfl import _random, _validate, errors
from dpfl.debugging import differences
from dpfl.debugging.differences import Difference, Share


@dataclasses.dataclass(frozen=True)
class Alphabet:
    """The tokens of sequences, as a model draws them.

    Attributes:
      num_tokens: number of token ids.
      begin, end, pad: ids of the special tokens. A sequence has no begin token; after the end token
        there is padding only.
    """

    num_tokens: int
    begin: int
    end: int
    pad: int


@dataclasses.dataclass(frozen=True)
class NGrams:
    """The n-grams of two samples.

    Attributes:
      grams: the different n-grams, token ids int64 [G, n], in the order of their ids.
      which: number of the n-gram at each place, int64 [P], first sample first.
      sequence: number of the sequence of each place, int64 [P], counted over both samples.
      sizes: numbers of sequences of the two samples.
    """

    grams: np.ndarray
    which: np.ndarray
    sequence: np.ndarray
    sizes: tuple[int, int]

    def occurrences(self, is_first: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """How often each n-gram occurs in the two samples, int64 [G] each.

        Args:
          is_first: whether a sequence counts for the first sample, bool [sequences]; by default
            as it is.
        """
        if is_first is None:
            is_first = np.arange(sum(self.sizes)) < self.sizes[0]
        first = np.bincount(self.which[is_first[self.sequence]], minlength=len(self.grams))
        return first, np.bincount(self.which, minlength=len(self.grams)) - first

    def sequences(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of sequences of the two samples that have each n-gram, int64 [G] each."""
        total = sum(self.sizes)
        distinct = np.unique(self.which * total + self.sequence)
        which, is_first = distinct // total, distinct % total < self.sizes[0]
        first = np.bincount(which[is_first], minlength=len(self.grams))
        return first, np.bincount(which, minlength=len(self.grams)) - first


@dataclasses.dataclass(frozen=True)
class GramDifference:
    """How the share of sequences that have an n-gram differs.

    Attributes:
      gram: token ids of the n-gram, begin and end of a sequence included.
      first, second: the shares in the two samples.
      difference: their difference, with interval and p-values.
    """

    gram: tuple[int, ...]
    first: Share
    second: Share
    difference: Difference


def ngrams(first: np.ndarray, second: np.ndarray, order: int, alphabet: Alphabet) -> NGrams:
    """The n-grams of two samples of sequences.

    Pairs and longer n-grams include the begin and the end of a sequence as tokens; single tokens
    do not. A sequence that was cut has no end.

    Args:
      first, second: token ids, integers [N, L] and [M, L'], as `generation.Samples.tokens`.
      order: n, the number of tokens of an n-gram, at least 1.
      alphabet: the tokens.

    Raises:
      ArgumentError: if there are no sequences, or too many token ids for this order.
    """
    _validate.integer('order', order, minimum=1)
    sizes = len(first), len(second)
    if not min(sizes):
        raise errors.ArgumentError('samples', 0, 'must be at least one sequence each')
    if alphabet.num_tokens**order > 2**62:
        raise errors.ArgumentError('order', order, 'must be smaller for so many token ids')
    ids, sequences = zip(*(_places(each, order, alphabet) for each in (first, second)), strict=True)
    distinct, which = np.unique(np.concatenate(ids), return_inverse=True)
    tokens = np.empty((len(distinct), order), np.int64)
    for position in range(order - 1, -1, -1):
        distinct, tokens[:, position] = np.divmod(distinct, alphabet.num_tokens)
    return NGrams(tokens, which, np.concatenate([sequences[0], sequences[1] + sizes[0]]), sizes)


def compare(
    found: NGrams,
    *,
    least: int,
    between: Callable[[np.ndarray], np.ndarray] = np.zeros_like,
) -> tuple[GramDifference, ...]:
    """Differences of the shares of sequences with each n-gram, the largest differences first.

    Holm's correction is over all n-grams that at least `least` sequences of both samples together
    have. The total says nothing about which sample has them, so choosing by it is no peeking.

    Args:
      found: the n-grams of both samples.
      least: number of sequences that must have an n-gram, at least 1.
      between: standard deviations of the difference of two trainings, given the pooled shares.
    """
    _validate.integer('least', least, minimum=1)
    first, second = found.sequences()
    common = np.flatnonzero(first + second >= least)
    allowed = between((first + second)[common] / sum(found.sizes))
    hits, other = first[common], second[common]
    low, high = differences.newcombe(hits, found.sizes[0], other, found.sizes[1], between=allowed)
    p_values = differences.share_p_values(
        hits, found.sizes[0], other, found.sizes[1], between=allowed
    )
    adjusted = differences.holm(p_values)
    shares = hits / found.sizes[0], other / found.sizes[1]
    order = np.lexsort((p_values, -np.abs(shares[0] - shares[1])))
    return tuple(
        GramDifference(
            tuple(found.grams[common[i]].tolist()),
            Share(int(hits[i]), found.sizes[0]),
            Share(int(other[i]), found.sizes[1]),
            Difference(
                'share of sequences',
                float(shares[0][i]),
                float(shares[1][i]),
                float(low[i]),
                float(high[i]),
                float(allowed[i]),
                float(p_values[i]),
                float(adjusted[i]),
            ),
        )
        for i in order.tolist()
    )


def _places(tokens: np.ndarray, order: int, alphabet: Alphabet) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the n-grams at all places of a sample, and the sequence of each; int64 [P] each."""
    rows = np.asarray(tokens, np.int64)
    if order == 1:
        counts = (rows != alphabet.pad) & (rows != alphabet.end)
        return rows[counts], np.nonzero(counts)[0]
    begin = np.full((len(rows), 1), alphabet.begin, np.int64)
    rows = np.concatenate([begin, rows], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(rows, order, axis=1)
    ids = np.zeros(windows.shape[:2], np.int64)
    for position in range(order):
        ids = ids * alphabet.num_tokens + windows[:, :, position]
    counts = windows[:, :, -1] != alphabet.pad
    return ids[counts], np.nonzero(counts)[0]


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
