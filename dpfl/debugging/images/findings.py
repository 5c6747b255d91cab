"""Findings of the study: measures and traits of the images of each GAN, and their guarantees."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.accounting import extrapolation
from dpfl.debugging.differences import Mean, Share
from dpfl.debugging.images import image_measures, learned, runs, settings, traits
from dpfl.tasks.images import classifiers

_HALF_SHIFT = 'replace_one_half_shift'


@dataclasses.dataclass(frozen=True)
class Measures:
    """Measures of a set of images.

    Attributes:
      inverted_by_intensity: Share of images with more ink than paper.
      inverted_by_classifier: Share of images that the primary model is surer of once inverted.
      effective_classes: Effective number of classes, after inverted images are turned back.
      diversity: Mean distance of two images in the features of the primary model.
      frechet: Frechet distance of the features from those of the real images.
    """

    inverted_by_intensity: float
    inverted_by_classifier: float
    effective_classes: float
    diversity: float
    frechet: float


def measure(model: classifiers.Classifier, pixels: np.ndarray, real: np.ndarray) -> Measures:
    """Measures images, compared with real ones.

    Args:
      model: The primary model.
      pixels: The images, float32 [n, 28, 28].
      real: Real images of held-out clients, float32 [m, 28, 28].
    """
    dark = image_measures.inverted_by_intensity(pixels)
    upright = np.where(dark[:, None, None], 1 - pixels, pixels)
    features = model.features(pixels)
    by_classifier = image_measures.inverted_by_classifier(model.probabilities, pixels)
    return Measures(
        inverted_by_intensity=float(dark.mean()),
        inverted_by_classifier=float(by_classifier.mean()),
        effective_classes=image_measures.effective_classes(
            model.probabilities(upright).argmax(axis=1)
        ),
        diversity=image_measures.mean_distance(features),
        frechet=image_measures.frechet_distance(features, model.features(real)),
    )


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """Guarantee of a run, or of the larger run it stands for ([Augenstein20], tables 3 and 13).

    Attributes:
      name: 'simulation' for the run, 'realistic' for the larger one.
      clients_per_round, population, noise_multiplier, delta: Parameters of the run.
      epsilon: Epsilon under the adjacency of the run; infinite without noise.
      epsilon_half_shift: Epsilon as in [Augenstein20]: replacing a client moves the sum by one clip
        norm, and the accountant is the moments accountant.
      accountant: Accountant of `epsilon`.
    """

    name: str
    clients_per_round: int
    population: int
    noise_multiplier: float
    delta: float
    epsilon: float
    epsilon_half_shift: float
    accountant: str


def guarantees(
    plan: accounting.PrivacyPlan, scale: float, realistic_population: int, simulated_population: int
) -> tuple[Guarantee, Guarantee]:
    """Guarantees of a run, and of one with `scale` times the cohort size and the noise multiplier.

    The larger run has a population of `realistic_population` clients. The same share of it is
    selected as of `simulated_population`.

    Raises:
      ValueError: If there is no plan for the larger run.
    """
    assert plan.population is not None  # Cohorts are samples of it.
    selected = round(plan.population / simulated_population * realistic_population)
    larger = extrapolation.with_cohort_scaled(plan, scale, selected)
    return (
        _guarantee('simulation', plan, plan.population, 1 / plan.population),
        _guarantee('realistic', larger, selected, 0.01 / selected),
    )


def _guarantee(name: str, plan: accounting.PrivacyPlan, population: int, delta: float) -> Guarantee:
    accountant = plan.accountants[0]
    half = dataclasses.replace(plan, adjacency=_HALF_SHIFT)
    return Guarantee(
        name=name,
        clients_per_round=plan.clients_per_round,
        population=population,
        noise_multiplier=plan.noise_multiplier,
        delta=delta,
        epsilon=plan.epsilon(delta, accountant),
        epsilon_half_shift=half.epsilon(delta, 'moments'),
        accountant=accountant,
    )


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one GAN of the study shows.

    Attributes:
      state: 'bug', 'fixed' or 'as_is'.
      subpopulation: Name of the subpopulation that it was trained on.
      clients: Number of clients in the subpopulation.
      generated: Generated images, float32 [n, 28, 28].
      traits: Traits of the generated images, as `traits.measure` gives them.
      learned: How much of the public images the generator has learned.
      measures: Measures of the generated images, compared with public ones.
      guarantees: Guarantees of the run and of the larger run; empty for public images.
      seconds: Duration of the rounds.
    """

    state: str
    subpopulation: str
    clients: int
    generated: np.ndarray
    traits: Mapping[str, Share | Mean]
    learned: learned.Learned
    measures: Measures
    guarantees: tuple[Guarantee, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The finding without the images, as JSON values."""
        values = dataclasses.asdict(self)
        del values['generated']
        values['learned']['share'] = self.learned.share
        values['traits'] = {
            name: {'value': each.value, 'interval': list(each.interval())}
            for name, each in self.traits.items()
        }
        for guarantee in values['guarantees']:
            for name in ('epsilon', 'epsilon_half_shift'):
                if not np.isfinite(guarantee[name]):
                    guarantee[name] = None
        return values


def find(
    training: settings.Training,
    trained: runs.Trained,
    model: classifiers.Classifier,
    guarantees: tuple[Guarantee, ...],
    public: np.ndarray,
) -> Finding:
    """Measures what one GAN has learned.

    Args:
      training: What it was trained on.
      trained: The GAN.
      model: The primary model.
      guarantees: Of its run, and of the larger run; empty for public images.
      public: Images of held-out clients to compare with, float32 [m, 28, 28].
    """
    return Finding(
        state=training.state,
        subpopulation=training.chosen.name,
        clients=len(training.chosen),
        generated=trained.pixels,
        traits=traits.measure(trained.pixels, model.infer),
        learned=learned.measure(trained.pixels, public, model.infer),
        measures=measure(model, trained.pixels, public),
        guarantees=guarantees,
        seconds=trained.seconds,
    )
