"""Exact tests of a log against balls in bins and random allocation.

Both samplings divide the rounds into passes of `groups` rounds. In a pass every client picks one
slot 0 .. groups - 1 uniformly, and takes part in the round of its slot. With balls in bins a client
keeps its slot in all passes; with random allocation it picks another one for each.

Three facts make the laws exact.

- Sizes: the cohorts of a pass are multinomial, so each of them is Bin(population, 1 / groups).
- Pairs: let pairs of choices form a graph without cycles, such as those of the clients i and
  i + lag in one pass, or of one client in two successive passes. Go through each tree from its
  root: every further choice is uniform whatever the choices before it, so it is in the slot of its
  parent with probability 1 / groups, independently of all other pairs. Hence the number of pairs in
  the same slot is binomial. Clients are numbered by the order of their ids among the clients that
  the log holds. The law holds for any ids, because the order does not depend on the choices.
- A log may end within a pass. If it holds no whole pass, only clients with one of its first slots
  are seen; given which ones, their slots are uniform among these. If the last of several passes is
  cut off, root each tree in the last whole pass: whoever had a slot in it that the cut-off pass
  reached is in the same slot again with probability 1 / groups.
"""

import dataclasses
import math

import numpy as np
from scipy import stats

from dpfl.accounting.evidence import laws
from dpfl.accounting.evidence.log_test import LogTest
from dpfl.accounting.plan import PrivacyPlan
from dpfl.participation import ParticipationLog


def balls_in_bins(plan: PrivacyPlan, log: ParticipationLog) -> list[LogTest]:
    """Tests of a log with at least one round."""
    population, groups = _sizes(plan)
    bins = _pass(log, 0, groups)
    clients = np.unique(np.concatenate(bins))
    changed = sum(
        not np.array_equal(np.unique(log.cohort(t)), bins[t % groups])
        for t in range(groups, log.rounds)
    )
    sizes = np.array([[cohort.size for cohort in bins]])
    slots = _slots(clients, bins)
    tests = [
        _one_slot(int(sizes.sum()) - clients.size),
        _everyone([clients.size], population, is_whole=len(bins) == groups),
        _structure(
            'same bins in every pass',
            not changed,
            f'{changed} of {log.rounds} rounds have other clients than the round {groups} before.',
        ),
        *_size_tests([sizes[0]], population, groups),
    ]
    for lag in sorted({1, len(bins)}):
        pairs = _Pairs()
        pairs.add(slots[:-lag], slots[lag:], len(bins))
        tests.append(pairs.test(f'bins of clients {lag} apart', len(bins)))
    return tests


def random_allocation(plan: PrivacyPlan, log: ParticipationLog) -> list[LogTest]:
    """Tests of a log with at least one round."""
    population, groups = _sizes(plan)
    next_epoch, next_client, next_both = _Pairs(), _Pairs(), _Pairs()
    clients = np.unique(np.concatenate(_pass(log, 0, groups)))
    earlier, repeats = np.zeros(0, np.int32), np.zeros(clients.size, np.int32)
    sizes, totals, surplus = [], [], 0
    for first in range(0, log.rounds, groups):
        cohorts = _pass(log, first, groups)
        slots = _slots(clients, cohorts)
        if first:
            repeats += next_epoch.add(earlier, slots, len(cohorts))
            next_both.add(earlier[:-1], slots[1:], len(cohorts))
        if not first or len(cohorts) == groups:
            next_client.add(slots[:-1], slots[1:], len(cohorts))
        earlier = slots
        sizes.append(np.array([cohort.size for cohort in cohorts]))
        totals.append(np.unique(np.concatenate(cohorts)).size)
        surplus += int(sizes[-1].sum()) - totals[-1]
    options = min(groups, log.rounds)
    often, turns = int(repeats.max(initial=0)), len(sizes) - 1
    return [
        _one_slot(surplus),
        _everyone(totals, population, is_whole=len(sizes[-1]) == groups),
        *_size_tests(sizes, population, groups),
        next_epoch.test('slots of a client in successive epochs', groups),
        next_client.test('slots of neighbouring clients', options),
        next_both.test('slots of neighbouring clients in successive epochs', groups),
        LogTest(
            'client most often in the same slot',
            laws.union(population, float(laws.binomial_upper(often, turns, 1 / groups))),
            f'A client was in the slot of the epoch before {often} times of {turns}; '
            f'a client is {turns / groups:.4g} times on average.',
        ),
    ]


def _sizes(plan: PrivacyPlan) -> tuple[int, int]:
    assert plan.population is not None and plan.groups is not None  # As the plan has checked.
    return plan.population, plan.groups


def _pass(log: ParticipationLog, first: int, groups: int) -> list[np.ndarray]:
    """The cohorts of a pass without repeated listings, increasing, as far as the log goes."""
    last = min(first + groups, log.rounds)
    return [np.unique(log.cohort(t)) for t in range(first, last)]


def _slots(clients: np.ndarray, cohorts: list[np.ndarray]) -> np.ndarray:
    """The slot of each client in a pass, int32 [clients]; -1 for those without one.

    Args:
      clients: increasing.
      cohorts: of the pass; other clients are left out.
    """
    slots = np.full(clients.size + 1, -1, np.int32)
    padded = np.append(clients, -1)
    for slot, cohort in enumerate(cohorts):
        places = np.searchsorted(clients, cohort)
        slots[places[padded[places] == cohort]] = slot
    return slots[:-1]


@dataclasses.dataclass
class _Pairs:
    """Pairs of choices that form a graph without cycles.

    Attributes:
      pairs: number of pairs that could be in the same slot of the log.
      same: number of them that were.
    """

    pairs: int = 0
    same: int = 0

    def add(self, parents: np.ndarray, children: np.ndarray, slots: int) -> np.ndarray:
        """Adds pairs; whether each of them is in the same slot, bool [pairs].

        Args:
          parents: slots of the choices nearer to the roots.
          children: slots of the others.
          slots: number of slots that the log holds of the children's pass.
        """
        same = (parents == children) & (parents >= 0)
        self.pairs += int(((parents >= 0) & (parents < slots)).sum())
        self.same += int(same.sum())
        return same

    def test(self, name: str, options: int) -> LogTest:
        """Both sides of the law Bin(pairs, 1 / options)."""
        law = self.same, self.pairs, 1 / options
        return LogTest(
            name,
            laws.two_sided((float(laws.binomial_lower(*law)), float(laws.binomial_upper(*law)))),
            f'{self.same} of {self.pairs} pairs share a slot; '
            f'independent choices lead to {self.pairs / options:.4g} on average.',
        )


def _structure(name: str, holds: bool, words: str) -> LogTest:
    return LogTest(name, 1.0 if holds else 0.0, words)


def _one_slot(surplus: int) -> LogTest:
    return _structure(
        'one round a pass',
        surplus == 0,
        f'Clients took part in a second round of the same pass {surplus} times; '
        'the sampling gives them one.',
    )


def _everyone(totals: list[int], population: int, is_whole: bool) -> LogTest:
    """Tests the number of clients of each pass; `is_whole` tells whether the last is complete."""
    whole = totals if is_whole else totals[:-1]
    others = [n for n in whole if n != population] + [n for n in totals if n > population]
    return _structure(
        'clients of a pass',
        not others,
        f'{(others or totals)[0]} clients took part in a pass; the population is {population}.',
    )


def _size_tests(sizes: list[np.ndarray], population: int, groups: int) -> list[LogTest]:
    """Tests of the sizes of the cohorts of each pass."""
    every = np.concatenate(sizes)
    share, mean = 1 / groups, f'the sampling leads to {population / groups:.6g} on average.'
    largest, smallest = int(every.max()), int(every.min())
    deviation = max(groups * largest - population, population - groups * smallest)
    upper = float(laws.binomial_upper(largest, population, share))
    lower = float(laws.binomial_lower(smallest, population, share))
    return [
        LogTest(
            'largest cohort',
            laws.union(every.size, upper),
            f'The largest cohort has {largest} clients; {mean}',
        ),
        LogTest(
            'smallest cohort',
            laws.union(every.size, lower),
            f'The smallest cohort has {smallest} clients; {mean}',
        ),
        LogTest(
            'cohorts of too equal sizes',
            math.prod(_within(deviation, each.size, population, groups) for each in sizes),
            f'All {every.size} cohorts have {smallest} to {largest} clients; {mean}',
        ),
    ]


def _within(deviation: int, slots: int, population: int, groups: int) -> float:
    """Upper bound on P(|groups X_i - population| <= deviation for the first `slots` cohorts X_i).

    The cohorts of a pass are independent Poisson variables given that their sum is the population.
    The bound is 1 if the probability is above 1/2.
    """
    low = max(0, -((deviation - population) // groups))
    high = (population + deviation) // groups
    share, mean = 1 / groups, population / groups
    outside = laws.binomial_upper(high + 1, population, share)
    outside += laws.binomial_lower(low - 1, population, share)
    if slots * outside < 0.5:
        return 1.0
    cells = stats.poisson.pmf(np.arange(low, high + 1), mean)
    mass = float(cells.sum())
    seen = laws.repeated(laws.Law(low, cells / mass), slots)
    values = seen.start + np.arange(seen.cells.size)
    rest = stats.poisson.pmf(population - values, mean * (groups - slots))
    joint = float(seen.cells @ rest) + seen.lost
    # The logarithms of the probabilities are sums of terms of up to N log N.
    rounding = 1 + 2.0**-48 * population * math.log(population + 1)
    given = float(stats.poisson.pmf(population, population))
    return min(1.0, math.exp(slots * math.log(mass)) * joint / given * rounding)
