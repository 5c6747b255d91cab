"""Words that one generator writes more often than another, with intervals (NumPy only)."""

from collections.abc import Sequence

import numpy as np

from dpfl import _validate
from dpfl.debugging import differences
from dpfl.debugging.differences import Difference
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID

# Deviation by which the log odds of the share of a word differ from training to training.
SPREAD = 0.4
# Smaller differences of shares of sentences are not shown.
LEAST = 0.002


def compare(
    first: np.ndarray,
    second: np.ndarray,
    vocabulary: Sequence[str],
    *,
    alpha: float,
    top: int,
    level: float = 0.95,
) -> tuple[Difference, ...]:
    """The words whose shares of sentences differ most, among those that differ clearly.

    Args:
      first, second: token ids of sentences of two generators, [N, L] and [M, L].
      vocabulary: words by token id, from NUM_SPECIAL_TOKENS on. UNK stands for all others.
      alpha: bound of the adjusted p-values, by Holm over all words.
      top: number of words at most.
      level: level of each interval.

    Returns:
      Differences of the shares of sentences with a word, the largest first.
    """
    _validate.integer('top', top, minimum=1)
    counts, others = (_sentences_with(tokens, len(vocabulary)) for tokens in (first, second))
    sizes = len(first), len(second)
    shares = counts / max(sizes[0], 1), others / max(sizes[1], 1)
    middle = (shares[0] + shares[1]) / 2
    between = SPREAD * middle * (1 - middle)
    p_values = differences.share_p_values(counts, sizes[0], others, sizes[1], between=between)
    adjusted = differences.holm(p_values)
    low, high = differences.newcombe(
        counts, sizes[0], others, sizes[1], between=between, level=level
    )
    sizes_of = np.abs(shares[0] - shares[1])
    clear = np.flatnonzero((adjusted <= alpha) & (sizes_of >= LEAST))
    names = ('UNK', *vocabulary)
    return tuple(
        Difference(
            names[i],
            float(shares[0][i]),
            float(shares[1][i]),
            float(low[i]),
            float(high[i]),
            float(between[i]),
            float(p_values[i]),
            float(adjusted[i]),
        )
        for i in clear[np.argsort(-sizes_of[clear], kind='stable')][:top]
    )


def _sentences_with(tokens: np.ndarray, num_words: int) -> np.ndarray:
    """Number of sentences with each word, int64 [1 + words]; the first is for unknown words."""
    rows = np.sort(np.asarray(tokens), axis=1)
    is_first = np.ones(rows.shape, bool)
    is_first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    found = np.bincount(rows[is_first], minlength=NUM_SPECIAL_TOKENS + num_words)
    return found[OOV_ID:]
