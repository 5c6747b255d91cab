"""Findings of the study: measures of each GAN's images, its guarantees, and a conclusion."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import _json, accounting
from dpfl.debugging import differences
from dpfl.debugging.diagnosis import FOUND, NOT_SEEN, SUSPECTED, Contrast, Effects, Generated
from dpfl.debugging.differences import Mean
from dpfl.debugging.images import clients, diagnosis, discriminator, learned, runs, traits
from dpfl.planning import planner
from dpfl.tasks.images import classifiers

_HALF_SHIFT = 'replace_one_half_shift'


@dataclasses.dataclass(frozen=True)
class Appearance:
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


def measure(model: classifiers.Classifier, pixels: np.ndarray, real: np.ndarray) -> Appearance:
    """Measures images, compared with real ones.

    Args:
      model: The primary model.
      pixels: The images, float32 [n, 28, 28].
      real: Real images of held-out clients, float32 [m, 28, 28].
    """
    dark, upright = traits.inverted_by_intensity(pixels), traits.upright(pixels)
    features = model.features(pixels)
    by_classifier = traits.inverted_by_classifier(model.probabilities, pixels)
    return Appearance(
        inverted_by_intensity=float(dark.mean()),
        inverted_by_classifier=float(by_classifier.mean()),
        effective_classes=traits.effective_classes(model.probabilities(upright).argmax(axis=1)),
        diversity=traits.mean_distance(features),
        frechet=traits.frechet_distance(features, model.features(real)),
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
    cohort = planner.scaled_cohort(plan.clients_per_round, scale)
    larger = planner.scaled(plan, cohort, population=selected)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding(Generated):
    """Measures and guarantees of one GAN of the study.

    Attributes:
      state: 'bug', 'fixed' or 'as_is'.
      subpopulation: Name of the subpopulation that it was trained on.
      clients: Number of clients in the subpopulation.
      generated: Generated images, float32 [n, 28, 28].
      measures: Measures of the generated images, compared with public ones.
      guarantees: Guarantees of the run and of the larger run; empty for public images.
      seconds: Duration of the rounds.
    """

    state: str
    subpopulation: str
    clients: int
    learned: learned.Learned
    generated: np.ndarray
    measures: Appearance
    guarantees: tuple[Guarantee, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The finding without the images, as JSON values."""
        values = dataclasses.asdict(self)
        del values['generated'], values['of_what']
        values['learned']['share'] = self.learned.share
        values['traits'] = {
            name: differences.described(measure) for name, measure in self.traits.items()
        }
        for guarantee in values['guarantees']:
            for name in ('epsilon', 'epsilon_half_shift'):
                guarantee[name] = _json.finite(guarantee[name])
        return values


def find(
    training: clients.Training,
    trained: runs.Trained,
    model: classifiers.Classifier,
    guarantees: tuple[Guarantee, ...],
    public: np.ndarray,
) -> Finding:
    """Measures one GAN.

    Args:
      training: Its training data.
      trained: The GAN.
      model: The primary model.
      guarantees: Of its run, and of the larger run; empty for public images.
      public: Images of held-out clients to compare with, float32 [m, 28, 28].
    """
    return Finding(
        of_what=clients.IN_WORDS[training.chosen.name],
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


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The conclusion of the study.

    Attributes:
      diagnoses: By state.
      injected: The faults that were put into the data.
      discriminators: The second discriminator; None without generators of public images.
    """

    diagnoses: Mapping[str, diagnosis.Diagnosis]
    injected: tuple[str, ...] = ()
    discriminators: discriminator.Comparisons | None = None

    @property
    def fault_is_visible(self) -> bool:
        """Whether a fault is found before any fix; the injected ones, if there are any."""
        (first, *_) = self.diagnoses.values()
        named = first.of(FOUND)
        return set(self.injected) <= set(named) if self.injected else bool(named)

    @property
    def fix_is_visible(self) -> bool | None:
        """Whether no fault is found after the fix, and the injected ones would be.

        None if there was no fix.
        """
        fixed = self.diagnoses.get(clients.FIXED)
        if fixed is None or fixed.of(FOUND):
            return None if fixed is None else False
        told = (*fixed.of(NOT_SEEN), *fixed.of(SUSPECTED))
        return set(self.injected) <= set(told) and bool(told)

    @property
    def text(self) -> str:
        """The conclusion in sentences."""
        if clients.FIXED not in self.diagnoses:
            (only,) = self.diagnoses.values()
            return only.text
        bug, fixed = (self.diagnoses[state].text for state in (clients.BUG, clients.FIXED))
        return f'With the fault: {bug} After the fix: {fixed}'

    def to_dict(self) -> dict[str, Any]:
        """The conclusion as JSON values."""
        values: dict[str, Any] = {
            'conclusion': self.text,
            'diagnoses': {state: of_state.to_dict() for state, of_state in self.diagnoses.items()},
        }
        if self.discriminators is not None:
            values['discriminator'] = self.discriminators.to_dict()
        if self.fix_is_visible is None:
            return {'fault_is_visible': self.fault_is_visible, **values}
        return {
            'bug_is_visible': self.fault_is_visible,
            'fix_is_visible': self.fix_is_visible,
            **values,
        }


def conclude(
    results: Sequence[Finding],
    *,
    injected: tuple[str, ...] = (),
    accuracies: tuple[Mean, Mean] | None = None,
    effects: Effects | None = None,
    seed: int = 0,
) -> Conclusion:
    """Compares the images of the study's generators.

    Args:
      results: All findings; in each state the subpopulation on which the model does badly last, the
        one on which it does well before it.
      injected: The faults that were put into the data.
      accuracies: Of the primary model on clients and on public images; needs generators of both.
      effects: Of faults on the traits of public images, from `learned.effects`; without them, no
        fault is called not seen.
      seed: Of the discriminators.
    """
    by_state: dict[str, list[Finding]] = {}
    for finding in results:
        by_state.setdefault(finding.state, []).append(finding)
    diagnoses, told_apart = {}, None
    for state, of_state in by_state.items():
        named = {finding.subpopulation: finding for finding in of_state}
        contrasts = {diagnosis.BADLY: Contrast.of(of_state[-1], of_state[-2])}
        if clients.PUBLIC in named:
            everyone, public = (named[name] for name in (clients.EVERYONE, clients.PUBLIC))
            contrasts[diagnosis.CLIENTS] = Contrast.of(everyone, public)
            again = named[clients.PUBLIC_AGAIN].generated
            told_apart = discriminator.Comparisons(
                discriminator.compare(everyone.generated, public.generated, seed=seed),
                discriminator.compare(again, public.generated, seed=seed),
            )
        diagnoses[state] = diagnosis.diagnose(contrasts, accuracies, effects)
    return Conclusion(diagnoses, injected, told_apart)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """Result of the study.

    Attributes:
      results: The finding of each GAN, in each state the subpopulation with high accuracy before
        the one with low accuracy.
      conclusion: The conclusion from all of them.
      share: Share of the devices that have each of the injected faults.
      selection: The unit that was selected by accuracy, 'client' or 'example'.
      population: Number of clients.
      limits: Thresholds of the selection by client.
      accuracies: Accuracy on each client by state; NaN for a client without examples.
      noise_is_seeded: Whether the noise comes from a known seed.
      public: Images of held-out clients, float32 [n, 28, 28]: the real ones of the page.
      public_measures: Measures of one half of them, compared with the other half: the best that a
        generator can reach.
    """

    results: Sequence[Finding]
    conclusion: Conclusion
    share: float
    selection: str
    population: int
    limits: clients.Thresholds
    accuracies: Mapping[str, np.ndarray]
    noise_is_seeded: bool
    public: np.ndarray
    public_measures: Appearance

    @property
    def has_fix(self) -> bool:
        """Whether there are data after a fix."""
        return clients.FIXED in self.accuracies

    def to_dict(self) -> dict[str, Any]:
        """The study without images, as JSON values."""
        return {
            **self.conclusion.to_dict(),
            'thresholds': dataclasses.asdict(self.limits),
            'population': self.population,
            'results': [finding.to_dict() for finding in self.results],
        }
