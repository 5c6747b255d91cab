"""Exposure: how far a model prefers a secret to the other candidates for it ([Carlini19]).

A secret is a known prefix and n tokens drawn uniformly from an alphabet of K tokens, so there are
K^n candidates. Candidates that score as much as the secret count as better, so no exposure is
overstated. If the model is independent of the secret, P(exposure >= x) <= 2^-x. If the secret is
the data of one client of a run with the guarantee (epsilon, delta), P(exposure >= x) is at most
e^epsilon 2^-x + delta, since the run without that client is independent of the secret.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from dpfl import _validate
from dpfl.errors import NOT_SHOWN, ArgumentError

if TYPE_CHECKING:
    from dpfl.tasks.text.models import architectures

# Maps contexts, integers [N, L], and token ids, integers [K], to the log-probabilities of each of
# these tokens after each context, float64 [N, K]. Contexts begin after the begin token.
NextTokens = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Candidates that are ranked one by one; the scores of more do not fit in memory for sure.
MOST_EXACT = 2**24
# Logits of a batch at most.
_MOST_LOGITS = 2**22


def next_tokens_of(
    architecture: 'architectures.Architecture', weights: Sequence[np.ndarray], begin: int
) -> NextTokens:
    """The log-probabilities of tokens as the next ones under a language model.

    Args:
      architecture: architecture of the model.
      weights: weights of the model.
      begin: id of the begin token, which comes before every context.

    Raises:
      ValueError: if the weights do not fit the architecture.
    """
    import tensorflow as tf

    from dpfl.tasks.text.models import architectures

    num_tokens = architectures.check_weights(architecture, weights)
    rows = max(1, _MOST_LOGITS // num_tokens)

    parameters = tuple(tf.convert_to_tensor(weight) for weight in weights)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    )
    def last(contexts: Any, tokens: Any) -> Any:
        count = tf.shape(contexts)[0]
        state = architecture.start(parameters, count)
        state, logits = architecture.step(parameters, state, tf.fill([count], begin))
        for position in tf.range(tf.shape(contexts)[1]):
            state, logits = architecture.step(parameters, state, contexts[:, position])
            logits = tf.ensure_shape(logits, [None, num_tokens])
        return tf.gather(tf.nn.log_softmax(tf.cast(logits, tf.float64)), tokens, axis=1)

    def log_probabilities(contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        chosen = tf.constant(tokens, tf.int32)
        parts = [
            last(tf.constant(contexts[i : i + rows], tf.int32), chosen).numpy()
            for i in range(0, len(contexts), rows)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(tokens)))

    return log_probabilities


def all_scores(
    next_tokens: NextTokens, prefix: Sequence[int], alphabet: Sequence[int], length: int
) -> np.ndarray:
    """Scores of all candidates: their log-probabilities after the prefix, float64 [K^n].

    The model reads each context once: (K^n - 1) / (K - 1) contexts for K^n candidates. Candidate
    (i, j, ...), by positions in the alphabet, is at i K^(n-1) + j K^(n-2) + ...

    Args:
      next_tokens: the model.
      prefix: token ids of the prefix.
      alphabet: token ids of the K tokens.
      length: n, the number of random tokens.

    Raises:
      ArgumentError: if there are more than `MOST_EXACT` candidates.
    """
    tokens = np.asarray(alphabet)
    if len(tokens) ** length > MOST_EXACT:
        allowed = f'must leave at most {MOST_EXACT} candidates to rank all of them'
        raise ArgumentError('length', length, allowed)
    contexts = np.asarray(prefix, np.int64).reshape(1, -1)
    totals = np.zeros(1)
    for position in range(length):
        totals = (totals[:, None] + next_tokens(contexts, tokens)).ravel()
        if position + 1 < length:
            longer = np.repeat(contexts, len(tokens), axis=0)
            added = np.tile(tokens, len(contexts))
            contexts = np.concatenate([longer, added[:, None]], axis=1)
    return totals


def rank(every_score: np.ndarray, value: Sequence[int], alphabet_size: int) -> int:
    """Rank of a secret: number of candidates that score at least as much as it.

    Args:
      every_score: scores of all candidates, as from `all_scores`.
      value: positions of the secret's tokens in the alphabet.
      alphabet_size: K.
    """
    place = np.ravel_multi_index(tuple(value), (alphabet_size,) * len(value))
    return int(np.count_nonzero(every_score >= every_score[place]))


def of_rank(position: int, candidates: int) -> float:
    """Exposure of a secret of a rank, in bits ([Carlini19])."""
    _validate.integer('rank', position, minimum=1, maximum=candidates)
    return math.log2(candidates) - math.log2(position)


def chance(exposures: Sequence[float]) -> float:
    """P-value of the hypothesis that the model is independent of secrets, against their sum.

    The sum of independent exposures, each with P(exposure >= x) <= 2^-x, is at most that of as many
    exponential variables of mean 1 / ln 2, which has a gamma distribution: Fisher's method. It is
    an upper bound because of the finite number of candidates and of equal scores.

    Raises:
      ArgumentError: if there are none.
    """
    if not len(exposures):
        raise ArgumentError('exposures', NOT_SHOWN, 'must be at least one')
    return float(stats.gamma.sf(math.log(2) * math.fsum(exposures), len(exposures)))


def ceiling(epsilon: float, delta: float, candidates: int) -> float:
    """The largest mean exposure that a guarantee allows for a secret of one client, in bits.

    It is the integral over x from 0 to log2 of the number of candidates of the bound on
    P(exposure >= x), min(1, e^epsilon 2^-x + delta). With epsilon 0 it is at most 1 / ln 2, the
    mean by chance.

    Args:
      epsilon, delta: guarantee against adding or removing one client; infinity for none.
      candidates: number of candidates.
    """
    most = math.log2(candidates)
    if math.isinf(epsilon) or delta >= 1:
        return most
    # Up to here the bound is 1.
    certain = min(most, epsilon / math.log(2) - math.log2(1 - delta))
    below = math.exp(epsilon) * (2.0**-certain - 2.0**-most) / math.log(2)
    return certain + below + delta * (most - certain)
