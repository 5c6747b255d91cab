"""What the tests of a log cannot see, for the sizes of a plan."""

import math

from scipy import optimize

from dpfl.accounting.evidence import independent_rounds, laws, overlaps, refutation, separated
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.sampling import separated as separated_lib

_LEVEL = refutation.FALSE_ALARM / refutation.MOST_TESTS

_DEPENDENCE = (
    'Clients whose rounds depend on each other, such as a few that always come together, are '
    'noticed only if they are a large part of the population.'
)

_SECRET = 'No log shows that the cohorts, and the random numbers that chose them, were secret.'


def unseen(plan: PrivacyPlan, rounds: int) -> list[str]:
    """Departures from the plan's sampling that a log does not show, in at most four sentences.

    Args:
      plan: with or without sampling; without it there is nothing to see.
      rounds: number of rounds of the log.
    """
    if plan.sampling == 'none' or not rounds:
        return []
    if plan.sampling in ('balls_in_bins', 'random_allocation'):
        own = _of_slots(plan, rounds)
    elif plan.sampling == 'without_replacement':
        own = _of_population(plan, rounds)
    else:
        own = [_of_rate(plan, least_excess(plan, rounds))]
    if plan.sampling not in ('balls_in_bins', 'random_allocation'):
        own.append(_of_client(twice_as_often(plan, rounds)))
    return [*own, _DEPENDENCE, _SECRET]


def least_excess(plan: PrivacyPlan, rounds: int) -> float | None:
    """Smallest factor on the rate that the number of participations shows with power 1/2.

    It is for samplings with random cohort sizes, and a factor on the participations themselves with
    'b_min_sep'. None if no rate leads to enough participations.
    """
    parts = _participations(plan, rounds)
    level = _LEVEL / 2 if plan.sampling == separated_lib.SAMPLING else _LEVEL
    value = laws.critical(level, parts)
    # The median of a sum is within about one participation of the mean.
    mean = sum(times * law.mean for law, times in parts)
    if plan.sampling == 'truncated_poisson':
        return _capped_excess(plan, value / rounds)
    most = sum(times * int(law.values[-1]) for law, times in parts)
    return value / mean if value <= most else None


def _capped_excess(plan: PrivacyPlan, size: float) -> float | None:
    """Factor on the rate of 'truncated_poisson' for cohorts of mean `size`."""
    rate = independent_rounds.rate_of(plan)

    def excess(factor: float) -> float:
        return independent_rounds.capped_cohort(plan, min(1.0, factor * rate)).mean - size

    return optimize.brentq(excess, 1.0, 1 / rate) if excess(1 / rate) > 0 else None


def twice_as_often(plan: PrivacyPlan, rounds: int) -> float:
    """Probability that a client with twice the planned rate is seen as the busiest client."""
    if plan.sampling == separated_lib.SAMPLING:
        rate, apart, population = _separated(plan)
        of_one = separated.rounds_of_one(rate, rounds, apart)
        value = laws.first_at_most(
            _LEVEL, lambda k: laws.union(population, of_one.upper(k)), rounds + 1
        )
        return separated.rounds_of_one(min(1.0, 2 * rate), rounds, apart).upper(value)
    rate, turns = independent_rounds.rate_of(plan), independent_rounds.turns_of(plan, rounds)
    most = max(count for _, count in turns)
    value = laws.first_at_most(
        _LEVEL, lambda k: independent_rounds.busiest_tail(k, rate, turns), most + 1
    )
    return float(laws.binomial_upper(value, most, min(1.0, 2 * rate)))


def _participations(plan: PrivacyPlan, rounds: int) -> list[tuple[laws.Law, int]]:
    """Independent laws whose sum is the number of participations, and how often each occurs."""
    if plan.sampling == separated_lib.SAMPLING:
        rate, apart, population = _separated(plan)
        return [(separated.rounds_of_one(rate, rounds, apart), population)]
    rate = independent_rounds.rate_of(plan)
    if plan.sampling == 'truncated_poisson':
        return [(independent_rounds.capped_cohort(plan, rate), rounds)]
    turns = independent_rounds.turns_of(plan, rounds)
    drawn = sum(clients * count * times for (clients, count), times in turns.items())
    return [(laws.binomial(drawn, rate), 1)]


def _separated(plan: PrivacyPlan) -> tuple[float, int, int]:
    """Probability of a free client, separation and population of 'b_min_sep'."""
    population, apart = plan.population or 0, plan.groups or 1
    return separated_lib.probability(population, plan.clients_per_round, apart), apart, population


def _of_rate(plan: PrivacyPlan, factor: float | None) -> str:
    if factor is None:
        return 'The number of participations shows no excess of the rate.'
    what = (
        f'{_up(factor)} times as many participations as planned are'
        if plan.sampling == separated_lib.SAMPLING
        else f'A rate of {_up(factor)} times the planned one is'
    )
    return f'{what} noticed in about half of all runs, and a smaller excess less often.'


def _of_client(power: float) -> str:
    often = 'practically never' if power < 1e-3 else 'sometimes'
    chance = f'probability {power:.2g}' if power > 1e-12 else 'probability below 1e-12'
    return f'One client with twice the planned rate is noticed {often} ({chance}).'


def _of_population(plan: PrivacyPlan, rounds: int) -> list[str]:
    """From how small a part of the population cohorts can be drawn."""
    population, size = plan.population or 0, plan.clients_per_round
    if rounds < 2 or size == population:
        return []
    pairs = {(population, size, size): rounds - 1}
    value = laws.first_at_most(
        _LEVEL / 2, lambda k: overlaps.tails(k, pairs)[1], (rounds - 1) * size + 1
    )
    part = min(1.0, (rounds - 1) * size / value * size / population)
    return [
        f'Cohorts from {math.floor(1000 * part) / 10:g} % of the population are '
        'noticed in about half of all runs, by the clients that successive cohorts share, and '
        'cohorts from a larger part of it less often.'
    ]


def _of_slots(plan: PrivacyPlan, rounds: int) -> list[str]:
    """How unequal the choice of slots can be, and what one client can choose."""
    population, groups = plan.population or 0, plan.groups or 1
    is_allocation = plan.sampling == 'random_allocation'
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
