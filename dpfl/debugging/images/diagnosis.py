"""Names the fault that generated images show, from traits of several sets of them.

Two contrasts are made: images from where the primary model does badly against those from where it
does well, and images from all clients against those from public images. A fault of images is

- 'found' if its trait differs by at least the least difference of its signature, in the direction
  of the fault, with a p-value of at most `ALPHA` after Holm's correction over all traits and
  contrasts;
- 'suspected' if it differs by at least half of that, with a p-value of at most `ALPHA` by itself;
- 'not seen' otherwise.

Labels are not in the images. They are at fault if the accuracy on clients is far below that on
public images, while the model is as sure of images from clients as of those from public ones, and
no fault of images shows.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpfl.debugging import differences
from dpfl.debugging.differences import Difference, Mean, Share

FOUND, SUSPECTED, NOT_SEEN = 'found', 'suspected', 'not seen'
BADLY, CLIENTS = 'where the model does badly', 'all clients'
ALPHA = 0.05
# Standard deviation of the difference of two generators of equal data, by trait; measured on data
# without a fault (docs/how_to/debug_images.md).
BETWEEN: Mapping[str, float] = {
    'inverted': 0.05,
    'blank_half': 0.05,
    'lying': 0.065,
    'combed': 0.05,
    'confidence': 0.09,
    'variety': 7.0,
    'accuracy': 0.0,
}
# Labels are at fault from this fall of the accuracy on, if the confidence falls by less than a half
# of it.
LEAST_FALL = 0.15


@dataclasses.dataclass(frozen=True)
class Signature:
    """How a fault shows.

    Attributes:
      trait: name of the trait.
      least: least difference, as a share of the other set's value for a mean; below 0 if the trait
        falls.
      shows: what is seen, in words.
    """

    trait: str
    least: float
    shows: str


SIGNATURES: Mapping[str, Signature] = {
    'inverted': Signature('inverted', 0.2, 'images with more ink than paper'),
    'truncated': Signature('blank_half', 0.2, 'images whose lower half is blank'),
    'transposed': Signature('lying', 0.3, 'images that are wider than high'),
    'encoding': Signature('combed', 0.2, 'images whose rows alternate'),
    'duplicated_client': Signature('variety', -0.35, 'images that are more alike'),
}
LABELS = 'swapped_labels'


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the contrasts say about one fault.

    Attributes:
      fault: name of the fault.
      verdict: 'found', 'suspected' or 'not seen'.
      reason: the numbers, in a sentence.
    """

    fault: str
    verdict: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The contrasts and the verdicts.

    Attributes:
      contrasts: for each contrast the differences of all traits, with Holm's correction over all.
      verdicts: one for each fault that the contrasts can show.
    """

    contrasts: Mapping[str, tuple[Difference, ...]]
    verdicts: tuple[Verdict, ...]

    def of(self, verdict: str) -> tuple[str, ...]:
        """The faults with a verdict."""
        return tuple(each.fault for each in self.verdicts if each.verdict == verdict)

    @property
    def text(self) -> str:
        """The diagnosis in a sentence or two."""
        told = [
            f'{verdict.capitalize()}: {", ".join(map(in_words, self.of(verdict)))}.'
            for verdict in (FOUND, SUSPECTED)
            if self.of(verdict)
        ]
        reasons = [each.reason for each in self.verdicts if each.verdict != NOT_SEEN]
        if not told:
            tested = ', '.join(in_words(each.fault) for each in self.verdicts)
            return f'No fault is seen. Looked for: {tested}.'
        return ' '.join([*told, *reasons])

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as JSON values."""
        return {
            'verdicts': {each.fault: dataclasses.asdict(each) for each in self.verdicts},
            'contrasts': {
                name: [each.to_dict() for each in values] for name, values in self.contrasts.items()
            },
        }


def in_words(fault: str) -> str:
    """The name of a fault as a part of a sentence."""
    return fault.replace('_', ' ')


def diagnose(
    contrasts: Mapping[str, tuple[Mapping[str, Share | Mean], Mapping[str, Share | Mean]]],
    accuracies: tuple[Mean, Mean] | None = None,
    between: Mapping[str, float] = BETWEEN,
) -> Diagnosis:
    """Compares sets of images and names what differs.

    Args:
      contrasts: by name, `BADLY` or `CLIENTS`: traits of the set that may have the fault, and of
        the other set, as `traits.measure` gives them.
      accuracies: of the primary model on clients and on public images, to tell faults of labels;
        needs the contrast `CLIENTS`.
      between: standard deviation of the difference of two trainings on equal data, by trait.
    """
    found = [
        (name, differences.compare(trait, value, second[trait], between=between.get(trait, 0.0)))
        for name, (first, second) in contrasts.items()
        for trait, value in first.items()
    ]
    if accuracies is not None:
        found.append((CLIENTS, differences.compare('accuracy', *accuracies)))
    corrected = differences.corrected([each for _, each in found])
    by_name: dict[str, tuple[Difference, ...]] = {
        name: tuple(
            each for (owner, _), each in zip(found, corrected, strict=True) if owner == name
        )
        for name in contrasts
    }
    verdicts = [_of_images(fault, by_name) for fault in SIGNATURES]
    if accuracies is not None:
        seen = [each.fault for each in verdicts if each.verdict != NOT_SEEN]
        verdicts.append(_of_labels({each.name: each for each in by_name[CLIENTS]}, seen))
    return Diagnosis(by_name, tuple(verdicts))


def _of_images(fault: str, contrasts: Mapping[str, tuple[Difference, ...]]) -> Verdict:
    """The verdict about one fault of images: the strongest of the contrasts."""
    signature, order = SIGNATURES[fault], (FOUND, SUSPECTED, NOT_SEEN)
    sign = 1 if signature.least > 0 else -1
    judged = []
    for name, values in contrasts.items():
        each = next(value for value in values if value.name == signature.trait)
        is_share = signature.trait not in ('variety', 'confidence')
        least = abs(signature.least) * (1 if is_share else abs(each.second))
        size = sign * each.value
        if size >= least and each.adjusted <= ALPHA:
            verdict = FOUND
        elif size >= least / 2 and size > 0 and each.p_value <= ALPHA:
            verdict = SUSPECTED
        else:
            verdict = NOT_SEEN
        judged.append((order.index(verdict), -size, name, each))
    rank, _, name, each = min(judged, key=lambda entry: entry[:2])
    form = '{:.0%}' if signature.trait not in ('variety', 'confidence') else '{:.3g}'
    first, second, low, high = (
        form.format(value) for value in (each.first, each.second, each.low, each.high)
    )
    unit = 'share' if form == '{:.0%}' else 'mean distance of two images'
    reason = (
        f'{signature.shows.capitalize()}, {name}: {unit} {first} against {second} (95 % interval '
        f'of the difference {low} to {high}).'
    )
    return Verdict(fault, order[rank], reason)


def _of_labels(traits: Mapping[str, Difference], seen: list[str]) -> Verdict:
    """The verdict about labels, from what clients and public images differ in."""
    accuracy, confidence = traits['accuracy'], traits['confidence']
    fall = -accuracy.value
    reason = (
        f'Labels: accuracy {accuracy.first:.0%} on clients against {accuracy.second:.0%} on public '
        f'images (95 % interval of the difference {accuracy.low:.0%} to {accuracy.high:.0%}); '
        f'confidence in generated images {confidence.first:.0%} against {confidence.second:.0%} '
        f'({confidence.low:.0%} to {confidence.high:.0%}).'
    )
    has_fallen = fall >= LEAST_FALL and accuracy.adjusted <= ALPHA
    is_sure = confidence.value >= -fall / 2
    if not has_fallen or seen:
        verdict = NOT_SEEN
    elif is_sure and confidence.low >= -fall / 2:
        verdict = FOUND
    else:
        verdict = SUSPECTED if is_sure else NOT_SEEN
    return Verdict(LABELS, verdict, reason)
