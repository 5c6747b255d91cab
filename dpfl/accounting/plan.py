"""The privacy plan of a run: all that its noise and its guarantee depend on.

What is optional in a plan are its parts (`part.Part`): a file for each, which knows everything
about it. The plan folds them in one order, `FOLD`.
"""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from dpfl import _json, _validate, errors, mechanisms
from dpfl._validate import Limits, Norm, Rounds
from dpfl.accounting import dp, events, gaussian, hardened
from dpfl.accounting.clipping import AdaptiveClip, ClipSchedule, Estimator, IntegerUpdates
from dpfl.accounting.composed import Before, Earlier, ReleaseBefore
from dpfl.accounting.hardened import Hardened
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.part import Part, Run
from dpfl.accounting.sampling import kinds
from dpfl.accounting.sampling.base import Clients, Sampling
from dpfl.mechanisms import rounding
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import Participation

ADJACENCIES = ('zero_out', 'replace_one', 'replace_one_half_shift')
# Without sampling.
_ADJACENCIES = ('zero_out', 'replace_one')
# How far a client moves one round's clipped sum between neighbours, in clip norms. Zeroing a client
# out takes its update away; replacing it can swap two opposite updates.
_SHIFT_IN_CLIP_NORMS = {'zero_out': 1.0, 'replace_one': 2.0, 'replace_one_half_shift': 1.0}

# Parts by the field that holds them, in the order in which a plan asks them. First those that say
# how far a client moves a round: rounding, the clip norms and the estimator of the mean. Sampling
# then says what the rounds release, for noise in units of that. Other releases are composed with
# the rounds: earlier runs, and releases before training. Hardened noise comes last: its rounding is
# added to the sensitivity of the whole run, and its slack is that of everything that is released.
FOLD: dict[str, Callable[[Any], Part | None]] = {
    'discretization': lambda value: None if value is None else IntegerUpdates(value),
    'clip_schedule': lambda value: ClipSchedule(value) if value else None,
    'adaptive_clip': lambda value: value,
    'estimator': lambda value: value,
    'sampling': lambda value: value,
    'earlier': lambda value: Earlier(value) if value else None,
    'before': lambda value: Before(value) if value else None,
    'noise': lambda value: Hardened() if value == 'hardened' else None,
}
# Fields that the JSON form leaves out at their default: earlier plans keep their digests.
LEFT_OUT = ('earlier', 'group_size', 'before')
# The first steps of noise up to a target. Later ones grow: of a mu that other releases nearly take,
# rounding is a larger part.
_SMALL_STEPS = 256
_MECHANISM = 'must be a mechanism, such as BinaryTree(rounds)'
_SAMPLING = 'must be a sampling, such as Poisson(population=1000)'


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """What a run releases, and therefore what it guarantees.

    In each round t of `participation.rounds` the run releases the sum of the clipped updates plus
    `(C^-1 z)_t`, where the entries of z have standard deviation `stddev`.

    With `sampling` the guarantee relies on secret random cohorts; `sampling.kinds` lists the kinds,
    and each says which noise and which schema it is for.

    Attributes:
      mechanism: holds the strategy matrix C, for at least the rounds of `participation`.
      participation: the schema that every client keeps.
      clip_norm: L2 bound of one client's update in one round, above 0.
      noise_multiplier: standard deviation of the entries of z divided by `clip_norm`, at least 0.
      clients_per_round: planned cohort size, the denominator of the mean. It is part of the
        guarantee with sampling only.
      adjacency: 'zero_out': one client's updates become zero in all rounds ([Xu23], [McMahan24]).
        'replace_one': they become any others within the clip norm, which doubles the sensitivity.
        'replace_one_half_shift', with 'without_replacement' only: replace-one, counting one clip
        norm instead of two, as [Augenstein20] does; clipping alone does not ensure that.
      sampling: how cohorts are drawn at random, if the guarantee relies on it, such as
        `Poisson(population=1000)`; None if it relies on the schema alone.
      discretization: how updates become integers, or None. The sensitivity counts its inflated norm
        instead of the clip norm ([Xu23], algorithm 2).
      adaptive_clip: how the clip norm follows a private quantile, starting from `clip_norm`; None
        for a fixed norm ([Xu23], algorithm 1). The noise is in units of the norm in use, so the
        guarantee is that of `noise_multiplier`. It covers the counts of clipped updates (theorem 1
        there).
      clip_schedule: clip norms of later rounds, as ((first round, clip norm), ...). They may change
        only where the noise starts afresh. The noise is in units of the norm in use, so the
        guarantee stays the same, as in [McMahan18], section 3, which lowers norm and noise during
        training.
      estimator: how the mean of a round is estimated ([McMahan18]). The noise is in units of how
        far one client moves the estimate, so the guarantee is that of `noise_multiplier`.
      noise: 'default' for continuous Gaussian noise in floating point; 'hardened' for discrete
        Gaussian noise on integer sums from a cryptographic generator (docs/reference/hardened.md),
        whose rounding the sensitivity counts.
      earlier: plans of runs, perhaps on the same clients, whose model this run begins with. The
        guarantee (mu, rho, epsilon) is that of all of them together; the sensitivity and the noise
        are those of this run alone. Clients may take part in every run as its plan allows.
      before: what the run releases about all clients before its first round, such as a vocabulary.
        The guarantee (mu, rho, epsilon) counts it; the sensitivity and the noise are those of the
        rounds.
      group_size: number of clients, such as those of one person, that differ between neighbours; at
        least 1. The guarantee is for groups of that size. The noise does not depend on it.

    Raises:
      ValueError: if a field is out of its range, or fields contradict each other.

    Example:
      >>> plan = PrivacyPlan(
      ...     mechanism=mechanisms.Identity(100), participation=Participation(100, 50),
      ...     clip_norm=1.0, noise_multiplier=2.0, clients_per_round=10)
      >>> round(plan.rho, 3)
      0.25
    """

    mechanism: mechanisms.Mechanism
    participation: Participation
    clip_norm: Norm
    noise_multiplier: Annotated[float, Limits('clip norms', minimum=0)]
    clients_per_round: Clients
    adjacency: Annotated[str, Limits(choices=ADJACENCIES)] = 'zero_out'
    sampling: Sampling | None = None
    discretization: Discretization | None = None
    adaptive_clip: AdaptiveClip | None = None
    clip_schedule: tuple[tuple[Rounds, Norm], ...] = ()
    estimator: Estimator = Estimator()
    noise: Annotated[str, Limits(choices=hardened.NOISES)] = 'default'
    earlier: 'tuple[PrivacyPlan, ...]' = ()
    group_size: Clients = 1
    before: tuple[ReleaseBefore, ...] = ()

    def __post_init__(self) -> None:
        for field, form in _forms(self):
            name, value = field.name, getattr(self, field.name)
            if value is field.default:  # It is allowed, and plans are made in many loops.
                continue
            # Numbers of NumPy become those of Python, which JSON can hold.
            value = value.item() if isinstance(value, np.generic) else value
            if name == 'clients_per_round' and isinstance(value, float) and value.is_integer():
                value = int(value)
            object.__setattr__(self, name, value)
            form.check(name, value)
            _validate.by_type(name, value, field.type)
        allowed = _ADJACENCIES if self.sampling is None else self.sampling.adjacencies
        _validate.choice('adjacency', self.adjacency, allowed)
        _validate.stddev('clip_norm', self.clip_norm, self.noise_multiplier)
        if self.participation.rounds > self.mechanism.rounds:
            raise errors.ArgumentError(
                'rounds',
                self.participation.rounds,
                f'must be <= {self.mechanism.rounds}, the rounds that mechanism '
                f'{self.mechanism.name} was made for',
            )
        for part in self.parts:
            part.check(self)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values, with a digest in place of the mechanism's parameters.

        This is the form of the plan in `plan.json` and in reports, and the input of `digest`.
        Settings of a sampling stand beside the name of its kind.
        """
        values: dict[str, Any] = {}
        for field, form in _forms(self):
            value = getattr(self, field.name)
            if field.name not in LEFT_OUT or value != field.default:
                values |= form.write(field.name, value)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any], mechanism: mechanisms.Mechanism) -> 'PrivacyPlan':
        """The plan that `to_dict` wrote as `values`.

        Args:
          values: JSON values.
          mechanism: the mechanism of the plan, which has its own file.

        Raises:
          ArgumentError: if a key is unknown or missing, a value is not allowed, or the mechanism is
            not the one that the plan was written with.
        """
        given = dict(_json.checked_object('plan', values))
        if 'noise_match' in given:
            was = errors.removed('says how the noise multiplier was chosen', 'fabb35a5')
            raise errors.ArgumentError('noise_match', errors.NOT_SHOWN, was)
        settings = {name: given.pop(name) for name in kinds.every_setting() if name in given}
        forms = {field.name: form for field, form in _forms(cls)}
        known = ['mechanism_digest', *(name for name in forms if name != 'mechanism')]
        _json.refuse_unknown(given, known, 'a plan')
        for name in (*known, 'population'):
            if name not in (*given, *settings, *LEFT_OUT):
                raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must be given for a plan')
        digest = given.pop('mechanism_digest')
        if digest != mechanism.digest():
            raise errors.ArgumentError(
                'mechanism_digest', digest, "must be the digest of the mechanism's parameters"
            )
        fields = {name: forms[name].read(value) for name, value in given.items()}
        fields['sampling'] = kinds.from_settings(given['sampling'], settings)
        return cls(mechanism=mechanism, **fields)

    def digest(self) -> str:
        """SHA-256 of all fields and of the mechanism's parameters, in hexadecimal.

        Ledgers and checkpoints hold it: it must stay the same for the same plan.
        """
        values = self.to_dict()
        values['mechanism'] = values.pop('mechanism_digest')
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """The optional parts of the plan, in the order of `FOLD`."""
        made = (of_value(getattr(self, name)) for name, of_value in FOLD.items())
        return tuple(part for part in made if part is not None)

    def other_parts(self, part: Part) -> Iterator[Part]:
        """All parts but one."""
        return (other for other in self.parts if other is not part)

    @property
    def population(self) -> int | None:
        """Number of clients from which cohorts are drawn at random; None without sampling."""
        return None if self.sampling is None else self.sampling.population

    @property
    def mechanism_name(self) -> str:
        """Name of the mechanism in flags and files."""
        return self.mechanism.name

    @property
    def sampling_name(self) -> str:
        """Name of the sampling in flags and files; 'none' without."""
        return kinds.name(self.sampling)

    @property
    def has_own_bound(self) -> bool:
        """Whether the sampling itself computes bound and noise, because no `DpEvent` describes it.

        They are of the rounds alone: no other part changes the run.
        """
        sampling = self.sampling
        if sampling is None or not sampling.has_own_bound:
            return False
        return not any(part.changes_run for part in self.other_parts(sampling))

    @property
    def mechanism_of_run(self) -> mechanisms.Mechanism:
        """The mechanism over the rounds of the run."""
        return self.mechanism.with_rounds(self.participation.rounds)

    @property
    def fresh_rounds(self) -> tuple[int, ...]:
        """Rounds after the first in which the noise starts afresh, so the clip norm may change."""
        rounds = self.participation.rounds
        return tuple(start for start in self.mechanism.fresh_rounds if 0 < start < rounds)

    @property
    def neighbours(self) -> Neighbours:
        """Which runs are neighbours, as `events.bound` takes it."""
        adjacency = 'zero_out' if self.adjacency == 'zero_out' else 'replace_one'
        return Neighbours(adjacency, self.group_size)

    @property
    def shift(self) -> float:
        """How far one client moves a round's sum between neighbours, in clip norms.

        For samples without replacement also how far two updates may be apart.
        """
        shift = _SHIFT_IN_CLIP_NORMS[self.adjacency]
        for part in self.parts:
            shift = part.shift(self, shift)
        return shift

    @functools.cached_property
    def _sensitivity_bound(self) -> mechanisms.Sensitivity:
        return self.mechanism.sensitivity_bound(self.participation)

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the whole run for clip norm 1 under `adjacency`.

        With sampling it is the sensitivity of one round, which is the norm of its column of C: the
        guarantee is then not a function of the sensitivity of the run. A group moves a run by at
        most as much as its members one by one, and by that much if all of them take part in the
        same rounds.
        """
        if self.sampling is not None:
            return self.sensitivity_of_norm(self.sampling.norm(self))
        return self.sensitivity_of_norm(rounding.root_up(self._sensitivity_bound.squared))

    def sensitivity_of_norm(self, norm: float) -> float:
        """The sensitivity, for the norm of what a client releases that moves sums by 1."""
        sensitivity = self.shift * self.group_size * norm
        for part in self.parts:
            sensitivity = part.sensitivity(self, sensitivity)
        return sensitivity

    @property
    def sensitivity_is_exact(self) -> bool:
        """Whether an admitted pattern attains `sensitivity`; otherwise `sensitivity` is a bound."""
        is_attained = all(part.is_attained for part in self.parts)
        return is_attained and (self.sampling is not None or self._sensitivity_bound.is_exact)

    @property
    def stddev(self) -> float:
        """Standard deviation of each entry of z in round 0: `clip_norm * update_noise_multiplier`.

        It changes with the clip norm.
        """
        return self.clip_norm * self.update_noise_multiplier

    @property
    def update_noise_multiplier(self) -> float:
        """Standard deviation of the entries of z divided by the clip norm in use.

        This is `noise_multiplier`, or with `adaptive_clip` the z_Delta of [Xu23], theorem 1.
        """
        noise_multiplier = self.noise_multiplier
        for part in self.parts:
            noise_multiplier = part.update_noise(self, noise_multiplier)
        return noise_multiplier

    @property
    def count_stddev(self) -> float | None:
        """sigma_b of `adaptive_clip`, in clients; None with a fixed clip norm."""
        if self.adaptive_clip is None:
            return None
        return self.adaptive_clip.stddev(self.clients_per_round)

    @property
    def denominator(self) -> float:
        """The noised sum of a round divided by this is the noised mean."""
        return self.estimator.denominator(self.clients_per_round)

    @functools.cached_property
    def run(self) -> Run:
        """What the run releases, with earlier runs and releases before training."""
        return functools.reduce(
            lambda run, part: part.run(self, run), self.parts, self._unamplified(self.sensitivity)
        )

    def run_of_sensitivity(self, sensitivity: float) -> Run:
        """`run` for another sensitivity of the rounds, without amplification by sampling."""
        run = self._unamplified(sensitivity)
        for part in self.other_parts(self.sampling) if self.sampling else self.parts:
            run = part.run(self, run)
        return run

    def _unamplified(self, sensitivity: float) -> Run:
        mu = rounding.quotient_up(sensitivity, self.noise_multiplier)
        return Run(reach=mu, mu=mu)

    @property
    def mu(self) -> float | None:
        """Gaussian DP parameter of the run with all that is composed with it.

        Without sampling it is `sensitivity / noise_multiplier` for the rounds; infinity without
        noise. None with sampling, because the run is then not a single Gaussian release.
        """
        return self.run.total_mu

    @property
    def rho(self) -> float | None:
        """The zCDP parameter `mu^2 / 2`; infinity without noise, None with sampling."""
        return None if self.mu is None else self.mu * self.mu / 2

    @property
    def delta_before(self) -> float:
        """Probability that a release before training, also of an earlier run, reveals something."""
        return self.run.delta

    @property
    def slack(self) -> float:
        """By how much epsilon may exceed that of `dp_event` at a delta `exp(slack)` times smaller.

        Hardened noise is discrete Gaussian, which is that close to the Gaussian; for other noise
        the slack is 0.
        """
        return self.run.slack

    def dp_event(self) -> dp.Event:
        """The whole run, with earlier ones and releases before training, as one event.

        Noise is divided by the sensitivity, or with sampling by how far one client moves a round.
        The guarantee of samples depends on `neighbours` too.
        """
        if not all(plan.noise_multiplier for plan in (self, *self.earlier)):
            return dp.NonPrivateDpEvent()
        return self.run.event()

    def epsilon(self, delta: float, accountant: str = 'pld') -> float:
        """Epsilon of the whole run at `delta`, by one of `accountants`.

        Raises:
          ValueError: if the delta is not within (0, 1), or the accountant does not support the
            sampling.
        """
        return self.bound(delta, accountant).epsilon

    def bound(
        self, delta: float, accountant: str = 'pld', coarseness: float = 1.0
    ) -> gaussian.Bound:
        """`epsilon`, and the accountant that showed it; `coarseness` is that of `events.bound`."""
        self.check_accountant(accountant)
        if self.sampling is not None and self.has_own_bound and self.noise_multiplier:
            own = self.sampling.bound(self, delta)
            if own is not None:
                return own
        return self.run.bound(delta, accountant, self.neighbours, coarseness)

    @property
    def accountants(self) -> tuple[str, ...]:
        """The accountants that know such a plan; the last one, 'best', takes the least of them."""
        return gaussian.ACCOUNTANTS if self.sampling is None else self.sampling.accountants(self)

    def check_accountant(self, accountant: str) -> None:
        """Checks that an accountant knows such a plan.

        Raises:
          ArgumentError: if not.
        """
        if accountant not in self.accountants:
            raise errors.ArgumentError(
                'accountant',
                accountant,
                f'must be one of {", ".join(self.accountants)} with sampling={self.sampling_name}',
            )

    @classmethod
    def calibrated(
        cls, *, epsilon: float, delta: float, accountant: str = 'pld', **fields: Any
    ) -> 'PrivacyPlan':
        """The plan with the least noise that is (`epsilon`, `delta`)-DP.

        Args:
          epsilon: target, above 0.
          delta: strictly between 0 and 1.
          accountant: the method that shows that the target is met.
          **fields: fields of the plan, without `noise_multiplier`.

        Raises:
          ValueError: if an argument is out of its range, or no noise meets the target.
        """
        plan = cls(noise_multiplier=0.0, **fields)
        plan.check_accountant(accountant)
        if plan.sampling is not None:
            own = plan.sampling.noise_for(plan, epsilon, delta) if plan.has_own_bound else None
            if own is not None:
                return plan._with_noise(own)
            # The search tries more noise than it finds, perhaps too much for the noise of counts.
            free = dataclasses.replace(plan, adaptive_clip=None)
            searched = gaussian.least_noise_multiplier(
                lambda noise: free._with_noise(noise).epsilon(delta, accountant),
                epsilon,
                plan.sensitivity,
                delta,
                accountant,
            )
            return plan._with_noise(searched)
        plan = plan._with_noise(plan.noise_of_mu(plan._target_mu(epsilon, delta, accountant)))
        step, steps = 1e-15, 0
        while plan.epsilon(delta, accountant) > epsilon:  # The division may round down.
            more = math.nextafter(plan.noise_multiplier, math.inf) * (1 + step)
            plan, steps = plan._with_noise(more), steps + 1
            if steps > _SMALL_STEPS:
                step *= 2
        return plan

    def _with_noise(self, noise_multiplier: float) -> 'PrivacyPlan':
        return dataclasses.replace(self, noise_multiplier=noise_multiplier)

    def noise_of_mu(self, mu: float) -> float:
        """About the noise multiplier with which the rounds reach `mu`; for a plan without noise."""
        noise_multiplier = self.sensitivity / mu
        for part in self.parts:
            noise_multiplier = part.noise_of_mu(self, mu, noise_multiplier)
        return noise_multiplier

    def _target_mu(self, epsilon: float, delta: float, accountant: str) -> float:
        """Largest mu of the rounds for a target, given the releases composed with them.

        Raises:
          ArgumentError: if that leaves nothing.
        """
        _validate.number('delta', delta, above=0, below=1)
        for part in self.parts:
            epsilon, delta = part.target(self, epsilon, delta)
        whole = self.run
        left = events.left(delta, whole.delta)
        if not left:
            raise errors.ArgumentError(
                'delta',
                delta,
                f'must be above {whole.delta:g}, which releases before training take of it',
            )
        taken = sum(mu**2 for mu in whole.other_mus if mu is not None)
        squared = gaussian.mu_from_epsilon(epsilon, left, accountant) ** 2 - taken
        if squared <= 0:
            least = math.inf
            if math.isfinite(taken):
                least = gaussian.epsilon_from_mu(math.sqrt(taken), left, accountant)
            whose = 'earlier runs' if self.earlier else 'releases before training'
            raise errors.ArgumentError(
                'epsilon', epsilon, f'must be above {least:.4g}, that of the {whose} alone'
            )
        return math.sqrt(squared)

    def with_participation(self, participation: Participation) -> 'PrivacyPlan':
        """The same noise over another schema, such as the rounds that a run has done so far."""
        mechanism = self.mechanism
        if participation.rounds > mechanism.rounds:
            mechanism = mechanism.with_rounds(participation.rounds)
        return dataclasses.replace(self, mechanism=mechanism, participation=participation)

    def without_sampling(self, participation: Participation) -> 'PrivacyPlan':
        """The same noise over a schema, without relying on how cohorts were sampled."""
        adjacency = self.neighbours.adjacency
        earlier = tuple(plan.without_sampling(plan.participation) for plan in self.earlier)
        plain = dataclasses.replace(self, sampling=None, adjacency=adjacency, earlier=earlier)
        return plain.with_participation(participation)


def _earlier_plan(value: Any) -> PrivacyPlan:
    """A plan of `earlier` from its JSON form, which has the parameters of its mechanism."""
    fields = dict(_json.checked_object('earlier', value))
    mechanism = mechanisms.from_dict(fields.pop('mechanism', None))
    return PrivacyPlan.from_dict(fields, mechanism)


class _Form(NamedTuple):
    """The check of a field of a plan besides that of its type, and its JSON form.

    Attributes:
      check: raises ArgumentError for a value that is not allowed, whatever the other fields are.
      write: the keys and values of the JSON form, from the field's name and value.
      read: the field's value, from its JSON form.
    """

    check: Callable[[str, Any], object] = lambda name, value: None
    write: Callable[[str, Any], dict[str, Any]] = lambda name, value: {name: _json.plain(value)}
    read: Callable[[Any], Any] = lambda value: value

    @classmethod
    def of(cls, kind: type[_json.JsonFields], *others: Any, text: str = '') -> '_Form':
        """The form of a field with fields of its own, or one of `others`."""
        return cls(
            _validate.instance_of(kind, *others, text=text),
            read=lambda value: value if value in others else kind.from_dict(value),
        )


# The fields of a plan whose type does not say all of that.
_FORMS = {
    'mechanism': _Form(
        _validate.instance_of(mechanisms.Mechanism, text=_MECHANISM),
        lambda name, value: {'mechanism_digest': value.digest()},
    ),
    'participation': _Form.of(Participation, text='must be a Participation(rounds, ...)'),
    'noise_multiplier': _Form(_validate.noise_multiplier),
    'sampling': _Form(
        _validate.instance_of(Sampling, None, text=_SAMPLING),
        lambda name, value: {name: kinds.name(value), **kinds.settings_of(value)},
    ),
    'discretization': _Form.of(Discretization, None),
    'adaptive_clip': _Form.of(AdaptiveClip, None),
    'clip_schedule': _Form(
        _validate.tuple_of(tuple, 'pairs of a round and a clip norm'),
        read=lambda value: _json.pairs('clip_schedule', value),
    ),
    'estimator': _Form.of(Estimator),
    'earlier': _Form(
        _validate.tuple_of(PrivacyPlan, 'plans'),
        lambda name, value: {
            name: [{'mechanism': plan.mechanism.to_dict(), **plan.to_dict()} for plan in value]
        },
        lambda value: tuple(map(_earlier_plan, _json.list_of('earlier', value, 'plans'))),
    ),
    'before': _Form(
        _validate.tuple_of(ReleaseBefore, 'ReleaseBefore'),
        read=lambda value: tuple(
            map(ReleaseBefore.from_dict, _json.list_of('before', value, 'releases'))
        ),
    ),
}


_NO_FORM = _Form()


def _forms(plan: PrivacyPlan | type[PrivacyPlan]) -> Iterator[tuple[dataclasses.Field, _Form]]:
    """Every field in their order, and its form."""
    return ((field, _FORMS.get(field.name, _NO_FORM)) for field in dataclasses.fields(plan))
