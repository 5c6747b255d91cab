"""Clipping of one client's update."""

import tensorflow as tf

# Norms are computed in float32: the bound is kept by this much, so that rounding cannot break it.
_MARGIN = 1e-5


def clip_flat(update, clip_norm):
    """Scales a structure of tensors so that its L2 norm over all tensors is at most `clip_norm`.

    An update whose norm is not finite (NaN, infinite or overflowing entries) becomes zero: no
    scaling would bound it.

    Args:
      update: structure of floating-point tensors.
      clip_norm: float32 scalar tensor, above 0.

    Returns:
      The structure of `update`.
    """
    norm = tf.linalg.global_norm([tf.cast(leaf, tf.float32) for leaf in tf.nest.flatten(update)])
    bound = clip_norm * (1 - _MARGIN)
    scale = tf.where(norm <= bound, 1.0, bound / norm)

    def clip(leaf):
        scaled = leaf * tf.cast(scale, leaf.dtype)
        return tf.where(tf.math.is_finite(norm), scaled, tf.zeros_like(leaf))

    return tf.nest.map_structure(clip, update)
