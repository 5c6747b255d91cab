"""The privacy plan of a run: all that its noise and its guarantee depend on."""

import dataclasses
import functools
import hashlib
import json
import math
from typing import Any, cast

import dp_accounting

from dpfl import _json, errors, mechanisms
from dpfl.accounting import adaptive_clip as adaptive_clip_lib
from dpfl.accounting import (
    before_training,
    events,
    gaussian,
    hardened,
    plan_calibration,
    plan_checks,
    plan_json,
)
from dpfl.accounting.plan_values import PlanValues
from dpfl.mechanisms import rounding
from dpfl.participation import Participation

# How far a client moves one round's clipped sum between neighbours, in clip norms. Zeroing a client
# out takes its update away; replacing it can swap two opposite updates.
_SHIFT_IN_CLIP_NORMS = {'zero_out': 1.0, 'replace_one': 2.0, 'replace_one_half_shift': 1.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan(PlanValues):
    """What a run releases, and therefore what it guarantees.

    In each round t of `participation.rounds` the run releases the sum of the clipped updates plus
    `(C^-1 z)_t`, where the entries of z have standard deviation `stddev`.

    With `sampling` the guarantee relies on secret random cohorts; `sampling.kinds` lists the kinds,
    and each says which noise and which schema it is for.

    The fields are those of `PlanValues`. Noise that is distributed among the clients is
    `aggregators.DistributedNoise`; it is not part of a plan.

    Raises:
      ValueError: if a field is out of its range, or fields contradict each other.
    """

    def __post_init__(self) -> None:
        plan_checks.check(self)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values, with a digest in place of the mechanism's parameters.

        This is the plan in `plan.json` and in reports, and what `digest` is computed from.
        """
        return plan_json.to_dict(self)

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
        fields = plan_json.fields(cls, values, mechanism)
        if 'earlier' in fields:
            fields['earlier'] = _plans(fields['earlier'])
        return cls(mechanism=mechanism, **fields)

    def digest(self) -> str:
        """SHA-256 of all fields and of the mechanism's parameters, in hexadecimal.

        Ledgers and checkpoints hold it: it must stay the same for the same plan.
        """
        values = self.to_dict()
        values['mechanism'] = values.pop('mechanism_digest')
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    @property
    def fresh_rounds(self) -> tuple[int, ...]:
        """Rounds after the first in which the noise starts afresh, so the clip norm may change."""
        rounds = self.participation.rounds
        return tuple(start for start in self.mechanism.fresh_rounds if 0 < start < rounds)

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
        return plan_calibration.calibrated(plan, epsilon, delta, accountant)

    @functools.cached_property
    def _sensitivity_bound(self) -> mechanisms.Sensitivity:
        return self.mechanism.sensitivity_bound(self.participation)

    @property
    def shift(self) -> float:
        """How far one client moves a round's sum between neighbours, in clip norms.

        For samples without replacement also how far two updates may be apart.
        """
        shift = _SHIFT_IN_CLIP_NORMS[self.adjacency]
        if self.sampling is not None:
            shift *= self.sampling.shift(self.adjacency)
        if self.discretization is None:
            return shift
        return shift * self.discretization.inflated_norm / self.clip_norm

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the whole run for clip norm 1 under `adjacency`.

        With sampling it is the sensitivity of one round, which is the norm of its column of C: the
        guarantee is then not a function of the sensitivity of the run. A group moves a run by at
        most as much as its members one by one, and by that much if all of them take part in the
        same rounds.
        """
        if self.sampling is not None:
            return self.shift_of_group * self.sampling.norm(self)
        return self.with_rounding(
            self.shift_of_group * rounding.root_up(self._sensitivity_bound.squared)
        )

    def with_rounding(self, sensitivity: float) -> float:
        """A sensitivity of the whole run, plus what rounding adds to it with hardened noise."""
        return hardened.sensitivity(self, sensitivity) if self.noise == 'hardened' else sensitivity

    @property
    def sensitivity_is_exact(self) -> bool:
        """Whether an admitted pattern attains `sensitivity`; otherwise `sensitivity` is a bound."""
        if self.sampling is not None:
            return self.sampling.is_exact and self.shift_is_exact
        return self._sensitivity_bound.is_exact and self.shift_is_exact

    @property
    def shift_is_exact(self) -> bool:
        """Whether one client can move a round by the whole norm that the sensitivity counts."""
        is_rounded = self.discretization is not None or self.noise == 'hardened'
        return not is_rounded and self.estimator.kind == 'fixed'

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
        if self.count_stddev is None:
            return self.noise_multiplier
        return adaptive_clip_lib.update_noise_multiplier(self.noise_multiplier, self.count_stddev)

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

    @property
    def mu(self) -> float | None:
        """Gaussian DP parameter `sensitivity / noise_multiplier`; infinity without noise.

        None with sampling, because the run is then not a single Gaussian release.
        """
        if self.sampling is not None:
            return None
        return self.mu_of_sensitivity(self.sensitivity)

    def mu_of_sensitivity(self, sensitivity: float) -> float:
        """`mu` for another sensitivity of the run, with earlier runs and releases before training.

        Gaussian DP composes by the sum of the squares, also if later runs depend on earlier ones.
        """
        own = rounding.quotient_up(sensitivity, self.noise_multiplier)
        others = [cast(float, each.mu) for each in self.earlier_plans]
        others += [each.mu(self.neighbours) for each in self.before]
        return math.hypot(own, *others) * (1 + 1e-14) if others else own

    @property
    def earlier_plans(self) -> 'tuple[PrivacyPlan, ...]':
        """The plans of `earlier`."""
        return cast('tuple[PrivacyPlan, ...]', self.earlier)

    @property
    def rho(self) -> float | None:
        """The zCDP parameter `mu^2 / 2`; infinity without noise, None with sampling."""
        return None if self.mu is None else self.mu * self.mu / 2

    def dp_event(self) -> dp_accounting.DpEvent:
        """The whole run, with earlier ones and releases before training, as one event.

        Noise is divided by the sensitivity, or with sampling by how far one client moves a round.
        The guarantee of samples depends on `neighbours` too.
        """
        if not all(plan.noise_multiplier for plan in (self, *self.earlier)):
            return dp_accounting.NonPrivateDpEvent()
        if self.sampling is not None:
            return self._with_earlier(self.sampling.event(self, self.noise_multiplier))
        event = dp_accounting.GaussianDpEvent(1 / cast(float, self.mu))
        return before_training.with_delta(event, self.delta_before)

    def _with_earlier(self, own: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
        earlier = [each.dp_event() for each in self.earlier_plans]
        earlier += before_training.events(self.before, self.neighbours)
        return dp_accounting.ComposedDpEvent([own, *earlier]) if earlier else own

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
        if self.sampling is None:
            return self.bound_of_sensitivity(self.sensitivity, delta, accountant)
        self.check_accountant(accountant)
        runs = [self.dp_event()]
        if self.noise_multiplier:
            if self.has_own_bound and (own := self.sampling.bound(self, delta)) is not None:
                return own
            runs = [self._with_earlier(event) for event in self.sampling.worst_events(self)]
        return hardened.with_slack(
            lambda at: max(
                events.bound(run, at, accountant, coarseness, self.neighbours) for run in runs
            ),
            delta,
            self.slack,
        )

    def bound_of_sensitivity(
        self, sensitivity: float, delta: float, accountant: str = 'pld'
    ) -> gaussian.Bound:
        """`bound` for another sensitivity of the run, without amplification by sampling."""
        mu = self.mu_of_sensitivity(sensitivity)
        if self.delta_before:
            event = dp_accounting.GaussianDpEvent(1 / mu) if mu else dp_accounting.NoOpDpEvent()
            event = before_training.with_delta(event, self.delta_before)
            return events.bound(event, delta, accountant)
        return hardened.with_slack(
            lambda at: gaussian.bound(mu, at, accountant), delta, self._slack(mu)
        )

    def _slack(self, largest_shift: float) -> float:
        return 0.0 if self.noise == 'default' else hardened.slack(self, largest_shift)

    @property
    def slack(self) -> float:
        """By how much epsilon may exceed that of `dp_event` at a delta `exp(slack)` times smaller.

        Hardened noise is discrete Gaussian, which is that close to the Gaussian; for other noise
        the slack is 0.
        """
        return self.slack_of_sensitivity(self.sensitivity)

    def slack_of_sensitivity(self, sensitivity: float) -> float:
        """`slack` for another sensitivity of the run."""
        return self._slack(rounding.quotient_up(sensitivity, self.noise_multiplier))

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

    def with_participation(self, participation: Participation) -> 'PrivacyPlan':
        """The same noise over another schema, such as the rounds that a run has done so far."""
        mechanism = self.mechanism
        if participation.rounds > mechanism.rounds:
            mechanism = mechanism.with_rounds(participation.rounds)
        return dataclasses.replace(self, mechanism=mechanism, participation=participation)

    def without_sampling(self, participation: Participation) -> 'PrivacyPlan':
        """The same noise over a schema, without relying on how cohorts were sampled."""
        adjacency = self.neighbours.adjacency
        earlier = tuple(each.without_sampling(each.participation) for each in self.earlier_plans)
        plain = dataclasses.replace(self, sampling=None, adjacency=adjacency, earlier=earlier)
        return plain.with_participation(participation)


def _plans(values: Any) -> tuple[PrivacyPlan, ...]:
    """`earlier` from its JSON form, a list of plans with the parameters of their mechanisms."""
    if not isinstance(values, list):
        raise errors.ArgumentError('earlier', values, 'must be a list of plans')
    plans = []
    for value in values:
        fields = dict(_json.checked_object('earlier', value))
        mechanism = mechanisms.from_dict(fields.pop('mechanism', None))
        plans.append(PrivacyPlan.from_dict(fields, mechanism))
    return tuple(plans)
