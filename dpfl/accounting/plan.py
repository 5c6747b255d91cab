"""The privacy plan of a run: the only thing noise is made from."""

import dataclasses
import functools
import math

import dp_accounting

from dpfl import _validate, mechanisms
from dpfl.accounting import calibration, gaussian
from dpfl.participation import Participation

# How far one round's clipped sum moves between neighbours, in clip norms. Zeroing a client out
# takes its update away; replacing it can swap two opposite updates.
_SHIFT_IN_CLIP_NORMS = {'zero_out': 1.0, 'replace_one': 2.0}
ADJACENCIES = tuple(_SHIFT_IN_CLIP_NORMS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """What a run releases, and therefore what it guarantees.

    The run releases, in each round t of `participation.rounds`, the sum of the clipped updates
    plus `(C^-1 z)_t`, where the entries of z have standard deviation `stddev`.

    Attributes:
      mechanism: holds the strategy matrix C; at least as many rounds as `participation`.
      participation: the schema that every client keeps.
      clip_norm: L2 bound of one client's update in one round, above 0.
      noise_multiplier: standard deviation of the entries of z divided by `clip_norm`, at least 0.
      clients_per_round: planned cohort size, the denominator of the mean; no part of the guarantee.
      adjacency: 'zero_out' (one client's updates become zero in all rounds; documents 000, 002) or
        'replace_one' (they become any others within the clip norm; doubles the sensitivity).

    Raises:
      ValueError: if a field is out of its range.
    """

    mechanism: mechanisms.Mechanism
    participation: Participation
    clip_norm: float
    noise_multiplier: float
    clients_per_round: int
    adjacency: str = 'zero_out'

    def __post_init__(self):
        _validate.number('clip_norm', self.clip_norm, above=0)
        _validate.number('noise_multiplier', self.noise_multiplier, minimum=0)
        _validate.integer('clients_per_round', self.clients_per_round, minimum=1)
        _validate.choice('adjacency', self.adjacency, ADJACENCIES)
        _validate.integer(
            'rounds', self.participation.rounds, minimum=1, maximum=self.mechanism.rounds
        )

    @classmethod
    def calibrated(
        cls, *, epsilon: float, delta: float, accountant: str = 'pld', **fields
    ) -> 'PrivacyPlan':
        """The plan with the least noise that is (`epsilon`, `delta`)-DP.

        Args:
          epsilon: target, above 0.
          delta: strictly between 0 and 1.
          accountant: the method by which the target is met.
          **fields: of the plan, without `noise_multiplier`.

        Raises:
          ValueError: if an argument is out of its range.
        """
        silent = cls(noise_multiplier=0.0, **fields)
        mu = calibration.mu_from_epsilon(epsilon, delta, accountant)
        plan = dataclasses.replace(silent, noise_multiplier=silent.sensitivity / mu)
        while plan.epsilon(delta, accountant) > epsilon:  # The division may round down.
            larger = math.nextafter(plan.noise_multiplier, math.inf) * (1 + 1e-15)
            plan = dataclasses.replace(plan, noise_multiplier=larger)
        return plan

    @functools.cached_property
    def _sensitivity_bound(self) -> mechanisms.Sensitivity:
        return self.mechanism.sensitivity_bound(self.participation)

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the whole run for clip norm 1, under `adjacency`."""
        return _SHIFT_IN_CLIP_NORMS[self.adjacency] * math.sqrt(self._sensitivity_bound.squared)

    @property
    def sensitivity_is_exact(self) -> bool:
        """Whether an admitted pattern attains `sensitivity`; otherwise it is an upper bound."""
        return self._sensitivity_bound.is_exact

    @property
    def stddev(self) -> float:
        """Standard deviation of each entry of z: `clip_norm * noise_multiplier`."""
        return self.clip_norm * self.noise_multiplier

    @property
    def mu(self) -> float:
        """Gaussian DP parameter `sensitivity / noise_multiplier`; infinity without noise."""
        return self.sensitivity / self.noise_multiplier if self.noise_multiplier else math.inf

    @property
    def rho(self) -> float:
        """The zCDP parameter `mu^2 / 2`; infinity without noise."""
        return self.mu**2 / 2

    def dp_event(self) -> dp_accounting.DpEvent:
        """The whole run as one event (the sensitivity is in its noise multiplier)."""
        if not self.noise_multiplier:
            return dp_accounting.NonPrivateDpEvent()
        return dp_accounting.GaussianDpEvent(1 / self.mu)

    def epsilon(self, delta: float, accountant: str = 'pld') -> float:
        """Epsilon of the whole run at `delta`, by one of `gaussian.ACCOUNTANTS`."""
        return gaussian.epsilon_from_mu(self.mu, delta, accountant)

    def over(self, participation: Participation) -> 'PrivacyPlan':
        """The same noise over other rounds or another schema: what a run really did, or so far."""
        mechanism = self.mechanism
        if participation.rounds > mechanism.rounds:
            mechanism = mechanism.with_rounds(participation.rounds)
        return dataclasses.replace(self, mechanism=mechanism, participation=participation)
