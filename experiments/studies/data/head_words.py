"""How much a next-word model prefers the most frequent words ([McMahan18], table 3)."""

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, PAD_ID

HEADS = (10, 50, 100)  # Sizes of the sets of most frequent words.
TOP = 10  # Predicted words per position.


def ranked(batches: Iterable[collections.OrderedDict], num_words: int) -> np.ndarray:
    """Ranks the words of the vocabulary by frequency.

    Args:
      batches: OrderedDict(x, y) of token ids; the targets y are counted.
      num_words: number of words, without the special tokens.

    Returns:
      Rank of each word, int32 [num_words], 0 for the most frequent one. Ties keep the order of the
      vocabulary.
    """
    counts = np.zeros(num_words, np.int64)
    for batch in batches:
        words = np.ravel(batch['y']) - NUM_SPECIAL_TOKENS
        counts += np.bincount(words[words >= 0], minlength=num_words)
    ranks = np.empty(num_words, np.int32)
    ranks[np.argsort(-counts, kind='stable')] = np.arange(num_words)
    return ranks


def build_histograms(
    model: tff.learning.models.FunctionalModel,
    ranks: np.ndarray,
    *,
    heads: Sequence[int] = HEADS,
    top: int = TOP,
) -> Callable[[tff.learning.models.ModelWeights, Iterable[collections.OrderedDict]], np.ndarray]:
    """Builds the histograms of how many predicted words are among the most frequent ones.

    Only words are ranked, since a keyboard cannot offer a special token. Positions without a target
    are left out.

    Args:
      model: a model with logits [B, L, V].
      ranks: rank of each word by frequency, [V - NUM_SPECIAL_TOKENS], from `ranked`.
      heads: sizes of the sets of most frequent words; one histogram for each.
      top: number of words that the model predicts at a position, the most probable ones.

    Returns:
      A function (model weights, batches OrderedDict(x, y) of integers [B, L]) -> int64
      [len(heads), top + 1]. Entry (i, k) is the number of positions where k of the `top` predicted
      words are among the heads[i] most frequent ones. All rows have the same sum.

    Raises:
      ValueError: if `top` or one of `heads` is not an integer in [1, number of words].
    """
    _validate.integer('top', top, minimum=1, maximum=len(ranks))
    for head in heads:
        _validate.integer('heads', head, minimum=1, maximum=len(ranks))

    @tf.function
    def ranks_of_predictions(weights: Any, batch: Any) -> tf.Tensor:
        logits = model.predict_on_batch(weights, batch['x'], training=False)
        present = tf.not_equal(batch['y'], PAD_ID)
        words = tf.boolean_mask(logits[..., NUM_SPECIAL_TOKENS:], present)
        return tf.gather(tf.constant(ranks), tf.math.top_k(words, top, sorted=False).indices)

    def histograms(
        weights: tff.learning.models.ModelWeights, batches: Iterable[collections.OrderedDict]
    ) -> np.ndarray:
        tensors = tf.nest.map_structure(
            tf.convert_to_tensor, (tuple(weights.trainable), tuple(weights.non_trainable))
        )
        result = np.zeros((len(heads), top + 1), np.int64)
        for batch in batches:
            predicted = ranks_of_predictions(tensors, batch).numpy()
            for row, head in zip(result, heads, strict=True):
                row += np.bincount((predicted < head).sum(axis=1), minlength=top + 1)
        return result

    return histograms
