"""Classifiers of small grey-scale images: models, central training, and files of trained ones.

The layers are convolutions, each of which halves height and width, and two dense layers:

    image [28, 28, 1]
    for each entry of `channels`: convolution, ReLU, halve (stride 2, or 2 x 2 max pooling)
    dense to `hidden`, ReLU: the features for comparing images
    dense to 62: the logits

[Augenstein20] does not list the layers of its primary model. `cnn` has the layers that [McMahan17]
uses for images of this size: two 5 x 5 convolutions with 32 and 64 channels, 2 x 2 max pooling, and
512 hidden units. These are 1.69M weights for 62 classes.

The primary model of [Augenstein20], section 6, is trained before it is deployed to the devices. If
its data are public, central training has no privacy loss to account for. To train a classifier on
clients' data use `learning.build_dp_fedavg`.

A trained classifier is read from weights of these models; no graph of others is executed.
"""

import collections
import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _files, _json, _npz, _random, _validate, errors
from dpfl.tasks import central_training
from dpfl.tasks.config import SYNTHETIC_TASKS, ImageTaskConfig
from dpfl.tasks.images import image_clients

# Images that are classified at a time.
_INFERENCE_BATCH = 1_024
# Examples of a step of central training.
_BATCH = 64
# Entry of the file of a study's classifier that says how it was trained, as JSON.
CONFIGURATION = 'configuration'
_WEIGHTS = ('model.npz', os.path.join('primary', 'model.npz'))


@dataclasses.dataclass(frozen=True)
class ClassifierSizes:
    """Sizes of a classifier.

    Attributes:
      kernel: height and width of the convolution kernels.
      channels: number of output channels of each convolution.
      hidden: number of units of the hidden layer.
      pools: convolutions have stride 1 and are followed by 2 x 2 max pooling, instead of stride 2.
    """

    kernel: int
    channels: tuple[int, ...]
    hidden: int
    pools: bool = False

    def weight_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: kernel and bias of each layer in turn."""
        side, before = image_clients.IMAGE_SIZE, 1
        shapes = []
        for after in self.channels:
            shapes += [(self.kernel, self.kernel, before, after), (after,)]
            side, before = (side // 2 if self.pools else -(-side // 2)), after
        classes = image_clients.NUM_CLASSES
        shapes += [(side * side * before, self.hidden), (self.hidden,)]
        return (*shapes, (self.hidden, classes), (classes,))

    @property
    def num_parameters(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.weight_shapes())


PRESETS = {
    'cnn': ClassifierSizes(kernel=5, channels=(32, 64), hidden=512, pools=True),
    'small': ClassifierSizes(kernel=3, channels=(16, 32), hidden=128),
    'tiny': ClassifierSizes(kernel=4, channels=(4, 8), hidden=16),
}


def build_image_classifier(name: str, seed: int) -> tff.learning.models.FunctionalModel:
    """Builds a classifier of a named size.

    Args:
      name: a key of `PRESETS`.
      seed: integer in [0, 2**64); decides the initial weights.

    Returns:
      A model of batches of type `image_batches.element_spec()`, with logits [batch, 62]. Its loss
      is the mean cross entropy in nats; its metrics are `loss`, `accuracy` and `num_examples`.

    Raises:
      ValueError: if an argument is outside its range; the message names it.
    """
    sizes = PRESETS[_validate.choice('name', name, PRESETS)]

    @tf.function(autograph=False)
    def predict_on_batch(model_weights: Any, x: tf.Tensor, training: bool) -> tf.Tensor:
        del training  # There is no dropout and no batch normalisation.
        return logits(sizes, model_weights[0], x)

    def loss(output: tf.Tensor, label: tf.Tensor, sample_weight: Any = None) -> tf.Tensor:
        del sample_weight
        return tf.reduce_mean(_cross_entropy(output, label))

    return tff.learning.models.FunctionalModel(
        initial_weights=(initial_weights(sizes, seed), ()),
        predict_on_batch_fn=predict_on_batch,
        loss_fn=loss,
        metrics_fns=(_initialize, _update, _finalize),
        input_spec=image_clients.element_spec(),
    )


def initial_weights(sizes: ClassifierSizes, seed: int) -> tuple[np.ndarray, ...]:
    """Initial weights of a classifier, float32. A pure function of the arguments.

    Raises:
      ValueError: if the seed is not an integer in [0, 2**64).
    """
    rng = _random.generator('image.weights', _random.check_seed('seed', seed))
    return image_clients.initial_weights(rng, sizes.weight_shapes())


def features(sizes: ClassifierSizes, weights: Sequence[Any], images: tf.Tensor) -> tf.Tensor:
    """Hidden layer, float32 [batch, hidden], of images float32 [batch, 28, 28, 1]."""
    x, stride = images, 1 if sizes.pools else 2
    for kernel, bias in zip(weights[:-4:2], weights[1:-4:2], strict=True):
        x = tf.nn.relu(tf.nn.conv2d(x, kernel, strides=stride, padding='SAME') + bias)
        if sizes.pools:
            x = tf.nn.max_pool2d(x, 2, 2, padding='VALID')
    x = tf.reshape(x, [tf.shape(images)[0], weights[-4].shape[0]])
    return tf.nn.relu(tf.matmul(x, weights[-4]) + weights[-3])


def logits(sizes: ClassifierSizes, weights: Sequence[Any], images: tf.Tensor) -> tf.Tensor:
    """Logits, float32 [batch, 62], of images float32 [batch, 28, 28, 1]."""
    return tf.matmul(features(sizes, weights, images), weights[-2]) + weights[-1]


def _cross_entropy(output: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=output)


# The state of the metrics holds sums and counts, so adding the states of clients pools exactly.


@tf.function
def _initialize():
    return collections.OrderedDict(
        loss_sum=tf.zeros([], tf.float64),
        num_correct=tf.zeros([], tf.int64),
        num_examples=tf.zeros([], tf.int64),
    )


@tf.function
def _update(state, labels, batch_output, sample_weight=None):
    del sample_weight
    predictions = batch_output.predictions
    is_correct = tf.equal(tf.argmax(predictions, axis=1, output_type=labels.dtype), labels)
    losses = _cross_entropy(predictions, labels)
    return collections.OrderedDict(
        loss_sum=state['loss_sum'] + tf.reduce_sum(tf.cast(losses, tf.float64)),
        num_correct=state['num_correct'] + tf.reduce_sum(tf.cast(is_correct, tf.int64)),
        num_examples=state['num_examples'] + tf.size(labels, tf.int64),
    )


@tf.function
def _finalize(state):
    count = tf.cast(state['num_examples'], tf.float64)
    correct = tf.cast(state['num_correct'], tf.float64)
    return collections.OrderedDict(
        loss=tf.cast(tf.math.divide_no_nan(state['loss_sum'], count), tf.float32),
        accuracy=tf.cast(tf.math.divide_no_nan(correct, count), tf.float32),
        num_examples=state['num_examples'],
    )


def train_centrally(
    name: str,
    pixels: np.ndarray,
    labels: np.ndarray,
    *,
    steps: int,
    learning_rate: float = 2e-3,
    seed: int = 0,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> tuple[np.ndarray, ...]:
    """Trains a classifier with Adam and a cosine decay of the learning rate to 0.

    Args:
      name: a key of `PRESETS`.
      pixels: float32 [n, 28, 28].
      labels: int32 [n].
      steps: number of batches of 64 examples, drawn with replacement.
      learning_rate: learning rate of the first step.
      seed: integer in [0, 2**64); decides the initial weights and the batches.
      progress: wraps the iterable of steps, for example `dpfl._progress.bar`.

    Returns:
      The trained weights, float32. On one machine they are a pure function of the arguments.

    Raises:
      ValueError: if there are no examples.
    """
    sizes = PRESETS[_validate.choice('name', name, PRESETS)]
    _validate.integer('number of examples', len(labels), minimum=1)
    rng = _random.generator('image.training', _random.check_seed('seed', seed))

    def batches() -> Iterator[Sequence[np.ndarray]]:
        for _ in progress(range(steps)):
            chosen = rng.integers(len(labels), size=_BATCH)
            yield pixels[chosen].reshape(-1, *image_clients.IMAGE_SHAPE), labels[chosen]

    def loss(weights: Any, images: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(_cross_entropy(logits(sizes, weights, images), classes))

    def decay(step: Any) -> tf.Tensor:
        return learning_rate / 2 * (1 + tf.cos(math.pi / steps * tf.cast(step, tf.float32)))

    optimizer = tff.learning.optimizers.schedule_learning_rate(
        tff.learning.optimizers.build_adam(learning_rate), decay
    )
    return central_training.train(initial_weights(sizes, seed), loss, batches(), optimizer)[0]


# A trained classifier: maps pixels, float32 [n, 28, 28], to the probabilities of the classes,
# float32 [n, 62], and to the activations of the hidden layer, float32 [n, d].
Classifier = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def of_weights(name: str, weights: Sequence[np.ndarray]) -> Classifier:
    """A classifier of `PRESETS` with trained weights.

    Raises:
      ValueError: if the shapes of the weights are not those of the named model.
    """
    sizes = PRESETS[_validate.choice('name', name, PRESETS)]
    shapes = tuple(np.shape(weight) for weight in weights)
    if shapes != sizes.weight_shapes():
        raise errors.ArgumentError(
            'weights', errors.NOT_SHOWN, f'must be those of {name}, but have shapes {shapes}'
        )
    constants = tuple(tf.constant(weight) for weight in weights)

    @tf.function(input_signature=[image_clients.element_spec()['x']])
    def infer(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        hidden = features(sizes, constants, images)
        return tf.nn.softmax(tf.matmul(hidden, constants[-2]) + constants[-1]), hidden

    def infer_in_parts(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # At least one image: the convolutions of oneDNN fail on an empty batch.
        given = pixels if len(pixels) else np.ones([1, *image_clients.IMAGE_SHAPE], np.float32)
        images = given.reshape(-1, *image_clients.IMAGE_SHAPE)
        starts = range(0, len(images), _INFERENCE_BATCH)
        parts = [infer(images[first : first + _INFERENCE_BATCH]) for first in starts]
        probabilities, hidden = map(np.concatenate, zip(*parts, strict=True))
        return probabilities[: len(pixels)], hidden[: len(pixels)]

    return infer_in_parts


def load(path: str | os.PathLike[str]) -> Classifier:
    """A classifier from a file or directory.

    Args:
      path: weights in an npz file, or a directory with them: that of a run that trained on images,
        or of a study of debug_images.

    Raises:
      ArgumentError: if it holds no such classifier; it names `path`.
    """
    where = pathlib.Path(path)
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
    is_real = task.task not in SYNTHETIC_TASKS
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
    # The file with the weights is in the directory of its run.
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
    for name, sizes in PRESETS.items():
        if sizes.weight_shapes() == shapes and all(w.dtype == np.float32 for w in weights):
            return of_weights(name, weights)
    raise errors.ArgumentError(
        'path', path, f'{file.name} has not the weights of one of {", ".join(PRESETS)}'
    )
