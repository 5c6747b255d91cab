"""Saves language models as SavedModel, which TensorFlow loads without dpfl, and reads them back.

The signature `serving_default` maps `tokens`, int32 [B, L] with any L, to `logits` of the next
token at each position, float32 [B, L, V]. The file `assets.extra/model.json` describes the model:
`model` (a name in `catalog.ALL`), `num_tokens`, and `vocabulary` (words by token id, from id 4 on;
null for a character model, whose token ids are those of `text.encoding`).
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _files, _json, _validate, errors
from dpfl.tasks.text.models import architectures, catalog
from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS

_DESCRIPTION = pathlib.PurePath('assets.extra', 'model.json')
_GRAPH = 'saved_model.pb'
# Folder of the model in the directory of a run.
IN_RUN = 'saved_model'


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A trained model.

    Attributes:
      name: name of its architecture in `catalog.ALL`.
      weights: float32 arrays in the order of the architecture's `weight_shapes`.
      vocabulary: words by token id, from NUM_SPECIAL_TOKENS on; None for a character model.

    Raises:
      ValueError: if weights or vocabulary do not fit the architecture.
    """

    name: str
    weights: tuple[np.ndarray, ...]
    vocabulary: tuple[str, ...] | None = None

    def digest(self) -> str:
        """SHA-256 of the architecture's name, the words and the weights, in hexadecimal."""
        total = hashlib.sha256(json.dumps([self.name, self.vocabulary]).encode())
        for weight in self.weights:
            array = np.ascontiguousarray(weight)
            total.update(json.dumps([array.dtype.str, array.shape]).encode())
            total.update(array.tobytes())
        return total.hexdigest()

    def __post_init__(self):
        num_tokens = architectures.check_weights(self.architecture, self.weights)
        words = self.vocabulary
        if (words is None) != (self.name in catalog.CHAR_MODELS):
            raise errors.ArgumentError(
                'vocabulary',
                errors.NOT_SHOWN,
                f'must be given for word models, and not for {self.name}',
            )
        if words is not None and len(words) + NUM_SPECIAL_TOKENS != num_tokens:
            raise errors.ArgumentError(
                'vocabulary',
                errors.NOT_SHOWN,
                f'must have {num_tokens - NUM_SPECIAL_TOKENS} words, has {len(words)}',
            )

    @property
    def architecture(self) -> architectures.Architecture:
        """The architecture of the model."""
        return catalog.ALL[_validate.choice('name', self.name, catalog.ALL)]


def save(model: LanguageModel, path: str | os.PathLike[str]) -> None:
    """Writes a model as a SavedModel. An existing folder is replaced as a whole.

    Raises:
      OSError: if the folder cannot be written.
    """
    module = _module(model.architecture, model.weights)
    description = {
        'model': model.name,
        'num_tokens': int(model.weights[0].shape[0]),
        'vocabulary': model.vocabulary,
    }

    def describe(folder: pathlib.Path) -> None:
        file = folder / _DESCRIPTION
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(description, ensure_ascii=False), encoding='utf-8')

    write(module, path, {'serving_default': module.predict}, describe)


def write(
    module: tf.Module,
    path: str | os.PathLike[str],
    signatures: Mapping[str, Any],
    complete: Callable[[pathlib.Path], None] = lambda folder: None,
) -> None:
    """Writes a module as a SavedModel. An existing folder is replaced as a whole.

    Args:
      module: the module, with its variables.
      path: path of the folder. It is written as `<path>.partial` and then renamed.
      signatures: functions of the module by name.
      complete: adds other files to the folder before it is renamed.

    Raises:
      OSError: if the folder cannot be written.
    """
    path = pathlib.Path(path)
    partial = path.with_name(path.name + '.partial')
    _remove(partial)
    # In a notebook TensorFlow says where it has written.
    log = tf.get_logger()
    level = log.level
    log.setLevel('WARNING')
    try:
        tf.saved_model.save(module, str(partial), signatures=signatures)
    except tf.errors.OpError as error:
        message = ' '.join(error.message.split())
        # TensorFlow puts the reason after the path.
        raise OSError(message.rpartition('; ')[2]) from None
    finally:
        log.setLevel(level)
    complete(partial)
    _remove(path)
    partial.rename(path)


def load(path: str | os.PathLike[str]) -> LanguageModel:
    """Reads a model written by `save`. Reads weights only; no graph is executed.

    Args:
      path: folder of the model, or the directory of a run with such a folder.

    Raises:
      ValueError: if there is no such model (argument `path`).
    """
    inner = pathlib.Path(path, IN_RUN)
    folder = inner if inner.is_dir() else pathlib.Path(path)
    try:
        if not (folder / _GRAPH).is_file():
            raise ValueError('it has no saved_model.pb')
        description = _json.loads(_files.read_bytes(folder / _DESCRIPTION))
        for part in (folder / 'variables').iterdir():
            _files.open_regular(part).close()  # Refuses a FIFO, on which TensorFlow would block.
        variables = tf.train.load_checkpoint(str(folder / 'variables' / 'variables'))
        name, words = description['model'], description['vocabulary']
        if words is not None and not (
            isinstance(words, list) and all(isinstance(word, str) for word in words)
        ):
            raise errors.ArgumentError('vocabulary', errors.NOT_SHOWN, 'must be a list of words')
        shapes = catalog.ALL[name].weight_shapes(description['num_tokens'])
        weights = tuple(
            variables.get_tensor(f'parameters/{number}/.ATTRIBUTES/VARIABLE_VALUE')
            for number in range(len(shapes))
        )
        return LanguageModel(name, weights, None if words is None else tuple(words))
    except (OSError, ValueError, LookupError, TypeError, tf.errors.OpError) as error:
        reason = errors.shown(error)
        raise errors.ArgumentError(
            'path',
            path,
            f'must be a SavedModel of a language model, as training leaves it ({reason})',
        ) from None


def _module(architecture: architectures.Architecture, weights: Sequence[Any]) -> tf.Module:
    """A module with the weights as variables and the function `predict`."""
    module = tf.Module()
    num_tokens = weights[0].shape[0]
    names = architecture.weight_shapes(num_tokens)
    module.parameters = [
        tf.Variable(weight, name=name) for name, weight in zip(names, weights, strict=True)
    ]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name='tokens')])
    def predict(tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        parameters = tuple(module.parameters)
        state = architecture.start(parameters, tf.shape(tokens)[0])
        length = tf.shape(tokens)[1]
        logits = tf.TensorArray(tf.float32, length)
        for position in tf.range(length):
            state, row = architecture.step(parameters, state, tokens[:, position])
            logits = logits.write(position, row)
        result = tf.transpose(logits.stack(), [1, 0, 2])
        return {'logits': tf.ensure_shape(result, [None, None, num_tokens])}

    module.predict = predict
    return module


def _remove(path: pathlib.Path) -> None:
    if path.exists():
        shutil.rmtree(path)
