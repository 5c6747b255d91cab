"""Generators and discriminators of small grey-scale images, as pure functions of their weights.

The networks are those of the tutorial on which [Augenstein20], appendix C.2, bases its own, in
several sizes. For images of 28 x 28 pixels:

    generator                                   discriminator
    inputs [n], standard normal                 image [28, 28, 1]
    dense to hidden, normalise, ReLU            convolution 4 x 4, stride 2, leaky: [14, 14, d1]
    dense to [7, 7, g1], normalise, ReLU        convolution 4 x 4, stride 2, leaky: [7, 7, d2]
    deconvolution 4 x 4, stride 2,              dense to hidden, normalise, leaky
      normalise, ReLU: [14, 14, g2]             dense to one number, the score
    deconvolution 4 x 4, stride 2,
      normalise, ReLU: [28, 28, g3]
    convolution 4 x 4, tanh: [28, 28, 1]

The paper uses batch normalisation. Here the generator normalises each unit or channel with its mean
and variance over a fixed batch of inputs. This is virtual batch normalisation ([Salimans16],
section 3.5), without the example itself in the statistics. Units cannot become constant, which
keeps the images different from each other, and an image depends on its own input only.

The discriminator normalises each example by itself. A gradient penalty needs scores that do not
depend on the rest of the batch ([Gulrajani17], section 4). It also means that there are no batch
statistics of clients' images, which a clipped update would not cover.

Clients have pixels in [0, 1]; the networks use images in [-1, 1].
"""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _random, _storage, _validate
from dpfl.tasks.images import image_clients
from dpfl.tasks.text.models import saved_models

# The folder of the generator in the directory of a run.
IN_RUN = 'generator'
_KERNEL = 4
# Height and width of the smallest layer of an image.
_SIDE = image_clients.IMAGE_SIZE // 4
_LEAK = 0.01
_VARIANCE_FLOOR = 1e-3
# Number of fixed inputs for the statistics of the generator's normalisation.
_REFERENCE_INPUTS = 32


@dataclasses.dataclass(frozen=True)
class GanModel:
    """A generator and a discriminator: initial weights, and pure functions of the weights.

    Attributes:
      initial_generator: weights of the generator, float32 arrays.
      initial_discriminator: weights of the discriminator, float32 arrays.
      generate: maps (generator weights, inputs float32 [batch, input_size]) to images float32
        [batch, *image_shape] in [-1, 1].
      score: maps (discriminator weights, images) to scores float32 [batch]; a higher score means
        more realistic. The score of an image must not depend on the other images.
      input_size: size of the generator's random inputs (n_U in [Augenstein20], algorithm 1).
      image_shape: shape of one image.
    """

    initial_generator: tuple[np.ndarray, ...]
    initial_discriminator: tuple[np.ndarray, ...]
    generate: Callable[[Any, tf.Tensor], tf.Tensor]
    score: Callable[[Any, tf.Tensor], tf.Tensor]
    input_size: int
    image_shape: tuple[int, ...]

    @property
    def input_spec(self) -> collections.OrderedDict[str, tf.TensorSpec]:
        """Type of a client's batches: pixels `x` in [0, 1], and labels `y`, which are not used."""
        return collections.OrderedDict(
            x=tf.TensorSpec([None, *self.image_shape], tf.float32),
            y=tf.TensorSpec([None], tf.int32),
        )


@dataclasses.dataclass(frozen=True)
class GanSizes:
    """Sizes of a generator and a discriminator, as in the table at the top of this module.

    Attributes:
      input_size: n, the size of the generator's inputs.
      generator_hidden: number of units of the generator's first layer.
      generator_channels: g1, g2, g3.
      discriminator_channels: d1, d2.
      discriminator_hidden: number of units of the layer before the score.
    """

    input_size: int
    generator_hidden: int
    generator_channels: tuple[int, int, int]
    discriminator_channels: tuple[int, int]
    discriminator_hidden: int

    def generator_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the generator's weights: kernel and bias of each layer in turn."""
        first, second, third = self.generator_channels
        return (
            (self.input_size, self.generator_hidden),
            (self.generator_hidden,),
            (self.generator_hidden, _SIDE * _SIDE * first),
            (_SIDE * _SIDE * first,),
            (_KERNEL, _KERNEL, second, first),
            (second,),
            (_KERNEL, _KERNEL, third, second),
            (third,),
            (_KERNEL, _KERNEL, third, 1),
            (1,),
        )

    def discriminator_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the discriminator's weights: kernel and bias of each layer in turn."""
        first, second = self.discriminator_channels
        return (
            (_KERNEL, _KERNEL, 1, first),
            (first,),
            (_KERNEL, _KERNEL, first, second),
            (second,),
            (_SIDE * _SIDE * second, self.discriminator_hidden),
            (self.discriminator_hidden,),
            (self.discriminator_hidden, 1),
            (1,),
        )


PRESETS = {
    # 13,285,217 and 6,556,865 weights: the networks of [Augenstein20].
    'dcgan': GanSizes(128, 1024, (256, 64, 32), (64, 128), 1024),
    'small': GanSizes(64, 128, (32, 16, 8), (16, 32), 64),
    'tiny': GanSizes(8, 16, (8, 4, 4), (4, 8), 16),
}


def images_of(pixels: Any) -> Any:
    """Converts pixels in [0, 1] to images in [-1, 1], for NumPy arrays and tensors."""
    return 2 * pixels - 1


def pixels_of(images: Any) -> Any:
    """Converts images in [-1, 1] to pixels in [0, 1], for NumPy arrays and tensors."""
    return (images + 1) / 2


def build_gan_model(name: str, seed: int) -> GanModel:
    """Builds the generator and the discriminator of a named size.

    Initial kernels are uniform within the Glorot bound, initial biases are 0. These weights and the
    fixed inputs of the generator's normalisation are pure functions of the arguments.

    Args:
      name: a key of `PRESETS`.
      seed: integer in [0, 2**64); decides the initial weights.

    Raises:
      ValueError: if an argument is outside its range; the message names it.
    """
    sizes = PRESETS[_validate.choice('name', name, PRESETS)]
    rng = _random.generator('gan.weights', _random.check_seed('seed', seed))
    reference = (
        _random.generator('gan.reference', seed)
        .normal(size=(_REFERENCE_INPUTS, sizes.input_size))
        .astype(np.float32)
    )
    return GanModel(
        initial_generator=image_clients.initial_weights(rng, sizes.generator_shapes()),
        initial_discriminator=image_clients.initial_weights(rng, sizes.discriminator_shapes()),
        generate=functools.partial(_generate, reference=reference),
        score=_score,
        input_size=sizes.input_size,
        image_shape=image_clients.IMAGE_SHAPE,
    )


def _generate(weights: Any, inputs: Any, reference: np.ndarray) -> tf.Tensor:
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = weights
    side, fixed = _SIDE, len(reference)
    x = tf.concat([reference, inputs], axis=0)
    batch = tf.shape(x)[0]
    for kernel, bias in ((w1, b1), (w2, b2)):
        x = tf.nn.relu(_normalized_over(tf.matmul(x, kernel), fixed) + bias)
    x = tf.reshape(x, [batch, side, side, w3.shape[3]])
    for kernel, bias in ((w3, b3), (w4, b4)):
        side *= 2
        shape = [batch, side, side, kernel.shape[2]]
        x = tf.nn.conv2d_transpose(x, kernel, shape, strides=2, padding='SAME')
        x = tf.nn.relu(_normalized_over(x, fixed) + bias)
    # Includes one of the fixed inputs, since the convolutions of oneDNN fail on an empty batch.
    images = tf.nn.conv2d(x[fixed - 1 :], w5, strides=1, padding='SAME')[1:]
    return tf.tanh(images + b5)


def _score(weights: Any, images: Any) -> tf.Tensor:
    w1, b1, w2, b2, w3, b3, w4, b4 = weights
    x = images
    for kernel, bias in ((w1, b1), (w2, b2)):
        x = tf.nn.leaky_relu(tf.nn.conv2d(x, kernel, strides=2, padding='SAME') + bias, _LEAK)
    x = tf.reshape(x, [tf.shape(images)[0], w3.shape[0]])
    x = tf.matmul(x, w3)  # Each example is normalised over its entries.
    mean = tf.reduce_mean(x, [1], keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), [1], keepdims=True)
    x = tf.nn.leaky_relu((x - mean) * tf.math.rsqrt(variance + _VARIANCE_FLOOR) + b3, _LEAK)
    return tf.squeeze(tf.matmul(x, w4), axis=1) + b4[0]


def _normalized_over(x: Any, count: int) -> tf.Tensor:
    """Each unit or channel with mean 0 and variance 1 over the first `count` examples."""
    mean, variance = tf.nn.moments(x[:count], list(range(len(x.shape) - 1)))
    return (x - mean) * tf.math.rsqrt(variance + _VARIANCE_FLOOR)


def save(model: GanModel, weights: Sequence[np.ndarray], path: pathlib.Path) -> None:
    """Writes a generator.

    Its signature `generate` takes inputs float32 [n, input_size], standard normal ones, and gives
    pixels float32 [n, height, width, 1] within [0, 1].

    Args:
      model: the generator's architecture.
      weights: its trained weights.
      path: folder of the SavedModel; replaced if it exists.

    Raises:
      StorageError: if that fails.
    """
    module = tf.Module()
    module.weights = [tf.Variable(weight) for weight in weights]

    @tf.function(input_signature=[tf.TensorSpec([None, model.input_size], name='inputs')])
    def generate(inputs):
        return {'pixels': pixels_of(model.generate(tuple(module.weights), inputs))}

    module.generate = generate
    with _storage.naming(path):
        saved_models.write(module, path, {'generate': generate})
