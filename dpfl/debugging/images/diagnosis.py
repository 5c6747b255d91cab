"""Names the fault that generated images show, from traits of several sets of them.

Two contrasts are made: images from where the primary model does badly against those from where it
does well, and images from all clients against those from public images. A fault of images is

- 'found' if its trait differs by at least its least difference, in the direction of the fault, with
  a p-value of at most `ALPHA` after Holm's correction over all traits and contrasts;
- 'suspected' if it differs by at least half of that, with a p-value of at most `ALPHA` by itself;
- 'not seen' if neither, and it would have been found with a probability of at least
  `diagnosis.TOLD` if some share of the images had it;
- 'cannot tell' otherwise.

Labels are not in the images. They are at fault if the accuracy on clients is far below that on
public images, while the model is as sure of images from clients as of those from public ones, and
no fault of images shows.

A generator that has learned nothing draws the same with a fault in the data and without one, so no
verdict follows from its images. Its trivial references are images that have only the average of
each pixel, and images whose pixels are drawn one by one, each with its own distribution.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
from scipy import spatial

from dpfl import _random
from dpfl.debugging import diagnosis, differences
from dpfl.debugging.diagnosis import (
    CANNOT_TELL,
    FOUND,
    NOT_SEEN,
    SUSPECTED,
    Contrast,
    Effects,
    FaultVerdict,
    Learned,
    Sign,
    Signature,
)
from dpfl.debugging.differences import Difference, Mean
from dpfl.debugging.images import traits
from dpfl.tasks.images import image_clients


def measure_learned(pixels: np.ndarray, real: np.ndarray, infer: traits.Infer) -> Learned:
    """Compares a generator with real images and with the trivial references.

    It has learned the share of a trivial reference's Frechet distance from real images that it has
    covered: of the smaller one, in the features of the primary model.

    Args:
      pixels: images that it drew, float32 [n, 28, 28].
      real: real images, float32 [m, 28, 28].
      infer: the primary model.
    """
    real = traits.upright(real)
    rng = _random.generator('debug.trivial', 0)
    one_by_one = rng.permuted(real, axis=0)
    average = np.broadcast_to(real.mean(axis=0), real.shape)
    features = infer(real)[1]

    def distance(images: np.ndarray) -> float:
        return traits.frechet_distance(infer(images)[1], features)

    trivial = min(distance(np.ascontiguousarray(images)) for images in (one_by_one, average))
    frechet = distance(traits.upright(pixels))
    reason = (
        f'its Frechet distance of {frechet:.3g} from real images is no less than {trivial:.3g}, '
        'that of images without any shape'
    )
    share = max(1 - frechet / trivial, 0.0) if trivial > 0 else 0.0
    return Learned(share, reason, {'frechet': frechet, 'trivial': trivial})


def effects(public: np.ndarray, one_client: np.ndarray, infer: traits.Infer) -> Effects:
    """By fault of images and its trait, by how much it raises the trait if all images have it.

    Args:
      public: images without a fault, float32 [n, 28, 28].
      one_client: images of one client, float32 [m, 28, 28]: all that is left of them if all devices
        hold the data of one.
      infer: the primary model.
    """
    clean = traits.measure(public, infer)
    rises = {}
    for signature in SIGNATURES:
        (sign,) = signature.signs
        if signature.fault == 'duplicated_client':
            # Two draws of such a generator are the same image of m with probability 1 / m.
            distance = float(spatial.distance.pdist(infer(one_client)[1]).mean())
            value = distance * (1 - 1 / len(one_client))
        else:
            damaged = image_clients.OF_PIXELS[signature.fault](public)
            value = traits.measure(damaged, infer)[sign.trait].value
        rises[signature.fault] = {sign.trait: value - clean[sign.trait].value}
    return rises


BADLY, CLIENTS = 'where the model does badly', 'all clients'
ALPHA = 0.05
SIGNATURES = (
    Signature('inverted', (Sign('inverted'),), 'images with more ink than paper'),
    Signature('truncated', (Sign('blank_half'),), 'images whose lower half is blank'),
    Signature('transposed', (Sign('lying'),), 'images that are wider than high'),
    Signature('encoding', (Sign('combed'),), 'images whose rows alternate'),
    # Two images of which either lacks the fault are as far apart as without it.
    Signature(
        'duplicated_client',
        (Sign('variety', is_higher=False, draws=2),),
        'images that are more alike',
    ),
)
LABELS = 'swapped_labels'


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The contrasts and the verdicts.

    Attributes:
      contrasts: for each contrast the differences of all traits, with Holm's correction over all.
      verdicts: one for each fault that the contrasts can show.
    """

    contrasts: Mapping[str, tuple[Difference, ...]]
    verdicts: tuple[FaultVerdict, ...]

    def of(self, verdict: str) -> tuple[str, ...]:
        """The faults with a verdict."""
        return tuple(
            fault_verdict.fault
            for fault_verdict in self.verdicts
            if fault_verdict.verdict == verdict
        )

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
            reasons = (
                fault_verdict.reason
                for fault_verdict in self.verdicts
                if fault_verdict.verdict in alarms
            )
            return ' '.join([*told, *reasons])
        tested = ', '.join(
            f'{in_words(fault_verdict.fault)} {diagnosis.in_share(fault_verdict.share, "images")}'
            for fault_verdict in self.verdicts
            if fault_verdict.verdict == NOT_SEEN
        )
        unknown = ', '.join(map(in_words, self.of(CANNOT_TELL)))
        parts = [f'No fault is seen. Would have been found: {tested}.'] if tested else []
        return ' '.join([*parts, *([f'Cannot tell: {unknown}.'] if unknown else [])])

    def to_dict(self) -> dict[str, Any]:
        """The verdicts by fault, and the contrasts."""
        verdicts = {verdict.fault: verdict for verdict in self.verdicts}
        return {'verdicts': verdicts, 'contrasts': self.contrasts}


def in_words(fault: str) -> str:
    """The name of a fault as a part of a sentence."""
    return fault.replace('_', ' ')


def diagnose(
    contrasts: Mapping[str, Contrast],
    accuracies: tuple[Mean, Mean] | None = None,
    effects: Effects | None = None,
) -> Diagnosis:
    """Compares sets of images, and gives a verdict on each fault.

    Args:
      contrasts: by name, `BADLY` or `CLIENTS`.
      accuracies: of the primary model on clients and on public images, to tell faults of labels;
        needs the contrast `CLIENTS`.
      effects: by how much faults raise traits of public images; without them, no fault is called
        not seen.
    """
    if accuracies is not None:
        everyone = contrasts[CLIENTS]
        first, reference = (
            dataclasses.replace(generated, traits={**generated.traits, 'accuracy': accuracy})
            for generated, accuracy in zip(
                (everyone.first, everyone.reference), accuracies, strict=True
            )
        )
        contrasts = {**contrasts, CLIENTS: Contrast(first, reference)}
    compared = diagnosis.compare(contrasts, traits.ALL)
    level = ALPHA / sum(map(len, compared.values()))
    power = diagnosis.power_at(level, traits.ALL)
    verdicts = []
    for signature in SIGNATURES:
        unseen = diagnosis.unseen(signature, contrasts, effects or {}, power, data='images')
        verdicts.append(_of_images(signature, contrasts, compared, unseen))
    if accuracies is not None:
        seen = [verdict.fault for verdict in verdicts if verdict.verdict in (FOUND, SUSPECTED)]
        of_clients = {difference.name: difference for difference in compared[CLIENTS]}
        verdicts.append(_of_labels(of_clients, seen, contrasts[CLIENTS], level, accuracies))
    return Diagnosis(compared, tuple(verdicts))


def _of_images(
    signature: Signature,
    contrasts: Mapping[str, Contrast],
    compared: Mapping[str, tuple[Difference, ...]],
    unseen: FaultVerdict,
) -> FaultVerdict:
    """The verdict about one fault of images: the strongest of the contrasts."""
    (sign,), order = signature.signs, (FOUND, SUSPECTED, NOT_SEEN)
    trait = traits.ALL[sign.trait]
    judged = []
    for name, values in compared.items():
        difference = next(value for value in values if value.name == trait.name)
        least = trait.least_from(difference.second)
        size = difference.value if sign.is_higher else -difference.value
        if not contrasts[name].is_comparable:
            verdict = NOT_SEEN
        elif size >= least and difference.adjusted <= ALPHA:
            verdict = FOUND
        elif size >= least / 2 and size > 0 and difference.p_value <= ALPHA:
            verdict = SUSPECTED
        else:
            verdict = NOT_SEEN
        judged.append((order.index(verdict), -size, name, difference))
    rank, _, name, difference = min(judged, key=lambda entry: entry[:2])
    first, second, low, high = (
        trait.shown(value, 0)
        for value in (difference.first, difference.second, difference.low, difference.high)
    )
    measured = 'share' if trait.unit == '%' else 'mean distance of two images'
    reason = (
        f'{signature.meaning.capitalize()}, {name}: {measured} {first} against {second} (95 % '
        f'interval of the difference {low} to {high}).'
    )
    if order[rank] != NOT_SEEN:
        return dataclasses.replace(unseen, verdict=order[rank], reason=reason)
    told = f'Cannot be told: {unseen.reason}. ' if unseen.verdict == CANNOT_TELL else ''
    return dataclasses.replace(unseen, reason=told + reason)


def _of_labels(
    measured: Mapping[str, Difference],
    seen: list[str],
    contrast: Contrast,
    level: float,
    accuracies: tuple[Mean, Mean],
) -> FaultVerdict:
    """The verdict about labels, from differences of clients' and public images."""
    accuracy, confidence = measured['accuracy'], measured['confidence']
    fall = -accuracy.value
    reason = (
        f'Labels: accuracy {accuracy.first:.0%} on clients against {accuracy.second:.0%} on public '
        f'images (95 % interval of the difference {accuracy.low:.0%} to {accuracy.high:.0%}); '
        f'confidence in generated images {confidence.first:.0%} against {confidence.second:.0%} '
        f'({confidence.low:.0%} to {confidence.high:.0%}).'
    )
    (clients, public), least = accuracies, traits.ALL['accuracy'].least
    reach = (confidence.high - confidence.low) / 2

    def power_of(share: float) -> float:
        """The power if the labels of this share of the images are exchanged.

        The right predictions of these images become wrong, and the confidence stays as it is.
        """
        fall = share * public.value
        expected = differences.moved(clients, public.value - fall)
        falls = differences.power(differences.compare('accuracy', expected, public), level, least)
        deviate = (fall / 2 - reach) / reach if reach > 0 else np.inf
        sure = float(scipy.special.ndtr(scipy.special.ndtri(0.975) * deviate))
        return max(falls + sure - 1, 0.0)

    has_fallen = fall >= least and accuracy.adjusted <= ALPHA
    is_sure = confidence.value >= -fall / 2
    share, power = diagnosis.smallest_share(power_of)
    if not has_fallen:
        is_told = contrast.learned > 0 and power >= diagnosis.TOLD
        verdict = NOT_SEEN if is_told else CANNOT_TELL
        weak = diagnosis.too_weak(share, power, 'images')
        why = weak if contrast.learned else contrast.reason
        told = '' if is_told else f'Cannot be told: {why}. '
    elif seen or not is_sure or not contrast.is_comparable:
        verdict = CANNOT_TELL
        told = 'Cannot be told: something else than labels may be why the accuracy has fallen. '
    else:
        verdict, told = FOUND if confidence.low >= -fall / 2 else SUSPECTED, ''
    return FaultVerdict(LABELS, verdict, share, power if contrast.learned else 0.0, told + reason)
