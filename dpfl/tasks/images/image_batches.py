"""Cuts labelled images into batches for the classifiers of `classifiers`."""

import collections
from typing import Any

import numpy as np

from dpfl import _validate
from dpfl.tasks.images import glyph_atlas

IMAGE_SIZE = 28
IMAGE_SHAPE = (IMAGE_SIZE, IMAGE_SIZE, 1)
# 62, in federated EMNIST and in the synthetic glyphs.
NUM_CLASSES = len(glyph_atlas.CLASSES)


def element_spec() -> Any:
    """Type of a batch: OrderedDict(x float32 [None, 28, 28, 1], y int32 [None])."""
    import tensorflow as tf

    return collections.OrderedDict(
        x=tf.TensorSpec([None, *IMAGE_SHAPE], tf.float32), y=tf.TensorSpec([None], tf.int32)
    )


def batches(
    pixels: np.ndarray,
    labels: np.ndarray,
    batch_size: int,
    epochs: int = 1,
    max_batches: int | None = None,
) -> list[collections.OrderedDict]:
    """Cuts a client's examples into batches.

    Args:
      pixels: float32 [n, 28, 28].
      labels: int32 [n].
      batch_size: examples per batch; the last batch of an epoch may be smaller.
      epochs: passes over the examples.
      max_batches: total number of batches at most; None for no bound.

    Returns:
      Batches of type `element_spec()`, as NumPy arrays; none if there are no examples.

    Raises:
      ValueError: if a number is not a positive integer.
    """
    _validate.integer('batch_size', batch_size, minimum=1)
    _validate.integer('epochs', epochs, minimum=1)
    if max_batches is not None:
        _validate.integer('max_batches', max_batches, minimum=1)
    pixels = pixels.reshape(-1, *IMAGE_SHAPE)
    parts = [slice(first, first + batch_size) for first in range(0, len(labels), batch_size)]
    cut = [collections.OrderedDict(x=pixels[part], y=labels[part]) for part in parts]
    return (cut * epochs)[:max_batches]


def examples_needed(batch_size: int, max_batches: int | None) -> int | None:
    """Number of a client's examples that `batches` uses at most; None for no bound."""
    if max_batches is None:
        return None
    _validate.integer('batch_size', batch_size, minimum=1)
    return batch_size * _validate.integer('max_batches', max_batches, minimum=1)
