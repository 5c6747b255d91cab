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

from dpfl.accounting.evidence import laws, slot_pairs, structure
from dpfl.accounting.evidence.log_test import LogTest
from dpfl.participation import ParticipationLog


def balls_in_bins(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Tests of 'balls_in_bins'."""
    bins = _pass(log, 0, groups)
    clients = np.sort(np.concatenate(bins))
    impossible = (
        structure.turns(log, groups)
        or _everyone(log, population, groups)
        or _same_bins(log, groups)
    )
    if impossible:
        return impossible
    slots = _slots(clients, bins)
    neighbours = slot_pairs.Pairs()
    neighbours.add(slots[:-1], slots[1:], len(bins))
    return [
        *_size_tests(log.cohort_sizes[:groups], population, groups),
        neighbours.test('bins of clients 1 apart', len(bins)),
        slot_pairs.any_distance(slots, len(bins), groups),
        *_clients_of_part(log, population, groups),
    ]


def random_allocation(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Tests of 'random_allocation'."""
    impossible = _second_rounds(log, groups) or _everyone(log, population, groups)
    if impossible:
        return impossible
    next_epoch, next_client = slot_pairs.Pairs(), slot_pairs.Pairs()
    first = _pass(log, 0, groups)
    clients = np.sort(np.concatenate(first))
    earlier, repeats = _slots(clients, first), np.zeros(clients.size, np.int32)
    next_client.add(earlier[:-1], earlier[1:], len(first))
    any_distance = slot_pairs.any_distance(earlier, len(first), groups)
    starts = range(groups, log.rounds, groups)
    bets = slot_pairs.EarlierEpochs(clients.size, 1 + len(starts), groups)
    bets.add(earlier, len(first))
    for start in starts:
        epoch = _pass(log, start, groups)
        slots = _slots(clients, epoch)
        repeats += next_epoch.add(earlier, slots, len(epoch))
        bets.add(slots, len(epoch))
        if len(epoch) == groups:
            next_client.add(slots[:-1], slots[1:], groups)
        earlier = slots
    often, turns = int(repeats.max(initial=0)), len(starts)
    neighbours = next_client.test('slots of neighbouring clients', len(first))
    nearest = min(neighbours, any_distance, key=lambda test: test.p_value)
    return [
        *_size_tests(log.cohort_sizes, population, groups),
        *_clients_of_part(log, population, groups),
        next_epoch.test('slots of a client in successive epochs', groups),
        bets.test(),
        dataclasses.replace(
            nearest, name='slots of clients by distance', p_value=laws.union(2, nearest.p_value)
        ),
        LogTest(
            'client most often in the same slot',
            laws.union(population, float(laws.binomial_upper(often, turns, 1 / groups))),
            f'A client kept its slot for the next epoch {often} of {turns} times; '
            f'the planned sampling has {turns / groups:.4g} on average.',
        ),
    ]


def _pass(log: ParticipationLog, first: int, groups: int) -> list[np.ndarray]:
    """The cohorts of a pass as far as the log goes."""
    return [log.cohort(t) for t in range(first, min(first + groups, log.rounds))]


def _same_bins(log: ParticipationLog, groups: int) -> list[LogTest]:
    """Finds fault with a round that has other clients than the same bin had before."""
    for t in range(groups, log.rounds):
        if not np.array_equal(log.cohort(t), log.cohort(t - groups)):
            words = f'Rounds {t - groups} and {t} have different clients; they are the same bin.'
            return [structure.impossible('clients of a bin', words)]
    return []


def _second_rounds(log: ParticipationLog, groups: int) -> list[LogTest]:
    """Finds fault with a client in two rounds of one epoch."""
    by_client = log.by_client()
    epochs = by_client.rounds // groups
    is_same = np.diff(epochs) == 0
    is_same[by_client.offsets[1:-1] - 1] = False  # From one client to the next.
    again = np.flatnonzero(is_same)
    if not again.size:
        return []
    client = np.searchsorted(by_client.offsets, again[0], side='right') - 1
    words = (
        f'Client {by_client.clients[client]} took part in rounds {by_client.rounds[again[0]]} '
        f'and {by_client.rounds[again[0] + 1]}, of the same epoch of {groups} rounds.'
    )
    return [structure.impossible('rounds of an epoch', words)]


def _everyone(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Finds fault with a whole pass in which not every client took part."""
    whole = log.rounds // groups
    totals = log.cohort_sizes[: whole * groups].reshape(whole, groups).sum(axis=1)
    others = np.flatnonzero(totals != population)
    if not others.size:
        return []
    first = others[0]
    words = (
        f'{totals[first]} clients took part in the {groups} rounds from {first * groups} on; '
        f'each of the {population} clients does in the planned sampling.'
    )
    return [structure.impossible('clients of a pass', words)]


def _clients_of_part(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Both sides of the law of the clients of a last pass that is cut off.

    Each client has one of its first slots with probability rounds / groups.
    """
    rounds = log.rounds % groups
    if not rounds:
        return []
    clients = int(log.cohort_sizes[-rounds:].sum())
    law = clients, population, rounds / groups
    return [
        LogTest(
            'clients of the last pass',
            laws.two_sided((float(laws.binomial_lower(*law)), float(laws.binomial_upper(*law)))),
            f'{clients} clients took part in the last {rounds} rounds; '
            f'the planned sampling has {population * rounds / groups:.6g} on average.',
        )
    ]


def _slots(clients: np.ndarray, cohorts: list[np.ndarray]) -> np.ndarray:
    """The slot of each client in a pass, int32 [clients]; -1 for those without one.

    Args:
      clients: increasing.
      cohorts: of the pass.
    """
    slots = np.full(clients.size, -1, np.int32)
    for slot, cohort in enumerate(cohorts):
        slots[np.searchsorted(clients, cohort)] = slot
    return slots


def _size_tests(sizes: np.ndarray, population: int, groups: int) -> list[LogTest]:
    """Tests of the sizes of the cohorts of successive passes, int64 [rounds]."""
    share, mean = 1 / groups, f'the planned sampling has {population / groups:.6g} on average.'
    largest, smallest = int(sizes.max()), int(sizes.min())
    deviation = max(groups * largest - population, population - groups * smallest)
    whole, rest = divmod(sizes.size, groups)
    equal = _within(deviation, groups, population, groups) ** whole
    upper = float(laws.binomial_upper(largest, population, share))
    lower = float(laws.binomial_lower(smallest, population, share))
    return [
        LogTest(
            'largest cohort',
            laws.union(sizes.size, upper),
            f'The largest cohort has {largest} clients; {mean}',
        ),
        LogTest(
            'smallest cohort',
            laws.union(sizes.size, lower),
            f'The smallest cohort has {smallest} clients; {mean}',
        ),
        LogTest(
            'cohorts of too equal sizes',
            equal * _within(deviation, rest, population, groups),
            f'All {sizes.size} cohorts have {smallest} to {largest} clients; {mean}',
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
