"""Loss and metrics of next-word prediction, for a `tff.learning` functional model.

The state of the metrics holds sums and counts only, so adding the states of clients pools exactly.

* `accuracy`: top-1 accuracy over the positions whose target is a word of the vocabulary. Padding,
  end of sentence and words outside the vocabulary do not count as targets; the prediction is the
  argmax over *all* tokens.
* `accuracy_with_oov`: the same, but targets outside the vocabulary count as misses ([McMahan18]).
  This is what the user of a keyboard sees, since the model cannot offer such words.
* `accuracy_known`: as `accuracy`, but the prediction is the argmax over all tokens except the one
  for unknown words, which a keyboard would not offer. Where many words are unknown, a model often
  predicts that one, and `accuracy` counts it as a miss.
* `accuracy_top3`, `accuracy_top5`, and both `_with_oov`: the same for targets among the 3 or 5
  tokens with the largest logits, as a keyboard that offers several words. A target whose logit
  equals the largest one without being the prediction is a miss: a model that prefers nothing hits
  nothing. Other ties, which are rare, are hits.
* `loss`: mean cross entropy in nats over all targets except padding, so end of sentence and words
  outside the vocabulary count.
* `perplexity`: `exp(loss)`; 1 without targets.
* `num_tokens`: number of targets of `loss`. `num_examples`: number of sentences with such targets.
"""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from dpfl.tasks.text import tokenization

# The k of the accuracies of the best k tokens.
TOP = (3, 5)


@tf.autograph.experimental.do_not_convert
def mean_loss(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Mean cross entropy over the targets that are not padding; 0 if there are none.

    Args:
      logits: [B, L, V].
      targets: integers [B, L].

    Returns:
      A scalar, in nats per target.
    """
    num_tokens = logits.shape[-1]
    targets = tf.reshape(targets, [-1])
    present = tf.cast(tf.not_equal(targets, tokenization.PAD_ID), logits.dtype)
    return _weighted_cross_entropy(
        tf.reshape(logits, [-1, num_tokens]),
        targets,
        tf.math.divide_no_nan(present, tf.reduce_sum(present)),
    )


def _weighted_cross_entropy(logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Sum over rows i of `weights[i] * -log softmax(logits[i])[targets[i]]`.

    Args:
      logits: [N, V].
      targets: integers [N].
      weights: [N]; their gradient is not computed.

    On a CPU this is several times faster than TensorFlow's operation, which takes most of a
    training step if V is large: few passes over the logits, most of them in place.
    """

    @tf.custom_gradient
    def differentiable(logits: tf.Tensor) -> Any:
        softmax = tf.nn.softmax(logits)
        # The logarithm of the sum of exponentials, computed from the largest probability of a row.
        # That one is at least 1 / V; the target's probability may underflow.
        log_totals = tf.reduce_max(logits, axis=1) - tf.math.log(tf.reduce_max(softmax, axis=1))
        losses = log_totals - tf.gather(logits, targets, batch_dims=1)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            scale = upstream * weights
            # In place (`tf.tensor_scatter_nd_sub` would copy), since nothing else uses `product`.
            # int32 indices suffice for 8 GB of logits.
            product = tf.reshape(softmax * scale[:, None], [-1])
            rows = tf.range(tf.shape(targets)[0])
            indices = rows * logits.shape[1] + tf.cast(targets, tf.int32)
            product = tf.raw_ops.InplaceSub(x=product, i=indices, v=scale)
            return tf.reshape(product, tf.shape(logits))

        return tf.reduce_sum(losses * weights), gradient

    return differentiable(logits)


def hits(labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Numerator and denominator of `accuracy` for each sentence, int64 [B].

    Args:
      labels: targets, int32 [B, L].
      logits: [B, L, V].
    """
    is_word = _is_word(labels)
    correct = is_word & tf.equal(_predicted(labels, logits), labels)
    return tuple(tf.reduce_sum(tf.cast(mask, tf.int64), axis=-1) for mask in (correct, is_word))


@tf.function
@tf.autograph.experimental.do_not_convert
def initialize() -> collections.OrderedDict:
    """The metrics state before any data: all zeros."""
    return collections.OrderedDict(
        loss_sum=tf.zeros([], tf.float64),
        num_correct=tf.zeros([], tf.int64),
        num_correct_known=tf.zeros([], tf.int64),
        **{_top(k): tf.zeros([], tf.int64) for k in TOP},
        num_words=tf.zeros([], tf.int64),
        num_outside=tf.zeros([], tf.int64),
        num_tokens=tf.zeros([], tf.int64),
        num_examples=tf.zeros([], tf.int64),
    )


@tf.function
@tf.autograph.experimental.do_not_convert
def update(
    state: Mapping[str, tf.Tensor], labels: tf.Tensor, batch_output: Any, sample_weight: Any = None
) -> collections.OrderedDict:
    """Adds a batch to the state.

    Args:
      state: sums so far.
      labels: targets, int32 [B, L].
      batch_output: has attributes `loss`, the `mean_loss` of the batch, and `predictions`, the
        logits.
      sample_weight: ignored.
    """
    del sample_weight
    present = tf.not_equal(labels, tokenization.PAD_ID)
    is_word = _is_word(labels)
    logits = batch_output.predictions
    predicted = _predicted(labels, logits)
    is_predicted = tf.equal(predicted, labels)
    of_target, largest = (tf.gather(logits, ids, batch_dims=2) for ids in (labels, predicted))
    # The token for unknown words comes first, the target second.
    of_unknown = logits[..., tokenization.OOV_ID]
    is_next = tf.equal(predicted, tokenization.OOV_ID) & (of_unknown > of_target)
    is_next &= _within(2, labels, logits)
    is_tied = tf.equal(of_target, largest) & ~is_predicted
    num_tokens = _count(present)
    added = collections.OrderedDict(
        loss_sum=tf.cast(batch_output.loss, tf.float64) * tf.cast(num_tokens, tf.float64),
        num_correct=_count(is_word & is_predicted),
        num_correct_known=_count(is_word & (is_predicted | is_next)),
        **{_top(k): _count(is_word & ~is_tied & _within(k, labels, logits)) for k in TOP},
        num_words=_count(is_word),
        num_outside=_count(tf.equal(labels, tokenization.OOV_ID)),
        num_tokens=num_tokens,
        num_examples=_count(tf.reduce_any(present, axis=-1)),
    )
    return collections.OrderedDict((name, state[name] + value) for name, value in added.items())


@tf.function
@tf.autograph.experimental.do_not_convert
def finalize(state: Mapping[str, tf.Tensor]) -> collections.OrderedDict:
    """Computes the metrics listed at the top of this module; a mean over nothing is 0."""
    with_oov = state['num_words'] + state['num_outside']
    return collections.OrderedDict(
        loss=_ratio(state['loss_sum'], state['num_tokens']),
        accuracy=_ratio(state['num_correct'], state['num_words']),
        accuracy_with_oov=_ratio(state['num_correct'], with_oov),
        accuracy_known=_ratio(state['num_correct_known'], state['num_words']),
        **{f'accuracy_top{k}': _ratio(state[_top(k)], state['num_words']) for k in TOP},
        **{f'accuracy_top{k}_with_oov': _ratio(state[_top(k)], with_oov) for k in TOP},
        perplexity=tf.exp(_ratio(state['loss_sum'], state['num_tokens'])),
        num_tokens=state['num_tokens'],
        num_examples=state['num_examples'],
    )


def _top(k: int) -> str:
    return f'num_in_top{k}'


def _is_word(labels: tf.Tensor) -> tf.Tensor:
    return tf.greater_equal(labels, tokenization.NUM_SPECIAL_TOKENS)


def _predicted(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.argmax(logits, axis=-1, output_type=labels.dtype)


def _within(k: int, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Whether fewer than k logits are larger than the target's, which is finite; bool [B, L].

    TensorFlow stops counting at k, so this takes a tenth of the time of the argmax.
    """
    flat = tf.reshape(tf.cast(logits, tf.float32), [-1, logits.shape[-1]])
    return tf.reshape(tf.math.in_top_k(tf.reshape(labels, [-1]), flat, k), tf.shape(labels))


def _count(mask: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(mask, tf.int64))


def _ratio(numerator: tf.Tensor, denominator: tf.Tensor) -> tf.Tensor:
    ratio = tf.math.divide_no_nan(tf.cast(numerator, tf.float64), tf.cast(denominator, tf.float64))
    return tf.cast(ratio, tf.float32)
