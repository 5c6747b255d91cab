r"""Has images of a private generator labelled, trains a model on them, and measures it.

Images on devices may not be shown to people who label; images of a private generator may
([Augenstein20], table 1, task T5). In two steps, with people in between:

  python -m experiments.studies.label_images --run_dir=runs/gan --output_dir=runs/labels
  python -m experiments.studies.label_images --run_dir=runs/gan --output_dir=runs/labels \
      --labels=labels.csv

The first draws images and writes label.html, a page on which a person labels them and saves
labels.csv. The second trains a classifier on these labels, another on as many public images, and
one on both, and measures them on the images of held-out clients. With --rater=cnn a classifier
labels in place of people, and both steps are one: a simulation. The output directory then has
images.npz, label.html, labels.csv and labelled.json.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import _progress, _random, accounting
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.debugging.differences import Mean
from dpfl.errors import ArgumentError, renaming
from dpfl.reporting import plain_text
from dpfl.tasks.config import IMAGE_MODELS
from experiments.studies.shared import files, finished_run, labels
from experiments.studies.shared.finished_run import FinishedRun

if TYPE_CHECKING:
    from dpfl.tasks.images import classifiers

# Pixels and labels.
Examples = tuple[np.ndarray, np.ndarray]
# Images of the smallest training that says anything.
_FEWEST = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelConfig(Settings):
    """Images for people to label, and the model that learns from their labels."""

    run_dir: str | None = setting(None, 'Directory of a finished run of train_gan.')
    images: int = setting(500, 'Number of images that the generator draws.', minimum=1)
    labels: str | None = setting(
        None, 'File of labels that label.html saved; the images are those of output_dir.'
    )
    rater: str | None = setting(
        None,
        'A classifier in place of people, for a simulation: small, cnn or tiny to train one on '
        'public images, or your own, as debug_images --primary_model.',
    )
    rater_confidence: float = setting(
        0.5,
        'The rater leaves an image without a label if it gives no class this probability.',
        minimum=0.0,
        maximum=1.0,
        needs='rater',
    )
    primary_model: str | None = setting(
        None,
        'A model to compare with, for example the one that runs on devices: the directory of a run '
        'or study.',
    )
    public_clients: int = setting(
        300,
        'Number of held-out clients whose images are public: the rater is trained on them, and a '
        'model to compare with.',
        minimum=1,
    )
    eval_clients: int = setting(
        100,
        'Number of further held-out clients on whose images the models are measured.',
        minimum=2,
    )
    model: str = setting(
        'small', 'The classifier that is trained on the labels.', choices=IMAGE_MODELS
    )
    steps: int = setting(1_000, 'Number of batches of 64 of each training.', minimum=1)
    learning_rate: float = setting(
        0.002, 'Learning rate of Adam in the first step of each training.', above=0
    )
    seed: int = setting(0, 'Seed of the images and of the trainings.', minimum=0, maximum=2**32)

    def check(self) -> None:
        """Checks that not both people and a classifier label."""
        if self.labels is not None and self.rater is not None:
            raise ArgumentError('rater', self.rater, 'must not be given with labels')


_CONFIG = SettingsFlags(LabelConfig)
_OUTPUT = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory for images and results; earlier ones there are replaced.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags; draws images to label, or trains on those that have labels."""
    config = _CONFIG.read()
    directory_of_run = command_line.required(config, 'run_dir')
    directory = output_flags.directory(_OUTPUT.read())
    with command_line.refusing_bad_values():
        generator = finished_run.open_run(directory_of_run)
        if generator.kind != finished_run.IMAGES:
            raise ArgumentError('run_dir', config.run_dir, 'must be a run of train_gan')
        if config.labels is None:
            page = draw(generator, config, directory)
            if config.rater is None:
                output_flags.show(_FORMAT, {'page': str(page)}, str(page))
                return
        values, given = measure(generator, config, directory)
    files.write(directory / labels.LABELS, labels.as_csv(given))
    files.write(directory / 'labelled.json', json.dumps(values))
    rows = [
        {
            'trained on': model['learned_from'],
            'images': '' if model['images'] is None else model['images'],
            'accuracy': f'{model["accuracy"]:.3f}',
            '95 % interval': f'{low:.3f} to {high:.3f}',
        }
        for model in values['models']
        for low, high in [model['accuracy_interval']]
    ]
    text = f'{values["labelled"]} of {values["images"]} images have a label\n'
    output_flags.show(_FORMAT, values, text + plain_text.columns(rows))


def draw(generator: FinishedRun, config: LabelConfig, directory: pathlib.Path) -> pathlib.Path:
    """Draws images of a generator and writes them with a page to label them; returns its path.

    Raises:
      StorageError: if a file cannot be written.
    """
    pixels = generator.image_sampler()(config.images, config.seed)
    origin = f'A generator drew these images. {_privacy(generator)}'
    return labels.write_sheet(directory, np.asarray(pixels, np.float32), origin)


def _privacy(generator: FinishedRun) -> str:
    report = generator.report
    if not math.isfinite(generator.epsilon):
        return 'It was trained without a guarantee.'
    simulation = ' Its noise was seeded: it is a simulation.' if report.noise_is_seeded else ''
    return (
        f'It was trained with epsilon {accounting.round_up(generator.epsilon)} at a delta of '
        f'{report.deltas[0]:.3g}; a large epsilon protects nobody.{simulation}'
    )


def measure(
    generator: FinishedRun, config: LabelConfig, directory: pathlib.Path
) -> tuple[dict[str, Any], np.ndarray]:
    """Labels the images in a directory, trains on them, and measures the classifiers.

    Returns:
      JSON values: numbers of `images` and of `labelled` ones, and for each of `models` what it
      learned from (`learned_from`, `images`) with its accuracy on clients that it has not seen.
      And the labels.

    Raises:
      ArgumentError: if labels or models cannot be read, or there are too few labels or clients.
    """
    from dpfl.tasks.images import classifiers

    with renaming(directory='output_dir'):
        pixels = labels.read_images(directory)
    primary = None
    if config.primary_model is not None:
        with renaming(path='primary_model'):
            primary = classifiers.load(config.primary_model)
    public, heldout = _clients(config, generator)
    given = _labels(config, pixels, public)
    has_label = given != labels.UNREADABLE
    count = int(has_label.sum())
    if count < _FEWEST:
        name = 'labels' if config.rater is None else 'rater_confidence'
        allowed = f'leaves {count} images with a label; must be >= {_FEWEST}'
        raise ArgumentError(name, getattr(config, name), allowed)
    labelled = pixels[has_label], given[has_label]
    few = _drawn(public, count, config.seed)
    both = np.concatenate([labelled[0], few[0]]), np.concatenate([labelled[1], few[1]])
    models = [
        _measured(name, len(data[1]), _train(config.model, data, config), heldout)
        for name, data in (
            ('labelled images of the generator', labelled),
            ('as many public images', few),
            ('both', both),
            ('all public images', public),
        )
    ]
    if primary is not None:
        models.append(_measured('the primary model', None, primary, heldout))
    return {'images': len(pixels), 'labelled': count, 'models': models}, given


def _clients(config: LabelConfig, generator: FinishedRun) -> tuple[Examples, list[Examples]]:
    """Public images of some held-out clients, and the images of others, client by client."""
    wanted = config.public_clients + config.eval_clients
    clients = generator.image_clients().heldout_clients(wanted)
    if len(clients) < wanted:
        allowed = (
            f'must leave eval_clients={config.eval_clients} of {len(clients)} held-out clients'
        )
        raise ArgumentError('public_clients', config.public_clients, allowed)
    pixels, classes = zip(*clients[: config.public_clients], strict=True)
    public = np.concatenate(pixels), np.concatenate(classes)
    return public, clients[config.public_clients :]


def _labels(config: LabelConfig, pixels: np.ndarray, public: Examples) -> np.ndarray:
    """The labels that people gave, or those of the rater."""
    from dpfl.tasks.images import classifiers

    if config.labels is not None:
        return labels.read_labels(config.labels, len(pixels))
    assert config.rater is not None  # One of the two is given.
    if config.rater in IMAGE_MODELS:
        rater = _train(config.rater, public, config)
    else:
        with renaming(path='rater'):
            rater = classifiers.load(config.rater)
    probabilities = rater(pixels)[0]
    is_sure = probabilities.max(axis=1) >= config.rater_confidence
    return np.where(is_sure, probabilities.argmax(axis=1), labels.UNREADABLE).astype(np.int32)


def _train(model: str, data: Examples, config: LabelConfig) -> 'classifiers.Classifier':
    from dpfl.tasks.images import classifiers

    weights = classifiers.train_centrally(
        model,
        *data,
        steps=config.steps,
        learning_rate=config.learning_rate,
        seed=config.seed,
        progress=lambda steps: _progress.bar(steps, f'{model} on {len(data[1]):,} images'),
    )
    return classifiers.of_weights(model, weights)


def _drawn(data: Examples, count: int, seed: int) -> Examples:
    """Random examples, `count` of them, or all if there are no more."""
    rng = _random.generator('label.public', seed)
    chosen = rng.permutation(len(data[1]))[:count]
    return data[0][chosen], data[1][chosen]


def _measured(
    learned_from: str,
    images: int | None,
    model: 'classifiers.Classifier',
    clients: Sequence[Examples],
) -> dict[str, Any]:
    """Share of right classes of all images; the interval counts each client as one draw."""
    right = [(model(x)[0].argmax(axis=1) == y).sum() for x, y in clients]
    accuracy = Mean.ratio(right, [len(y) for _, y in clients])
    return {
        'learned_from': learned_from,
        'images': images,
        'accuracy': accuracy.value,
        'accuracy_interval': list(accuracy.interval()),
        'clients': accuracy.count,
    }


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
