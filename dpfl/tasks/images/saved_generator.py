"""Generators of images as SavedModel, which TensorFlow loads without dpfl."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from dpfl import _storage
from dpfl.tasks.images import gan_models
from dpfl.tasks.text.models import saved_models

# The folder of the generator in the directory of a run.
IN_RUN = 'generator'


def save(model: gan_models.GanModel, weights: Sequence[np.ndarray], path: pathlib.Path) -> None:
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
        return {'pixels': gan_models.pixels_of(model.generate(tuple(module.weights), inputs))}

    module.generate = generate
    with _storage.naming(path):
        saved_models.write(module, path, {'generate': generate})
