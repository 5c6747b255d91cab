"""Clipping of one client's update: flat or per layer (document 001, section 2)."""

import dataclasses

import numpy as np
import tensorflow as tf

from dpfl import _validate, errors

# Norms are computed in float32: the bound is kept by this much, so that rounding cannot break it.
_MARGIN = 1e-5
# Of clip norms. Squares of far smaller numbers vanish in float32, so norms would be understated.
SMALLEST_NORM, LARGEST_NORM = 1e-10, 1e15


def norm(tensors) -> tf.Tensor:
    """L2 norm over all tensors of a structure, float32 scalar."""
    leaves = [tf.cast(leaf, tf.float32) for leaf in tf.nest.flatten(tensors)]
    return tf.linalg.global_norm(leaves) if leaves else tf.zeros([])


def finite(update):
    """The update; zeros if its norm is not finite (NaN, infinite or overflowing entries).

    No scaling would bound the norm of such an update.
    """
    is_finite = tf.math.is_finite(norm(update))
    return tf.nest.map_structure(
        lambda leaf: tf.where(is_finite, leaf, tf.zeros_like(leaf)), update
    )


def clip_flat(update, clip_norm):
    """Scales a structure of tensors so that its L2 norm over all tensors is at most `clip_norm`.

    An update whose norm is not finite becomes zero.

    Args:
      update: structure of floating-point tensors.
      clip_norm: float32 scalar tensor within SMALLEST_NORM .. LARGEST_NORM.

    Returns:
      The structure of `update`.
    """
    length = norm(update)
    bound = clip_norm * (1 - _MARGIN)
    scale = tf.where(length <= bound, 1.0, bound / length)
    scale = tf.where(tf.math.is_finite(length), scale, 0.0)
    # Where the scale is 0 so is the result, whatever is scaled.
    return tf.nest.map_structure(
        lambda leaf: tf.math.multiply_no_nan(leaf, tf.cast(scale, leaf.dtype)), update
    )


@dataclasses.dataclass(frozen=True)
class PerLayer:
    """Clips each tensor to a share of the clip norm; the whole update then keeps the clip norm.

    Tensor j of an update has the bound `S_j = S shares[j] / |shares|`, so that the root of the sum
    of `S_j^2` is the clip norm S (document 001, section 2).

    Attributes:
      shares: one number >= 0 per tensor, in the order of `tf.nest.flatten`, not all 0; None for
        equal ones.

    Raises:
      ValueError: if the shares are not such numbers.
    """

    shares: tuple[float, ...] | None = None

    def __post_init__(self):
        if self.shares is None:
            return
        shares = _validate.vector('shares', self.shares)
        if not ((shares >= 0).all() and shares.any()):
            raise errors.ArgumentError('shares', self.shares, 'must be numbers >= 0, and not all 0')
        object.__setattr__(self, 'shares', tuple(shares.tolist()))

    def __call__(self, update, clip_norm):
        """The clipped update; arguments as those of `clip_flat`.

        An update becomes zero as a whole if one of its tensors has no finite norm.

        Raises:
          ValueError: if the update has another number of tensors than there are shares.
        """
        leaves = tf.nest.flatten(finite(update))
        shares = np.ones(len(leaves)) if self.shares is None else np.array(self.shares)
        if len(shares) != len(leaves):
            raise errors.ArgumentError(
                'shares', self.shares, f'must be {len(leaves)}, one per tensor'
            )
        bounds = clip_norm * (shares / np.linalg.norm(shares)).astype(np.float32)
        clipped = [clip_flat(leaf, bounds[index]) for index, leaf in enumerate(leaves)]
        return tf.nest.pack_sequence_as(update, clipped)


def check(clip) -> None:
    """Checks that a clip is one whose bound the plan counts: `clip_flat` or a `PerLayer`.

    Raises:
      ValueError: if it is anything else, such as a function that does not clip.
    """
    if clip is not clip_flat and type(clip) is not PerLayer:
        name = getattr(clip, '__name__', type(clip).__name__)
        raise errors.ArgumentError('clip', name, 'must be clip_flat or a PerLayer')
