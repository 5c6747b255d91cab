"""Planning a run before it starts: document 000, sections 2.2 and 2.5, as functions.

From the population, the cohort size (report goal), the rounds and a timer follows the separation
that clients can keep; from that and the noise, the guarantee. Everything here is an estimate of
what a run will reach. Its guarantee follows from what it enforces, and its log shows.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

from dpfl import _validate, errors, mechanisms
from dpfl.accounting import calibration
from dpfl.accounting.plan import PrivacyPlan
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import Participation

_MINUTES = 60  # of an hour
_MOST_CLIENTS = 10**15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment:
    """Clients and rounds of a planned run, and the separation that they allow.

    Any b consecutive rounds have different clients where b is the separation, so b is at most the
    clients that ever report divided by the cohort size (document 000, section 2.2). Below that a
    timer on the clients, or a limit given in rounds, decides; if there is neither, the limit of
    the population is taken, as in document 000, figures 4a and 4b.

    Attributes:
      population: number of clients, an estimate, at least 1.
      clients_per_round: m, the cohort size, at least 1.
      rounds: n, at least 1.
      availability: share of the population that reports at some time, within (0, 1].
      timer_hours: time until a client may take part again, above 0, or None.
      round_minutes: duration of a round, above 0; given with `timer_hours` only. Where rounds
        differ that of the longest ones: the fewer rounds a timer covers, the less it separates.
      min_separation: b that is enforced in rounds, within 1 .. rounds, or None; not with a timer.
      max_participations: limit on the rounds of a client, at least 1, or None.

    Raises:
      ValueError: if a field is out of its range, fields contradict each other, or the population
        cannot provide the cohorts or the separation.
    """

    population: int
    clients_per_round: int
    rounds: int
    availability: float = 1.0
    timer_hours: float | None = None
    round_minutes: float | None = None
    min_separation: int | None = None
    max_participations: int | None = None

    def __post_init__(self):
        _validate.integer('population', self.population, minimum=1, maximum=_MOST_CLIENTS)
        _validate.integer('clients_per_round', self.clients_per_round, minimum=1)
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        _validate.number('availability', self.availability, above=0, maximum=1)
        if self.max_participations is not None:
            _validate.integer('max_participations', self.max_participations, minimum=1)
        if self.clients_per_round > self.reporting_clients:
            raise errors.ArgumentError(
                'clients_per_round',
                self.clients_per_round,
                f'must be <= {self.reporting_clients}, '
                f'the clients that report (population={self.population} times availability='
                f'{self.availability:g})',
            )
        self._check_timer()
        self._check_separation()

    def _check_timer(self):
        if (self.timer_hours is None) != (self.round_minutes is None):
            raise ValueError('timer_hours, round_minutes: go together')
        if self.timer_hours is not None:
            _validate.number('timer_hours', self.timer_hours, above=0, maximum=1e6)
            _validate.number('round_minutes', self.round_minutes, minimum=1e-3)

    def _check_separation(self):
        if self.min_separation is None:
            return
        if self.timer_hours is not None:
            raise errors.ArgumentError(
                'min_separation', self.min_separation, 'goes without timer_hours'
            )
        _validate.integer('min_separation', self.min_separation, minimum=1, maximum=self.rounds)
        if self.min_separation > self.population_separation:
            raise errors.ArgumentError(
                'min_separation',
                self.min_separation,
                f'must be <= {self.population_separation}, '
                f'what {self.reporting_clients} reporting clients allow with clients_per_round='
                f'{self.clients_per_round}',
            )

    @property
    def reporting_clients(self) -> int:
        """Clients that ever report: `population * availability`, rounded down."""
        return int(self.population * self.availability)

    @property
    def population_separation(self) -> int:
        """Largest b that the population allows, whatever the timer."""
        return self.reporting_clients // self.clients_per_round

    @property
    def timer_separation(self) -> int | None:
        """Rounds that the timer covers, rounded down and at least 1; None without a timer."""
        if self.timer_hours is None:
            return None
        return max(1, math.floor(self.timer_hours * _MINUTES / self.round_minutes))

    @property
    def participation(self) -> Participation:
        """The schema that can be reached; b is at most the rounds."""
        enforced = self.min_separation or self.timer_separation or self.population_separation
        separation = min(enforced, self.population_separation, self.rounds)
        return Participation(self.rounds, separation, self.max_participations)

    @property
    def separation_limit(self) -> str:
        """What limits b: 'rounds', 'population', 'timer' or 'min_separation'."""
        separation = self.participation.min_separation
        if separation == self.rounds:
            return 'rounds'
        if separation == self.population_separation:
            return 'population'
        return 'timer' if self.timer_hours is not None else 'min_separation'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A guarantee to be met: rho of zCDP, or epsilon at a delta.

    Attributes:
      rho, epsilon: above 0, exactly one of them given.
      delta: strictly between 0 and 1; for epsilon only.
      accountant: by which epsilon is met, one of `accounting.ACCOUNTANTS`.
      mu: the largest `sensitivity / noise_multiplier` that meets the target.

    Raises:
      ValueError: if a field is out of its range, both or none of rho and epsilon are given, or
        the accountant cannot show such an epsilon for any noise.
    """

    rho: float | None = None
    epsilon: float | None = None
    delta: float = 1e-10
    accountant: str = 'pld'
    mu: float = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError('rho, epsilon: exactly one of them must be given')
        if self.rho is None:
            mu = calibration.mu_from_epsilon(self.epsilon, self.delta, self.accountant)
        else:
            mu = math.sqrt(2 * _validate.number('rho', self.rho, above=0))
            while mu**2 / 2 > self.rho:  # The root may be rounded up.
                mu = math.nextafter(mu, 0)
        object.__setattr__(self, 'mu', mu)


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The noise that a small simulation found good enough.

    Utility is about the same where noise multiplier and cohort size grow in proportion, since
    the noise on the mean update is then the same: a hypothesis, with evidence in document 000,
    section 2.2 (0.54 with 500 clients against 7 with 6500).

    Attributes:
      noise_multiplier: z_0, above 0.
      clients_per_round: m_0, at least 1.

    Raises:
      ValueError: if a field is out of its range.
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
      mechanism: with at least as many rounds as any of the deployments; shorter ones use fewer.
      clip_norm, adjacency: as in `PrivacyPlan`.
      discretize: from the cohort size to how updates become integers, or to None.
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
        while plan.mu > target.mu:  # The division may round down.
            more = math.nextafter(plan.noise_multiplier, math.inf)
            plan = dataclasses.replace(plan, noise_multiplier=more)
        return plan

    def with_simulation(
        self, deployment: Deployment, target: Target, simulation: Simulation, most: int
    ) -> tuple[Deployment, PrivacyPlan]:
        """The smallest cohort that meets the target with the noise of the simulation, scaled.

        Document 000, section 2.5, strategy 3. If none up to `most` does, the largest one with as
        much more noise as the target needs, and less utility than the simulation had.

        Args:
          deployment: its cohort size is not used.
          target: what is to be met.
          simulation: noise that is good enough.
          most: largest cohort that the system supports.
        """
        found = self.least_cohort(deployment, target, simulation, most)
        if found is not None:
            return found, self.with_noise(found, simulation.scaled(found.clients_per_round))
        largest = dataclasses.replace(
            deployment, clients_per_round=_largest_cohort(deployment, most)
        )
        return largest, self.with_target(largest, target)

    def least_cohort(
        self, deployment: Deployment, target: Target, simulation: Simulation, most: int
    ) -> Deployment | None:
        """The deployment with the smallest cohort that meets the target with the scaled noise.

        A larger cohort carries more noise, and lowers the separation that the population allows:
        it is not always better. The cohort size that a separation needs for the target does not
        shrink as the separation falls, so going up from one client, from each size to the one
        that its separation needs, never passes the smallest that suffices.

        Args:
          deployment, target, simulation, most: as in `with_simulation`.

        Returns:
          The deployment with that cohort size; None if there is none up to `most`, or up to what
          the population allows.
        """
        _validate.integer('max_clients_per_round', most, minimum=1)
        most = _largest_cohort(deployment, most)

        @functools.cache  # Neighbouring sizes share a schema.
        def bound(participation):
            return self.mechanism.sensitivity_bound(participation)

        cohort = 1
        while cohort <= most:
            candidate = dataclasses.replace(deployment, clients_per_round=cohort)
            plan = self.with_noise(candidate, simulation.scaled(cohort))
            sensitivity = plan.shift * math.sqrt(bound(candidate.participation).squared)
            # The slack is for rounding, which must not skip a size; what is returned is checked.
            needed = math.ceil(sensitivity / target.mu / simulation.scaled(1) * (1 - 1e-12))
            if needed <= cohort and plan.mu <= target.mu:
                return candidate
            cohort = max(needed, cohort + 1)
        return None


def _largest_cohort(deployment: Deployment, most: int) -> int:
    """The largest cohort size up to `most` that the population and the separation allow."""
    return min(most, deployment.reporting_clients // (deployment.min_separation or 1))


def prefix_noise(plan: PrivacyPlan) -> float:
    """Largest standard deviation of a coordinate of the noise in a sum of mean updates.

    `stddev * max_error / clients_per_round`, in the units of the updates: what the noise does to
    the model, to compare mechanisms and cohort sizes with (document 002, section 3.2).
    """
    return plan.stddev * plan.mechanism.max_error() / plan.clients_per_round
