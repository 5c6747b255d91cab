"""Reads classifiers of images: weights of the project's own models, or a SavedModel of any other.

A SavedModel is a graph that TensorFlow runs: load one only from those whom you trust with that.
"""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpfl import _files, _json, _npz, errors
from dpfl.tasks.config import ImageTaskConfig
from dpfl.tasks.images import classifiers, image_batches

# Entry of the file of a study's classifier that says how it was trained, as JSON.
CONFIGURATION = 'configuration'
_WEIGHTS = ('model.npz', os.path.join('primary', 'model.npz'))
_GRAPH = 'saved_model.pb'
_SIGNATURE = 'serving_default'
_BATCH = 1_024
_SIDE, _CLASSES = image_batches.IMAGE_SIZE, image_batches.NUM_CLASSES


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A trained classifier.

    Attributes:
      name: what it is, in words.
      infer: maps pixels float32 [n, 28, 28] to (probabilities float32 [n, 62], features [n, d]).
    """

    name: str
    infer: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

    def probabilities(self, pixels: np.ndarray) -> np.ndarray:
        """Probabilities of the classes, float32 [n, 62], for pixels [n, 28, 28]."""
        return self.infer(pixels)[0]

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """Activations of the hidden layer, float32 [n, d], for pixels [n, 28, 28]."""
        return self.infer(pixels)[1]


def of_weights(name: str, weights: tuple[np.ndarray, ...]) -> Classifier:
    """A classifier of `classifiers.PRESETS` with trained weights.

    Raises:
      ValueError: if the weights are not of that model.
    """
    return Classifier(f'a model {name}', classifiers.build_inference(name, weights))


def load(path: str | os.PathLike[str]) -> Classifier:
    """A classifier from a file or directory.

    Args:
      path: weights in an npz file, or a directory with them: that of a run that trained on images,
        or of a study of debug_images. Or a SavedModel whose signature `serving_default` maps images
        float32 [n, 28, 28] or [n, 28, 28, 1] within [0, 1], with paper 1, to one output [n, 62] of
        logits or probabilities. An output `features` [n, d] is optional; without it the
        probabilities serve as features.

    Raises:
      ArgumentError: if it holds no such classifier; it names `path`.
    """
    where = pathlib.Path(path)
    if (where / _GRAPH).is_file():
        return _of_graph(where)
    for file in (where, *(where / name for name in _WEIGHTS)):
        if file.is_file():
            return _of_file(path, file)
    why = '' if where.exists() else ' (no such file or directory)'
    raise errors.ArgumentError('path', path, f'holds no classifier of images{why}')


def require_stranger(path: str | os.PathLike[str], task: ImageTaskConfig, seed: int) -> None:
    """Checks that a classifier has not learned from the clients whom it is to judge.

    It does better on clients whom it knows, so it would not tell where it is strong and where it is
    poor ([Augenstein20], appendix C.3). What is known is what runs and studies of dpfl record about
    their models; of others nothing is known.

    Args:
      path: as for `load`.
      task: the clients.
      seed: of the clients, if they are synthetic.

    Raises:
      ArgumentError: if it has learned from some of them; it names `path`.
    """
    run, study = _origin(path)
    is_real = task.task == 'emnist'
    if run.get('task') == task.task and (is_real or run.get('seed') == seed):
        raise errors.ArgumentError(
            'path',
            path,
            f'was trained on the clients of task={task.task} whom it would judge; give a model of '
            'other data, or one that debug_images has trained on held-out clients',
        )
    if is_real and study.get('task') == task.task:
        fraction, most = study.get('heldout_fraction'), task.data.heldout_fraction
        if not isinstance(fraction, float) or fraction > most:
            raise errors.ArgumentError(
                'path',
                path,
                f'was trained on writers whom heldout_fraction={most} does not hold out: its study '
                f'had {errors.shown(fraction)}',
            )


def _origin(path: str | os.PathLike[str]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Settings by name of the run that trained a classifier, and of the study; empty if unknown."""
    where = pathlib.Path(path)
    run: dict[str, Any] = {}
    study: dict[str, Any] = {}
    # A SavedModel is in the directory of its run.
    for folder in (where, where.parent):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            config = _json.loads(_files.read_bytes(folder / 'config.json'))
            run = {'task': config['task']['task'], 'seed': config['seed']}
            break
    for file in (where, *(where / name for name in _WEIGHTS)):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            study = dict(_json.loads(str(_npz.load(file)[CONFIGURATION]).encode()))
            break
    return run, study


def _of_file(path: Any, file: pathlib.Path) -> Classifier:
    try:
        arrays = _npz.load(file)
    except (ValueError, OSError) as error:
        raise errors.ArgumentError('path', path, errors.shown(error)) from None
    # Other entries say how the model came about.
    weights = tuple(arrays[name] for name in sorted(filter(str.isdigit, arrays), key=int))
    shapes = tuple(weight.shape for weight in weights)
    for name, sizes in classifiers.PRESETS.items():
        if sizes.weight_shapes() == shapes and all(w.dtype == np.float32 for w in weights):
            return of_weights(name, weights)
    raise errors.ArgumentError(
        'path', path, f'{file.name} has not the weights of one of {", ".join(classifiers.PRESETS)}'
    )


def _of_graph(path: pathlib.Path) -> Classifier:
    import tensorflow as tf

    def refused(reason: str) -> errors.ArgumentError:
        return errors.ArgumentError('path', path, reason)

    try:
        model = tf.saved_model.load(str(path))
    except Exception as error:  # TensorFlow has no class of its own for a damaged model.
        raise refused(f'cannot be loaded: {errors.shown(error)}') from None
    signature = getattr(model, 'signatures', {}).get(_SIGNATURE)
    if signature is None:
        raise refused(f'has no signature {_SIGNATURE}')
    _, inputs = signature.structured_input_signature
    outputs = [name for name in signature.structured_outputs if name != 'features']
    if len(inputs) != 1 or len(outputs) != 1:
        raise refused('must map one input to one output, besides features')
    ((given, spec),), (output,) = inputs.items(), outputs
    shapes = ([None, _SIDE, _SIDE], [None, _SIDE, _SIDE, 1])
    if not any(spec.shape.is_compatible_with(shape) for shape in shapes):
        raise refused(f'must take images of shape {tuple(shapes[0])}, takes {spec.shape}')
    tail = (1,) if spec.shape.rank == 4 else ()

    def infer(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # At least one image, as in `classifiers.build_inference`.
        images = pixels if len(pixels) else np.ones([1, _SIDE, _SIDE], np.float32)
        parts = []
        for first in range(0, len(images), _BATCH):
            batch = images[first : first + _BATCH].reshape(-1, _SIDE, _SIDE, *tail)
            answer = signature(**{given: tf.constant(batch, spec.dtype)})
            probabilities = _normalised(answer[output].numpy())
            features = answer['features'].numpy() if 'features' in answer else probabilities
            parts.append((probabilities, features))
        probabilities, features = map(np.concatenate, zip(*parts, strict=True))
        return probabilities[: len(pixels)], features[: len(pixels)]

    shape = infer(np.ones([2, _SIDE, _SIDE], np.float32))[0].shape
    if shape != (2, _CLASSES):
        raise refused(f'must return {_CLASSES} values for an image, returns shape {shape}')
    return Classifier('a SavedModel', infer)


def _normalised(values: np.ndarray) -> np.ndarray:
    """Probabilities, from probabilities or from logits."""
    values = np.asarray(values, np.float64)
    is_share = values.min() >= 0 and np.allclose(values.sum(axis=-1), 1, atol=1e-3)
    if not is_share:
        values = np.exp(values - values.max(axis=-1, keepdims=True))
    return (values / values.sum(axis=-1, keepdims=True)).astype(np.float32)
