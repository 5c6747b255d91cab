"""The noise of a run, drawn again from the keys that its state has recorded."""

from typing import Any

import numpy as np
import tensorflow as tf
import tree

from dpfl.aggregators import flat
from dpfl.aggregators.noise import correlated, draws


def keys(state: Any, stream: int = 0) -> np.ndarray:
    """The keys of the rounds done, int64 [rounds, 2].

    Args:
      state: of a query or process, or any structure around it.
      stream: 0 for the noise of the updates, 1 for that of the clipped counts.
    """
    found = []

    def visit(part):
        if isinstance(part, correlated.NoiseState):
            found.append(part)

    tree.traverse(visit, state)
    noise = found[stream]
    return np.asarray(noise.drawn)[: int(noise.round)]


def of_key(key: Any, specs: Any) -> Any:
    """Independent noise z of the round with a key, float64 tensors in the structure of `specs`."""
    vectors = {
        dtype: correlated._drawn(key, dtype, size) for dtype, size in flat.sizes(specs).items()
    }
    return flat.unflatten(vectors, specs)


def noise(state: Any, specs: Any, stream: int = 0) -> list[Any]:
    """Independent noise z of each round done, float64 in the structure of `specs`."""
    draw = tf.function(lambda key: of_key(key, specs))
    return [
        tf.nest.map_structure(lambda leaf: leaf.numpy(), draw(tf.constant(key)))
        for key in keys(state, stream)
    ]


def vectors(state: Any, specs: Any, stream: int = 0) -> np.ndarray:
    """The same, all coordinates in one row, float64 [rounds, coordinates]."""
    drawn = noise(state, specs, stream)
    return np.array([np.concatenate([*map(np.ravel, tf.nest.flatten(z))]) for z in drawn])


def ignore_context(monkeypatch: Any) -> None:
    """Makes the noise a function of root key and round alone: other sums then have the same."""
    of_round = draws.of_round
    monkeypatch.setattr(draws, 'of_round', lambda root, t, context: of_round(root, t, np.zeros(1)))
