"""The part of a comparison about generators of images: sheets, ink, classes, distance."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl.debugging import differences
from dpfl.debugging.differences import Difference
from dpfl.tasks.config import ImageFaultConfig
from dpfl.tasks.images.image_batches import effective_classes, mean_distance
from experiments.studies.generators import allowance
from experiments.studies.generators import drawn as drawn_lib
from experiments.studies.generators.config import ComparisonConfig
from experiments.studies.generators.sides import Generator, gan_config
from experiments.studies.generators.verdict import Area

_SHEET_IMAGES = 72
# From pixels [n, 28, 28] to probabilities of classes and features.
Inference = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Classes:
    """What a classifier of public images sees.

    Attributes:
      mix: Share of each class.
      effective: Effective number of classes of the two sides.
      diversity: Mean distance of two images in the classifier's features, of the two sides.
      apart: Frechet distance of the two sides.
    """

    mix: tuple[Difference, ...]
    effective: tuple[float, float]
    diversity: tuple[float, float]
    apart: drawn_lib.Apart


@dataclasses.dataclass(frozen=True)
class Images:
    """What two generators of images draw.

    Attributes:
      samples: Number of images of each side.
      sheets: Some images of both sides, of the same inputs, float32 [n, 28, 28].
      measures: Ink and the like.
      classes: What a classifier sees; None without one.
    """

    samples: int
    sheets: tuple[np.ndarray, np.ndarray]
    measures: tuple[Difference, ...]
    classes: Classes | None

    def areas(self) -> tuple[Area, ...]:
        """The areas of the verdict."""
        mix = () if self.classes is None else (Area('class mix', self.classes.mix),)
        return (Area('ink', self.measures), *mix)

    def to_dict(self, top: int) -> dict[str, Any]:
        """The part as JSON values."""
        values: dict[str, Any] = {
            'samples': self.samples,
            'measures': [each.to_dict() for each in self.measures],
        }
        if self.classes is not None:
            values |= {
                'classes': [each.to_dict() for each in self.classes.mix],
                'effective_classes': self.classes.effective,
                'diversity': self.classes.diversity,
                'distance': dataclasses.asdict(self.classes.apart),
            }
        return values


def compare(first: Generator, second: Generator, config: ComparisonConfig) -> Images:
    """Draws images of two generators and compares them."""
    inference = _classifier(first, config)
    draw = [sampler(each) for each in (first, second)]
    seed, count = 2 * config.drawn.seed, config.drawn.images
    # Sheets have the same inputs; the measures have other ones, so that samples are independent.
    samples = draw[0](count, seed), draw[1](count, seed + 1)
    sheets = draw[0](_SHEET_IMAGES, seed), draw[1](_SHEET_IMAGES, seed)
    return of_samples(samples, sheets, inference, config)


def of_samples(
    samples: tuple[np.ndarray, np.ndarray],
    sheets: tuple[np.ndarray, np.ndarray],
    inference: Inference | None,
    config: ComparisonConfig,
) -> Images:
    """Compares images.

    Args:
      samples: Independent images of the two sides, float [N, 28, 28] within [0, 1].
      sheets: Images to show.
      inference: The classifier; None for no class mix.
      config: How they are compared.
    """
    allowed = allowance.Allowance(config.training_deviation)
    measures = [drawn_lib.measures(each) for each in samples]

    def compared(first, second) -> tuple[Difference, ...]:
        between = {name: allowed.of(one, second[name]) for name, one in first.items()}
        return differences.compare_all(first, second, between=between)

    classes = None
    if inference is not None:
        seen = [inference(each) for each in samples]
        numbers = [probabilities.argmax(axis=1) for probabilities, _ in seen]
        classes = Classes(
            mix=compared(*(drawn_lib.class_mix(each) for each in numbers)),
            effective=(effective_classes(numbers[0]), effective_classes(numbers[1])),
            diversity=(mean_distance(seen[0][1]), mean_distance(seen[1][1])),
            apart=drawn_lib.apart(
                seen[0][1], seen[1][1], splits=min(config.splits, 19), seed=config.drawn.seed
            ),
        )
    return Images(len(samples[0]), sheets, compared(*measures), classes)


def sampler(each: Generator) -> Callable[[int, int], np.ndarray]:
    """Draws images of a generator: maps their number and a seed to pixels [n, 28, 28]."""
    from dpfl import learning
    from dpfl.simulation.training import gan

    config = gan_config('run_dir', each.directory, each.values)
    model = gan.build_model(config.optimization, config.seed)
    return lambda number, seed: learning.sample(model, each.weights, number, seed)[..., 0]


def _classifier(each: Generator, config: ComparisonConfig) -> Inference | None:
    """A classifier of images of held-out clients of the task of a generator."""
    how = config.classifier
    if not how.classifier_steps:
        return None
    from dpfl.tasks.images import classifiers
    from dpfl.tasks.images.image_task import open_clients

    run = gan_config('run_dir', each.directory, each.values)
    # Without the faults that the run may have, as public images are.
    data = open_clients(run.task.task, run.task.data, ImageFaultConfig(), run.seed)
    pixels, labels = data.heldout_examples(how.classifier_clients)
    print(f'Trains a classifier on {len(labels):,} public images', file=sys.stderr)
    weights = classifiers.train_centrally(
        classifiers.build_image_classifier('small', config.drawn.seed),
        pixels,
        labels,
        steps=how.classifier_steps,
        seed=config.drawn.seed,
    )
    return classifiers.build_inference('small', weights)
