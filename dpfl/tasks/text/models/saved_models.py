"""Saves language models as SavedModel, which TensorFlow loads without dpfl, and reads them back.

The signature `serving_default` maps `tokens`, int32 [B, L] with any L, to `logits` of the next
token at each position, float32 [B, L, V]. The file `assets.extra/model.json` describes the model:
`model` (a name in `ALL`), `num_tokens`, and `vocabulary` (words by token id, from id 4 on;
null for a character model, whose token ids are those of `text.tokenization`).
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _files, _json, _validate, errors
from dpfl.tasks.text.models import architectures, recurrent
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS

# Next-word models: the CIFG of [Xu23] (`cifg_670`), the LSTM of [McMahan18] (`lstm_256`), that of
# the StackOverflow benchmark in [McMahan24] (`lstm_670`), and smaller ones. That of [McMahan18] has
# one embedding for input and output, the others have two.
WORD_MODELS: dict[str, architectures.Architecture] = {
    'cifg_670': recurrent.StackedCifg(96, 670, 96),
    'small': recurrent.StackedCifg(32, 128, 32),
    'tiny': recurrent.StackedCifg(16, 32, 16),
    'micro': recurrent.StackedCifg(8, 16, 8),
    'lstm_256': recurrent.TiedLstm(embedding_size=96, hidden_size=256),
    'lstm_tiny': recurrent.TiedLstm(embedding_size=16, hidden_size=32),
    'lstm_670': recurrent.DenseLstm(embedding_size=96, hidden_size=670, projection_size=96),
    'lstm_dense_tiny': recurrent.DenseLstm(embedding_size=16, hidden_size=32, projection_size=16),
}

# Character models: the one of [Augenstein20], appendix B.2 (`char_cifg_256`), and smaller ones.
CHAR_MODELS: dict[str, architectures.Architecture] = {
    'char_cifg_256': recurrent.StackedCifg(128, 256, 128, num_layers=3),
    'char_small': recurrent.StackedCifg(32, 128, 32, num_layers=2),
    'char_tiny': recurrent.StackedCifg(16, 64, 24),
}

ALL = {**WORD_MODELS, **CHAR_MODELS}

_DESCRIPTION = pathlib.PurePath('assets.extra', 'model.json')
_GRAPH = 'saved_model.pb'
# Folder of the model in the directory of a run.
IN_RUN = 'saved_model'


def build(
    name: str, num_tokens: int, sequence_length: int, seed: int
) -> tff.learning.models.FunctionalModel:
    """Builds the model of a name in `ALL`. The other arguments are those of `architectures.build`.

    Raises:
      ValueError: if an argument is outside its range; the message names it.
    """
    return architectures.build(
        ALL[_validate.choice('name', name, ALL)], num_tokens, sequence_length, seed
    )


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A trained model.

    Attributes:
      name: name of its architecture in `ALL`.
      weights: float32 arrays in the order of the architecture's `weight_shapes`.
      vocabulary: words by token id, from NUM_SPECIAL_TOKENS on; None for a character model.

    Raises:
      ValueError: if weights or vocabulary do not fit the architecture.
    """

    name: str
    weights: tuple[np.ndarray, ...]
    vocabulary: tuple[str, ...] | None = None

    def __post_init__(self):
        num_tokens = architectures.check_weights(self.architecture, self.weights)
        words = self.vocabulary
        if (words is None) != (self.name in CHAR_MODELS):
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

    def digest(self) -> str:
        """SHA-256 of the architecture's name, the words and the weights, in hexadecimal."""
        total = hashlib.sha256(json.dumps([self.name, self.vocabulary]).encode())
        for weight in self.weights:
            array = np.ascontiguousarray(weight)
            total.update(json.dumps([array.dtype.str, array.shape]).encode())
            total.update(array.tobytes())
        return total.hexdigest()

    @property
    def architecture(self) -> architectures.Architecture:
        """The architecture of the model."""
        return ALL[_validate.choice('name', self.name, ALL)]


def save(model: LanguageModel, path: str | os.PathLike[str]) -> None:
    """Writes a model as a SavedModel. An existing folder is replaced as a whole.

    Raises:
      OSError: if the folder cannot be written.
    """
    architecture, num_tokens = model.architecture, int(model.weights[0].shape[0])
    module = tf.Module()
    module.parameters = [
        tf.Variable(weight, name=name)
        for name, weight in zip(architecture.weight_shapes(num_tokens), model.weights, strict=True)
    ]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name='tokens')])
    def predict(tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        parameters = tuple(module.parameters)
        state = architecture.start(parameters, tf.shape(tokens)[0])
        length = tf.shape(tokens)[1]
        # TensorFlow stacks no empty array: without tokens, the row of zeros at the end is cut off.
        end = tf.zeros([tf.shape(tokens)[0], num_tokens])
        logits = tf.TensorArray(tf.float32, length + 1).write(length, end)
        for position in tf.range(length):
            state, row = architecture.step(parameters, state, tokens[:, position])
            logits = logits.write(position, row)
        result = tf.transpose(logits.stack()[:length], [1, 0, 2])
        return {'logits': tf.ensure_shape(result, [None, None, num_tokens])}

    module.predict = predict
    description = {
        'model': model.name,
        'num_tokens': num_tokens,
        'vocabulary': model.vocabulary,
    }

    def describe(folder: pathlib.Path) -> None:
        file = folder / _DESCRIPTION
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(description, ensure_ascii=False), encoding='utf-8')

    write(module, path, {'serving_default': predict}, describe)


def write(
    module: tf.Module,
    path: str | os.PathLike[str],
    signatures: Mapping[str, Any],
    complete: Callable[[pathlib.Path], None] = lambda folder: None,
) -> None:
    """Writes a module as a SavedModel. An existing folder is replaced as a whole.

    Args:
      module: the module, with its variables.
      path: path of the folder, or a link to it. It is written as `<path>.partial` and then renamed.
      signatures: functions of the module by name.
      complete: adds other files to the folder before it is renamed.

    Raises:
      OSError: if the folder cannot be written.
    """
    path = pathlib.Path(path).resolve()  # A link can be neither removed as a folder nor replaced.
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
        shapes = ALL[name].weight_shapes(description['num_tokens'])
        weights = tuple(
            variables.get_tensor(f'parameters/{number}/.ATTRIBUTES/VARIABLE_VALUE')
            for number in range(len(shapes))
        )
        if any(weight.dtype != np.float32 for weight in weights):
            raise errors.ArgumentError('weights', errors.NOT_SHOWN, 'must be float32')
        return LanguageModel(name, weights, None if words is None else tuple(words))
    except (OSError, ValueError, LookupError, TypeError, tf.errors.OpError) as error:
        reason = errors.shown(error)
        raise errors.ArgumentError(
            'path',
            path,
            f'must be a SavedModel of a language model, as training leaves it ({reason})',
        ) from None


def _remove(path: pathlib.Path) -> None:
    if path.exists():
        shutil.rmtree(path)
