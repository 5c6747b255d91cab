"""Cuts sentences of token ids into batches, as NumPy arrays or as a `tf.data.Dataset`."""

import collections
from typing import Any

import numpy as np

from dpfl import _validate


def batches(
    tokens: np.ndarray, batch_size: int, epochs: int = 1, max_batches: int | None = None
) -> list[collections.OrderedDict]:
    """Cuts sentences into batches. The last batch of an epoch may be smaller.

    Args:
      tokens: int32 [sentences, L + 1].
      batch_size: sentences per batch.
      epochs: passes over the sentences.
      max_batches: total number of batches at most; None for no bound.

    Returns:
      Batches OrderedDict(x, y), both int32 [batch, L]; y is x one position later.

    Raises:
      ValueError: if an argument is not a positive integer.
    """
    _validate.integer('batch_size', batch_size, minimum=1)
    _validate.integer('epochs', epochs, minimum=1)
    if max_batches is not None:
        _validate.integer('max_batches', max_batches, minimum=1)
    parts = [tokens[first : first + batch_size] for first in range(0, len(tokens), batch_size)]
    one_pass = [collections.OrderedDict(x=part[:, :-1], y=part[:, 1:]) for part in parts]
    return (one_pass * epochs)[:max_batches]


def dataset(tokens: np.ndarray, batch_size: int) -> Any:
    """One pass over the sentences as a `tf.data.Dataset` of the same batches.

    Raises:
      ValueError: if the batch size is not a positive integer.
    """
    import tensorflow as tf

    _validate.integer('batch_size', batch_size, minimum=1)
    slices = collections.OrderedDict(x=tokens[:, :-1], y=tokens[:, 1:])
    return tf.data.Dataset.from_tensor_slices(slices).batch(batch_size)
