"""Names the fault that generated images show, from traits of several sets of them.

Two contrasts are made: images from where the primary model does badly against those from where it
does well, and images from all clients against those from public images. A fault of images is

- 'found' if its trait differs by at least the least difference of its signature, in the direction
  of the fault, with a p-value of at most `ALPHA` after Holm's correction over all traits and
  contrasts;
- 'suspected' if it differs by at least half of that, with a p-value of at most `ALPHA` by itself;
- 'not seen' if neither, and it would have been found with a probability of at least `power.TOLD` if
  some share of the images had it;
- 'cannot tell' otherwise.

Labels are not in the images. They are at fault if the accuracy on clients is far below that on
public images, while the model is as sure of images from clients as of those from public ones, and
no fault of images shows.
"""

import dataclasses
from collections.abc import Callable, Container, Mapping
from typing import Any

from scipy import special

from dpfl.debugging import differences
from dpfl.debugging import power as power_lib
from dpfl.debugging.differences import Difference, Mean, Share

FOUND, SUSPECTED, NOT_SEEN = 'found', 'suspected', 'not seen'
CANNOT_TELL = 'cannot tell'
BADLY, CLIENTS = 'where the model does badly', 'all clients'
ALPHA = 0.05
# Standard deviation of the difference of two generators of equal data, by trait; measured on data
# without a fault (docs/debug_images.md).
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


Measures = Mapping[str, Share | Mean]


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What the power of a diagnosis follows from. Without any, nothing can be told.

    Attributes:
      learned: by contrast, the share of real images that its generators have learned, within
        [0, 1]: the smaller one of the two.
      effects: by fault of images, by how much it raises its trait if all real images have it.
      comparable: contrasts whose second generator has learned something: only these raise an alarm.
        The first one may be far from real images because of the fault.
      reason: what the shares learned follow from, in words.
    """

    learned: Mapping[str, float] = dataclasses.field(default_factory=dict)
    effects: Mapping[str, float] = dataclasses.field(default_factory=dict)
    comparable: Container[str] = frozenset()
    reason: str = 'nothing is known of how much the generators have learned'


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the contrasts say about one fault.

    Attributes:
      fault: name of the fault.
      verdict: 'found', 'suspected', 'not seen' or 'cannot tell'.
      reason: the numbers, in a sentence, and why nothing can be told.
      share: share of the images for which `power` holds.
      power: probability that the fault would be found if this share of the images had it.
    """

    fault: str
    verdict: str
    reason: str
    share: float
    power: float


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
        if told:
            alarms = (FOUND, SUSPECTED)
            return ' '.join(
                [*told, *(one.reason for one in self.verdicts if one.verdict in alarms)]
            )
        tested = ', '.join(
            f'{in_words(each.fault)} in {100 * each.share:.2g} % of the images'
            for each in self.verdicts
            if each.verdict == NOT_SEEN
        )
        unknown = ', '.join(map(in_words, self.of(CANNOT_TELL)))
        parts = [f'No fault is seen. Would have been found: {tested}.'] if tested else []
        return ' '.join([*parts, *([f'Cannot tell: {unknown}.'] if unknown else [])])

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
    contrasts: Mapping[str, tuple[Measures, Measures]],
    accuracies: tuple[Mean, Mean] | None = None,
    evidence: Evidence | None = None,
    between: Mapping[str, float] = BETWEEN,
) -> Diagnosis:
    """Compares sets of images and names what differs.

    Args:
      contrasts: by name, `BADLY` or `CLIENTS`: traits of the set that may have the fault, and of
        the other set, as `traits.measure` gives them.
      accuracies: of the primary model on clients and on public images, to tell faults of labels;
        needs the contrast `CLIENTS`.
      evidence: what the power follows from; without it, no fault is called not seen.
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
    evidence, level = evidence or Evidence(), ALPHA / len(found)
    verdicts = []
    for fault in SIGNATURES:
        share, power = power_lib.smallest_share(_power(fault, contrasts, evidence, level, between))
        verdicts.append(_of_images(fault, by_name, share, power, evidence))
    if accuracies is not None:
        seen = [each.fault for each in verdicts if each.verdict in (FOUND, SUSPECTED)]
        of_clients = {each.name: each for each in by_name[CLIENTS]}
        verdicts.append(_of_labels(of_clients, seen, evidence, level, accuracies))
    return Diagnosis(by_name, tuple(verdicts))


def _power(
    fault: str,
    contrasts: Mapping[str, tuple[Measures, Measures]],
    evidence: Evidence,
    level: float,
    between: Mapping[str, float],
) -> Callable[[float], float]:
    """The power of the better contrast, given the share of the images that have the fault.

    Two images of which either lacks the fault are as far apart as without it.
    """
    signature = SIGNATURES[fault]
    trait, effect = signature.trait, evidence.effects.get(fault, 0.0)

    def of_contrast(name: str, share: float) -> float:
        first, second = (measures[trait] for measures in contrasts[name])
        shift = evidence.learned.get(name, 0.0) * effect
        shift *= share**2 if trait == 'variety' else share
        if not shift * signature.least > 0:
            return 0.0
        expected = differences.moved(first, second.value + shift)
        difference = differences.compare(trait, expected, second, between=between.get(trait, 0.0))
        return differences.power(difference, level, _least(signature, difference))

    return lambda share: max(of_contrast(name, share) for name in contrasts)


def _least(signature: Signature, difference: Difference) -> float:
    """Least size of a difference at which a fault is found."""
    is_share = signature.trait not in ('variety', 'confidence')
    return abs(signature.least) * (1 if is_share else abs(difference.second))


def _unknown(power: float, share: float, is_learned: bool, evidence: Evidence) -> str:
    """Why nothing can be told about a fault."""
    why = f'in {100 * share:.2g} % of the images it would be found with probability {power:.2g}'
    return f'Cannot be told: {why if is_learned else evidence.reason}.'


def _of_images(
    fault: str,
    contrasts: Mapping[str, tuple[Difference, ...]],
    share: float,
    power: float,
    evidence: Evidence,
) -> Verdict:
    """The verdict about one fault of images: the strongest of the contrasts."""
    signature, order = SIGNATURES[fault], (FOUND, SUSPECTED, NOT_SEEN)
    sign = 1 if signature.least > 0 else -1
    judged = []
    for name, values in contrasts.items():
        each = next(value for value in values if value.name == signature.trait)
        least = _least(signature, each)
        size = sign * each.value
        if name not in evidence.comparable:
            verdict = NOT_SEEN
        elif size >= least and each.adjusted <= ALPHA:
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
    if order[rank] == NOT_SEEN and power < power_lib.TOLD:
        is_learned = any(evidence.learned.get(name) for name in contrasts)
        reason = f'{_unknown(power, share, is_learned, evidence)} {reason}'
        return Verdict(fault, CANNOT_TELL, reason, share, power)
    return Verdict(fault, order[rank], reason, share, power)


def _of_labels(
    traits: Mapping[str, Difference],
    seen: list[str],
    evidence: Evidence,
    level: float,
    accuracies: tuple[Mean, Mean],
) -> Verdict:
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
    is_comparable = CLIENTS in evidence.comparable
    is_sure = confidence.value >= -fall / 2
    is_learned = evidence.learned.get(CLIENTS, 0.0) > 0
    share, power = power_lib.smallest_share(_power_of_labels(accuracies, confidence, level))
    if not has_fallen:
        is_told = is_learned and power >= power_lib.TOLD
        verdict = NOT_SEEN if is_told else CANNOT_TELL
        told = '' if is_told else f'{_unknown(power, share, is_learned, evidence)} '
    elif seen or not is_sure or not is_comparable:
        verdict = CANNOT_TELL
        told = 'Cannot be told: something else than labels may be why the accuracy has fallen. '
    else:
        verdict, told = FOUND if confidence.low >= -fall / 2 else SUSPECTED, ''
    return Verdict(LABELS, verdict, told + reason, share, power if is_learned else 0.0)


def _power_of_labels(
    accuracies: tuple[Mean, Mean], confidence: Difference, level: float
) -> Callable[[float], float]:
    """The power for labels, given the share of the images whose labels are exchanged.

    The right predictions of these images become wrong, and the confidence stays as it is.
    """
    clients, public = accuracies
    reach = (confidence.high - confidence.low) / 2

    def power(share: float) -> float:
        fall = share * public.value
        expected = differences.moved(clients, public.value - fall)
        falls = differences.power(
            differences.compare('accuracy', expected, public), level, LEAST_FALL
        )
        sure = special.ndtr(special.ndtri(0.975) * (fall / 2 - reach) / reach) if reach > 0 else 1.0
        return max(falls + float(sure) - 1, 0.0)

    return power
