"""Plain LSTM language models, without the recurrent projection of dpfl's models.

They have the sizes of a `StackedCifg`: embedding, LSTM, projection, logits.
"""

import collections
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.tasks.text.models import cifg, metrics


def build_fused(
    sizes: cifg.StackedCifg, num_tokens: int, sequence_length: int
) -> tff.learning.models.FunctionalModel:
    """A model with TensorFlow's fused operation for the recurrence, and dpfl's loss and metrics."""
    hidden, rng = sizes.hidden_size, np.random.default_rng(0)
    shapes = (
        (num_tokens, sizes.embedding_size),
        (sizes.embedding_size + hidden, 4 * hidden),
        (4 * hidden,),
        (hidden, sizes.projection_size),
        (num_tokens, sizes.projection_size),
        (num_tokens,),
    )

    @tf.function
    def predict(weights, tokens, training):
        del training
        embedding, kernel, bias, projection, output_embedding, output_bias = weights[0]
        state, peephole = tf.zeros([tf.shape(tokens)[0], hidden]), tf.zeros([hidden])
        # Version 2 of this operation has a wrong gradient in TensorFlow 2.14, which takes the gates
        # in the order of version 1.
        outputs = tf.raw_ops.BlockLSTM(
            seq_len_max=sequence_length,
            x=tf.gather(embedding, tf.transpose(tokens)),
            cs_prev=state,
            h_prev=state,
            w=kernel,
            wci=peephole,
            wcf=peephole,
            wco=peephole,
            b=bias,
            forget_bias=0.0,
            cell_clip=0.0,
            use_peephole=False,
        ).h
        outputs = tf.reshape(tf.transpose(outputs, [1, 0, 2]), [-1, hidden])
        projected = tf.matmul(outputs, projection)
        logits = tf.matmul(projected, output_embedding, transpose_b=True) + output_bias
        return tf.reshape(logits, [-1, sequence_length, num_tokens])

    spec = tf.TensorSpec([None, sequence_length], tf.int32)
    return tff.learning.models.FunctionalModel(
        initial_weights=(tuple(rng.normal(0, 0.1, shape).astype('f') for shape in shapes), ()),
        predict_on_batch_fn=predict,
        loss_fn=lambda output, label, sample_weight=None: metrics.mean_loss(output, label),
        metrics_fns=(metrics.initialize, metrics.update, metrics.finalize),
        input_spec=collections.OrderedDict(x=spec, y=spec),
    )


def build_keras(
    sizes: cifg.StackedCifg, num_tokens: int, sequence_length: int
) -> Callable[[], tff.learning.models.VariableModel]:
    """A function that builds the model with Keras, as in the tutorials of TFF."""
    layers = tf.keras.layers
    spec = tf.TensorSpec([None, sequence_length], tf.int32)

    def make():
        keras_model = tf.keras.Sequential(
            [
                layers.Embedding(num_tokens, sizes.embedding_size, input_length=sequence_length),
                layers.LSTM(sizes.hidden_size, return_sequences=True),
                layers.Dense(sizes.projection_size),
                layers.Dense(num_tokens),
            ]
        )
        return tff.learning.models.from_keras_model(
            keras_model,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=collections.OrderedDict(x=spec, y=spec),
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
        )

    return make
