"""Probabilities of the next token after given contexts, for attacks that rank candidates."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from dpfl.tasks.text.models import architectures

# Logits of a batch at most.
_MOST_LOGITS = 2**22


def build(
    architecture: architectures.Architecture, weights: Sequence[np.ndarray], begin: int
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A function from contexts and tokens to the log-probabilities of the tokens as the next ones.

    Args:
      architecture: architecture of the model.
      weights: weights of the model.
      begin: id of the begin token, which comes before every context.

    Returns:
      The function. It takes contexts, integers [N, L] without the begin token, and token ids,
      integers [K], and returns natural logarithms, float64 [N, K].

    Raises:
      ValueError: if the weights do not fit the architecture.
    """
    num_tokens = architectures.check_weights(architecture, weights)
    rows = max(1, _MOST_LOGITS // num_tokens)

    parameters = tuple(tf.convert_to_tensor(weight) for weight in weights)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    )
    def last(contexts: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
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
