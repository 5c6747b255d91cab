"""A model whose training is easy to repeat by hand: least squares."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

INITIAL = np.array([[0.5], [-0.25]], np.float32)


def least_squares() -> tff.learning.models.FunctionalModel:
    """Batches OrderedDict(x float32 [batch, 2], y float32 [batch, 1]); loss: mean squared error.

    Its trainable weights are a matrix [2, 1] and a bias [1]; its metrics are the sum of the losses
    of the batches and the number of batches.
    """

    @tf.function
    def predict(weights, x, training):
        del training
        matrix, bias = weights[0]
        return tf.matmul(x, matrix) + bias

    def loss(output, label, sample_weight=None):
        del sample_weight
        return tf.reduce_mean((output - label) ** 2)

    @tf.function
    def initialize():
        return collections.OrderedDict(loss=tf.zeros([]), num_batches=tf.zeros([], tf.int64))

    @tf.function
    def update(state, labels, batch_output, sample_weight=None):
        del sample_weight
        return collections.OrderedDict(
            loss=state['loss'] + loss(batch_output.predictions, labels),
            num_batches=state['num_batches'] + 1,
        )

    @tf.function
    def finalize(state):
        return state

    return tff.learning.models.FunctionalModel(
        initial_weights=((INITIAL, np.zeros(1, np.float32)), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        metrics_fns=(initialize, update, finalize),
        input_spec=collections.OrderedDict(x=tf.TensorSpec([None, 2]), y=tf.TensorSpec([None, 1])),
    )


def client(seed: int, sizes: list[int]) -> list[collections.OrderedDict]:
    """Batches of these sizes for `least_squares`."""
    rng = np.random.default_rng(seed)
    return [
        collections.OrderedDict(
            x=rng.normal(size=(size, 2)).astype(np.float32),
            y=rng.normal(size=(size, 1)).astype(np.float32),
        )
        for size in sizes
    ]


# Numbers of rows: 5, 4, 0, 20, 1; two batches of different sizes, one, none, many, one row.
COHORT = [client(seed, sizes) for seed, sizes in enumerate([[3, 2], [4], [], [4] * 5, [1]])]
START = [INITIAL, np.zeros(1, np.float32)]


def trained(batches, rate: float, clip=None) -> list[np.ndarray]:
    """How a pass of SGD changes `START`; `clip` is applied to the change after every batch."""
    weights = START
    for batch in batches:
        weights = [w - rate * g for w, g in zip(weights, gradient(weights, batch), strict=True)]
        if clip is not None:
            moved = clip([new - old for new, old in zip(weights, START, strict=True)])
            weights = [old + change for old, change in zip(START, moved, strict=True)]
    return [new - old for new, old in zip(weights, START, strict=True)]


def gradient_step(batches, rate: float) -> list[np.ndarray]:
    """How one step along the gradient of all rows changes `START`."""
    if not batches:
        return [np.zeros_like(leaf) for leaf in START]
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in ('x', 'y')}
    return [-rate * leaf for leaf in gradient(START, rows)]


def assert_close(actual, expected, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    """Raises AssertionError unless the arrays of two lists are close, each to its own."""
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def dataset(batches, template) -> tf.data.Dataset:
    """The batches as a data set of one client that TFF can send; `template` is any batch."""
    result = tf.data.Dataset.from_tensors(template).take(0)
    for batch in batches:
        result = result.concatenate(tf.data.Dataset.from_tensors(batch))
    return result


def gradient(weights, batch) -> list[np.ndarray]:
    """Gradient of the loss of `least_squares` by the matrix and the bias."""
    matrix, bias = weights
    error = 2 * (batch['x'] @ matrix + bias - batch['y']) / len(batch['x'])
    return [batch['x'].T @ error, error.sum(axis=0)]
