"""Trains a classifier on labelled images of a generator, and measures what it is worth."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl import _progress, _random, _storage, accounting
from dpfl.debugging.differences import Mean
from dpfl.errors import ArgumentError, renaming
from dpfl.tasks.config import IMAGE_MODELS, ImageFaultConfig
from dpfl.tasks.images import classifiers, image_batches
from dpfl.tasks.images.image_task import open_clients
from experiments.studies.generators import images_part, sides
from experiments.studies.labelling import labelling
from experiments.studies.labelling.config import LabelConfig

# Pixels and labels.
Examples = tuple[np.ndarray, np.ndarray]
# Images of the smallest training that says anything.
_FEWEST = 2


@dataclasses.dataclass(frozen=True)
class Trained:
    """A classifier and how well it does on clients that it has not seen.

    Attributes:
      learned_from: What it was trained on, in words.
      images: Number of images that it was trained on; None if that is not known.
      accuracy: Mean of the accuracies of the clients.
    """

    learned_from: str
    images: int | None
    accuracy: Mean

    def to_dict(self) -> dict[str, Any]:
        """The classifier as JSON values."""
        return {
            'learned_from': self.learned_from,
            'images': self.images,
            'accuracy': self.accuracy.value,
            'accuracy_interval': list(self.accuracy.interval()),
            'clients': self.accuracy.count,
        }


@dataclasses.dataclass(frozen=True)
class Labelled:
    """What the labels are worth.

    Attributes:
      images: Number of generated images.
      labelled: Number of those with a label.
      classes: Effective number of classes of the labels.
      models: Classifiers that are compared; the first was trained on the labels.
    """

    images: int
    labelled: int
    classes: float
    models: tuple[Trained, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            'images': self.images,
            'labelled': self.labelled,
            'effective_classes': self.classes,
            'models': [each.to_dict() for each in self.models],
        }


def draw(config: LabelConfig, directory: pathlib.Path) -> pathlib.Path:
    """Draws images of a generator and writes them with a page to label them; returns its path.

    The directory is made if it is missing.

    Raises:
      ArgumentError: If the run has no generator of images; it names `run_dir`.
      StorageError: If a file cannot be written.
    """
    generator = _generator(config)
    with _storage.naming(directory):
        directory.mkdir(parents=True, exist_ok=True)
    origin = f'A generator drew these images. {_privacy(generator)}'
    pixels = images_part.sampler(generator)(config.images, config.seed)
    return labelling.write(directory, np.asarray(pixels, np.float32), origin)


def measure(config: LabelConfig, directory: pathlib.Path) -> tuple[Labelled, np.ndarray]:
    """Labels the images in a directory, trains on them, and measures; returns the labels too.

    Raises:
      ArgumentError: If labels or models cannot be read, or there are too few labels or clients.
    """
    generator = _generator(config)
    with renaming(directory='output_dir'):
        pixels = labelling.read_images(directory)
    primary = None
    if config.primary_model is not None:
        with renaming(path='primary_model'):
            primary = classifiers.load(config.primary_model)
    public, heldout = _clients(config, generator)
    labels = _labels(config, pixels, public)
    has_label = labels != labelling.UNREADABLE
    count = int(has_label.sum())
    if count < _FEWEST:
        name = 'labels' if config.rater is None else 'rater_confidence'
        allowed = f'leaves {count} images with a label; must be >= {_FEWEST}'
        raise ArgumentError(name, getattr(config, name), allowed)
    labelled = pixels[has_label], labels[has_label]
    few = _drawn(public, count, config.seed)
    both = np.concatenate([labelled[0], few[0]]), np.concatenate([labelled[1], few[1]])
    models = [
        Trained(name, len(data[1]), _accuracy(_train(config.model, data, config), heldout))
        for name, data in (
            ('labelled images of the generator', labelled),
            ('as many public images', few),
            ('both', both),
            ('all public images', public),
        )
    ]
    if primary is not None:
        models.append(
            Trained('the primary model: ' + primary.name, None, _accuracy(primary, heldout))
        )
    effective = image_batches.effective_classes(labelled[1])
    return Labelled(len(pixels), count, effective, tuple(models)), labels


def _privacy(generator: sides.Generator) -> str:
    report = generator.report
    if not math.isfinite(generator.epsilon):
        return 'It was trained without a guarantee.'
    simulation = ' Its noise was seeded: it is a simulation.' if report.noise_is_seeded else ''
    return (
        f'It was trained with epsilon {accounting.round_up(generator.epsilon)} at a delta of '
        f'{report.deltas[0]:.3g}; a large epsilon protects nobody.{simulation}'
    )


def _generator(config: LabelConfig) -> sides.Generator:
    if not config.run_dir:
        raise ArgumentError('run_dir', config.run_dir, 'must be the directory of a run')
    found = sides.open_side('run_dir', [config.run_dir])
    if sides.IMAGES not in found:
        raise ArgumentError('run_dir', config.run_dir, 'must be a run of train_gan')
    return found[sides.IMAGES]


def _clients(config: LabelConfig, generator: sides.Generator) -> tuple[Examples, list[Examples]]:
    """Public images of some held-out clients, and the images of others, each by itself."""
    run = sides.gan_config('run_dir', generator.directory, generator.values)
    data = open_clients(run.task.task, run.task.data, ImageFaultConfig(), run.seed)
    wanted = config.public_clients + config.eval_clients
    clients = data.heldout_clients(wanted)
    if len(clients) < wanted:
        raise ArgumentError(
            'public_clients',
            config.public_clients,
            f'must leave eval_clients={config.eval_clients} of {len(clients)} held-out clients',
        )
    pixels, labels = zip(*clients[: config.public_clients], strict=True)
    public = np.concatenate(pixels), np.concatenate(labels)
    return public, clients[config.public_clients :]


def _labels(config: LabelConfig, pixels: np.ndarray, public: Examples) -> np.ndarray:
    if config.labels is not None:
        return labelling.read_labels(config.labels, len(pixels))
    assert config.rater is not None  # One of the two is given.
    if config.rater in IMAGE_MODELS:
        rater = _train(config.rater, public, config)
    else:
        with renaming(path='rater'):
            rater = classifiers.load(config.rater)
    probabilities = rater.probabilities(pixels)
    is_sure = probabilities.max(axis=1) >= config.rater_confidence
    return np.where(is_sure, probabilities.argmax(axis=1), labelling.UNREADABLE).astype(np.int32)


def _train(model: str, data: Examples, config: LabelConfig) -> classifiers.Classifier:
    weights = classifiers.train_centrally(
        classifiers.build_image_classifier(model, config.seed),
        *data,
        steps=config.steps,
        learning_rate=config.learning_rate,
        seed=config.seed,
        progress=lambda steps: _progress.bar(steps, f'{model} on {len(data[1]):,} images'),
    )
    return classifiers.of_weights(model, weights)


def _drawn(data: Examples, count: int, seed: int) -> Examples:
    """So many examples at random, or all if there are no more."""
    rng = _random.generator('label.public', seed)
    chosen = rng.permutation(len(data[1]))[:count]
    return data[0][chosen], data[1][chosen]


def _accuracy(model: classifiers.Classifier, clients: Sequence[Examples]) -> Mean:
    """Share of right classes of all images; the interval counts each client as one draw."""
    right = [(model.probabilities(x).argmax(axis=1) == y).sum() for x, y in clients]
    return Mean.ratio(right, [len(y) for _, y in clients])
