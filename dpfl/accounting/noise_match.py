"""How the noise of a plan was matched to another mechanism, as in [McMahan24], section 5.

There the noise multiplier of BandMF is the one whose root mean square error is that of TreeAgg with
noise multiplier 7, and the noise multiplier of BLT the one whose guarantee is that of BandMF at the
desired round.
"""

import dataclasses
import math
import re
from typing import TYPE_CHECKING

from dpfl import _json, _validate, errors, mechanisms
from dpfl.mechanisms import registry

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

# What can be matched, and in words.
QUANTITIES = {
    'rmse': 'the root mean square of the noise of the prefix sums',
    'prefix_noise': 'the noise of the prefix sum',
    'rho': 'rho (zCDP)',
}
_DIGEST = re.compile('[0-9a-f]{64}')


@dataclasses.dataclass(frozen=True)
class NoiseMatch(_json.JsonFields):
    """How the noise multiplier of a plan was found. It changes nothing of what is guaranteed.

    Attributes:
      quantity: one of `QUANTITIES`. 'rmse': the root mean square, over the first `rounds` rounds,
        of the standard deviations of the prefix sums ([McMahan24], section 3.2); 'prefix_noise':
        the standard deviation of the prefix sum of the last of these rounds; both in clip norms.
        'rho': rho of a run that stops after these rounds.
      rounds: number of rounds, at least 1.
      value: what the quantity is, for both mechanisms; above 0.
      mechanism: name of the type of the other mechanism; None if only the value was given.
      mechanism_digest: SHA-256 of its parameters; None without it.
      noise_multiplier: its noise multiplier, above 0; None without it.
      momentum: the models of SGD with this momentum count instead of the prefix sums; at least 0
        and below 1.

    Raises:
      ArgumentError: if a field is out of its range.
    """

    quantity: str
    rounds: int
    value: float
    mechanism: str | None = None
    mechanism_digest: str | None = None
    noise_multiplier: float | None = None
    momentum: float = 0.0

    def __post_init__(self):
        _validate.choice('quantity', self.quantity, tuple(QUANTITIES))
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        _validate.number('value', self.value, above=0)
        _validate.number('momentum', self.momentum, minimum=0, below=1)
        if self.momentum and self.quantity == 'rho':
            raise errors.ArgumentError('momentum', self.momentum, 'must be 0 for rho')
        if self.mechanism is None:
            for name in ('mechanism_digest', 'noise_multiplier'):
                if getattr(self, name) is not None:
                    raise errors.ArgumentError(name, getattr(self, name), 'needs mechanism')
            return
        _validate.choice('mechanism', self.mechanism, tuple(registry.TYPES))
        _validate.number('noise_multiplier', self.noise_multiplier, above=0)
        digest = self.mechanism_digest
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise errors.ArgumentError('mechanism_digest', digest, 'must be a SHA-256')

    def describe(self) -> str:
        """One sentence: what was matched."""
        what = QUANTITIES[self.quantity]
        if self.momentum:
            for word, other in (('prefix sums', 'models'), ('prefix sum', 'model')):
                what = what.replace(word, f'{other} of SGD with momentum {self.momentum:g}')
        where = f'after {self.rounds} rounds'
        if self.quantity == 'rmse':
            where = f'over the first {self.rounds} rounds'
        unit = '' if self.quantity == 'rho' else ' clip norms'
        text = f'It was chosen so that {what} {where} is {self.value:.6g}{unit}'
        if self.mechanism is None:
            return f'{text}.'
        return (
            f'{text}, as with the mechanism {self.mechanism} (SHA-256 {self.mechanism_digest}) and '
            f'noise multiplier {self.noise_multiplier:g}.'
        )


def reference(
    plan: 'PrivacyPlan',
    mechanism: mechanisms.Mechanism,
    noise_multiplier: float,
    *,
    quantity: str,
    rounds: int,
    momentum: float = 0.0,
) -> NoiseMatch:
    """The match with a mechanism and its noise multiplier.

    Args:
      plan: the plan that is to get the noise; its schema, adjacency and rounding count for rho.
      mechanism: the other mechanism, over exactly `rounds` rounds.
      noise_multiplier: its noise multiplier, above 0.
      quantity, rounds, momentum: as in `NoiseMatch`.

    Raises:
      ArgumentError: if a value is out of its range, or the plan has no rho.
    """
    _validate.number('noise_multiplier', noise_multiplier, above=0)
    if quantity == 'rho':
        other = dataclasses.replace(
            _stopped(plan, rounds), mechanism=mechanism, noise_multiplier=noise_multiplier
        )
        value = _rho(other)
    else:
        value = noise_multiplier * error(mechanism, quantity, rounds, momentum)
    return NoiseMatch(
        quantity=quantity,
        rounds=rounds,
        value=value,
        mechanism=mechanism.name,
        mechanism_digest=mechanism.digest(),
        noise_multiplier=noise_multiplier,
        momentum=momentum,
    )


def error(
    mechanism: mechanisms.Mechanism, quantity: str, rounds: int, momentum: float = 0.0
) -> float:
    """The quantity 'rmse' or 'prefix_noise' of a mechanism for noise multiplier 1.

    Raises:
      ArgumentError: if the mechanism has fewer rounds, or a value is out of its range.
    """
    _validate.integer('rounds', rounds, minimum=1, maximum=mechanism.rounds)
    workload = mechanisms.workload.momentum(mechanism.rounds, momentum) if momentum else None
    squared = mechanism.squared_error(workload)[:rounds]
    return math.sqrt(squared.mean() if quantity == 'rmse' else squared[-1])


def matched(plan: 'PrivacyPlan', match: NoiseMatch) -> 'PrivacyPlan':
    """The plan with the noise multiplier that gives the matched value.

    For rho it is the least with which rho is not above the value.

    Args:
      plan: without noise, over at least as many rounds as the match.
      match: what is matched.

    Raises:
      ArgumentError: if the plan has fewer rounds than the match, has no rho to match, or has noise
        that changes with the clip norm or with weights.
    """
    for name, is_plain in (
        ('adaptive_clip', plan.adaptive_clip is None),
        ('clip_schedule', not plan.clip_schedule),
        ('estimator', plan.estimator.kind == 'fixed'),
    ):
        if not is_plain:
            raise errors.ArgumentError(name, errors.NOT_SHOWN, 'cannot be combined with match')
    if match.rounds > plan.participation.rounds:
        raise errors.ArgumentError(
            'rounds', match.rounds, f'must be <= {plan.participation.rounds}, those of the plan'
        )
    if match.quantity != 'rho':
        found = match.value / error(plan.mechanism, match.quantity, match.rounds, match.momentum)
        return dataclasses.replace(plan, noise_multiplier=found, noise_match=match)
    stopped = _stopped(plan, match.rounds)
    found = stopped.noise_of_mu(math.sqrt(2 * match.value))
    while _rho(dataclasses.replace(stopped, noise_multiplier=found)) > match.value:
        found = math.nextafter(found, math.inf) * (1 + 1e-15)  # Root or quotient was rounded down.
    return dataclasses.replace(plan, noise_multiplier=found, noise_match=match)


def _stopped(plan: 'PrivacyPlan', rounds: int) -> 'PrivacyPlan':
    """The plan of a run that stops after so many rounds."""
    if plan.sampling is not None:
        raise errors.ArgumentError(
            'sampling',
            plan.sampling.name,
            'must be none to match rho, which a sampled plan has not',
        )
    if plan.earlier:
        # No noise of this run takes away what the runs before it have released.
        raise errors.ArgumentError(
            'earlier', errors.NOT_SHOWN, 'cannot be combined with match=rho: it would count them'
        )
    if plan.before:
        raise errors.ArgumentError(
            'before', errors.NOT_SHOWN, 'cannot be combined with match=rho: it would count them'
        )
    return dataclasses.replace(plan, participation=plan.participation.within(rounds))


def _rho(plan: 'PrivacyPlan') -> float:
    assert plan.rho is not None  # `_stopped` refuses plans with sampling.
    return plan.rho
