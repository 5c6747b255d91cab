"""Evaluation of a model on held-out data, and of the images of a generator by its discriminator."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate, errors
from dpfl.aggregators.noise import draws
from dpfl.learning import client_work, gan
from dpfl.tasks.images import gan_models

# Percent of the clients whose accuracy a quantile is not below.
_QUANTILES = (10, 25, 50, 75, 90)
# Bytes of predictions that are computed at a time: with a large vocabulary the logits of a batch
# and the metrics' copies of them would need more memory than all of training.
_PREDICTIONS = 1 << 24
# Images that generators and discriminators make and score at a time.
_IMAGES = 512


def build_evaluation(
    model: tff.learning.models.FunctionalModel,
    dataset: tf.data.Dataset,
    *,
    owners: np.ndarray | None = None,
    hits: Callable[[Any, Any], tuple[Any, Any]] | None = None,
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
    """A function from model weights to the model's metrics over a data set.

    Args:
      model: the model; says which metrics there are.
      dataset: batches as the model takes them; read once and kept in memory. No client of the run
        may hold them: the metrics have no noise.
      owners: client of each example of the data set, integers from 0, [examples].
      hits: maps labels and predictions of a batch to the right predictions and the targets of each
        example. With both, the metrics have quantiles of the accuracies of the clients that have a
        target: a tenth of the clients has an accuracy below `accuracy_q10`, and so on.

    Returns:
      The function; its result maps a metric's name to its value.

    Raises:
      ArgumentError: if `owners` has another number of examples than the data set.

    Example:
      >>> network = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1)])
      >>> spec = tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])
      >>> model = from_keras(network, loss='mse', input_spec=spec)
      >>> batch = np.ones([3, 2], np.float32), np.ones([3, 1], np.float32)
      >>> evaluate = build_evaluation(model, tf.data.Dataset.from_tensors(batch))
      >>> evaluate(tff.learning.models.ModelWeights(*model.initial_weights))['num_examples']
      3.0
    """
    batches = [tf.nest.map_structure(np.asarray, batch) for batch in dataset]
    measure = _measure(model, owners, hits)
    return lambda given: measure(given, batches)


def evaluate_once(
    model: tff.learning.models.FunctionalModel,
    weights: tff.learning.models.ModelWeights,
    batches: Iterable[Any],
) -> dict[str, float]:
    """The metrics of a model over batches that are read one by one, and not kept.

    Args:
      model: the model; says which metrics there are.
      weights: its weights.
      batches: as the model takes them, NumPy arrays or tensors. No client of the run may hold them:
        the metrics have no noise.

    Example:
      >>> network = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1)])
      >>> spec = tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])
      >>> model = from_keras(network, loss='mse', input_spec=spec)
      >>> batch = np.ones([3, 2], np.float32), np.ones([3, 1], np.float32)
      >>> weights = tff.learning.models.ModelWeights(*model.initial_weights)
      >>> evaluate_once(model, weights, [batch, batch])['num_examples']
      6.0
    """
    numbers = (tf.nest.map_structure(np.asarray, batch) for batch in batches)
    return _measure(model)(weights, numbers)


def _measure(
    model: tff.learning.models.FunctionalModel,
    owners: np.ndarray | None = None,
    hits: Callable[[Any, Any], tuple[Any, Any]] | None = None,
) -> Callable[[tff.learning.models.ModelWeights, Iterable[Any]], dict[str, float]]:
    """A function from weights and batches of NumPy arrays to the metrics of the model."""
    # A graph of its own: TFF's models made of Keras refuse to work where TensorFlow is eager.
    graph = tf.Graph()
    with graph.as_default():
        first = model.initialize_metrics_state()
        weights = tf.nest.map_structure(_placeholder, _structure(model.initial_weights))
        state = tf.nest.map_structure(_placeholder, first)
        x, y = tf.nest.map_structure(_placeholder, client_work.pair(model.input_spec))
        output = model.predict_on_batch(weights, x, training=False)
        outcome = tff.learning.models.BatchOutput(
            loss=model.loss(output, y), predictions=output, num_examples=None
        )
        following = model.update_metrics_state(state, labels=y, batch_output=outcome)
        metrics = model.finalize_metrics(state)
        counted = () if hits is None or owners is None else hits(y, output)
    most_rows = _rows_within(_PREDICTIONS, output)
    session = tf.compat.v1.Session(graph=graph)

    def feed(structure: Any, values: Any) -> dict[Any, Any]:
        return dict(zip(tf.nest.flatten(structure), tf.nest.flatten(values), strict=True))

    def evaluate(
        given: tff.learning.models.ModelWeights, batches: Iterable[Any]
    ) -> dict[str, float]:
        fixed = feed(weights, tf.nest.map_structure(np.asarray, _structure(given)))
        values, counts = session.run(first), []
        for part in _parts(batches, most_rows):
            fed = {**fixed, **feed(state, values), **feed((x, y), client_work.pair(part))}
            values, *of_examples = session.run((following, *counted), fed)
            counts.append(of_examples)
        finalized = session.run(metrics, feed(state, values))
        named = {name: value.item() for name, value in finalized.items()}
        if owners is not None and counted:
            right, targets = (np.concatenate(column) for column in zip(*counts, strict=True))
            named |= accuracy_quantiles(owners, right, targets)
        return named

    return evaluate


def _rows_within(most_bytes: int, predictions: Any) -> int | None:
    """The most examples whose predictions fit into `most_bytes`, at least 1; None if unknown."""
    sizes = [
        None if leaf.shape.rank is None else leaf.shape[1:].num_elements()
        for leaf in tf.nest.flatten(predictions)
    ]
    if None in sizes:
        return None
    of_row = sum(
        size * leaf.dtype.size
        for size, leaf in zip(sizes, tf.nest.flatten(predictions), strict=True)
    )
    return max(most_bytes // max(of_row, 1), 1)


def _parts(batches: Iterable[Any], most_rows: int | None) -> Iterator[Any]:
    """The batches, those with more rows in parts of about equally many."""
    for batch in batches:
        rows = len(tf.nest.flatten(batch)[0])
        count = 1 if most_rows is None else max(math.ceil(rows / most_rows), 1)
        ends = [part * rows // count for part in range(count + 1)]
        for first, last in zip(ends, ends[1:], strict=False):
            yield tf.nest.map_structure(lambda leaf, i=first, j=last: leaf[i:j], batch)


def accuracy_quantiles(
    owners: np.ndarray, right: np.ndarray, targets: np.ndarray
) -> dict[str, float]:
    """Quantiles of the accuracies of clients, by name; none if no client has a target.

    Between two clients they are interpolated linearly.

    Args:
      owners: client of each example, integers from 0, [examples].
      right: right predictions in each example, [examples].
      targets: targets of each example, [examples].

    Raises:
      ArgumentError: if the numbers of examples differ.
    """
    if not owners.shape == right.shape == targets.shape:
        raise errors.ArgumentError(
            'owners', errors.NOT_SHOWN, f'must have one client for each of {right.size} examples'
        )
    hit, all_targets = (np.bincount(owners, weights=column) for column in (right, targets))
    present = all_targets > 0
    if not present.any():
        return {}
    accuracies = hit[present] / all_targets[present]
    values = np.quantile(accuracies, np.array(_QUANTILES) / 100)
    return {f'accuracy_q{q}': float(v) for q, v in zip(_QUANTILES, values, strict=True)}


def _structure(weights: Any) -> tuple[tuple, tuple]:
    """Trainable and other weights of a model, as tuples."""
    trainable, others = (
        weights if isinstance(weights, tuple) else (weights.trainable, weights.non_trainable)
    )
    return tuple(trainable), tuple(others)


def _placeholder(like: Any) -> tf.Tensor:
    return tf.compat.v1.placeholder(like.dtype, like.shape)


def sample(
    model: gan_models.GanModel, generator: Sequence[Any], number: int, seed: int
) -> np.ndarray:
    """Images of a generator: pixels within [0, 1], float32 [number, *image_shape].

    A pure function. The first images do not depend on the number, up to rounding.

    Args:
      model: generator and discriminator.
      generator: weights of the generator.
      number: number of images, at least 1.
      seed: of the inputs, an integer >= 0.

    Raises:
      ValueError: if the number or the seed is out of range.

    Example:
      >>> from dpfl.tasks.images import gan_models
      >>> model = gan_models.build_gan_model('tiny', seed=0)
      >>> sample(model, model.initial_generator, number=2, seed=0).shape
      (2, 28, 28, 1)
    """
    _validate.integer('number', number, minimum=1)
    key = draws.seeded_root_key(seed, 'generator samples')
    inputs = gan.random_inputs(key, number, model.input_size)
    weights = tuple(map(tf.convert_to_tensor, generator))
    parts = (inputs[first : first + _IMAGES] for first in range(0, number, _IMAGES))
    images = np.concatenate([model.generate(weights, part) for part in parts])
    return gan_models.pixels_of(images)


def build_gan_evaluation(
    model: gan_models.GanModel, pixels: np.ndarray, *, gradient_penalty: float, seed: int
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
    """A function from the weights of a GAN to its metrics.

    Args:
      model: generator and discriminator.
      pixels: real images of held-out clients, float32 [n, *image_shape] within [0, 1], n > 0. As
        many images are generated. Metrics on images of training clients would have no guarantee.
      gradient_penalty: coefficient of the penalty in the loss.
      seed: of the generator's inputs, which are the same in all evaluations.

    Returns:
      A function of the result of `get_model_weights` of `build_dp_fedavg_gan`. Its metrics are
      `loss` (of the discriminator), `generator_loss`, `critic_gap` (mean score of real minus mean
      score of generated images), `accuracy` (share of all pairs in which the real image scores
      higher: 0.5 if the discriminator cannot tell them apart), and `intensity` and `diversity` of
      the generated images (mean pixel, and standard deviation of a pixel over the images, averaged
      over pixels).

    Raises:
      ValueError: if there are no images, or they have another shape.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=1.0, clients_per_round=2)
      >>> from dpfl.tasks.images import gan_models
      >>> model = gan_models.build_gan_model('tiny', seed=0)
      >>> sgd = tff.learning.optimizers.build_sgdm
      >>> process = build_dp_fedavg_gan(
      ...     model, plan, client_optimizer_fn=sgd(0.1), server_optimizer_fn=sgd(1.0),
      ...     generator_optimizer=sgd(0.01))
      >>> measure = build_gan_evaluation(
      ...     model, np.zeros([4, 28, 28, 1], np.float32), gradient_penalty=10.0, seed=0)
      >>> measured = measure(process.get_model_weights(process.initialize()))
      >>> 0 <= measured['accuracy'] <= 1
      True
    """
    images = np.asarray(gan_models.images_of(pixels), np.float32)
    if images.shape[1:] != model.image_shape or not len(images):
        raise errors.ArgumentError(
            'pixels',
            errors.NOT_SHOWN,
            f'must be images of shape {model.image_shape}, has shape {images.shape}',
        )
    key = draws.seeded_root_key(seed, 'generator evaluation')
    inputs, places = (tensor.numpy() for tensor in gan.drawn(model, key, len(images)))

    @tf.function(reduce_retracing=True)
    def compared(generator, discriminator, images, inputs, places):
        fakes = model.generate(generator, inputs)
        return fakes, gan.compared(model, discriminator, images, fakes, places)

    def metrics(weights):
        named = tf.nest.map_structure(tf.convert_to_tensor, gan.gan_weights(weights))
        parts = [
            compared(
                named.generator,
                named.discriminator,
                *(array[first : first + _IMAGES] for array in (images, inputs, places)),
            )
            for first in range(0, len(images), _IMAGES)
        ]
        fakes = np.concatenate([fakes for fakes, _ in parts])
        values = gan.Scores(*map(np.concatenate, zip(*(part for _, part in parts), strict=True)))
        generated = gan_models.pixels_of(fakes)
        measured = dict(
            loss=gan.discriminator_loss(values, gradient_penalty),
            accuracy=_share_above(values.real, values.generated),
            critic_gap=values.real.mean() - values.generated.mean(),
            generator_loss=-values.generated.mean(),
            intensity=generated.mean(),
            diversity=generated.std(axis=0, dtype=np.float64).mean(),
        )
        return {name: float(value) for name, value in measured.items()}

    return metrics


def _share_above(first: np.ndarray, second: np.ndarray) -> float:
    """Share of all pairs in which the value of the first is higher; equal ones count half."""
    if np.isnan(first).any() or np.isnan(second).any():
        return math.nan
    ordered = np.sort(second)
    twice = sum(np.searchsorted(ordered, first, side).sum() for side in ('left', 'right'))
    return float(twice) / (2 * len(first) * len(second))
