"""How well a language model predicts rows of tokens: cross entropies and right predictions."""

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from dpfl.tasks.text.models import metrics, saved_models
from dpfl.tasks.text.token_ids import PAD_ID

# Logits that are computed at a time, at most.
_MOST_LOGITS = 2**22


def of_model(
    model: saved_models.LanguageModel,
) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """What a model says about rows, as a function that is safe to call in any thread.

    Returns:
      A function of inputs and targets, integers [N, L] both. It returns two float64 [N]: the sum of
      the cross entropies of the targets that are not padding, in nats; and how many words of the
      vocabulary the model predicts, as `accuracy` in `metrics` counts them.
    """
    weights = tuple(tf.convert_to_tensor(weight) for weight in model.weights)

    @functools.cache
    def compiled(length: int) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        spec = tf.TensorSpec([None, length], tf.int32)

        @tf.function(input_signature=[spec, spec])
        def scores(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            logits = model.architecture.logits(weights, x)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            counted = tf.where(tf.not_equal(y, PAD_ID), tf.cast(each, tf.float64), np.float64(0))
            right, _ = metrics.hits(y, logits)
            return tf.reduce_sum(counted, axis=1), right

        return scores

    def of_rows(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        losses, right = np.zeros(len(y)), np.zeros(len(y))
        step = max(1, _MOST_LOGITS // (x.shape[1] * int(model.weights[0].shape[0])))
        for i in range(0, len(y), step):
            rows = slice(i, i + step)
            parts = compiled(x.shape[1])(
                tf.constant(x[rows], tf.int32), tf.constant(y[rows], tf.int32)
            )
            losses[rows], right[rows] = (part.numpy() for part in parts)
        return losses, right

    return of_rows
