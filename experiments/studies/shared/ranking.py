"""Ranks secrets among all their candidates under a language model ([Carlini19])."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl.errors import ArgumentError
from experiments.studies.shared.planting import MOST_CANDIDATES, Secret

if TYPE_CHECKING:
    from dpfl.tasks.text.models import architectures, saved_models

# Maps contexts, integers [N, L], and token ids, integers [K], to the log-probabilities of each of
# these tokens after each context, float64 [N, K]. Contexts begin after the begin token.
NextTokens = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Logits of a batch at most.
_MOST_LOGITS = 2**22


def exposures(model: 'saved_models.LanguageModel', secrets: Sequence[Secret]) -> list[float]:
    """Exposures of secrets under a model of words or of characters, in bits.

    Args:
      model: the model.
      secrets: the secrets, in token ids of the model.

    Raises:
      ArgumentError: if there are too many candidates to rank all of them.
    """
    from dpfl.tasks.text.models import generation

    special = generation.BYTES if model.vocabulary is None else generation.WORDS
    predict = next_tokens_of(model.architecture, model.weights, special.begin)
    found = []
    for secret in secrets:
        every_score = all_scores(predict, secret.prefix, secret.alphabet, len(secret.value))
        position = rank(every_score, secret.value, len(secret.alphabet))
        found.append(math.log2(every_score.size) - math.log2(position))
    return found


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
      ArgumentError: if there are more than `MOST_CANDIDATES` candidates.
    """
    tokens = np.asarray(alphabet)
    if len(tokens) ** length > MOST_CANDIDATES:
        allowed = f'must leave at most {MOST_CANDIDATES} candidates to rank all of them'
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
