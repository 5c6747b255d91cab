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

from dpfl.accounting.evidence import laws, refutation, slot_pairs
from dpfl.accounting.evidence.refutation import LogTest, Statistic
from dpfl.participation import ParticipationLog

_MEAN = 'the planned sampling has {:.6g} on average.'
_SAME_BIN = Statistic(
    'same_bin',
    'clients of a bin',
    'Rounds {} and {} have different clients; they are the same bin.',
)
_SAME_EPOCH = Statistic(
    'same_epoch',
    'rounds of an epoch',
    'Client {} took part in rounds {} and {}, of the same epoch of {} rounds.',
)
_WHOLE_PASS = Statistic(
    'whole_pass',
    'clients of a pass',
    '{} clients took part in the {} rounds from {} on; '
    'each of the {} clients does in the planned sampling.',
)
_LAST_PASS = Statistic(
    'last_pass',
    'clients of the last pass',
    '{} clients took part in the last {} rounds; ' + _MEAN,
)
_LARGEST = Statistic('largest', 'largest cohort', 'The largest cohort has {} clients; ' + _MEAN)
_SMALLEST = Statistic('smallest', 'smallest cohort', 'The smallest cohort has {} clients; ' + _MEAN)
_EQUAL_SIZES = Statistic(
    'equal_sizes',
    'cohorts of too equal sizes',
    'All {} cohorts have {} to {} clients; ' + _MEAN,
)
_NEIGHBOURS = Statistic('neighbours', 'bins of clients 1 apart', slot_pairs.SHARED)
_NEXT_EPOCH = Statistic('next_epoch', 'slots of a client in successive epochs', slot_pairs.SHARED)
_NEIGHBOUR_SLOTS = Statistic('neighbour_slots', 'slots of clients by distance', slot_pairs.SHARED)
_SLOT_DISTANCES = dataclasses.replace(
    slot_pairs.ANY_DISTANCE, key='by_distance', name=_NEIGHBOUR_SLOTS.name
)
_KEPT_SLOT = Statistic(
    'kept_slot',
    'client most often in the same slot',
    'A client kept its slot for the next epoch {} of {} times; '
    'the planned sampling has {:.4g} on average.',
)
STATISTICS = (
    refutation.TURNS,
    _SAME_BIN,
    _SAME_EPOCH,
    _WHOLE_PASS,
    _LAST_PASS,
    _LARGEST,
    _SMALLEST,
    _EQUAL_SIZES,
    _NEIGHBOURS,
    slot_pairs.ANY_DISTANCE,
    _NEXT_EPOCH,
    slot_pairs.EARLIER_EPOCHS,
    _NEIGHBOUR_SLOTS,
    _SLOT_DISTANCES,
    _KEPT_SLOT,
)


def balls_in_bins(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Tests of 'balls_in_bins'."""
    bins = _pass(log, 0, groups)
    clients = np.sort(np.concatenate(bins))
    impossible = (
        refutation.mixed_turns(log, groups)
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
        neighbours.test(_NEIGHBOURS, len(bins)),
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
    nearest = min(
        next_client.test(_NEIGHBOUR_SLOTS, len(first)),
        dataclasses.replace(any_distance, statistic=_SLOT_DISTANCES),
        key=lambda test: test.p_value,
    )
    return [
        *_size_tests(log.cohort_sizes, population, groups),
        *_clients_of_part(log, population, groups),
        next_epoch.test(_NEXT_EPOCH, groups),
        bets.test(),
        dataclasses.replace(nearest, p_value=laws.union(2, nearest.p_value)),
        _KEPT_SLOT.test(
            laws.union(population, float(laws.binomial_upper(often, turns, 1 / groups))),
            often,
            turns,
            turns / groups,
        ),
    ]


def _pass(log: ParticipationLog, first: int, groups: int) -> list[np.ndarray]:
    """The cohorts of a pass as far as the log goes."""
    return [log.cohort(t) for t in range(first, min(first + groups, log.rounds))]


def _same_bins(log: ParticipationLog, groups: int) -> list[LogTest]:
    """Finds fault with a round that has other clients than the same bin had before."""
    for t in range(groups, log.rounds):
        if not np.array_equal(log.cohort(t), log.cohort(t - groups)):
            return [_SAME_BIN.test(0.0, t - groups, t)]
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
    return [
        _SAME_EPOCH.test(
            0.0,
            by_client.clients[client],
            by_client.rounds[again[0]],
            by_client.rounds[again[0] + 1],
            groups,
        )
    ]


def _everyone(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Finds fault with a whole pass in which not every client took part."""
    whole = log.rounds // groups
    totals = log.cohort_sizes[: whole * groups].reshape(whole, groups).sum(axis=1)
    others = np.flatnonzero(totals != population)
    if not others.size:
        return []
    first = others[0]
    return [_WHOLE_PASS.test(0.0, totals[first], groups, first * groups, population)]


def _clients_of_part(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Both sides of the law of the clients of a last pass that is cut off.

    Each client has one of its first slots with probability rounds / groups.
    """
    rounds = log.rounds % groups
    if not rounds:
        return []
    clients = int(log.cohort_sizes[-rounds:].sum())
    return [
        _LAST_PASS.test(
            laws.binomial_two_sided(clients, population, rounds / groups),
            clients,
            rounds,
            population * rounds / groups,
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
    share, mean = 1 / groups, population / groups
    largest, smallest = int(sizes.max()), int(sizes.min())
    deviation = max(groups * largest - population, population - groups * smallest)
    whole, rest = divmod(sizes.size, groups)
    equal = _within(deviation, groups, population, groups) ** whole
    upper = float(laws.binomial_upper(largest, population, share))
    lower = float(laws.binomial_lower(smallest, population, share))
    return [
        _LARGEST.test(laws.union(sizes.size, upper), largest, mean),
        _SMALLEST.test(laws.union(sizes.size, lower), smallest, mean),
        _EQUAL_SIZES.test(
            equal * _within(deviation, rest, population, groups),
            sizes.size,
            smallest,
            largest,
            mean,
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
