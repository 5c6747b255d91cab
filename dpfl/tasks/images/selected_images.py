"""Images of clients of which only a selection is trained on ([Augenstein20], section 2.1).

As `text.selected_sentences`: each client decides by its own data alone, the decision stays with it,
and the guarantee is that of all clients.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import errors
from dpfl.tasks.image_selection_config import ImageSelectionConfig
from dpfl.tasks.images import image_batches
from dpfl.tasks.selection_config import Criterion

# Maps pixels float32 [n, 28, 28] to class probabilities [n, 62].
Classify = Callable[[np.ndarray], np.ndarray]


def measures(
    pixels: np.ndarray, labels: np.ndarray, classify: Classify | None
) -> dict[str, np.ndarray]:
    """The measures of each image by name, float64 [n] each.

    Args:
      pixels: values within [0, 1], paper is 1, float32 [n, 28, 28].
      labels: int [n].
      classify: the model; without one only `label` and `ink` are measured.
    """
    found = {'label': labels, 'ink': 1 - pixels.mean(axis=(1, 2), dtype=np.float64)}
    if classify is not None:
        probabilities = np.asarray(classify(pixels), np.float64)
        predicted = probabilities.argmax(axis=1)
        least = np.finfo(np.float32).tiny  # A loss stays finite.
        of_label = probabilities[np.arange(len(labels)), labels]
        found |= {
            'predicted': predicted,
            'accuracy': predicted == labels,
            'confidence': probabilities.max(axis=1),
            'loss': -np.log(np.maximum(of_label, least)),
        }
    return {name: np.asarray(values, np.float64) for name, values in found.items()}


def chosen(
    config: ImageSelectionConfig, pixels: np.ndarray, labels: np.ndarray, classify: Classify | None
) -> np.ndarray:
    """Which images of a client are selected, bool [n].

    Args:
      config: the criteria.
      pixels, labels, classify: as in `measures`; all images of the client.

    Raises:
      ArgumentError: if criteria need a model and there is none.
    """
    if config.selection_model is not None and classify is None:
        raise errors.ArgumentError('classify', errors.NOT_SHOWN, 'must be given: criteria need it')
    if not len(labels):
        return np.zeros(0, bool)
    found = measures(pixels, labels, classify)
    of_client = {name: values.mean() for name, values in found.items()} | {'examples': len(labels)}
    mask = np.ones(len(labels), bool) & _met(config.of_examples, found)
    mask &= bool(_met(config.of_clients, of_client))
    return mask & (mask.sum() >= config.select_min_examples)


def client_batches(
    config: ImageSelectionConfig,
    examples: Callable[[int], tuple[np.ndarray, np.ndarray]],
    classify: Classify | None = None,
) -> Callable[[int, int, int, int | None], Sequence[Any]]:
    """A function (client, batch size, epochs, limit on batches) to batches of selected images.

    Args:
      config: the criteria.
      examples: maps a client to its pixels and labels.
      classify: the model of criteria that need one.
    """

    def batches(
        client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> Sequence[Any]:
        pixels, labels = examples(client)
        mask = chosen(config, pixels, labels, classify)
        return image_batches.batches(pixels[mask], labels[mask], batch_size, epochs, max_batches)

    return batches


def _met(criteria: Sequence[Criterion], values: Mapping[str, Any]) -> Any:
    """Whether all criteria hold, elementwise; true if there are none."""
    found: Any = True
    for criterion in criteria:
        found = found & criterion.holds(values[criterion.measure])
    return found
