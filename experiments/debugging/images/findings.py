"""What the study finds: numbers of each GAN's images, a verdict, and what its run guarantees."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.accounting import extrapolation
from dpfl.tasks.images import image_measures
from experiments.debugging.images import primary, runs, settings

# More than this share of inverted images dominates a sheet; fewer than the second, and it is clean.
DOMINATED, CLEAN = 0.5, 0.1
_HALF_SHIFT = 'replace_one_half_shift'


@dataclasses.dataclass(frozen=True)
class Measures:
    """Numbers of some images.

    Attributes:
      inverted_by_intensity: share with more ink than paper.
      inverted_by_classifier: share that the primary model is surer of when they are inverted.
      effective_classes: how many classes there seem to be; inverted images are turned back first.
      diversity: mean distance of two images in the features of the primary model.
      frechet: distance of the features from those of the real images.
    """

    inverted_by_intensity: float
    inverted_by_classifier: float
    effective_classes: float
    diversity: float
    frechet: float


def measure(model: primary.Primary, pixels: np.ndarray, real: np.ndarray) -> Measures:
    """Measures images against real ones of the same subpopulation.

    Args:
      model: the primary model.
      pixels: float32 [n, 28, 28].
      real: float32 [m, 28, 28].
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
    """Epsilon of a run and of the larger one that it stands for (document 004, tables 3 and 13).

    Attributes:
      clients_per_round, population, noise_multiplier, delta: of the run.
      epsilon: under the adjacency of the run; infinity without noise.
      epsilon_half_shift: as the document counts: a client moves the sum by one clip norm.
      accountant: of `epsilon`; `epsilon_half_shift` is by the document's moments accountant.
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
    """Of the run, and of one with `scale` times the clients per round and the noise multiplier.

    The larger run is on a population of `realistic_population` clients, of whom as large a part is
    selected as of the `simulated_population`.

    Raises:
      ValueError: if there is no such plan.
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
    """One GAN of the study.

    Attributes:
      state: 'bug' or 'fixed'.
      subpopulation: who it was trained on.
      clients: how many they are.
      generated: pixels, float32 [n, 28, 28].
      real: pixels that it was trained on, some of them.
      measures: of the generated images.
      real_measures: of one half of the real ones against the other: what can be reached.
      guarantees: of the run, and scaled up.
      seconds: that its rounds took.
    """

    state: str
    subpopulation: str
    clients: int
    generated: np.ndarray
    real: np.ndarray
    measures: Measures
    real_measures: Measures
    guarantees: tuple[Guarantee, Guarantee]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """All but the images, in values that JSON has."""
        values = dataclasses.asdict(self)
        del values['generated'], values['real']
        for guarantee in values['guarantees']:
            for name in ('epsilon', 'epsilon_half_shift'):
                if not np.isfinite(guarantee[name]):
                    guarantee[name] = None
        return values


def find(
    training: settings.Training,
    trained: runs.Trained,
    model: primary.Primary,
    larger: tuple[Guarantee, Guarantee],
) -> Finding:
    """The finding of one GAN."""
    real = training.real_pixels()
    return Finding(
        state=training.state,
        subpopulation=training.chosen.name,
        clients=len(training.chosen),
        generated=trained.pixels,
        real=real,
        measures=measure(model, trained.pixels, real),
        real_measures=measure(model, real[::2], real[1::2]),
        guarantees=larger,
        seconds=trained.seconds,
    )


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the four GANs together say.

    Attributes:
      bug_is_visible: with the bug, inverted images dominate where the primary model does badly, and
        not where it does well.
      fix_is_visible: after the fix neither has them.
      text: the same in words.
    """

    bug_is_visible: bool
    fix_is_visible: bool
    text: str


def conclude(findings: Sequence[Finding]) -> Verdict:
    """The verdict, by the share of inverted images by mean intensity.

    Args:
      findings: of each state the good subpopulation first.
    """
    shares = {
        state: [each.measures.inverted_by_intensity for each in findings if each.state == state]
        for state in (settings.BUG, settings.FIXED)
    }
    (good, bad), fixed = shares[settings.BUG], shares[settings.FIXED]
    bug = bad > DOMINATED and good <= CLEAN
    fix = max(fixed) <= CLEAN
    return Verdict(
        bug,
        fix,
        (
            f'With the bug {bad:.0%} of the images generated where the primary model does badly '
            f'are inverted, and {good:.0%} where it does well: the contrast '
            f'{"shows the bug" if bug else "does not show the bug"}. After the fix these are '
            f'{fixed[1]:.0%} and {fixed[0]:.0%}: '
            f'{"it is gone" if fix else "it seems not to be gone"}.'
        ),
    )
