"""Comparison of images that two generators draw: ink, class mix, distance.

Each image is one independent draw. Classes are those that a classifier of public images sees, so
they are no truth: a classifier that has never seen such images may be wrong about all of them.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from matplotlib import figure

from dpfl import _random, _validate
from dpfl.debugging.differences import Difference, Mean, Share
from dpfl.debugging.images import traits
from dpfl.reporting import charts, html_parts
from dpfl.reporting.html_parts import Cell
from dpfl.tasks.config import ImageFaultConfig
from dpfl.tasks.images import image_clients
from experiments.studies.shared import files, written
from experiments.studies.shared.generators import Generator
from experiments.studies.shared.written import Allowance, Area, ComparisonConfig, Part

# From pixels [n, 28, 28] to probabilities of classes and features.
Inference = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Samples = tuple[np.ndarray, np.ndarray]
# Random splits that a comparison of features takes at most.
_SPLITS = 19
_LARGEST = 12


@dataclasses.dataclass(frozen=True)
class Apart:
    """Distance of two sets of images, with that of random halves.

    Attributes:
      frechet: Frechet distance of the features of equal numbers of images of each set.
      floor: mean Frechet distance of random halves of all images together.
      p_value: share of the random halves that are at least as far apart, as in a permutation test.
      splits: number of random halves.
    """

    frechet: float
    floor: float
    p_value: float
    splits: int


def measures(pixels: np.ndarray) -> dict[str, Share | Mean]:
    """Measures by name of images, float [N, 28, 28] within [0, 1]; paper is 1, ink is 0."""
    return {
        'ink, share of the area': Mean.of(1 - pixels.mean(axis=(1, 2))),
        'inverted: more ink than paper': Share.of(traits.inverted_by_intensity(pixels)),
        'contrast: standard deviation of the pixels': Mean.of(pixels.std(axis=(1, 2))),
    }


def class_mix(classes: np.ndarray) -> dict[str, Share]:
    """Share of each of the 62 classes, by its character, of class numbers [N]."""
    counts = np.bincount(classes, minlength=len(image_clients.CLASSES)).tolist()
    names = zip(image_clients.CLASSES, counts, strict=True)
    return {name: Share(count, len(classes)) for name, count in names}


def apart(first: np.ndarray, second: np.ndarray, *, splits: int, seed: int) -> Apart:
    """The Frechet distance of two sets of features, beside that of random halves of both.

    Args:
      first, second: features of images, float [N, d], N > 3.
      splits: number of random splits.
      seed: seed of the splits.

    Raises:
      ValueError: if there are fewer than four images.
    """
    number = min(len(first), len(second))
    _validate.integer('number of images', number, minimum=4)
    pooled = np.concatenate([first[:number], second[:number]]).astype(np.float64)
    rng = _random.generator('debugging.images', _random.check_seed('seed', seed))
    far = traits.frechet_distance(pooled[:number], pooled[number:])
    by_chance = np.empty(splits)
    for split in range(splits):
        order = rng.permutation(len(pooled))
        halves = pooled[order[:number]], pooled[order[number:]]
        by_chance[split] = traits.frechet_distance(*halves)
    as_far = int((by_chance >= far * (1 - 1e-9)).sum())
    return Apart(far, float(by_chance.mean()), (1 + as_far) / (1 + splits), splits)


def compare(first: Generator, second: Generator, config: ComparisonConfig) -> Part:
    """Draws images of two generators and compares them."""
    inference = _classifier(first, config)
    draw = [generator.image_sampler() for generator in (first, second)]
    seed, count = 2 * config.drawn.seed, config.drawn.images
    # Sheets have the same inputs; the measures have other ones, so that samples are independent.
    samples = draw[0](count, seed), draw[1](count, seed + 1)
    shown = html_parts.SHEET_IMAGES
    sheets = draw[0](shown, seed), draw[1](shown, seed)
    return of_samples(samples, sheets, inference, config)


def of_samples(
    samples: Samples, sheets: Samples, inference: Inference | None, config: ComparisonConfig
) -> Part:
    """Compares images.

    Args:
      samples: independent images of the two sides, float [N, 28, 28] within [0, 1].
      sheets: images to show.
      inference: the classifier; None for no class mix.
      config: settings of the comparison.
    """
    allowed = Allowance(config.training_deviation)
    measured = allowed.compare(map(measures, samples))
    areas = [Area('ink', measured)]
    values = {'samples': len(samples[0]), 'measures': [each.to_dict() for each in measured]}
    mix: tuple[Difference, ...] = ()
    summaries: list[tuple[str, list[float]]] = []
    distance = None
    if inference is not None:
        seen = [inference(pixels) for pixels in samples]
        classes = [probabilities.argmax(axis=1) for probabilities, _ in seen]
        features = [each for _, each in seen]
        mix = allowed.compare(map(class_mix, classes))
        effective = [traits.effective_classes(each) for each in classes]
        diversity = [traits.mean_distance(each) for each in features]
        splits = min(config.splits, _SPLITS)
        distance = apart(features[0], features[1], splits=splits, seed=config.drawn.seed)
        areas.append(Area('class mix', mix))
        summaries = [
            ('effective number of classes', effective),
            ('diversity: mean distance of two images', diversity),
        ]
        values |= {
            'classes': [each.to_dict() for each in mix],
            'effective_classes': effective,
            'diversity': diversity,
            'distance': dataclasses.asdict(distance),
        }

    def render(level: float) -> str:
        ink, inverted, _ = measured
        captions = (
            f'a: {ink.first:.1%} of the area is ink, {inverted.first:.1%} of the images have more '
            'ink than paper',
            f'b: {ink.second:.1%} of the area is ink, {inverted.second:.1%} of the images have '
            'more ink than paper',
        )
        parts = [
            '<h2>Images</h2>',
            f'<div class="sheets">{"".join(map(html_parts.sheet, sheets, captions))}</div>',
            html_parts.note('Both sheets have the same random inputs, and are not a choice.'),
            '<h2>Ink</h2>',
            written.table('', measured[:2], level),
            written.table('', measured[2:], level, is_share=False),
            html_parts.note(f'{len(samples[0]):,} images of each side.'),
        ]
        if distance is not None:
            parts += ['<h2>Class mix</h2>', _classes(mix, summaries, distance, level)]
        return '\n'.join(parts)

    return Part(tuple(areas), values, render)


def _classes(
    mix: tuple[Difference, ...],
    summaries: list[tuple[str, list[float]]],
    distance: Apart,
    level: float,
) -> str:
    drawn = figure.Figure(figsize=(10, 3.2), layout='constrained')
    axes = drawn.add_subplot(xlabel='class that the classifier sees', ylabel='images (%)')
    places = np.arange(len(mix))
    for number, name in enumerate('ab'):
        shares = [100 * (each.first, each.second)[number] for each in mix]
        color = charts.COLORS[number]
        axes.bar(places + 0.4 * number - 0.2, shares, 0.4, color=color, label=name)
    axes.set_xticks(places, [each.name for each in mix], fontsize=7)
    axes.set_xlim(-1, len(places))
    axes.grid(alpha=0.3, axis='y')
    axes.legend()
    largest = sorted(mix, key=lambda each: -abs(each.value))[:_LARGEST]
    rows = [[Cell(name, 'text'), *(f'{value:.3g}' for value in pair)] for name, pair in summaries]
    return (
        html_parts.figure(
            drawn,
            'Classes that a classifier of public images sees. It knows clean signs only, so this '
            'is a description, not a truth.',
        )
        + written.table('largest differences, class', largest, level, ratio=True)
        + html_parts.table(['', 'a', 'b'], rows)
        + html_parts.note(
            f'Frechet distance of a and b in the features of the classifier: '
            f'{distance.frechet:.3g}; by chance (mean of {distance.splits} random splits) '
            f'{distance.floor:.3g}, p of equal generators {written.p_value(distance.p_value)}. '
            'Effective number of classes: exponential of the entropy of the class mix. Diversity '
            'and distance have no unit.'
        )
    )


def _classifier(generator: Generator, config: ComparisonConfig) -> Inference | None:
    """A classifier of images of held-out clients of the task of a generator."""
    from dpfl.tasks.images import classifiers
    from dpfl.tasks.images.image_task import open_clients

    settings, seed = config.classifier, config.drawn.seed
    if not settings.classifier_steps:
        return None
    run = generator.gan_config
    # Without the faults that the run may have, as public images are.
    data = open_clients(run.task.task, run.task.data, ImageFaultConfig(), run.seed)
    pixels, labels = data.heldout_examples(settings.classifier_clients)
    files.tell(f'Trains a classifier on {len(labels):,} public images')
    weights = classifiers.train_centrally(
        classifiers.build_image_classifier('small', seed),
        pixels,
        labels,
        steps=settings.classifier_steps,
        seed=seed,
    )
    return classifiers.build_inference('small', weights)
