"""The LSTM of [McMahan18], appendix B: input and output share an embedding with rows of norm 1.

With E a matrix of one row per token, e_s = E_s / |E_s| its rows scaled to norm 1, and a state
(c, h) of H cells,

    i, g, f, o = sigmoid, tanh, sigmoid, sigmoid of [e_{s_t}, h_{t-1}] W_* + b_*
    c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)
    logits_t[s] = e_s . (h_t P + p)

These are 11 tensors (the embedding, kernel and bias of each of the four gates, P and p) with
V E + 4 ((E + H) H + H) + H E + E parameters: 1,346,144 for the paper's E = 96, H = 256 and
V = 10,000. The paper states 11 parameter vectors and 1.35M. (A recurrent projection would give
1.18M, an output bias 1.36M; the paper does not mention either, and the counts rule them out.)

Rows are scaled in the forward pass, so their norm is 1 whatever the noise does to E.

With embeddings of their own for input and output, the rows of both are scaled, and there are V E
more parameters.
"""

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _random, _validate
from dpfl.tasks.text.models import architectures, fused_lstm


@dataclasses.dataclass(frozen=True)
class TiedLstm(architectures.Architecture):
    """Sizes of the model.

    Attributes:
      embedding_size: E, the size of the embedding that input and output share.
      hidden_size: H, the number of LSTM cells.
      tied: whether input and output share one embedding, as in [McMahan18].

    Raises:
      ValueError: if a size is not a positive integer.
    """

    embedding_size: int
    hidden_size: int
    tied: bool = True

    def __post_init__(self):
        for name in ('embedding_size', 'hidden_size'):
            _validate.integer(name, getattr(self, name), minimum=1)

    def weight_shapes(self, num_tokens: int) -> architectures.Shapes:
        embedding, hidden = self.embedding_size, self.hidden_size
        shapes: architectures.Shapes = collections.OrderedDict()
        shapes['embedding'] = (num_tokens, embedding)
        for gate in fused_lstm.GATES:
            shapes[f'{gate}_kernel'] = (embedding + hidden, hidden)
            shapes[f'{gate}_bias'] = (hidden,)
        shapes['projection'] = (hidden, embedding)
        shapes['projection_bias'] = (embedding,)
        if not self.tied:
            shapes['output_embedding'] = (num_tokens, embedding)
        return shapes

    def initial_weights(self, num_tokens: int, seed: int) -> tuple[np.ndarray, ...]:
        """As in the base class.

        Embeddings are uniform on the sphere, matrices uniform within the Glorot bound. Forget gates
        start with bias 1 (remember), all other biases with 0.
        """
        _validate.integer('num_tokens', num_tokens, minimum=2)
        rng = _random.generator('model.weights', _random.check_seed('seed', seed))
        weights = []
        for name, shape in self.weight_shapes(num_tokens).items():
            if name.endswith('embedding'):
                value = rng.normal(size=shape)
                value /= np.linalg.norm(value, axis=1, keepdims=True)
            elif name.endswith('bias'):
                value = np.full(shape, float(name == 'forget_bias'))
            else:
                value = rng.uniform(-1, 1, shape) * math.sqrt(6 / sum(shape))
            weights.append(value.astype(np.float32))
        return tuple(weights)

    def logits(self, weights: Sequence[Any], tokens: tf.Tensor) -> tf.Tensor:
        embedding, output_embedding = self._embeddings(weights)
        kernel, bias, projection, projection_bias = _joined(weights)
        batch_size, length = tf.shape(tokens)[0], tokens.shape[1]
        inputs = tf.gather(embedding, tf.transpose(tokens))
        hidden = fused_lstm.sequence(inputs, kernel, bias, self.hidden_size)
        hidden = tf.reshape(tf.transpose(hidden, [1, 0, 2]), [-1, self.hidden_size])
        outputs = tf.matmul(hidden, projection) + projection_bias
        result = tf.matmul(outputs, output_embedding, transpose_b=True)
        return tf.reshape(result, [batch_size, length, embedding.shape[0]])

    def start(self, weights: Sequence[Any], batch_size: int | tf.Tensor) -> Any:
        """The state: (cells c, outputs h), both [B, H]."""
        return fused_lstm.start(
            batch_size, self.hidden_size, tf.convert_to_tensor(weights[0]).dtype
        )

    def step(self, weights: Sequence[Any], state: Any, tokens: tf.Tensor) -> tuple[Any, tf.Tensor]:
        embedding, output_embedding = self._embeddings(weights)
        kernel, bias, projection, projection_bias = _joined(weights)
        state = fused_lstm.step(state, tf.gather(embedding, tokens), kernel, bias)
        outputs = tf.matmul(state[1], projection) + projection_bias
        return state, tf.matmul(outputs, output_embedding, transpose_b=True)

    def _embeddings(self, weights: Sequence[Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """Embeddings of input and output, with rows of norm 1."""
        embedding = tf.math.l2_normalize(weights[0], axis=1)
        if self.tied:
            return embedding, embedding
        return embedding, tf.math.l2_normalize(weights[-1], axis=1)


def _joined(weights: Sequence[Any]) -> tuple[tf.Tensor, ...]:
    """Kernels side by side, biases end to end, and the projection with its bias."""
    size = 2 * len(fused_lstm.GATES)
    gates, (projection, projection_bias) = weights[1 : 1 + size], weights[1 + size : 3 + size]
    kernel, bias = tf.concat(gates[0::2], axis=1), tf.concat(gates[1::2], axis=0)
    return kernel, bias, projection, projection_bias
