"""What the generators of the study show together: diagnoses of their images, and a sentence."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl.debugging.differences import Mean
from dpfl.debugging.images import diagnosis, discriminator, findings, learned, settings

Diagnosis = diagnosis.Diagnosis


@dataclasses.dataclass(frozen=True)
class Discriminators:
    """How well images from clients can be told from images from public data.

    Attributes:
      private: Clients against public images.
      control: Public images against those of another generator of public images.
    """

    private: discriminator.Comparison
    control: discriminator.Comparison

    def to_dict(self) -> dict[str, Any]:
        """Accuracies with intervals, as JSON values."""
        return {
            name: {'accuracy': each.accuracy.value, 'interval': list(each.accuracy.interval())}
            for name, each in (('private', self.private), ('control', self.control))
        } | {'difference': discriminator.beyond(self.private, self.control).to_dict()}


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The conclusion of the study.

    Attributes:
      diagnoses: By state.
      injected: The faults that were put into the data.
      discriminators: The second discriminator; None without generators of public images.
    """

    diagnoses: Mapping[str, Diagnosis]
    injected: tuple[str, ...] = ()
    discriminators: Discriminators | None = None

    @property
    def fault_is_visible(self) -> bool:
        """Whether a fault is found before any fix; the injected ones, if there are any."""
        (first, *_) = self.diagnoses.values()
        found = first.of(diagnosis.FOUND)
        return set(self.injected) <= set(found) if self.injected else bool(found)

    @property
    def fix_is_visible(self) -> bool | None:
        """Whether no fault is found after the fix, and the injected ones would be.

        None if there was no fix.
        """
        fixed = self.diagnoses.get(settings.FIXED)
        if fixed is None or fixed.of(diagnosis.FOUND):
            return None if fixed is None else False
        told = (*fixed.of(diagnosis.NOT_SEEN), *fixed.of(diagnosis.SUSPECTED))
        return set(self.injected) <= set(told) and bool(told)

    @property
    def text(self) -> str:
        """The conclusion in sentences."""
        if settings.FIXED not in self.diagnoses:
            (only,) = self.diagnoses.values()
            return only.text
        bug, fixed = (self.diagnoses[state].text for state in (settings.BUG, settings.FIXED))
        return f'With the fault: {bug} After the fix: {fixed}'

    def to_dict(self) -> dict[str, Any]:
        """The conclusion as JSON values."""
        values: dict[str, Any] = {
            'conclusion': self.text,
            'diagnoses': {state: each.to_dict() for state, each in self.diagnoses.items()},
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
    results: Sequence[findings.Finding],
    *,
    injected: tuple[str, ...] = (),
    accuracies: tuple[Mean, Mean] | None = None,
    effects: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Conclusion:
    """Compares what the generators of the study make.

    Args:
      results: All findings; in each state the subpopulation on which the model does badly last, the
        one on which it does well before it.
      injected: The faults that were put into the data.
      accuracies: Of the primary model on clients and on public images; needs generators of both.
      effects: By fault, by how much it raises its trait, from `learned.effects`; without them, no
        fault is called not seen.
      seed: Of the discriminators.
    """
    by_state: dict[str, list[findings.Finding]] = {}
    for each in results:
        by_state.setdefault(each.state, []).append(each)
    diagnoses, told_apart = {}, None
    for state, of_state in by_state.items():
        named = {each.subpopulation: each for each in of_state}
        compared = {diagnosis.BADLY: (of_state[-1], of_state[-2])}
        if settings.PUBLIC in named:
            everyone, public = (named[name] for name in (settings.EVERYONE, settings.PUBLIC))
            compared[diagnosis.CLIENTS] = (everyone, public)
            again = named[settings.PUBLIC_AGAIN].generated
            told_apart = Discriminators(
                discriminator.compare(everyone.generated, public.generated, seed=seed),
                discriminator.compare(again, public.generated, seed=seed),
            )
        diagnoses[state] = diagnosis.diagnose(
            {name: (first.traits, second.traits) for name, (first, second) in compared.items()},
            accuracies,
            learned.evidence(
                {
                    name: (first.learned, second.learned)
                    for name, (first, second) in compared.items()
                },
                effects or {},
            ),
        )
    return Conclusion(diagnoses, injected, told_apart)
