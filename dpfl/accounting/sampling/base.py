"""How the cohorts of a run are drawn at random: a part of a privacy plan.

A kind of sampling is a frozen class whose fields are its settings. It checks plans, draws cohorts,
gives the release about one client, tests logs, and has the words for all of that in a report.
`kinds` lists the kinds.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from dpfl import _json, _validate, errors, mechanisms
from dpfl._validate import Limits
from dpfl.accounting import dp, events
from dpfl.accounting.evidence import refutation, unseen
from dpfl.accounting.gaussian import Bound
from dpfl.accounting.part import ASSUMPTION, DEFINITION, NOT_COVERED, Facts, Part, Run
from dpfl.mechanisms import rounding
from dpfl.participation import Participation, ParticipationLog

if TYPE_CHECKING:  # Both know samplings.
    from dpfl.accounting.evidence.refutation import LogTest, Statistic
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report import PrivacyReport

# A number of clients; larger ones are not integers any more as floats.
Clients = Annotated[int, Limits('clients', minimum=1, maximum=2**53)]
# Separates this random stream from the others that a run derives from the same seed.
STREAM = 0x73616D70


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(_json.JsonFields, Part):
    """Random cohorts that a guarantee relies on; it is void for whoever knows who took part.

    Attributes:
      population: number of clients from which cohorts are drawn, at least 1.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> sampling: Sampling = Poisson(population=1000)
      >>> sampling.name, sampling.to_dict()
      ('poisson', {'population': 1000})
    """

    # In flags and files.
    name: ClassVar[str]
    # What the flag `sampling` says of it.
    help: ClassVar[str]
    # The adjacencies for which the guarantee is shown.
    adjacencies: ClassVar[tuple[str, ...]] = ('zero_out',)
    # Whether it is shown for groups of clients too.
    covers_groups: ClassVar[bool] = False
    # Whether all cohorts have the planned size.
    has_one_size: ClassVar[bool] = False
    # Whether `bound` is more than the events say, so that it holds at single deltas only.
    has_own_bound: ClassVar[bool] = False
    # What is uncertain about that bound, one sentence.
    caveat: ClassVar[str] = ''
    # Of the tests of a log.
    statistics: ClassVar['tuple[Statistic, ...]'] = ()

    population: Clients

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            value = value.item() if isinstance(value, np.generic) else value
            _validate.by_type(field.name, value, Clients)  # No other setting is larger, either.
            object.__setattr__(self, field.name, value)

    @classmethod
    def defaults(
        cls, mechanism: mechanisms.Mechanism, population: int, clients_per_round: int
    ) -> dict[str, Any]:
        """Settings that follow from the others where they are not given.

        Args:
          mechanism: over the rounds of the run.
          population, clients_per_round: of the run.

        Raises:
          ArgumentError: if the mechanism cannot have this sampling.
        """
        return {}

    @property
    def words(self) -> str:
        return f'sampling={self.name}'

    def check(self, plan: 'PrivacyPlan') -> None:
        if plan.group_size > 1 and not self.covers_groups:
            raise errors.ArgumentError(
                'group_size', plan.group_size, f'must be 1 with sampling={self.name}'
            )
        if plan.discretization is not None and not self.has_one_size:
            raise errors.ArgumentError(
                'sampling',
                self.name,
                'must not be random in size with a discretization: the sum of a larger cohort than '
                'the planned one can wrap around, which moves it by more than one update',
            )
        _validate.integer('population', self.population, minimum=plan.clients_per_round)
        self._check(plan)
        kept, planned = self.schema(plan.participation.rounds), plan.participation
        apart, rounds = kept.min_separation, planned.rounds
        if planned.min_separation > apart:
            raise errors.ArgumentError(
                'min_separation',
                planned.min_separation,
                f'must be {"1" if apart == 1 else f"at most {apart}"} with sampling={self.name}, '
                f'which may choose a client again after {apart} round{"s" if apart > 1 else ""}',
            )
        if planned.count < kept.count:
            turns = 'rounds' if kept.count == rounds else f'turns, {kept.count}'
            raise errors.ArgumentError(
                'max_participations',
                planned.max_participations,
                f'must be the number of {turns}, or not be given, with sampling={self.name}',
            )
        for part in plan.other_parts(self):
            # Events of rounds know how far a client moves a round, not what is added for a run.
            if part.sensitivity(plan, 1.0) != 1.0:
                raise errors.ArgumentError(
                    'sampling',
                    self.name,
                    f'does not count what {part.words} adds to the sensitivity of the whole run',
                )

    @abc.abstractmethod
    def _check(self, plan: 'PrivacyPlan') -> None:
        """The checks of one kind."""

    @abc.abstractmethod
    def schema(self, rounds: int) -> Participation:
        """The tightest schema that all of its cohorts keep."""

    @abc.abstractmethod
    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        """The rule by which a round, counted from 0, has its clients: int64 [any number].

        It is a pure function of its arguments and the round. Clients are 0 .. population - 1.

        Args:
          clients_per_round: size of a cohort; the expected size if sizes are random.
          seed: at least 0.
        """

    def norm(self, plan: 'PrivacyPlan') -> float:
        """Distance by which a client moves the releases, divided by the shift of a round's sum.

        It is 1 for independent noise, whose rounds are events of their own.
        """
        return 1.0

    @abc.abstractmethod
    def event(self, plan: 'PrivacyPlan', noise_multiplier: float) -> dp.Event:
        """One event that is at least as bad as what a run releases about any client.

        Args:
          plan: without regard to earlier runs.
          noise_multiplier: of the run.
        """

    def worst_events(self, plan: 'PrivacyPlan') -> Sequence[dp.Event]:
        """Events of which one is the worst that a run, with noise, releases about any client."""
        return [self.event(plan, plan.noise_multiplier)]

    def run(self, plan: 'PrivacyPlan', run: Run) -> Run:
        if not plan.noise_multiplier:
            event = dp.NonPrivateDpEvent()
            return run.sampled((event,), event)
        return run.sampled(tuple(self.worst_events(plan)), self.event(plan, plan.noise_multiplier))

    def bound(self, plan: 'PrivacyPlan', delta: float) -> Bound | None:
        """Epsilon of a plan with noise, if the kind has a bound of its own; see `has_own_bound`."""
        return None

    def noise_for(self, plan: 'PrivacyPlan', epsilon: float, delta: float) -> float | None:
        """The noise multiplier that meets a target, if the kind has a search of its own.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        return None

    def accountants(self, plan: 'PrivacyPlan') -> tuple[str, ...]:
        """The accountants that know such a plan; the last one, 'best', takes the least of them."""
        if self.has_own_bound:
            return ('best',)
        return events.methods_for(self.event(plan, 1.0), plan.neighbours)

    @property
    def public_groups(self) -> int:
        """Number of groups that take turns, of which it need not be secret who is in which."""
        return 1

    def group(self, index: int, seed: int) -> np.ndarray:
        """The clients of one of the `public_groups`, int64 [any number]."""
        return np.arange(self.population)

    @property
    def turn(self) -> int:
        """Rounds that are accounted for together, those of one turn of all groups."""
        return 1

    def scaled(self, population: int, ratio: float) -> 'Sampling':
        """The sampling of cohorts that are `ratio` times as large, from another population."""
        return dataclasses.replace(self, population=population)

    @abc.abstractmethod
    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> 'list[LogTest]':
        """Exact tests of a log with rounds, in which no client is listed twice in a round.

        They are results of the `statistics` of the kind.
        """

    def refuses_sizes(self, plan: 'PrivacyPlan', smallest: int, largest: int) -> bool:
        """Whether cohorts cannot have these sizes, of the smallest and of the largest."""
        return False

    @abc.abstractmethod
    def unseen(self, plan: 'PrivacyPlan', rounds: int) -> list[str]:
        """What the tests of a log of `rounds` rounds cannot see, in one or two sentences."""

    @abc.abstractmethod
    def describe(self, plan: 'PrivacyPlan') -> str:
        """How clients are chosen, for an assumption: the rest of a sentence."""

    @abc.abstractmethod
    def title(self) -> str:
        """How clients are chosen, in a few words."""

    @abc.abstractmethod
    def accounted(self, plan: 'PrivacyPlan', deltas: Sequence[float]) -> list[str]:
        """How the guarantee follows from the sampling, one assumption each."""

    def of_adjacency(self, adjacency: str) -> str:
        """What an adjacency means with this sampling, one sentence or none."""
        return ''

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        plan = report.plan
        if meaning := self.of_adjacency(plan.adjacency):
            facts.put(DEFINITION, 'adjacency/sampling', '{text}', text=meaning)
        if not report.uses_sampling:
            return
        facts.put(ASSUMPTION, 'participation', 'Sampling: {how}.', how=self.describe(plan))
        facts.put(
            ASSUMPTION,
            'secrecy',
            'Who took part is secret, and so are the random numbers that chose the cohorts. The '
            'guarantee does not hold against anyone who knows the participation log.',
        )
        if report.observed is not None:
            facts.put(
                ASSUMPTION,
                'tests',
                'The log was tested against this sampling, and no test refutes it. The tests '
                'refute cohorts that were sampled as planned with probability at most '
                '{false_alarm:g}. {unseen}',
                false_alarm=refutation.FALSE_ALARM,
                unseen=' '.join(unseen.unseen(plan, report.observed.rounds)),
            )
        facts.drop(ASSUMPTION, 'release')
        facts.drop(ASSUMPTION, 'exactness')
        for number, text in enumerate(self.accounted(plan, report.deltas)):
            facts.put(ASSUMPTION, f'exactness@{number}', '{text}', text=text)
        facts.drop(NOT_COVERED, 'amplification')
        if report.sampling_is_seeded:
            facts.put(
                NOT_COVERED,
                'cohort_seed',
                'This run is a simulation: its cohorts came from a given seed, so whoever knows '
                'the seed knows who took part.',
            )

    def lost_amplification(self, report: 'PrivacyReport') -> str:
        """What a log that breaks the plan costs, one sentence."""
        lost = f'Nothing is amplified by sampling={self.name}'
        if not report.plan.noise_multiplier:
            return f'{lost}.'
        with_sampling = rounding.round_up(report.plan_guarantee.epsilons[0])
        without = rounding.round_up(report.guarantee.epsilons[0])
        delta = rounding.shown_delta(report.deltas[0])
        return (
            f'{lost}: with it epsilon would be {with_sampling} at delta = {delta}, without it '
            f'epsilon is {without}.'
        )


def generator_of(seed: int, round_index: int) -> np.random.Generator:
    """The random numbers of a round."""
    return np.random.default_rng([STREAM, seed, round_index])


def generator_before(seed: int) -> np.random.Generator:
    """The random numbers of what is drawn before the first round."""
    # `[STREAM, seed]` alone has the stream of round 0: NumPy fills short lists with zeros.
    return np.random.default_rng([STREAM, seed, 2**32])
