"""Random weights of language models, and their losses in float64."""

import numpy as np


def random_weights(cell, num_tokens, seed=0, scale=1.0):
    """Normal weights of the shapes of an architecture, float32."""
    rng = np.random.default_rng(seed)
    shapes = cell.weight_shapes(num_tokens).values()
    return tuple((scale * rng.normal(size=shape)).astype(np.float32) for shape in shapes)


def log_probabilities(logits):
    """Logarithms of the softmax over the last axis, float64."""
    logits = np.asarray(logits, np.float64)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def losses(logits, targets):
    """Cross entropy of each target, float64; 0 for padding."""
    chosen = np.take_along_axis(log_probabilities(logits), targets[..., None], axis=-1)[..., 0]
    return np.where(targets == 0, 0, -chosen)


def mean_loss(logits, targets):
    """Mean over targets that are not padding."""
    return losses(logits, targets).sum() / (targets != 0).sum()
