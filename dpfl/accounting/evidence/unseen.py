"""What the tests of a log cannot see, for the sizes of a plan."""

import math
from typing import TYPE_CHECKING

import scipy

from dpfl.accounting.evidence import independent_rounds, laws, refutation, separated
from dpfl.accounting.evidence.independent_rounds import Rule

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

_LEVEL = refutation.FALSE_ALARM / refutation.MOST_TESTS

_DEPENDENCE = (
    'Clients whose rounds depend on each other, such as a few that always come together, are '
    'noticed only if they are a large part of the population.'
)

_SECRET = 'No log shows that the cohorts, and the random numbers that chose them, were secret.'


def unseen(plan: 'PrivacyPlan', rounds: int) -> list[str]:
    """Departures from the plan's sampling that a log does not show, in at most four sentences.

    Args:
      plan: with or without sampling; without it there is nothing to see.
      rounds: number of rounds of the log.
    """
    if plan.sampling is None or not rounds:
        return []
    return [*plan.sampling.unseen(plan, rounds), _DEPENDENCE, _SECRET]


def independent_cohorts(rule: Rule, rounds: int) -> list[str]:
    """What tests of independent cohorts of random sizes do not see: too high a rate."""
    return [
        _of_rate('A rate of {} times the planned one is', least_excess(rule, rounds)),
        _of_client(twice_as_often(rule, rounds)),
    ]


def separated_cohorts(
    population: int, clients_per_round: int, apart: int, rounds: int
) -> list[str]:
    """What tests of 'b_min_sep' do not see."""
    rate = separated.probability(population, clients_per_round, apart)
    of_one = separated.rounds_of_one(rate, rounds, apart)
    most = laws.first_at_most(_LEVEL, lambda k: laws.union(population, of_one.upper(k)), rounds + 1)
    power = separated.rounds_of_one(min(1.0, 2 * rate), rounds, apart).upper(most)
    excess = _excess([(of_one, population)], _LEVEL / 2)
    return [_of_rate('{} times as many participations as planned are', excess), _of_client(power)]


def least_excess(rule: Rule, rounds: int) -> float | None:
    """Smallest factor on the rate that the number of participations shows with power 1/2.

    None if no rate leads to enough participations.
    """
    if rule.cap < rule.population:
        parts = [(independent_rounds.capped_cohort(rule, rule.rate), rounds)]
        size = laws.critical(_LEVEL, parts) / rounds

        def excess(factor: float) -> float:
            rate = min(1.0, factor * rule.rate)
            return independent_rounds.capped_cohort(rule, rate).mean - size

        most = 1 / rule.rate
        return scipy.optimize.brentq(excess, 1.0, most) if excess(most) > 0 else None
    turns = independent_rounds.turns_of(rule, rounds)
    drawn = sum(clients * count * times for (clients, count), times in turns.items())
    return _excess([(laws.binomial(drawn, rule.rate), 1)], _LEVEL)


def _excess(parts: list[tuple[laws.Law, int]], level: float) -> float | None:
    """Factor on the mean of a sum of (law, number of times) that a test at a level notices."""
    value = laws.critical(level, parts)
    # The median of a sum is within about one participation of the mean.
    mean = sum(times * law.mean for law, times in parts)
    most = sum(times * int(law.values[-1]) for law, times in parts)
    return value / mean if value <= most else None


def twice_as_often(rule: Rule, rounds: int) -> float:
    """Probability that a client with twice the planned rate is seen as the busiest client."""
    rate, turns = rule.rate, independent_rounds.turns_of(rule, rounds)
    most = max(count for _, count in turns)
    value = laws.first_at_most(
        _LEVEL, lambda k: independent_rounds.busiest_tail(k, rate, turns), most + 1
    )
    return float(laws.binomial_upper(value, most, min(1.0, 2 * rate)))


def _of_rate(what: str, factor: float | None) -> str:
    if factor is None:
        return 'The number of participations shows no excess of the rate.'
    return (
        f'{what.format(_up(factor))} noticed in about half of all runs, and a smaller excess less '
        'often.'
    )


def _of_client(power: float) -> str:
    often = 'practically never' if power < 1e-3 else 'sometimes'
    chance = f'probability {power:.2g}' if power > 1e-12 else 'probability below 1e-12'
    return f'One client with twice the planned rate is noticed {often} ({chance}).'


def fixed_sizes(rule: Rule, rounds: int) -> list[str]:
    """What tests of samples without replacement do not see: samples of a part of the population."""
    population, size, of_client = rule.population, rule.cohort, twice_as_often(rule, rounds)
    if rounds < 2 or size == population:
        return [_of_client(of_client)]
    pairs = {(population, size, size): rounds - 1}
    value = laws.first_at_most(
        _LEVEL / 2, lambda k: laws.tails(k, pairs)[1], (rounds - 1) * size + 1
    )
    part = min(1.0, (rounds - 1) * size / value * size / population)
    return [
        f'Cohorts from {math.floor(1000 * part) / 10:g} % of the population are '
        'noticed in about half of all runs, by the clients that successive cohorts share, and '
        'cohorts from a larger part of it less often.',
        _of_client(of_client),
    ]


def slots(population: int, groups: int, rounds: int, *, is_allocation: bool) -> list[str]:
    """What tests of bins do not see: an unequal choice of slots, and what one client chooses."""
    cohorts = rounds if is_allocation else min(rounds, groups)
    value = laws.first_at_most(
        _LEVEL,
        lambda k: laws.union(cohorts, float(laws.binomial_upper(k, population, 1 / groups))),
        population + 1,
    )
    name = 'round of an epoch' if is_allocation else 'bin'
    balance = (
        f'A {name} that clients choose with probability {_up(value / population)} instead of '
        f'{1 / groups:.4g} is noticed in about half of all runs, and a smaller excess less often.'
        if value <= population
        else f'The sizes of the cohorts do not show how often a {name} is chosen.'
    )
    if not is_allocation:
        return [balance, 'No log shows that one client chose its bin at random.']
    turns = -(-rounds // groups) - 1
    chance = laws.union(population, float(laws.binomial_upper(turns, turns, 1 / groups)))
    seen = 'is noticed' if chance <= _LEVEL else 'is not noticed'
    return [balance, f'One client that keeps its slot in every epoch {seen}.']


def _up(value: float) -> str:
    """A factor with four digits after the point, rounded up."""
    return f'{math.ceil(value * 1e4) / 1e4:g}'
