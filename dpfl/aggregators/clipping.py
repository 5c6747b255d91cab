"""Clipping of one client's update: flat or per layer ([McMahan18], section 2)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _validate, errors
from dpfl.mechanisms import rounding

# (update, clip norm: float32 scalar) -> clipped update.
Clip = Callable[[Any, tf.Tensor], Any]

# Norms are computed in float32. Clipping below the bound by this share absorbs the rounding.
_MARGIN = 1e-5
# Range of clip norms. Squares of far smaller numbers underflow in float32, which would understate
# norms.
SMALLEST_NORM, LARGEST_NORM = 1e-10, 1e15


def norm(tensors: Any) -> tf.Tensor:
    """L2 norm over all tensors of a structure, float32 scalar."""
    leaves = [tf.cast(leaf, tf.float32) for leaf in tf.nest.flatten(tensors)]
    return tf.linalg.global_norm(leaves) if leaves else tf.zeros([])


def finite(update: Any) -> Any:
    """The update, or zeros if its norm is not finite (NaN, infinite or overflowing entries).

    No scaling bounds the norm of such an update.
    """
    is_finite = tf.math.is_finite(norm(update))
    return tf.nest.map_structure(
        lambda leaf: tf.where(is_finite, leaf, tf.zeros_like(leaf)), update
    )


def clip_flat(update: Any, clip_norm: tf.Tensor) -> Any:
    """Scales a structure of tensors so that its L2 norm over all tensors is at most `clip_norm`.

    An update whose norm is not finite becomes zero.

    Args:
      update: structure of floating-point tensors.
      clip_norm: float32 scalar tensor within SMALLEST_NORM .. LARGEST_NORM.

    Returns:
      The structure of `update`.

    Example:
      >>> clipped = clip_flat([tf.constant([3.0]), tf.constant([4.0])], tf.constant(1.0))
      >>> [tensor.numpy().round(3) for tensor in clipped]  # Their norm is at most 1.
      [array([0.6], dtype=float32), array([0.8], dtype=float32)]
    """
    length = norm(update)
    bound = clip_norm * (1 - _MARGIN)
    scale = tf.where(length <= bound, 1.0, bound / length)
    scale = tf.where(tf.math.is_finite(length), scale, 0.0)
    # A scale of 0 gives 0 even for entries that are not finite.
    return tf.nest.map_structure(
        lambda leaf: tf.math.multiply_no_nan(leaf, tf.cast(scale, leaf.dtype)), update
    )


@dataclasses.dataclass(frozen=True)
class PerLayer:
    """Clips each tensor to its share of the clip norm, so the whole update is within the clip norm.

    Tensor j of an update has the bound `S_j = S shares[j] / |shares|`, so that the root of the sum
    of `S_j^2` is the clip norm S ([McMahan18], section 2).

    Attributes:
      shares: one number >= 0 per tensor, in the order of `tf.nest.flatten`, one of them at least
        1e-100; None for equal shares.

    Raises:
      ValueError: if the shares are not such numbers.

    Example:
      >>> clip = PerLayer(shares=(3.0, 4.0))  # 0.6 and 0.8 of the clip norm.
      >>> clipped = clip([tf.constant([9.0]), tf.constant([0.5])], 1.0)
      >>> [tensor.numpy().round(3) for tensor in clipped]
      [array([0.6], dtype=float32), array([0.5], dtype=float32)]
    """

    shares: tuple[float, ...] | None = None

    def __post_init__(self):
        if self.shares is None:
            return
        shares = _validate.vector('shares', self.shares)
        # The square of the largest share must be a float, and not 0.
        if not ((shares >= 0).all() and shares.max(initial=0.0) >= rounding.SMALLEST):
            raise errors.ArgumentError(
                'shares',
                self.shares,
                f'must be numbers >= 0, and not all below {rounding.SMALLEST:g}',
            )
        object.__setattr__(self, 'shares', tuple(shares.tolist()))

    def __call__(self, update: Any, clip_norm: tf.Tensor) -> Any:
        """The clipped update; arguments as those of `clip_flat`.

        The whole update becomes zero if the norm of one of its tensors is not finite.

        Raises:
          ValueError: if the number of tensors differs from the number of shares.
        """
        check(self, update)
        leaves = tf.nest.flatten(finite(update))
        shares = np.ones(len(leaves)) if self.shares is None else np.array(self.shares)
        bounds = clip_norm * (shares / np.linalg.norm(shares)).astype(np.float32)
        clipped = [clip_flat(leaf, bounds[index]) for index, leaf in enumerate(leaves)]
        return tf.nest.pack_sequence_as(update, clipped)


def check(clip: Any, update: Any = None) -> None:
    """Checks that the clip is `clip_flat` or a `PerLayer`, whose bounds the plan relies on.

    Args:
      clip: of a query.
      update: structure of the tensors or specs that it clips; None if it is not known.

    Raises:
      ValueError: if it is anything else, such as a function that does not clip, or has another
        number of shares than there are tensors.
    """
    if clip is not clip_flat and type(clip) is not PerLayer:
        name = getattr(clip, '__name__', type(clip).__name__)
        raise errors.ArgumentError('clip', name, 'must be clip_flat or a PerLayer')
    shares = clip.shares if isinstance(clip, PerLayer) else None
    tensors = len(tf.nest.flatten(update))
    if update is not None and shares is not None and len(shares) != tensors:
        raise errors.ArgumentError('shares', shares, f'must be {tensors} numbers, one per tensor')
