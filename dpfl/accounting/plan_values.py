"""The values of a privacy plan, for what is checked and computed below the plan itself."""

import abc
import dataclasses

from dpfl import mechanisms
from dpfl.accounting import before_training
from dpfl.accounting.adaptive_clip import AdaptiveClip
from dpfl.accounting.before_training import ReleaseBefore
from dpfl.accounting.estimator import Estimator
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.accounting.noise_match import NoiseMatch
from dpfl.accounting.sampling.base import Sampling
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import Participation


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanValues(abc.ABC):
    """Everything that a run's noise and its guarantee depend on; see `PrivacyPlan`.

    Attributes:
      mechanism: holds the strategy matrix C, for at least as many rounds as `participation`.
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
        least 1. The guarantee is for groups of so many. The noise does not depend on it.
      noise_match: how `noise_multiplier` was found, if it was matched to another mechanism; a
        record, on which nothing depends.
    """

    mechanism: mechanisms.Mechanism
    participation: Participation
    clip_norm: float
    noise_multiplier: float
    clients_per_round: int
    adjacency: str = 'zero_out'
    sampling: Sampling | None = None
    discretization: Discretization | None = None
    adaptive_clip: AdaptiveClip | None = None
    clip_schedule: tuple[tuple[int, float], ...] = ()
    estimator: Estimator = Estimator()
    noise: str = 'default'
    earlier: tuple['PlanValues', ...] = ()
    noise_match: NoiseMatch | None = None
    group_size: int = 1
    before: tuple[ReleaseBefore, ...] = ()

    @property
    def population(self) -> int | None:
        """Number of clients from which cohorts are drawn at random; None without sampling."""
        return None if self.sampling is None else self.sampling.population

    @property
    def sampling_name(self) -> str:
        """Name of the sampling in flags and files; 'none' without."""
        return 'none' if self.sampling is None else self.sampling.name

    @property
    def has_own_bound(self) -> bool:
        """Whether the bound and the noise are those of the sampling itself, which no event says.

        They are of the rounds alone, with Gaussian noise.
        """
        is_alone = self.noise == 'default' and not (self.earlier or self.before)
        return is_alone and self.sampling is not None and self.sampling.has_own_bound

    @property
    def mechanism_of_run(self) -> mechanisms.Mechanism:
        """The mechanism over the rounds of the run."""
        return self.mechanism.with_rounds(self.participation.rounds)

    @property
    def delta_before(self) -> float:
        """Probability that a release before training, also of an earlier run, reveals something."""
        return before_training.total_delta(
            [each for plan in (self, *self.earlier) for each in plan.before]
        )

    @property
    @abc.abstractmethod
    def fresh_rounds(self) -> tuple[int, ...]:
        """The rounds in which the noise starts afresh."""

    @property
    @abc.abstractmethod
    def sensitivity(self) -> float:
        """The sensitivity of what the run releases, for noise in units of the clip norm."""

    @property
    @abc.abstractmethod
    def shift(self) -> float:
        """How far one client moves a round's sum between neighbours, in clip norms."""

    @property
    def shift_of_group(self) -> float:
        """How far `group_size` clients together move a round's sum."""
        return self.shift * self.group_size

    @property
    def neighbours(self) -> Neighbours:
        """Which runs are neighbours, as `events.bound` takes it."""
        adjacency = 'zero_out' if self.adjacency == 'zero_out' else 'replace_one'
        return Neighbours(adjacency, self.group_size)

    @property
    @abc.abstractmethod
    def mu(self) -> float | None:
        """Gaussian DP parameter of the run and of earlier ones; None with sampling."""

    @property
    @abc.abstractmethod
    def rho(self) -> float | None:
        """The zCDP parameter with earlier runs: infinity without noise, None with sampling."""

    @abc.abstractmethod
    def check_accountant(self, accountant: str) -> None:
        """Checks that an accountant knows such a plan."""

    @abc.abstractmethod
    def epsilon(self, delta: float, accountant: str = 'pld') -> float:
        """Epsilon of the run at a delta, by an accountant."""
