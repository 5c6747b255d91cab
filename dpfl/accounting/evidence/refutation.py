"""Tests of a log against the sampling of its plan: which of them it fails, and in which words.

A kind of sampling has its statistics and computes their tests; the tests of all kinds are here.
"""

import dataclasses
import string
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from dpfl import _json, _validate, errors
from dpfl._validate import Limits
from dpfl.participation import ParticipationLog

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

# Probability with which a report finds fault with cohorts that were sampled as planned.
FALSE_ALARM = 1e-6

# It is split evenly over this number of tests (Bonferroni); no sampling has more.
MOST_TESTS = 8


@dataclasses.dataclass(frozen=True)
class Statistic:
    """What a test looks at, and its words in a report, with slots for the numbers of a log.

    Attributes:
      key: name in files, unique among the tests of a sampling.
      name: what is tested, such as 'participations in all'.
      words: what the log shows and what the sampling leads to, one sentence. A slot without a
        format is an integer. A slot of the name has the first of the numbers.
    """

    key: str
    name: str
    words: str

    def test(self, p_value: Any, *numbers: Any) -> 'LogTest':
        """The result of the test, with the numbers of all slots.

        Raises:
          ArgumentError: if there are more or fewer numbers, or one is of another type.
        """
        slots = [form for _, name, form, _ in string.Formatter().parse(self.words) if name == '']
        if len(numbers) != len(slots):
            raise errors.ArgumentError('numbers', [*numbers], f'must be {len(slots)} numbers')
        checked = [
            _validate.number('numbers', number, minimum=0)
            if form
            else _validate.integer('numbers', number, minimum=0)
            for form, number in zip(slots, numbers, strict=True)
        ]
        return LogTest(self, _validate.number('p_value', p_value, minimum=0), tuple(checked))


@dataclasses.dataclass(frozen=True)
class LogTest(_json.JsonPaths):
    """Result of one exact test.

    Attributes:
      statistic: what was tested.
      p_value: upper bound on the probability, if cohorts are sampled as planned, of a log that is
        at least as extreme; 0 if the sampling cannot produce the log at all.
      numbers: of the slots of its words.
    """

    json_paths: ClassVar = {'test': 'statistic.key', 'p_value': 'p_value', 'numbers': 'numbers'}

    statistic: Statistic
    p_value: Annotated[float, Limits('probability', minimum=0)]
    numbers: tuple[Annotated[float, Limits(minimum=0)], ...]

    @property
    def name(self) -> str:
        """What was tested, such as 'participations in all'."""
        return self.statistic.name.format(*self.numbers)

    @property
    def sentence(self) -> str:
        """The words, with the test and its p-value if the log is possible but too unlikely."""
        words = self.statistic.words.format(*self.numbers)
        if not self.p_value:
            return words
        return f'{words} (Test of {self.name}: p-value {self.p_value:.2g}.)'


POPULATION = Statistic('population', 'population', '{} clients took part; the population is {}.')
TURNS = Statistic(
    'turns',
    'turns',
    'Client {} took part in rounds {} and {}, the turns of two of the {} groups.',
)
GROUP_SIZE = Statistic(
    'group_size',
    'group size',
    '{} clients took part in the turns of group {}; a group has at most {}.',
)


def beyond_population(clients: int, population: int) -> list[LogTest]:
    """Finds fault with more clients than the population has."""
    if clients <= population:
        return []
    return [POPULATION.test(0.0, clients, population)]


def mixed_turns(log: ParticipationLog, groups: int) -> list[LogTest]:
    """Finds fault with a client in the turns of two groups (or bins)."""
    by_client = log.by_client()
    of_group = by_client.rounds % groups
    others = np.flatnonzero(
        of_group != np.repeat(of_group[by_client.offsets[:-1]], by_client.counts)
    )
    if not others.size:
        return []
    client, first = by_client.of_listing(others[0])
    return [TURNS.test(0.0, client, first, by_client.rounds[others[0]], groups)]


def clients_of_groups(log: ParticipationLog, groups: int) -> np.ndarray:
    """Number of clients that took part in the turns of each group alone, int64 [groups]."""
    by_client = log.by_client()
    return np.bincount(by_client.rounds[by_client.offsets[:-1]] % groups, minlength=groups)


def large_groups(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Finds fault with more clients in the turns of one group than an equal group has."""
    clients = clients_of_groups(log, groups)
    largest = -(-population // groups)
    if clients.max() <= largest:
        return []
    return [GROUP_SIZE.test(0.0, clients.max(), clients.argmax(), largest)]


def log_tests(plan: 'PrivacyPlan', log: ParticipationLog) -> tuple[LogTest, ...]:
    """All tests of a log with at least one round; none without sampling.

    A log that the sampling cannot produce gets no tests of chance. A client that is listed several
    times in a round counts once.
    """
    if plan.sampling is None or not log.rounds:
        return ()
    if log.max_per_round > 1:  # All samplings draw every client at most once in a round.
        log = ParticipationLog(np.unique(log.cohort(t)) for t in range(log.rounds))
    too_many = beyond_population(log.by_client().clients.size, plan.sampling.population)
    return tuple(too_many or plan.sampling.log_tests(plan, log))


def refutations(
    plan: 'PrivacyPlan', log: ParticipationLog, false_alarm: float = FALSE_ALARM
) -> tuple[LogTest, ...]:
    """The tests that refute the plan's sampling, at a total probability of a false alarm."""
    tests = log_tests(plan, log)
    return tuple(test for test in tests if test.p_value <= false_alarm / MOST_TESTS)


def read(plan: 'PrivacyPlan', values: Any) -> tuple[LogTest, ...]:
    """The refutations that a file states, as `LogTest.to_dict` wrote them.

    Raises:
      ArgumentError: if they are not results of different tests of the plan's sampling that refute
        it. Only the log can tell whether they are its results.
    """
    if plan.sampling is None:
        raise errors.ArgumentError(
            'refutations', errors.NOT_SHOWN, 'must be missing without sampling'
        )
    statistics = (POPULATION, *plan.sampling.statistics)
    known = {statistic.key: statistic for statistic in statistics}
    tests = []
    for stated in _json.list_of('refutations', values, 'objects'):
        stated = _json.checked_object('refutations', stated)
        statistic = known.pop(_validate.choice('test', stated.get('test'), [*known]))
        level = FALSE_ALARM / MOST_TESTS
        p_value = _validate.number('p_value', stated.get('p_value'), minimum=0, maximum=level)
        numbers = _json.list_of('numbers', stated.get('numbers'), 'numbers')
        tests.append(statistic.test(p_value, *numbers))
    return tuple(tests)
