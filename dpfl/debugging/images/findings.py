"""Findings of the study: measures of each GAN's images, its guarantees, and a conclusion.

How private data differ from public is task T6 of [Augenstein20], table 1, with a second
discriminator, which tells images of one generator from those of another, in place of densities.
A generator of clients' images is private, so that a classifier of its images is, too. It is trained
to tell images generated from clients from images generated from public data, and measured on
further ones. As any two generators differ, a second pair, both trained on public data, gives the
accuracy to expect where nothing differs.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import _json, accounting
from dpfl.debugging import differences
from dpfl.debugging.diagnosis import FOUND, NOT_SEEN, SUSPECTED, Contrast, Effects, Generated
from dpfl.debugging.differences import Difference, Mean, Share
from dpfl.debugging.images import clients, diagnosis, traits
from dpfl.planning import planner
from dpfl.tasks.images import classifiers

_MODEL, _BATCH, _LEARNING_RATE = 'tiny', 64, 2e-3
_STEPS = 300
_SUREST = 24


@dataclasses.dataclass(frozen=True)
class ToldApart:
    """How well two sets of images can be told apart.

    Attributes:
      accuracy: share of the further images of both sets that are assigned rightly.
      surest: images of the first set that look least like the second, surest first, float32
        [k, 28, 28].
    """

    accuracy: Share
    surest: np.ndarray


@dataclasses.dataclass(frozen=True)
class Discriminators:
    """How well images from clients can be told from images from public data, with a control.

    Attributes:
      private: clients against public images.
      control: public images against those of another generator of public images.
    """

    private: ToldApart
    control: ToldApart

    @property
    def difference(self) -> Difference:
        """By how much clients' images are easier to tell from public ones than public ones are."""
        return differences.compare(
            'accuracy of the discriminator', self.private.accuracy, self.control.accuracy
        )

    def to_dict(self) -> dict[str, Any]:
        """Accuracies with intervals, as JSON values."""
        return {
            name: {
                'accuracy': comparison.accuracy.value,
                'interval': list(comparison.accuracy.interval()),
            }
            for name, comparison in (('private', self.private), ('control', self.control))
        } | {'difference': self.difference.to_dict()}


def tell_apart(
    first: np.ndarray, second: np.ndarray, *, seed: int, steps: int = _STEPS
) -> ToldApart:
    """Trains a discriminator on half of the images, and measures it on the other half.

    Args:
      first, second: images, float32 [n, 28, 28]; the first half of each is trained on.
      seed: of weights and batches.
      steps: number of batches.

    Raises:
      ValueError: if a set has fewer than two images.
    """
    halves = [
        (pixels[: len(pixels) // 2], pixels[len(pixels) // 2 :]) for pixels in (first, second)
    ]
    trained, tested = zip(*halves, strict=True)
    model = classifiers.build_image_classifier(_MODEL, seed)
    # Two of the classes are used: 1 for the first set, 0 for the second.
    weights = classifiers.train_centrally(
        model,
        np.concatenate(trained),
        np.repeat(np.array([1, 0], np.int32), [len(part) for part in trained]),
        steps=steps,
        batch_size=_BATCH,
        learning_rate=_LEARNING_RATE,
        seed=seed,
    )
    infer = classifiers.of_weights(_MODEL, weights).infer
    scores = [infer(part)[0][:, 1] - infer(part)[0][:, 0] for part in tested]
    right = np.concatenate([scores[0] > 0, scores[1] <= 0])
    return ToldApart(Share.of(right), tested[0][np.argsort(-scores[0])[:_SUREST]])


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
    learned: diagnosis.Learned
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
    pixels: np.ndarray,
    seconds: float,
    model: classifiers.Classifier,
    guarantees: tuple[Guarantee, ...],
    public: np.ndarray,
) -> Finding:
    """Measures one GAN.

    Args:
      training: Its training data.
      pixels: Images that it generated, float32 [n, 28, 28], values within [0, 1].
      seconds: Duration of its rounds.
      model: The primary model.
      guarantees: Of its run, and of the larger run; empty for public images.
      public: Images of held-out clients to compare with, float32 [m, 28, 28].
    """
    return Finding(
        of_what=clients.IN_WORDS[training.chosen.name],
        state=training.state,
        subpopulation=training.chosen.name,
        clients=len(training.chosen),
        generated=pixels,
        traits=traits.measure(pixels, model.infer),
        learned=diagnosis.measure_learned(pixels, public, model.infer),
        measures=measure(model, pixels, public),
        guarantees=guarantees,
        seconds=seconds,
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
    discriminators: Discriminators | None = None

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
      effects: Of faults on the traits of public images, from `diagnosis.effects`; without them, no
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
            told_apart = Discriminators(
                tell_apart(everyone.generated, public.generated, seed=seed),
                tell_apart(again, public.generated, seed=seed),
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
