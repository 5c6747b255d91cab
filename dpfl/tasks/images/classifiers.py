"""Classifiers of small grey-scale images, as `tff.learning.models.FunctionalModel`.

The layers are convolutions, each of which halves height and width, and two dense layers:

    image [28, 28, 1]
    for each entry of `channels`: convolution, ReLU, halve (stride 2, or 2 x 2 max pooling)
    dense to `hidden`, ReLU: the features for comparing images
    dense to 62: the logits

[Augenstein20] does not list the layers of its primary model. `cnn` has the layers that [McMahan17]
uses for images of this size: two 5 x 5 convolutions with 32 and 64 channels, 2 x 2 max pooling, and
512 hidden units. These are 1.69M weights for 62 classes.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _random, _validate, errors
from dpfl.tasks.images import image_batches

# Images that are classified at a time.
_INFERENCE_BATCH = 1_024


@dataclasses.dataclass(frozen=True)
class ClassifierSizes:
    """Sizes of a classifier.

    Attributes:
      kernel: height and width of the convolution kernels.
      channels: number of output channels of each convolution.
      hidden: number of units of the hidden layer.
      pools: convolutions have stride 1 and are followed by 2 x 2 max pooling, instead of stride 2.

    Raises:
      ValueError: if a size is not a positive integer.
    """

    kernel: int
    channels: tuple[int, ...]
    hidden: int
    pools: bool = False

    def __post_init__(self):
        for name in ('kernel', 'channels', 'hidden'):
            for value in np.ravel(getattr(self, name)).tolist():
                _validate.integer(name, value, minimum=1)

    def weight_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: kernel and bias of each layer in turn."""
        side, before = image_batches.IMAGE_SIZE, 1
        shapes = []
        for after in self.channels:
            shapes += [(self.kernel, self.kernel, before, after), (after,)]
            side, before = (side // 2 if self.pools else -(-side // 2)), after
        classes = image_batches.NUM_CLASSES
        shapes += [(side * side * before, self.hidden), (self.hidden,)]
        return (*shapes, (self.hidden, classes), (classes,))

    @property
    def num_parameters(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.weight_shapes())


PRESETS = {
    'cnn': ClassifierSizes(kernel=5, channels=(32, 64), hidden=512, pools=True),
    'small': ClassifierSizes(kernel=3, channels=(16, 32), hidden=128),
    'tiny': ClassifierSizes(kernel=4, channels=(4, 8), hidden=16),
}


def build_image_classifier(name: str, seed: int) -> tff.learning.models.FunctionalModel:
    """Builds a classifier of a named size.

    Args:
      name: a key of `PRESETS`.
      seed: integer in [0, 2**64); decides the initial weights.

    Returns:
      A model of batches of type `image_batches.element_spec()`, with logits [batch, 62]. Its loss
      is the mean cross entropy in nats; its metrics are `loss`, `accuracy` and `num_examples`.

    Raises:
      ValueError: if an argument is outside its range; the message names it.
    """
    sizes = PRESETS[_validate.choice('name', name, PRESETS)]

    @tf.function
    def predict_on_batch(model_weights: Any, x: tf.Tensor, training: bool) -> tf.Tensor:
        del training  # There is no dropout and no batch normalisation.
        return logits(sizes, model_weights[0], x)

    def loss(output: tf.Tensor, label: tf.Tensor, sample_weight: Any = None) -> tf.Tensor:
        del sample_weight
        return tf.reduce_mean(_cross_entropy(output, label))

    return tff.learning.models.FunctionalModel(
        initial_weights=(initial_weights(sizes, seed), ()),
        predict_on_batch_fn=predict_on_batch,
        loss_fn=loss,
        metrics_fns=(_initialize, _update, _finalize),
        input_spec=image_batches.element_spec(),
    )


def initial_weights(sizes: ClassifierSizes, seed: int) -> tuple[np.ndarray, ...]:
    """Initial weights, float32: kernels uniform within the Glorot bound, biases 0.

    A pure function of the arguments.

    Raises:
      ValueError: if the seed is not an integer in [0, 2**64).
    """
    rng = _random.generator('image.weights', _random.check_seed('seed', seed))
    weights = []
    for shape in sizes.weight_shapes():
        if len(shape) == 1:
            weights.append(np.zeros(shape, np.float32))
            continue
        bound = math.sqrt(6 / (math.prod(shape[:-2]) * (shape[-2] + shape[-1])))
        weights.append(rng.uniform(-bound, bound, shape).astype(np.float32))
    return tuple(weights)


def features(sizes: ClassifierSizes, weights: Sequence[Any], images: tf.Tensor) -> tf.Tensor:
    """Hidden layer, float32 [batch, hidden], of images float32 [batch, 28, 28, 1]."""
    x, stride = images, 1 if sizes.pools else 2
    for kernel, bias in zip(weights[:-4:2], weights[1:-4:2], strict=True):
        x = tf.nn.relu(tf.nn.conv2d(x, kernel, strides=stride, padding='SAME') + bias)
        if sizes.pools:
            x = tf.nn.max_pool2d(x, 2, 2, padding='VALID')
    x = tf.reshape(x, [tf.shape(images)[0], weights[-4].shape[0]])
    return tf.nn.relu(tf.matmul(x, weights[-4]) + weights[-3])


def logits(sizes: ClassifierSizes, weights: Sequence[Any], images: tf.Tensor) -> tf.Tensor:
    """Logits, float32 [batch, 62], of images float32 [batch, 28, 28, 1]."""
    return tf.matmul(features(sizes, weights, images), weights[-2]) + weights[-1]


def build_inference(
    name: str, weights: Sequence[np.ndarray]
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A trained classifier as a function of NumPy arrays.

    Args:
      name: a key of `PRESETS`.
      weights: weights of the model.

    Returns:
      A function that maps pixels float32 [n, 28, 28] to (probabilities float32 [n, 62], features
      float32 [n, hidden]).

    Raises:
      ValueError: if the shapes of the weights are not those of the named model.
    """
    sizes = PRESETS[_validate.choice('name', name, PRESETS)]
    shapes = tuple(np.shape(weight) for weight in weights)
    if shapes != sizes.weight_shapes():
        raise errors.ArgumentError(
            'weights', errors.NOT_SHOWN, f'must be those of {name}, but have shapes {shapes}'
        )
    constants = tuple(tf.constant(weight) for weight in weights)

    @tf.function(input_signature=[image_batches.element_spec()['x']])
    def infer(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        hidden = features(sizes, constants, images)
        return tf.nn.softmax(tf.matmul(hidden, constants[-2]) + constants[-1]), hidden

    def inference(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        images = pixels.reshape(-1, *image_batches.IMAGE_SHAPE)
        # At least one image: the convolutions of oneDNN fail on an empty batch.
        given = images if len(images) else np.zeros([1, *image_batches.IMAGE_SHAPE], np.float32)
        starts = range(0, len(given), _INFERENCE_BATCH)
        parts = [infer(given[first : first + _INFERENCE_BATCH]) for first in starts]
        probabilities, hidden = (
            np.concatenate([part.numpy() for part in column])[: len(images)]
            for column in zip(*parts, strict=True)
        )
        return probabilities, hidden

    return inference


def _cross_entropy(output: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=output)


# The state of the metrics holds sums and counts, so adding the states of clients pools exactly.


@tf.function
def _initialize():
    return collections.OrderedDict(
        loss_sum=tf.zeros([], tf.float64),
        num_correct=tf.zeros([], tf.int64),
        num_examples=tf.zeros([], tf.int64),
    )


@tf.function
def _update(state, labels, batch_output, sample_weight=None):
    del sample_weight
    predictions = batch_output.predictions
    is_correct = tf.equal(tf.argmax(predictions, axis=1, output_type=labels.dtype), labels)
    losses = _cross_entropy(predictions, labels)
    return collections.OrderedDict(
        loss_sum=state['loss_sum'] + tf.reduce_sum(tf.cast(losses, tf.float64)),
        num_correct=state['num_correct'] + tf.reduce_sum(tf.cast(is_correct, tf.int64)),
        num_examples=state['num_examples'] + tf.size(labels, tf.int64),
    )


@tf.function
def _finalize(state):
    count = tf.cast(state['num_examples'], tf.float64)
    correct = tf.cast(state['num_correct'], tf.float64)
    return collections.OrderedDict(
        loss=tf.cast(tf.math.divide_no_nan(state['loss_sum'], count), tf.float32),
        accuracy=tf.cast(tf.math.divide_no_nan(correct, count), tf.float32),
        num_examples=state['num_examples'],
    )
