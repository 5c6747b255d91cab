"""Plans for a deployment: the noise that a guarantee or a simulation needs ([Xu23], 2.2 and 2.5).

What a run will reach is an estimate. The guarantee of a run follows from the limits that it
enforces, and its participation log shows them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

from dpfl import _validate, errors, mechanisms
from dpfl.accounting import Discretization, PrivacyPlan, mu_from_epsilon
from dpfl.participation import Participation
from dpfl.planning.deployment import Deployment


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A guarantee to be met: rho of zCDP, or epsilon at a delta.

    Attributes:
      rho, epsilon: above 0; exactly one of them is given.
      delta: strictly between 0 and 1; for epsilon only.
      accountant: the method that shows that epsilon is met, one of `accounting.ACCOUNTANTS`.
      mu: the largest `sensitivity / noise_multiplier` that meets the target.

    Raises:
      ValueError: if a field is out of its range, both or neither of rho and epsilon are given, or
        the accountant cannot show such an epsilon for any noise.

    Example:
      >>> Target(rho=0.5).mu
      1.0
    """

    rho: float | None = None
    epsilon: float | None = None
    delta: float = 1e-10
    accountant: str = 'pld'
    mu: float = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError('rho, epsilon: exactly one of them must be given')
        if self.epsilon is not None:
            mu = mu_from_epsilon(self.epsilon, self.delta, self.accountant)
        else:
            rho = _validate.number('rho', self.rho, above=0)
            mu = math.sqrt(2 * rho)
            while mu**2 / 2 > rho:  # The root may be rounded up.
                mu = math.nextafter(mu, 0)
        object.__setattr__(self, 'mu', mu)


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The noise that was good enough in a small simulation.

    Utility stays about the same if noise multiplier and cohort size grow in proportion, because the
    noise on the mean update stays the same. This is a hypothesis, with evidence in [Xu23], section
    2.2 (0.54 with 500 clients and 7 with 6500).

    Attributes:
      noise_multiplier: z_0, above 0.
      clients_per_round: m_0, at least 1.

    Raises:
      ValueError: if a field is out of its range.

    Example:
      >>> Simulation(noise_multiplier=0.5, clients_per_round=500).scaled(6500)
      6.5
    """

    noise_multiplier: float
    clients_per_round: int

    def __post_init__(self):
        _validate.number('simulated_noise_multiplier', self.noise_multiplier, above=0)
        _validate.integer('simulated_clients_per_round', self.clients_per_round, minimum=1)

    def scaled(self, clients_per_round: int) -> float:
        """The noise multiplier for another cohort size: `z_0 m / m_0`."""
        return self.noise_multiplier * clients_per_round / self.clients_per_round


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planner:
    """Makes plans of one mechanism for deployments.

    Attributes:
      mechanism: with at least the rounds of the longest deployment.
      clip_norm, adjacency: as in `PrivacyPlan`.
      discretize: how updates become integers, or None, by cohort size.

    Example:
      >>> deployment = Deployment(population=4_210_000, clients_per_round=6500, rounds=1900)
      >>> planner = Planner(mechanism=mechanisms.BinaryTree(2000))
      >>> plan = planner.with_target(deployment, Target(rho=0.3))
      >>> plan.participation.min_separation, round(plan.noise_multiplier, 2), plan.rho <= 0.3
      (647, 7.53, True)
    """

    mechanism: mechanisms.Mechanism
    clip_norm: float = 1.0
    adjacency: str = 'zero_out'
    discretize: Callable[[int], Discretization | None] = lambda clients_per_round: None

    def with_noise(self, deployment: Deployment, noise_multiplier: float) -> PrivacyPlan:
        """The plan with a given noise multiplier.

        Raises:
          ValueError: if the mechanism has too few rounds, or a value is out of its range.
        """
        return PrivacyPlan(
            mechanism=self.mechanism.with_rounds(deployment.rounds),
            participation=deployment.participation,
            clip_norm=self.clip_norm,
            noise_multiplier=noise_multiplier,
            clients_per_round=deployment.clients_per_round,
            adjacency=self.adjacency,
            discretization=self.discretize(deployment.clients_per_round),
        )

    def with_target(self, deployment: Deployment, target: Target) -> PrivacyPlan:
        """The plan with the least noise that meets the target.

        Raises:
          ValueError: as in `with_noise`, or if no noise meets the target.
        """
        plan = self.with_noise(deployment, 0.0)
        plan = dataclasses.replace(plan, noise_multiplier=plan.sensitivity / target.mu)
        while _mu(plan) > target.mu:  # The division may round down.
            more = math.nextafter(plan.noise_multiplier, math.inf)
            plan = dataclasses.replace(plan, noise_multiplier=more)
        return plan

    def with_simulation(
        self, deployment: Deployment, target: Target, simulation: Simulation, most: int
    ) -> tuple[Deployment, PrivacyPlan]:
        """The smallest cohort that meets the target with the noise of the simulation, scaled.

        This is strategy 3 of [Xu23], section 2.5. If no cohort up to `most` meets the target, the
        result is the largest cohort with as much noise as the target needs, and with less utility
        than the simulation had.

        Args:
          deployment: its cohort size is not used.
          target: the guarantee to be met.
          simulation: noise that is good enough.
          most: largest cohort that the system supports.

        Returns:
          The deployment with that cohort size, and its plan.

        Raises:
          ValueError: as in `with_target`.
        """
        smallest = self.least_cohort(deployment, target, simulation, most)
        if smallest is not None:
            noise_multiplier = simulation.scaled(smallest.clients_per_round)
            return smallest, self.with_noise(smallest, noise_multiplier)
        largest = dataclasses.replace(
            deployment, clients_per_round=_largest_cohort(deployment, most)
        )
        return largest, self.with_target(largest, target)

    def least_cohort(
        self, deployment: Deployment, target: Target, simulation: Simulation, most: int
    ) -> Deployment | None:
        """The deployment with the smallest cohort that meets the target with the scaled noise.

        A larger cohort has more noise but lowers the separation that the population allows, so it
        is not always better. The search starts from one client and goes from each size to the size
        that its separation needs. A smaller separation never needs a smaller cohort, so the search
        does not skip the smallest cohort that suffices.

        Args:
          deployment, target, simulation, most: as in `with_simulation`.

        Returns:
          The deployment with that cohort size; None if there is none up to `most`, or up to what
          the population allows.
        """
        _validate.integer('max_clients_per_round', most, minimum=1)
        most = _largest_cohort(deployment, most)

        @functools.cache  # Neighbouring sizes share a schema.
        def bound(participation: Participation) -> mechanisms.Sensitivity:
            return self.mechanism.sensitivity_bound(participation)

        cohort = 1
        while cohort <= most:
            candidate = dataclasses.replace(deployment, clients_per_round=cohort)
            plan = self.with_noise(candidate, simulation.scaled(cohort))
            sensitivity = plan.shift * math.sqrt(bound(candidate.participation).squared)
            # The slack keeps rounding from skipping a size; the result is checked.
            needed = math.ceil(sensitivity / target.mu / simulation.scaled(1) * (1 - 1e-12))
            if needed <= cohort and _mu(plan) <= target.mu:
                return candidate
            cohort = max(needed, cohort + 1)
        return None


def _mu(plan: PrivacyPlan) -> float:
    assert plan.mu is not None  # Plans of a planner have no sampling.
    return plan.mu


def _largest_cohort(deployment: Deployment, most: int) -> int:
    """The largest cohort size up to `most` that the population and the given limits allow."""
    clients, places = deployment.reporting_clients, deployment.max_participations
    if places is not None:
        most = min(most, clients * places // deployment.rounds)
    return min(most, clients // (deployment.min_separation or 1))


def prefix_noise(plan: PrivacyPlan) -> float:
    """Largest standard deviation of a coordinate of the noise in a sum of mean updates.

    `stddev * max_error / denominator`, in the units of the updates. It measures the effect of
    the noise on the model, to compare mechanisms and cohort sizes ([McMahan24], section 3.2).
    """
    return plan.stddev * plan.mechanism.max_error() / plan.denominator


def scaled(
    plan: PrivacyPlan,
    clients_per_round: int,
    *,
    population: int,
    participation: Participation | None = None,
) -> PrivacyPlan:
    """The plan for another cohort size and population, with the same noise on the mean update.

    The noise of a mean has a standard deviation of clip norm x noise multiplier / clients per round
    ([Augenstein20], section 6, "Privacy at Scale"). Noise of counts and the weight of the mean grow
    with the cohort as well.

    Args:
      plan: the plan of a run.
      clients_per_round: cohort size.
      population: number of clients.
      participation: schema that the clients keep, for a plan without sampling; by default that of
        the plan.

    Raises:
      ArgumentError: if the population cannot provide such cohorts.

    Example:
      >>> small = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.BinaryTree(2000), participation=Participation(2000, 100),
      ...     clip_norm=1.0, noise_multiplier=0.54, clients_per_round=500)
      >>> large = scaled(small, 6500, population=10**6)
      >>> f'{large.noise_multiplier:.2f}, {large.stddev / 6500:.5f} = {small.stddev / 500:.5f}'
      '7.02, 0.00108 = 0.00108'
    """
    ratio = clients_per_round / plan.clients_per_round
    schema = participation or plan.participation
    least = clients_per_round
    if plan.sampling is None:
        least = schema.least_population(clients_per_round)
    _validate.integer('population', population, minimum=least)
    return dataclasses.replace(
        plan,
        participation=schema,
        clients_per_round=clients_per_round,
        noise_multiplier=plan.noise_multiplier * clients_per_round / plan.clients_per_round,
        estimator=plan.estimator.scaled(ratio),
        adaptive_clip=plan.adaptive_clip and plan.adaptive_clip.scaled(ratio),
        sampling=plan.sampling and plan.sampling.scaled(population, ratio),
    )


def scaled_cohort(clients_per_round: int, scale: float) -> int:
    """`scale` times the cohort size.

    Raises:
      ArgumentError: if this is not a whole number of clients, at least 1.
    """
    clients = clients_per_round * scale
    if not (clients >= 1 and clients.is_integer()):
        raise errors.ArgumentError(
            'scale', scale, f'must make whole cohorts of {clients_per_round} clients per round'
        )
    return int(clients)
