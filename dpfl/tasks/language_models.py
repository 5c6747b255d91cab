"""Next-word models: a one-layer projected CIFG-LSTM as a `tff.learning.models.FunctionalModel`.

CIFG: coupled input and forget gates. For an embedding x_t and the recurrent projection r_{t-1},

    f, o, g = sigmoid, sigmoid, tanh of the three thirds of x_t W_x + r_{t-1} W_r + b
    c_t = f * c_{t-1} + (1 - f) * g
    r_t = (o * tanh(c_t)) P
    logits_t = r_t E_out^T + b_out

With E the embedding, H the hidden and R the projection size and V tokens this makes
3 (E + R + 1) H + H R + V E + V R + V parameters. V counts all tokens, the special ones included.
For the model of document 000 (H = 670, E = R = 96) these are 2.38M, 4.31M and 6.24M at V = 10k, 20k
and 30k, where the document prints 2.4M, 4.4M and 6.4M "for a 10K/20K/30K vocabulary": its numbers
are met exactly by V = 10.1k, 20.5k and 30.8k.
"""

import collections
import dataclasses
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate
from dpfl.tasks import cifg, metrics, streams


@dataclasses.dataclass(frozen=True)
class LanguageModelSizes:
    """Sizes of a model.

    Attributes:
      embedding_size: E, the size of the input embedding.
      hidden_size: H, the number of LSTM cells.
      projection_size: R, the size of the recurrent projection and of the output embedding.

    Raises:
      ValueError: if a size is not a positive integer.
    """

    embedding_size: int
    hidden_size: int
    projection_size: int

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _validate.integer(field.name, getattr(self, field.name), minimum=1)

    def weight_shapes(self, num_tokens: int) -> collections.OrderedDict[str, tuple[int, ...]]:
        """Shapes of the trainable weights by name, in the order in which the model holds them.

        The kernels hold the gates side by side: forget, output, candidate.
        """
        embedding, hidden, projection = dataclasses.astuple(self)
        return collections.OrderedDict(
            input_embedding=(num_tokens, embedding),
            input_kernel=(embedding, 3 * hidden),
            recurrent_kernel=(projection, 3 * hidden),
            gate_bias=(3 * hidden,),
            projection=(hidden, projection),
            output_embedding=(num_tokens, projection),
            output_bias=(num_tokens,),
        )

    def num_parameters(self, num_tokens: int) -> int:
        """Number of trainable parameters of a model of `num_tokens` tokens."""
        return sum(math.prod(shape) for shape in self.weight_shapes(num_tokens).values())


PRESETS = {
    'cifg_670': LanguageModelSizes(embedding_size=96, hidden_size=670, projection_size=96),
    'small': LanguageModelSizes(embedding_size=32, hidden_size=128, projection_size=32),
    'tiny': LanguageModelSizes(embedding_size=16, hidden_size=32, projection_size=16),
    'micro': LanguageModelSizes(embedding_size=8, hidden_size=16, projection_size=8),
}


def build_language_model(
    name: str, num_tokens: int, sequence_length: int, seed: int
) -> tff.learning.models.FunctionalModel:
    """Builds a model of a named size.

    Args:
      name: a key of `PRESETS`.
      num_tokens: V, the number of token ids (special tokens included).
      sequence_length: L, the number of positions.
      seed: integer in [0, 2**64); decides the initial weights.

    Returns:
      As `build`.

    Raises:
      ValueError: if an argument is outside its range; the message names it.
    """
    sizes = PRESETS[_validate.choice('name', name, PRESETS)]
    return build(sizes, num_tokens, sequence_length, seed)


def build(
    sizes: LanguageModelSizes, num_tokens: int, sequence_length: int, seed: int
) -> tff.learning.models.FunctionalModel:
    """Builds a model of any sizes; arguments as for `build_language_model`.

    Returns:
      A model of batches OrderedDict(x, y), both int32 [batch, L], with logits [batch, L, V], the
      loss `metrics.mean_loss` and the metrics of `metrics`. Its trainable weights are a tuple of
      float32 NumPy arrays in the order of `LanguageModelSizes.weight_shapes`; it has no others.
    """
    _validate.integer('sequence_length', sequence_length, minimum=1)

    @tf.function
    def predict_on_batch(model_weights, x, training):
        del training  # Neither dropout nor normalisation.
        trainable, _ = model_weights
        return logits(trainable, x)

    def loss(output, label, sample_weight=None):
        del sample_weight
        return metrics.mean_loss(output, label)

    spec = tf.TensorSpec([None, sequence_length], tf.int32)
    return tff.learning.models.FunctionalModel(
        initial_weights=(initial_weights(sizes, num_tokens, seed), ()),
        predict_on_batch_fn=predict_on_batch,
        loss_fn=loss,
        metrics_fns=(metrics.initialize, metrics.update, metrics.finalize),
        input_spec=collections.OrderedDict(x=spec, y=spec),
    )


def initial_weights(
    sizes: LanguageModelSizes, num_tokens: int, seed: int
) -> tuple[np.ndarray, ...]:
    """Initial weights, float32, a pure function of the arguments.

    Kernels are uniform within the Glorot bound. Embeddings are uniform within 1: larger values than
    usual, on purpose. A clipped update has a given norm, and so has the noise; the larger the
    embeddings, the more one unit of change of the weights they meet changes the logits. The forget
    gates start with bias 1 (remember), all other biases at 0.
    """
    _validate.integer('num_tokens', num_tokens, minimum=2)
    rng = streams.generator('model.weights', streams.check_seed('seed', seed))
    weights = []
    for name, shape in sizes.weight_shapes(num_tokens).items():
        if name.endswith('bias'):
            value = np.zeros(shape)
        elif name.endswith('embedding'):
            value = rng.uniform(-1, 1, shape)
        else:
            gates = 3 if name.endswith('kernel') else 1  # Side by side in one matrix.
            value = rng.uniform(-1, 1, shape) * math.sqrt(6 / (shape[0] + shape[1] / gates))
        if name == 'gate_bias':
            value[: sizes.hidden_size] = 1
        weights.append(value.astype(np.float32))
    return tuple(weights)


def logits(weights, tokens: tf.Tensor) -> tf.Tensor:
    """Logits [B, L, V] of the token after each of `tokens`.

    Args:
      weights: seven tensors in the order of `LanguageModelSizes.weight_shapes`.
      tokens: integers [B, L] with a static L; the L steps are unrolled.
    """
    (
        input_embedding, input_kernel, recurrent_kernel, gate_bias,
        projection, output_embedding, output_bias,
    ) = weights  # fmt: skip
    # Position is the first axis, and all input products are one product; only the recurrent ones
    # have to wait for their turn.
    batch_size, length = tf.shape(tokens)[0], tokens.shape[1]
    embedded = tf.gather(input_embedding, tf.reshape(tf.transpose(tokens), [-1]))
    inputs = tf.matmul(embedded, input_kernel) + gate_bias
    inputs = tf.reshape(inputs, [length, batch_size, input_kernel.shape[1]])
    hidden = cifg.recurrence(inputs, recurrent_kernel, projection)
    # Matrix products, not tensor ones: those would copy the embedding to transpose it.
    hidden = tf.reshape(tf.transpose(hidden, [1, 0, 2]), [-1, projection.shape[1]])
    result = tf.matmul(hidden, output_embedding, transpose_b=True) + output_bias
    return tf.reshape(result, [batch_size, length, output_bias.shape[0]])
