"""How far a next-word model keeps to the most frequent words (document 001, table 3)."""

import collections
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate
from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS, PAD_ID

HEADS = (10, 50, 100)
TOP = 10


def ranked(batches: Iterable[collections.OrderedDict], num_words: int) -> np.ndarray:
    """Rank by frequency of every word of the vocabulary, int32 [num_words], 0 the most frequent.

    Args:
      batches: OrderedDict(x, y); the targets y are counted. Words that occur as often have the
        order of the vocabulary.
      num_words: without the special tokens.
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
    """At how many positions how many of the most probable words are among the most frequent ones.

    Only words are ranked: a special token is nothing that a keyboard can offer. Positions without a
    target are left out.

    Args:
      model: with logits [B, L, V].
      ranks: of each word by frequency, [V - NUM_SPECIAL_TOKENS], as `ranked` gives them.
      heads: how many of the most frequent words are looked at; one histogram for each.
      top: how many of the model's words are looked at.

    Returns:
      A function (model weights, batches OrderedDict(x, y) of integers [B, L]) -> int64
      [len(heads), top + 1]; entry (i, k) is the number of positions where k of the model's words
      are among the heads[i] most frequent. All rows have the same sum.

    Raises:
      ValueError: if `top` or one of `heads` is not an integer in [1, number of words].
    """
    _validate.integer('top', top, minimum=1, maximum=len(ranks))
    for head in heads:
        _validate.integer('heads', head, minimum=1, maximum=len(ranks))

    @tf.function
    def ranks_of_predictions(weights, batch):
        logits = model.predict_on_batch(weights, batch['x'], training=False)
        present = tf.not_equal(batch['y'], PAD_ID)
        words = tf.boolean_mask(logits[..., NUM_SPECIAL_TOKENS:], present)
        return tf.gather(tf.constant(ranks), tf.math.top_k(words, top, sorted=False).indices)

    def histograms(weights, batches):
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
