"""Findings of the study: traits of each GAN's images, its guarantees, and a conclusion.

How private data differ from public is task T6 of [Augenstein20], table 1: generated images of all
clients are compared with generated images of public data.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.debugging.diagnosis import (
    FOUND,
    NOT_SEEN,
    SUSPECTED,
    Contrast,
    Effects,
    Generated,
    Measures,
)
from dpfl.debugging.differences import Mean
from dpfl.debugging.images import clients, diagnosis
from dpfl.planning import planner
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training.round_config import required

_HALF_SHIFT = 'replace_one_half_shift'


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
    """Traits and guarantees of one GAN of the study.

    Attributes:
      state: 'bug', 'fixed' or 'as_is'.
      subpopulation: Name of the subpopulation that it was trained on.
      clients: Number of clients in the subpopulation.
      generated: Generated images, float32 [n, 28, 28].
      guarantees: Guarantees of the run and of the larger run; empty for public images.
    """

    state: str
    subpopulation: str
    clients: int
    generated: np.ndarray
    guarantees: tuple[Guarantee, ...]

    def to_dict(self) -> dict[str, Any]:
        """The finding without the images."""
        return {
            **super().to_dict(),
            'state': self.state,
            'subpopulation': self.subpopulation,
            'clients': self.clients,
            'guarantees': self.guarantees,
        }


def diagnoses(
    results: Sequence[Finding],
    accuracies: tuple[Mean, Mean] | None = None,
    effects: Effects | None = None,
) -> dict[str, diagnosis.Diagnosis]:
    """By state, what the images of the study's generators say.

    Args:
      results: All findings; in each state the subpopulation on which the model does badly last, the
        one on which it does well before it.
      accuracies: Of the primary model on clients and on public images; needs generators of both.
      effects: Of faults on the traits of public images, from `diagnosis.effects`; without them, no
        fault is called not seen.
    """
    found = {}
    for state in dict.fromkeys(finding.state for finding in results):
        named = {finding.subpopulation: finding for finding in results if finding.state == state}
        *_, well, badly = named.values()
        contrasts = {diagnosis.BADLY: Contrast(badly, well)}
        if clients.PUBLIC in named:
            contrasts[diagnosis.CLIENTS] = Contrast(named[clients.EVERYONE], named[clients.PUBLIC])
        found[state] = diagnosis.diagnose(contrasts, accuracies, effects)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """Result of the study.

    Attributes:
      results: The finding of each GAN, in each state the subpopulation with high accuracy before
        the one with low accuracy.
      diagnoses: By state, from `diagnoses`.
      base: How the GANs were trained, with the faults that were put into the data.
      selection: The unit that was selected by accuracy, 'client' or 'example'.
      limits: Thresholds of the selection by client.
      accuracies: Accuracy on each client by state; NaN for a client without examples.
      public: Images of held-out clients, float32 [n, 28, 28]: the real ones of the page.
      public_traits: Traits of these images.
    """

    results: Sequence[Finding]
    diagnoses: Mapping[str, diagnosis.Diagnosis]
    base: GanConfig
    selection: str
    limits: clients.Thresholds
    accuracies: Mapping[str, np.ndarray]
    public: np.ndarray
    public_traits: Measures

    @property
    def injected(self) -> tuple[str, ...]:
        """The faults that were put into the data."""
        return self.base.task.faults.inject

    @property
    def population(self) -> int:
        """Number of clients."""
        return required(self.base.sampling, 'population')

    @property
    def has_fix(self) -> bool:
        """Whether there are data after a fix."""
        return clients.FIXED in self.diagnoses

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
        if not self.has_fix:
            (only,) = self.diagnoses.values()
            return only.text
        bug, fixed = (self.diagnoses[state].text for state in (clients.BUG, clients.FIXED))
        return f'With the fault: {bug} After the fix: {fixed}'

    def to_dict(self) -> dict[str, Any]:
        """The study without images."""
        visible = (
            {'bug_is_visible': self.fault_is_visible, 'fix_is_visible': self.fix_is_visible}
            if self.has_fix
            else {'fault_is_visible': self.fault_is_visible}
        )
        return {
            **visible,
            'conclusion': self.text,
            'diagnoses': self.diagnoses,
            'thresholds': self.limits,
            'population': self.population,
            'results': self.results,
        }
