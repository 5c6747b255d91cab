"""Tests of samplings that draw each cohort independently of all others.

Of a total, only too many participations are held against a plan: a lower rate than planned has at
most the planned epsilon. The number of clients that took part and the scatter of cohort sizes count
in both directions: clients that take turns are more, clients of a smaller population are fewer.
"""

import collections
import math
import sys
from typing import NamedTuple

import numpy as np
import scipy

from dpfl.accounting.evidence import earlier_cohorts, laws, refutation
from dpfl.accounting.evidence.refutation import LogTest, Statistic
from dpfl.participation import ParticipationLog

_LARGEST_SIZE = Statistic(
    'largest_size',
    'cohort sizes',
    'A cohort had {} clients; the plan has at most {}.',
)
_SIZE = Statistic('size', 'cohort sizes', 'A cohort had {} clients; the plan samples {}.')
_TOTAL = Statistic(
    'total',
    'participations in all',
    '{} participations in all; the planned sampling has {:.6g} on average.',
)
_SCATTER = Statistic(
    'scatter',
    'scatter of cohort sizes',
    'The root mean square distance of cohort sizes from {} is {:.4g}; '
    'the planned sampling leads to about {:.4g}.',
)
_BUSIEST = Statistic(
    'busiest',
    'busiest client',
    'A client took part {} times; in the planned sampling one does {:.4g} times on average.',
)
_SPREAD = Statistic(
    'spread',
    "spread of the clients' rounds",
    'Squared distances of the numbers of rounds of all clients from {} add up to {}; '
    'the planned sampling leads to {:.6g} on average.',
)
_EXCESS = Statistic(
    'excess',
    "spread of the clients' rounds",
    'Squared excesses of the numbers of rounds of all clients over {} add up to {}; '
    'the planned sampling leads to at most {:.6g} on average.',
)
_OVERLAP = Statistic(
    'overlap',
    'overlap at lag {}',
    'Cohorts at lag {} share {} clients in all; '
    'random cohorts of these sizes share {:.6g} on average.',
)
_SEEN = Statistic(
    'seen',
    'clients that took part',
    '{} clients took part; the planned sampling leads to {:.6g} on average.',
)
STATISTICS = (
    refutation.TURNS,
    refutation.GROUP_SIZE,
    _LARGEST_SIZE,
    _SIZE,
    _TOTAL,
    _SCATTER,
    _BUSIEST,
    _SPREAD,
    _EXCESS,
    _OVERLAP,
    earlier_cohorts.OVERLAPS,
    _SEEN,
)


class Rule(NamedTuple):
    """How independent rounds draw their cohorts.

    Attributes:
      population: number of clients.
      cohort: expected size of a cohort, or its size.
      groups: number of groups of clients that take turns.
      cap: largest size of a cohort.
      larger: the groups that have one client more than the others; None for the first ones.
    """

    population: int
    cohort: int
    groups: int = 1
    cap: int = sys.maxsize
    larger: frozenset[int] | None = None

    @property
    def rate(self) -> float:
        """Probability with which a client takes part in a turn of its group."""
        return min(1.0, self.cohort * self.groups / self.population)


def poisson(rule: Rule, log: ParticipationLog) -> list[LogTest]:
    """Tests of 'poisson', and of 'cyclic_poisson', which is the same within each group."""
    impossible = refutation.mixed_turns(log, rule.groups) or refutation.large_groups(
        log, rule.population, rule.groups
    )
    if impossible:
        return impossible
    # The groups with one client more are those that have so many in the log, then the first ones.
    size, rest = divmod(rule.population, rule.groups)
    is_larger = refutation.clients_of_groups(log, rule.groups) > size
    first = np.argsort(~is_larger, kind='stable')
    rule = rule._replace(larger=frozenset(first[: max(rest, int(is_larger.sum()))].tolist()))
    rate = rule.rate
    turns = turns_of(rule, log.rounds)
    drawn = sum(clients * count * times for (clients, count), times in turns.items())
    sizes = collections.Counter(_group_size(rule, t) for t in range(log.rounds))
    cohorts = [(laws.binomial(clients, rate), times) for clients, times in sizes.items()]
    value = int(log.cohort_sizes.sum())
    seen = laws.tails_of_total(
        log.by_client().clients.size,
        [
            (laws.binomial(times * clients, _at_least_once(rate, count)), 1)
            for (clients, count), times in turns.items()
        ],
    )
    mean_seen = sum(
        times * clients * _at_least_once(rate, count) for (clients, count), times in turns.items()
    )
    return [
        _TOTAL.test(laws.binomial_upper(value, drawn, rate), value, drawn * rate),
        _squares(rule, log, cohorts),
        _spread_of_rounds(rule, log),
        _busiest(log, rate, turns),
        *_overlaps(rule, log),
        _seen(log, seen, mean_seen),
    ]


def truncated_poisson(rule: Rule, log: ParticipationLog) -> list[LogTest]:
    """Tests of 'truncated_poisson'."""
    if log.cohort_sizes.max() > rule.cap:
        return [_LARGEST_SIZE.test(0.0, log.cohort_sizes.max(), rule.cap)]
    population, cohort = rule.population, capped_cohort(rule, rule.rate)
    value = int(log.cohort_sizes.sum())
    tails = laws.tails_of_total(value, [(cohort, log.rounds)])
    return [
        _TOTAL.test(tails[1], value, log.rounds * cohort.mean),
        _squares(rule, log, [(cohort, log.rounds)]),
        # Each round draws a client with this probability, at most that without the cap.
        _busiest(
            log,
            min(rule.rate, cohort.mean / population * (1 + 1e-12)),
            {(population, log.rounds): 1},
        ),
        *_overlaps(rule, log),
        _spread_given_sizes(rule, log),
        _seen_given_sizes(rule, log),
    ]


def without_replacement(rule: Rule, log: ParticipationLog) -> list[LogTest]:
    """Tests of 'without_replacement'."""
    others = log.cohort_sizes[log.cohort_sizes != rule.cohort]
    if others.size:
        return [_SIZE.test(0.0, others[0], rule.cohort)]
    return [
        _busiest(log, rule.rate, {(rule.population, log.rounds): 1}),
        *_overlaps(rule, log),
        _spread_given_sizes(rule, log),
        _seen_given_sizes(rule, log),
    ]


def capped_cohort(rule: Rule, rate: float) -> laws.Law:
    """The law of the size of a cohort of 'truncated_poisson' for clients with this rate."""
    return laws.binomial(rule.population, rate).of(lambda k: np.minimum(k, rule.cap))


def turns_of(rule: Rule, rounds: int) -> dict[tuple[int, int], int]:
    """Sizes of the groups and how many turns they have: {(clients, turns): groups}.

    Some groups have one client more if the population is not a multiple of their number.
    """
    groups = rule.groups
    return collections.Counter(
        (_group_size(rule, group), len(range(group, rounds, groups))) for group in range(groups)
    )


def _group_size(rule: Rule, round_index: int) -> int:
    size, rest = divmod(rule.population, rule.groups)
    group = round_index % rule.groups
    return size + (group < rest if rule.larger is None else group in rule.larger)


def _at_least_once(rate: float, rounds: int) -> float:
    return -math.expm1(rounds * math.log1p(-rate)) if rate < 1 else float(rounds > 0)


def _squares(rule: Rule, log: ParticipationLog, cohorts: list[tuple[laws.Law, int]]) -> LogTest:
    planned = rule.cohort
    value = int(((log.cohort_sizes - planned) ** 2).sum())
    mean = sum(times * float(law.cells @ (law.values - planned) ** 2) for law, times in cohorts)
    return _SCATTER.test(
        laws.two_sided(laws.tails_of_squares(value, cohorts, planned)),
        planned,
        math.sqrt(value / log.rounds),
        math.sqrt(mean / log.rounds),
    )


def busiest_tail(value: int, rate: float, turns: dict[tuple[int, int], int]) -> float:
    """Upper bound on the probability that any client takes part at least `value` times.

    Args:
      value: number of rounds.
      rate: probability of a client in each turn of its group.
      turns: as `turns_of` returns them.
    """
    p_values = [
        laws.union(times * clients, float(laws.binomial_upper(value, count, rate)))
        for (clients, count), times in turns.items()
    ]
    return min(1.0, sum(p_values))


def _busiest(log: ParticipationLog, rate: float, turns: dict[tuple[int, int], int]) -> LogTest:
    value = int(log.by_client().counts.max(initial=0))
    most = max(count for _, count in turns)
    return _BUSIEST.test(busiest_tail(value, rate, turns), value, most * rate)


def _spread_of_rounds(rule: Rule, log: ParticipationLog) -> LogTest:
    """Upper side of the squared distances of the clients' numbers of rounds from their mean."""
    rate, turns = rule.rate, turns_of(rule, log.rounds)
    population, counts = rule.population, log.by_client().counts
    centre = round(
        sum(n * count * times for (n, count), times in turns.items()) * rate / population
    )
    value = int(((counts - centre) ** 2).sum()) + (population - counts.size) * centre**2
    summands = [
        (laws.binomial(count, rate), times * clients) for (clients, count), times in turns.items()
    ]
    mean = sum(times * float(law.cells @ (law.values - centre) ** 2) for law, times in summands)
    return _SPREAD.test(laws.tails_of_squares(value, summands, centre)[1], centre, value, mean)


def _spread_given_sizes(rule: Rule, log: ParticipationLog) -> LogTest:
    """Upper side of the squared excess of the clients' numbers of rounds over a threshold.

    Given the sizes, cohorts are independent uniform subsets, so the numbers of rounds K_i are
    negatively associated ([JoagDev83]). For an increasing f this bounds E exp(x sum f(K_i)) by the
    product of the moments. Each K_i is a sum of independent indicators. For a convex function its
    mean is at most that of a binomial variable with the same mean ([Hoeffding56], theorem 3).
    """
    population, counts = rule.population, log.by_client().counts
    rounds = log.rounds
    share = min(1.0, float(log.cohort_sizes.sum()) / (population * rounds))
    threshold = math.floor(rounds * share + math.sqrt(rounds * share * (1 - share)))
    value = int((np.maximum(0, counts - threshold) ** 2).sum())
    numbers = np.arange(rounds + 1)
    chances = scipy.stats.binom.logpmf(numbers, rounds, share)
    squares = np.maximum(0, numbers - threshold).astype(float) ** 2
    mean = float(np.exp(chances) @ squares)
    variance = float(np.exp(chances) @ (squares - mean) ** 2) * population
    tails = laws.chernoff(
        value,
        lambda tilt: population * float(scipy.special.logsumexp(chances + tilt * squares)),
        1 / math.sqrt(max(1.0, variance)),
    )
    return _EXCESS.test(tails[1], threshold, value, population * mean)


def _overlaps(rule: Rule, log: ParticipationLog) -> list[LogTest]:
    """Overlaps with the cohort one turn before, and with all recent ones."""
    lag = rule.groups
    if lag >= log.rounds:
        return []
    value = laws.shared(log, lag)
    sizes = laws.pairs(log, lag, lambda t: _group_size(rule, t))
    clients = np.array([_group_size(rule, t) for t in range(log.rounds)])
    return [
        _OVERLAP.test(
            laws.two_sided(laws.tails(value, sizes)),
            lag,
            value,
            laws.mean(sizes),
        ),
        earlier_cohorts.test(log, earlier_cohorts.Draws(clients, first=lag, step=lag)),
    ]


def _seen(log: ParticipationLog, tails: tuple[float, float], mean: float) -> LogTest:
    return _SEEN.test(laws.two_sided(tails), log.by_client().clients.size, mean)


def _seen_given_sizes(rule: Rule, log: ParticipationLog) -> LogTest:
    population, sizes = rule.population, log.cohort_sizes
    tails = laws.seen_tails(log.by_client().clients.size, population, sizes)
    mean = population * (1 - float(np.prod(1 - sizes / population)))
    return _seen(log, tails, mean)
