"""The optional parts of a privacy plan: the run that they fold, and their sentences in a report.

A part is a frozen class, which knows everything about one option of a plan. A
plan asks all of its parts in one order (`plan.FOLD`) for what it depends on; nothing else asks
which parts a plan has.

The sentences of a report are facts with keys. A report puts the sentences about every run; then
each part puts sentences of its own, and changes or drops those of others. `reports.sentences` has
the order of the fold.
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpfl.accounting import dp, events, gaussian
from dpfl.accounting.gaussian import Bound
from dpfl.accounting.losses.dominating_pairs import Neighbours

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report import PrivacyReport

# The kinds of facts. An assumption and something that is not covered are one bullet each.
ASSUMPTION, NOT_COVERED = 'assumption', 'not_covered'
# A definition of the checklist; why there is no guarantee; a release composed with the rounds, as a
# clause of the formal statement.
DEFINITION, VOID, COMPOSED = 'definition', 'void', 'composed'
# The first sentences: the meaning of the guarantee for one client, who took part and how that is
# known, and what was checked.
MEANING, TOOK_PART, CHECKED = 'meaning', 'took_part', 'checked'

# What reports are about, in the order of their bullets; other topics come last.
_ORDER = (
    # Assumptions.
    'participation', 'secrecy', 'tests', 'limits', 'clip_norm', 'rounding', 'noise', 'hardened',
    'earlier', 'before', 'release', 'exactness', 'server', 'hosts', 'independence',
    # Not covered; the gravest first.
    'no_noise', 'train_metrics', 'cohort_seed', 'noise_seed', 'tuning', 'metrics', 'timing',
    'earlier_data', 'clients', 'attacks', 'other_runs', 'copies', 'public_model', 'of_run',
    'large_delta', 'amplification', 'log',
)  # fmt: skip
_RANKS = {topic: rank for rank, topic in enumerate(_ORDER)}
# Below this delta the tails of the discrete Gaussian are no longer negligible.
_LEAST_DELTA = 1e-280
# Share of a delta that the tails, which are below 1e-320, take at most.
_TAILS = 2.0**-40
# Relative rounding error of a root of a sum of squares.
_ROUNDING = 1e-14


@dataclasses.dataclass(frozen=True)
class Fact:
    """A sentence, and the values of its slots.

    Attributes:
      kind: such as `ASSUMPTION`.
      key: `topic[@which][/name]`, the topic from the list of this file. Facts that differ in the
        name only are sentences of one bullet.
      words: a format string with a slot for each value. Texts of users are values.
      values: by slot.
    """

    kind: str
    key: str
    words: str
    values: dict[str, Any]

    @property
    def text(self) -> str:
        """The sentence."""
        return self.words.format(**self.values)

    @property
    def bullet(self) -> str:
        """The key without the name."""
        return self.key.partition('/')[0]

    @property
    def topic(self) -> str:
        """The topic alone."""
        return self.bullet.partition('@')[0]


class Facts:
    """The facts of one report, while they are collected and afterwards.

    >>> facts = Facts()
    >>> facts.put(ASSUMPTION, 'clip_norm', 'The norm is {norm:g}{changes}.', norm=1.0, changes='')
    >>> facts.change(ASSUMPTION, 'clip_norm', changes=', then smaller')
    >>> facts.put(ASSUMPTION, 'clip_norm/weights', 'Weights are at most 1.')
    >>> facts.bullets(ASSUMPTION)
    ['The norm is 1, then smaller. Weights are at most 1.']
    """

    def __init__(self) -> None:
        self._facts: dict[tuple[str, str], Fact] = {}

    def put(self, kind: str, key: str, words: str, **values: Any) -> None:
        """Adds a fact, in place of the one with the same kind and key."""
        self._facts[kind, key] = Fact(kind, key, words, values)

    def change(self, kind: str, key: str, **values: Any) -> None:
        """Changes slots of a fact that another file has put.

        Raises:
          KeyError: if there is no such fact, or it does not have such a slot.
        """
        fact = self._facts[kind, key]
        if missing := values.keys() - fact.values.keys():
            raise KeyError(f'{kind} {key} has no {", ".join(sorted(missing))}')
        self._facts[kind, key] = dataclasses.replace(fact, values={**fact.values, **values})

    def drop(self, kind: str, topic: str) -> None:
        """Removes all facts of a topic, if there are any."""
        self._facts = {
            place: fact
            for place, fact in self._facts.items()
            if (fact.kind, fact.topic) != (kind, topic)
        }

    def bullets(self, kind: str) -> list[str]:
        """The sentences of a kind, one text for each bullet, in the order of the topics."""
        bullets: dict[str, list[Fact]] = {}
        for fact in self._facts.values():
            if fact.kind == kind:
                bullets.setdefault(fact.bullet, []).append(fact)
        ordered = sorted(
            bullets.values(), key=lambda facts: _RANKS.get(facts[0].topic, len(_RANKS))
        )
        return [' '.join(fact.text for fact in facts) for facts in ordered]

    def text(self, kind: str, topic: str) -> str:
        """The sentences of one topic, in the order in which they were put."""
        facts = self._facts.values()
        return ' '.join(fact.text for fact in facts if (fact.kind, fact.topic) == (kind, topic))


@dataclasses.dataclass(frozen=True)
class Run:
    """The releases of a run about a client, for an accountant, and everything composed with them.

    Attributes:
      reach: how far a client moves what the rounds release, in standard deviations; infinity
        without noise.
      mu: Gaussian DP parameter of the rounds; None if they are not one Gaussian release.
      worst: events of the rounds, one of which is the worst for any client.
      dominating: one event that is at least as bad as each of these; None without them.
      others: events that are composed with the rounds.
      other_mus: their Gaussian DP parameters, None for one that is no Gaussian release. Events that
        only reveal something with a probability have none.
      deltas: probabilities with which one of the others reveals something.
      slack: (epsilon, delta)-DP of the events is (epsilon + slack, delta')-DP of the run, for the
        delta of `discrete_delta(delta', slack)`.
    """

    reach: float
    mu: float | None
    worst: tuple[dp.Event, ...] = ()
    dominating: dp.Event | None = None
    others: tuple[dp.Event, ...] = ()
    other_mus: tuple[float | None, ...] = ()
    deltas: tuple[float, ...] = ()
    slack: float = 0.0

    def sampled(self, worst: tuple[dp.Event, ...], dominating: dp.Event) -> 'Run':
        """The run of rounds with these events instead of one Gaussian release."""
        return dataclasses.replace(self, mu=None, worst=worst, dominating=dominating)

    def then(
        self,
        *more: dp.Event,
        mus: tuple[float | None, ...] = (),
        deltas: tuple[float, ...] = (),
    ) -> 'Run':
        """The run, composed with other releases on the same clients.

        Args:
          *more: the releases; also one that reveals something with a probability.
          mus: as `other_mus`.
          deltas: probabilities with which they reveal something.
        """
        return dataclasses.replace(
            self,
            others=self.others + more,
            other_mus=self.other_mus + mus,
            deltas=self.deltas + deltas,
        )

    @property
    def total_mu(self) -> float | None:
        """Gaussian DP parameter of everything; None if any of it is not one Gaussian release.

        Gaussian DP composes by the sum of the squares, also if later runs depend on earlier ones.
        """
        others = [mu for mu in self.other_mus if mu is not None]
        if self.mu is None or len(others) < len(self.other_mus):
            return None
        return math.hypot(self.mu, *others) * (1 + _ROUNDING) if others else self.mu

    @property
    def delta(self) -> float:
        """Probability that one of the other releases reveals something, rounded up."""
        return events.total_delta(self.deltas)

    def event(self) -> dp.Event:
        """Everything as one event, for trade-off curves and composition with other runs."""
        if self.total_mu is not None:
            return events.with_delta(_gaussian(self.total_mu), self.delta)
        return self._composed(self.dominating if self.mu is None else _gaussian(self.mu))

    def bound(
        self, delta: float, accountant: str, neighbours: Neighbours, coarseness: float = 1.0
    ) -> Bound:
        """Epsilon of everything at `delta`, by an accountant; the other arguments as in `events`.

        Raises:
          ArgumentError: if the delta is not within (0, 1), or the accountant does not support the
            events.
        """
        if self.total_mu is not None and not self.deltas:
            mu = self.total_mu
            return with_slack(lambda at: gaussian.bound(mu, at, accountant), delta, self.slack)
        if self.total_mu is not None:
            runs = [self.event()]
        else:
            rounds = self.worst if self.mu is None else (_gaussian(self.mu),)
            runs = [self._composed(event) for event in rounds]
        return with_slack(
            lambda at: max(
                events.bound(run, at, accountant, coarseness, neighbours) for run in runs
            ),
            delta,
            self.slack,
        )

    def _composed(self, rounds: dp.Event) -> dp.Event:
        if not self.others:
            return rounds
        return dp.ComposedDpEvent([rounds, *self.others])


def _gaussian(mu: float) -> dp.Event:
    return dp.GaussianDpEvent(1 / mu) if mu else dp.NoOpDpEvent()


def with_slack(of_events: Callable[[float], Bound], delta: float, slack: float) -> Bound:
    """Epsilon at `delta` of one or several runs, from epsilon of their events.

    Args:
      of_events: bound on epsilon of the events, by delta.
      delta: strictly between 0 and 1.
      slack: slack of the run, or the sum of the slacks of several; 0 if all noise is Gaussian.
    """
    if not slack:
        return of_events(delta)
    if delta < _LEAST_DELTA or math.isinf(slack):
        return of_events(delta)._replace(epsilon=math.inf)
    bound = of_events(discrete_delta(delta, slack))
    return bound._replace(epsilon=bound.epsilon + slack)


def discrete_delta(delta: float, slack: float) -> float:
    """The delta at which events count for a run with a slack; docs/reference/hardened.md."""
    return delta * math.exp(-slack) * (1 - _TAILS)


class Part(abc.ABC):
    """One option of a privacy plan. What a subclass does not define changes nothing.

    Example:
      >>> part: Part = accounting.AdaptiveClip()
      >>> part.words
      'adaptive_clip'
    """

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """The part in an error message, such as 'sampling=poisson'."""

    def check(self, plan: 'PrivacyPlan') -> None:
        """Checks that the guarantee of the part is shown for the plan and its other parts.

        Of two parts that exclude each other, the younger one checks it.

        Raises:
          ArgumentError: if a field of the plan contradicts the part.
        """
        return None

    def covers_hardened(self, plan: 'PrivacyPlan') -> bool:
        """Whether its guarantee is shown for hardened noise too."""
        return False

    @property
    def is_attained(self) -> bool:
        """Whether one client can move the run by all that the part counts."""
        return True

    def shift(self, plan: 'PrivacyPlan', shift: float) -> float:
        """Distance by which one client moves a round's sum, in clip norms, from that without it."""
        return shift

    def sensitivity(self, plan: 'PrivacyPlan', sensitivity: float) -> float:
        """The sensitivity of the whole run, from that without the part; after `shift`.

        Samplings account for rounds, so that they refuse a part that changes it.
        """
        return sensitivity

    def update_noise(self, plan: 'PrivacyPlan', noise_multiplier: float) -> float:
        """The noise multiplier that is left for the updates."""
        return noise_multiplier

    def run(self, plan: 'PrivacyPlan', run: Run) -> Run:
        """The run, from that without the part."""
        return run

    @property
    def changes_run(self) -> bool:
        """Whether it defines `run`, so that a bound of the rounds alone is not that of the plan."""
        return type(self).run is not Part.run

    def target(self, plan: 'PrivacyPlan', epsilon: float, delta: float) -> tuple[float, float]:
        """The target, (epsilon, delta), that the run must meet without the part.

        Args:
          plan: without sampling and without noise.
          epsilon, delta: the target of the run with the part.

        Raises:
          ArgumentError: if no noise meets the target.
        """
        return epsilon, delta

    def noise_of_mu(self, plan: 'PrivacyPlan', mu: float, noise_multiplier: float) -> float:
        """The noise multiplier with which the rounds reach `mu`, from that without the part.

        Raises:
          ArgumentError: if no noise reaches it.
        """
        return noise_multiplier

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        """Puts, changes and drops the facts of a report that depend on the part.

        Args:
          report: its inputs and its numbers.
          facts: of every plan, and of the parts before this one.
        """
        return None
