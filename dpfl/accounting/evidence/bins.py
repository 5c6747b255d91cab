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

For one distance of ranks these are the pairs (i, i + distance);
several distances are joined by the union bound.

With random allocation, given all earlier epochs, the number of clients whose slot is that of an
earlier epoch, of their own or of the client before, is binomial. So the product over the epochs of
exp(x count) / E exp(x count) is a nonnegative martingale with mean 1, for each x, and so is the
mean over several x and over how many epochs are between both ([Ville39]).
"""

import dataclasses
import math

import numpy as np
import scipy

from dpfl.accounting.evidence import laws, refutation
from dpfl.accounting.evidence.refutation import LogTest, Statistic
from dpfl.participation import ParticipationLog

_MEAN = 'the planned sampling has {:.6g} on average.'
_SHARED = '{} of {} pairs share a slot; ' + _MEAN
_ANY_DISTANCE = Statistic(
    'any_distance',
    'slots of clients at any distance',
    '{} of {} pairs of clients {} apart share a slot; ' + _MEAN,
)
_EARLIER_EPOCHS = Statistic(
    'earlier_epochs',
    'slots of earlier epochs',
    '{} of {} choices were the slot that the client, or the one before it, had in one of '
    'the {} epochs before; ' + _MEAN,
)

# Most multiplications for the pairs at all distances, or comparisons at a few.
_BUDGET = 3 * 10**8

# Most earlier epochs that an epoch is compared with, the least, and most comparisons between them.
_WINDOW, _LEAST_WINDOW, _COMPARISONS = 64, 4, 5 * 10**8

# Bets multiply the odds of an earlier slot by 1 + scale / (standard deviation of their number).
_SCALES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
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
_NEIGHBOURS = Statistic('neighbours', 'bins of clients 1 apart', _SHARED)
_NEXT_EPOCH = Statistic('next_epoch', 'slots of a client in successive epochs', _SHARED)
_NEIGHBOUR_SLOTS = Statistic('neighbour_slots', 'slots of clients by distance', _SHARED)
_SLOT_DISTANCES = dataclasses.replace(_ANY_DISTANCE, key='by_distance', name=_NEIGHBOUR_SLOTS.name)
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
    _ANY_DISTANCE,
    _NEXT_EPOCH,
    _EARLIER_EPOCHS,
    _NEIGHBOUR_SLOTS,
    _SLOT_DISTANCES,
    _KEPT_SLOT,
)


@dataclasses.dataclass
class Pairs:
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

    def test(self, statistic: Statistic, options: int) -> LogTest:
        """Both sides of the law Bin(pairs, 1 / options); the statistic has the words `_SHARED`."""
        p_value = laws.binomial_two_sided(self.same, self.pairs, 1 / options)
        return statistic.test(p_value, self.same, self.pairs, self.pairs / options)


def any_distance(slots: np.ndarray, options: int, groups: int) -> LogTest:
    """Clients in one slot at the distance where this is least likely.

    Args:
      slots: of the clients of one pass in the order of their ids, int32 [clients].
      options: number of slots of the pass that the log holds.
      groups: number of slots of a whole pass.
    """
    clients = slots.size
    if clients < 2:
        return _ANY_DISTANCE.test(1.0, 0, 0, 1, 0.0)
    if options * clients * math.log2(2 * clients) <= _BUDGET:
        distances = np.arange(1, clients // 2 + 1)
        same = _same_at_all(slots, options)[distances]
    else:
        few = np.arange(1, 1 + max(1, _BUDGET // clients))
        distances = np.union1d(few, [options, groups])
        distances = distances[distances < clients]
        same = np.array([(slots[d:] == slots[:-d]).sum() for d in distances.tolist()])
    law = same, clients - distances, 1 / options
    p_values = 2 * np.minimum(laws.binomial_lower(*law), laws.binomial_upper(*law))
    first = int(np.argmin(p_values))
    pairs = clients - distances[first]
    return _ANY_DISTANCE.test(
        laws.union(distances.size, float(p_values[first])),
        same[first],
        pairs,
        distances[first],
        pairs / options,
    )


def _same_at_all(slots: np.ndarray, options: int) -> np.ndarray:
    """Number of pairs in one slot at each distance, int64 [clients].

    It is the sum of the autocorrelations of the slots' indicators. The rounding errors of the
    transforms are far below 1/2.
    """
    size = scipy.fft.next_fast_len(2 * slots.size, real=True)
    power = np.zeros(size // 2 + 1)
    for slot in range(options):
        spectrum = scipy.fft.rfft((slots == slot).astype(float), size)
        power += spectrum.real**2 + spectrum.imag**2
    return np.rint(scipy.fft.irfft(power, size)[: slots.size]).astype(np.int64)


class EarlierEpochs:
    """Bets on slots of earlier epochs.

    Args:
      clients: number of clients.
      epochs: number of epochs of the log, of which the last may be cut off.
      groups: number of slots of an epoch.
    """

    def __init__(self, clients: int, epochs: int, groups: int):
        window = max(_LEAST_WINDOW, _COMPARISONS // max(1, clients * epochs))
        self._window = min(_WINDOW, epochs - 1, window)
        self._groups = groups
        self._earlier: list[np.ndarray] = []
        self._wealth = np.zeros((2 * len(_SCALES), 2, max(1, self._window)))
        self._logs = [0.0]
        self._same = self._pairs = 0

    def add(self, slots: np.ndarray, options: int) -> None:
        """Bets on an epoch.

        Args:
          slots: of all clients, int32 [clients]; -1 for those without one.
          options: number of slots of the epoch that the log holds.
        """
        chance = 1 / self._groups
        for ago, earlier in enumerate(self._earlier):
            for shift in (0, 1):
                pairs = Pairs()
                pairs.add(earlier[: earlier.size - shift], slots[shift:], options)
                deviation = math.sqrt(pairs.pairs * chance * (1 - chance))
                if deviation:  # Bets on Bin(pairs, chance), with both signs of each scale.
                    tilts = np.log1p(np.array(_SCALES) / deviation)
                    tilts = np.concatenate([tilts, -tilts])
                    moments = pairs.pairs * np.log1p(chance * np.expm1(tilts))
                    self._wealth[:, shift, ago] += tilts * pairs.same - moments
                self._same, self._pairs = self._same + pairs.same, self._pairs + pairs.pairs
        self._logs.append(float(np.logaddexp.reduce(self._wealth, axis=None)))
        self._logs[-1] -= math.log(self._wealth.size)
        self._earlier = [slots, *self._earlier][: self._window]

    def test(self) -> LogTest:
        """The test of all bets so far."""
        return _EARLIER_EPOCHS.test(
            laws.ville(np.array(self._logs)),
            self._same,
            self._pairs,
            self._window,
            self._pairs / self._groups,
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
    neighbours = Pairs()
    neighbours.add(slots[:-1], slots[1:], len(bins))
    return [
        *_size_tests(log.cohort_sizes[:groups], population, groups),
        neighbours.test(_NEIGHBOURS, len(bins)),
        any_distance(slots, len(bins), groups),
        *_clients_of_part(log, population, groups),
    ]


def random_allocation(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Tests of 'random_allocation'."""
    impossible = _second_rounds(log, groups) or _everyone(log, population, groups)
    if impossible:
        return impossible
    next_epoch, next_client = Pairs(), Pairs()
    first = _pass(log, 0, groups)
    clients = np.sort(np.concatenate(first))
    earlier, repeats = _slots(clients, first), np.zeros(clients.size, np.int32)
    next_client.add(earlier[:-1], earlier[1:], len(first))
    by_distance = any_distance(earlier, len(first), groups)
    starts = range(groups, log.rounds, groups)
    bets = EarlierEpochs(clients.size, 1 + len(starts), groups)
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
        dataclasses.replace(by_distance, statistic=_SLOT_DISTANCES),
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
    client, _ = by_client.of_listing(again[0])
    return [_SAME_EPOCH.test(0.0, client, *by_client.rounds[again[0] : again[0] + 2], groups)]


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
    cells = scipy.stats.poisson.pmf(np.arange(low, high + 1), mean)
    mass = float(cells.sum())
    seen = laws.repeated(laws.Law(low, cells / mass), slots)
    rest = scipy.stats.poisson.pmf(population - seen.values, mean * (groups - slots))
    joint = float(seen.cells @ rest) + seen.lost
    # The logarithms of the probabilities are sums of terms of up to N log N.
    rounding = 1 + 2.0**-48 * population * math.log(population + 1)
    given = float(scipy.stats.poisson.pmf(population, population))
    return min(1.0, math.exp(slots * math.log(mass)) * joint / given * rounding)
